"""Decisions by example: each reason, the order of the rules, and the corners that random worlds seldom reach."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from published import CLUSTER, OAUTH, binding, bot, client, tool
from toolcrib.authorizer import Action, Decision, Policy, Reason, alternatives, concerned, decide, deniers
from toolcrib.identity import Identity, ScopesPolicy
from toolcrib.resources.bindings import SubjectKind
from toolcrib.resources.tools import ScopeMatch, ToolState
from toolcrib.wire.publish import PublishedBinding, PublishedSubject, PublishedTool

pytestmark = pytest.mark.guarantee

CLI = (PublishedSubject(kind=SubjectKind.OAUTH_CLIENT, issuer=OAUTH, client_id="cli"),)
BOTH = tool(scopes=("read", "write"))
ALL = tool(scopes=("read", "write"), scope_match=ScopeMatch.ALL)


def decided(who: Identity | None, what: PublishedTool | None, *bindings: PublishedBinding) -> Decision:
    return decide(who, what, Action.CALL, Policy.compile(bindings), 100.0)


def with_token(*scopes: str, **fields: Any) -> Identity:
    return client(scopes=frozenset(scopes), **fields)


def for_cli(name: str, *scopes: str, **fields: Any) -> PublishedBinding:
    return binding(name, subjects=CLI, scopes=scopes, **fields)


@pytest.mark.parametrize(
    ("who", "what", "bindings", "reason"),
    [
        (None, tool(), [binding()], Reason.NO_IDENTITY),
        (bot(expires_at=100.0), tool(), [binding()], Reason.IDENTITY_EXPIRED),
        (bot(not_before=131.0), tool(), [binding()], Reason.IDENTITY_EXPIRED),
        (bot(), None, [binding()], Reason.UNKNOWN_TOOL),
        (bot(), tool(state=ToolState.DISABLED), [binding()], Reason.TOOL_DISABLED),
        (bot(), tool(quarantined=True), [binding()], Reason.TOOL_QUARANTINED),
        (bot(), tool(quarantined=True, state=ToolState.DISABLED), [binding()], Reason.TOOL_DISABLED),
        (bot(), tool(quarantined=True), [binding(deny=("*",))], Reason.TOOL_QUARANTINED),
        (bot(), tool(), [], Reason.NO_BINDING),
        (bot(name="other"), tool(), [binding()], Reason.NO_BINDING),
        (bot(), tool("team-b/x"), [binding()], Reason.NO_BINDING),
        (bot(), tool(), [binding(servers=("web",))], Reason.NO_BINDING),
        (bot(), tool(), [binding(scopes=("other",))], Reason.SCOPE_NOT_GRANTED),
        (bot(), tool(), [binding(allow=("x",))], Reason.NOT_ALLOWED_BY_NAME),
        (bot(), tool(), [binding(allow=())], Reason.NOT_ALLOWED_BY_NAME),
        (bot(), tool(), [binding(servers=())], Reason.NO_BINDING),
        (bot(), tool(), [binding(scopes=())], Reason.NO_BINDING),
        (bot(), tool(), [binding(namespace=None, namespaces=())], Reason.NO_BINDING),
        (bot(), tool(), [binding(not_before=101.0)], Reason.NOT_VALID_NOW),
        (bot(), tool(), [binding(expires_at=100.0)], Reason.NOT_VALID_NOW),
        (bot(), tool(), [binding(), binding("d", scopes=(), deny=("calc*",))], Reason.DENIED),
        (bot(), tool(), [binding(), binding("d", None, deny=("calculator",))], Reason.DENIED),
        (bot(), tool(), [binding(), binding("d", scopes=(), deny_scopes=("use",))], Reason.DENIED),
        (
            bot(),
            tool(scopes=("use", "vault")),
            [binding(), binding("d", None, deny_scopes=("vault",))],
            Reason.DENIED,
        ),
        (bot(), tool(), [binding(deny_scopes=("use",))], Reason.DENIED),
        (bot(), tool(), [binding(), binding("d", "team-b", deny_scopes=("use",))], Reason.GRANTED),
        (bot(), tool(), [binding(), binding("d", deny_scopes=("Use", "vault"))], Reason.GRANTED),
        (bot(), tool(), [binding()], Reason.GRANTED),
        (bot(), tool(), [binding(not_before=100.0, expires_at=100.5)], Reason.GRANTED),
        (bot(), tool(scopes=()), [binding()], Reason.SCOPE_NOT_GRANTED),
        *(
            (
                client(policy=ScopesPolicy.TOKEN),
                tool(scopes=(), scope_match=match),
                [],
                Reason.SCOPE_NOT_GRANTED,
            )
            for match in ScopeMatch
        ),
    ],
)
def test_the_first_rule_that_says_no_names_itself(
    who: Identity | None, what: PublishedTool | None, bindings: list[PublishedBinding], reason: Reason
) -> None:
    found = decided(who, what, *bindings)

    assert found.reason is reason
    assert found.allowed is (reason is Reason.GRANTED)


DENIALS: dict[str, dict[str, Any]] = {"by name": {"deny": ("*",)}, "by scope": {"deny_scopes": ("use",)}}


@pytest.mark.parametrize("how", DENIALS)
@pytest.mark.parametrize("dates", [{"expires_at": 1.0}, {"not_before": 999.0}])
def test_a_deny_holds_while_its_object_exists_whatever_its_dates(how: str, dates: dict[str, float]) -> None:
    assert decided(bot(), tool(), binding(), binding("d", **DENIALS[how], **dates)).reason is Reason.DENIED


@pytest.mark.parametrize("how", DENIALS)
def test_a_deny_is_not_narrowed_by_servers(how: str) -> None:
    held = binding("d", servers=("web",), **DENIALS[how])

    assert decided(bot(), tool(), binding(), held).reason is Reason.DENIED


@given(st.data())
def test_a_server_of_another_namespace_is_another_server(data: st.DataObject) -> None:
    """Whoever writes Tools in team-b gains nothing by naming a server as team-a's."""
    home = data.draw(st.sampled_from(["team-a", None]))
    of = "" if home else "team-a/"
    ways = [{"allow": (f"{of}github:*",)}, {"allow": (f"{of}git*:*",)}, {"servers": (f"{of}github",)}]
    grant = binding("g", home, **data.draw(st.sampled_from(ways)))
    named = {
        "name": data.draw(st.sampled_from(["x", "calculator"])),
        "server": data.draw(st.sampled_from(["github", "GitHub"])),
    }

    assert decided(bot(), tool("team-a/x", **named), grant)
    assert not decided(bot(), tool("team-b/x", **named), grant)


def test_a_refusal_names_the_entry_that_denies() -> None:
    by_name = binding("d", deny=("nothing", "calc*"), deny_scopes=("use",))
    by_scope = binding("d", deny=("nothing",), deny_scopes=("vault", "use"))

    assert decided(bot(), tool(), by_name).denial == ("deny", "calc*")
    assert decided(bot(), tool(), by_scope).denial == ("denyScopes", "use")
    assert str(decided(bot(), tool(), by_scope).denial) == "tools.denyScopes: use"
    assert decided(bot(), tool(), binding()).denial is None


@given(st.data())
def test_whatever_an_editor_makes_of_a_tool_no_grant_of_the_denied_scope_reaches_it(
    data: st.DataObject,
) -> None:
    """A deny by scope is left only by giving up the scope; name, server and everything else change nothing."""
    names = st.sampled_from(["calculator", "x", "Vault", "a.b"])
    scopes = st.lists(st.sampled_from(["use", "vault", "Vault"]), min_size=1, max_size=3, unique=True)
    held = binding("d", scopes=(), deny_scopes=("vault",))
    made = tool(
        f"team-a/{data.draw(st.sampled_from(['one', 'two']))}",
        name=data.draw(names),
        server=data.draw(st.none() | names),
        scopes=tuple(data.draw(scopes)),
        scope_match=data.draw(st.sampled_from(ScopeMatch)),
    )

    assert not decided(bot(), made, binding(scopes=("vault",)), held)
    if "vault" in made.scopes:
        assert decided(bot(), made, binding(scopes=("use", "vault", "Vault")), held).reason is Reason.DENIED


def test_a_deny_wins_over_a_token_that_needs_no_binding() -> None:
    dev = bot(policy=ScopesPolicy.TOKEN, scopes=frozenset({"use"}))

    assert decided(dev, tool())
    assert decided(dev, tool(), binding("d", scopes=(), deny=("*",))).reason is Reason.DENIED


def test_where_all_scopes_are_needed_and_the_token_alone_decides_it_carries_them_all() -> None:
    def holder(*scopes: str) -> Identity:
        return client(policy=ScopesPolicy.TOKEN, scopes=frozenset(scopes))

    assert decided(holder("read", "write"), ALL)
    assert decided(holder("read"), ALL).reason is Reason.TOKEN_LACKS_SCOPE
    assert decided(holder("read"), BOTH)


@pytest.mark.parametrize("how", DENIALS)
def test_a_deny_of_another_namespace_concerns_no_tool_of_this_one(how: str) -> None:
    elsewhere = Policy.compile([binding("d", "team-b", scopes=(), **DENIALS[how])])

    assert not deniers(elsewhere)(tool())
    assert not concerned(tool(), elsewhere)
    assert deniers(elsewhere)(tool("team-b/x"))
    assert concerned(tool("team-b/x"), elsewhere)


def test_a_deny_for_somebody_else_is_not_mine() -> None:
    assert decided(bot(), tool(), binding(), for_cli("d", deny=("*",)))


def test_where_token_and_bindings_meet_both_must_name_the_same_scope() -> None:
    reads = for_cli("reads", "read")

    assert decided(with_token("read"), BOTH, reads)
    assert decided(with_token("write"), BOTH, reads).reason is Reason.TOKEN_LACKS_SCOPE
    assert decided(with_token(), BOTH, reads).reason is Reason.TOKEN_LACKS_SCOPE
    assert decided(client(scopes=None), BOTH, reads).reason is Reason.TOKEN_LACKS_SCOPE
    assert decided(with_token("write"), BOTH, reads, for_cli("writes", "write"))


def test_a_call_is_charged_to_no_binding_of_a_scope_that_the_token_lacks() -> None:
    reads, writes = for_cli("reads", "read"), for_cli("writes", "write")
    policy = Policy.compile([reads, writes])

    assert alternatives(with_token("read"), BOTH, policy, 100.0) == ((reads,),)
    assert alternatives(with_token("read", "write"), BOTH, policy, 100.0) == ((reads, writes),)


def test_where_all_scopes_are_needed_the_bindings_grant_them_together() -> None:
    reads, writes = for_cli("reads", "read"), for_cli("writes", "write")

    assert decided(with_token("read", "write"), ALL, reads, writes).binding == reads
    assert decided(with_token("read", "write"), ALL, reads).reason is Reason.SCOPE_NOT_GRANTED
    assert decided(with_token("read"), ALL, reads, writes).reason is Reason.TOKEN_LACKS_SCOPE
    over = for_cli("writes", "write", expires_at=1.0)
    assert decided(with_token("read", "write"), ALL, reads, over).reason is Reason.SCOPE_NOT_GRANTED


def test_the_deciding_binding_is_the_first_cluster_wide_one_then_by_namespace_and_name() -> None:
    own = [binding("a"), binding("b")]
    wide = [binding("z", None), binding("y", None)]

    assert decided(bot(), tool(), *own, *wide).binding == wide[1]
    assert decided(bot(), tool(), *reversed(own)).binding == own[0]


def test_a_name_alone_never_makes_a_subject() -> None:
    """The same words from another issuer, or as another kind of subject, are somebody else."""
    same_name = [
        PublishedSubject(kind=SubjectKind.USER, issuer="https://other.example", name="cli"),
        PublishedSubject(kind=SubjectKind.GROUP, issuer=OAUTH, name="cli"),
        PublishedSubject(kind=SubjectKind.SERVICE_ACCOUNT, namespace="team-a", name="cli"),
        PublishedSubject(kind=SubjectKind.OAUTH_CLIENT, issuer=OAUTH, client_id=None, name="cli"),
    ]

    for subject in same_name:
        assert not decided(with_token("use"), tool(), binding(subjects=(subject,)))
    assert decided(with_token("use"), tool(), binding(subjects=CLI))


def test_an_account_of_the_cluster_is_no_user_of_its_issuer() -> None:
    """A binding names it as ServiceAccount or Agent: those alone know of the account's deletion and its namespace."""
    asker = bot(user="system:serviceaccount:team-a:bot")
    named = PublishedSubject(kind=SubjectKind.USER, issuer=CLUSTER, name="system:serviceaccount:team-a:bot")

    assert decided(asker, tool(), binding(subjects=(named,))).reason is Reason.NO_BINDING
    denies = binding("d", scopes=(), deny=("*",), subjects=(named,))
    assert decided(asker, tool(), binding(), denies).reason is Reason.GRANTED
