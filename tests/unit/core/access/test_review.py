"""Access review: its answers are the authorizer's decisions, and every line says which rule and object decided."""

from itertools import product

import pytest

from access_api import ISSUERS, ApiObjects
from access_worlds import CLUSTER_ISSUER, OAUTH, random_world
from published import FAR, account, binding, server, tool
from toolcrib.access import changes as access_changes
from toolcrib.access import subjects
from toolcrib.access.answers import Explanation
from toolcrib.access.changes import changes
from toolcrib.access.review import AccessReview, UnknownTool
from toolcrib.access.subjects import SubjectError, Tokens, Who
from toolcrib.authorizer import Action, Reason, considered, decide
from toolcrib.identity import ScopesPolicy
from toolcrib.resources.bindings import SubjectKind
from toolcrib.resources.tools import ScopeMatch, ToolState
from toolcrib.snapshot import Snapshot
from toolcrib.view import AmbiguousName, view_of
from toolcrib.wire.publish import (
    Publish,
    PublishedAccount,
    PublishedBinding,
    PublishedSubject,
    PublishedTool,
    Revision,
)

NOW = 1_800_000_000.0
TOKENS = Tokens(cluster_issuer=CLUSTER_ISSUER, policies={i.issuer: i.scopes for i in ISSUERS.values()})
BOT = Who(SubjectKind.SERVICE_ACCOUNT, "bot", "team-a")
IDE = Who(SubjectKind.OAUTH_CLIENT, "ide", issuer=OAUTH)


def review(
    tools: list[PublishedTool],
    bindings: list[PublishedBinding],
    *,
    tokens: Tokens = TOKENS,
    action: Action = Action.CALL,
    accounts: tuple[PublishedAccount, ...] | None = None,
    now: float = NOW,
) -> AccessReview:
    step = Publish(
        to=Revision(epoch=1, seq=1), tools=tuple(tools), bindings=tuple(bindings), accounts=accounts
    )
    return AccessReview(Snapshot().apply(step), now, tokens, action, "1.1")


def concluded(found: Explanation) -> tuple[bool, int | None]:
    """What the bindings of an explanation and its steps add up to, by the words of DESIGN §3."""
    verdicts = {s.step: s.verdict for s in found.steps}
    failed = [s for s in verdicts if verdicts[s] == "failed"]
    assert len(failed) <= 1
    assert all((v == "not_reached") == bool(failed and s > failed[0]) for s, v in verdicts.items())
    if verdicts[3] != "not_reached":
        assert (verdicts[3] == "failed") == any(b.verdict == "denies" for b in found.bindings)
    if verdicts[4] == "passed":
        assert any(b.verdict == "grants" for b in found.bindings)
    return not failed, failed[0] if failed else None


def test_an_explanation_ends_in_the_decision_for_every_action() -> None:
    reasons = set()
    carried = [None, frozenset({"read"}), frozenset[str]()]
    for seed in range(105):
        action = list(Action)[seed % len(Action)]
        api = ApiObjects()
        api.apply(random_world(seed).manifests)
        policies = {CLUSTER_ISSUER: ScopesPolicy.BINDINGS, OAUTH: list(ScopesPolicy)[seed % 3]}
        tokens = Tokens(CLUSTER_ISSUER, policies, scopes=carried[seed % 2 + seed % 3 // 2])
        asked = AccessReview(api.snapshot, NOW, tokens, action)
        for who, one in product(asked.subjects(), api.snapshot.tools.values()):
            identity = asked.identity(who)
            wanted = decide(identity, one, action, api.snapshot.policy, NOW)

            found = asked.explain(who, one)

            assert (found.allowed, found.reason) == (wanted.allowed, wanted.reason)
            assert (found.binding and found.binding.uid) == (wanted.binding and wanted.binding.uid)
            assert (found.binding and found.binding.generation) == (
                wanted.binding and wanted.binding.generation
            )
            assert concluded(found) == (wanted.allowed, wanted.reason.step)
            if wanted.allowed:
                assert found.name == view_of(identity, api.snapshot, NOW, action).listed_name(one.tool_id)
            reasons.add(wanted.reason)
    assert reasons >= {
        Reason.GRANTED, Reason.DENIED, Reason.NO_BINDING, Reason.TOOL_DISABLED, Reason.SCOPE_NOT_GRANTED,
        Reason.NOT_VALID_NOW, Reason.NOT_ALLOWED_BY_NAME, Reason.TOKEN_LACKS_SCOPE, Reason.ACCOUNT_GONE,
        Reason.NO_IDENTITY,
    }  # fmt: skip


def test_who_can_names_every_bound_subject_that_may_and_no_other() -> None:
    lines = 0
    for seed in range(100):
        api = ApiObjects()
        api.apply(random_world(seed).manifests)
        asked = AccessReview(api.snapshot, NOW, TOKENS)
        for one in api.snapshot.tools.values():
            wanted = {w.key for w in asked.subjects() if asked.decide(asked.identity(w), one).allowed}

            rows = asked.who_can(one).subjects

            allowed = [subjects.parse(r.who.subject, r.who.issuer).key for r in rows if r.allowed]
            assert len(allowed) == len(set(allowed))
            assert set(allowed) == wanted, seed
            assert all(r.rule and (r.binding or not r.allowed) for r in rows)
            lines += len(rows)
    assert lines > 300


def test_what_can_pages_are_the_whole_list() -> None:
    for seed in range(40):
        api = ApiObjects()
        api.apply(random_world(seed).manifests)
        asked = AccessReview(api.snapshot, NOW, TOKENS)
        for who in asked.subjects():
            whole, found, after = asked.what_can(who, hidden=True), [], ""
            while True:
                page = asked.what_can(who, hidden=True, after=after, limit=2)
                found += page.tools
                if page.next_cursor is None:
                    break
                after = page.next_cursor
            assert tuple(found) == whole.tools
            assert {t.tool_id for t in whole.tools} == set(api.snapshot.tools)
            assert sum(t.allowed for t in whole.tools) == whole.visible


def test_a_line_names_the_rule_the_object_and_its_generation() -> None:
    grant = binding("grant", generation=4, expires_at=FAR)
    deny = binding("no-repos", scopes=(), deny=("delete_*",), generation=2)
    asked = review([tool("team-a/read"), tool("team-a/drop", name="delete_repo")], [grant, deny])

    allowed, denied = asked.what_can(BOT, hidden=True).tools[::-1]

    assert (allowed.binding, allowed.scopes) == (asked.rules.binding(grant), ("use",))
    assert allowed.rule == "AgentScopeBinding team-a/grant (generation 4) grants use"
    assert allowed.until == "2096-10-02T07:06:40Z"
    assert (denied.reason, denied.step, denied.binding) == (Reason.DENIED, 3, asked.rules.binding(deny))
    assert (
        denied.rule == "AgentScopeBinding team-a/no-repos (generation 2) denies it by the pattern 'delete_*'"
    )


def test_a_deny_by_scope_is_named_in_explanations_in_who_can_and_in_the_difference() -> None:
    grant = binding("grant", scopes=("use", "vault"))
    deny = binding("no-vault", scopes=(), deny_scopes=("vault",), generation=2)
    tools = [tool("team-a/read"), tool("team-a/open", scopes=("use", "vault"))]
    before, after = review(tools, [grant]), review(tools, [grant, deny])
    words = "AgentScopeBinding team-a/no-vault (generation 2) denies it by the scope 'vault'"

    told = after.explain(BOT, tools[1])
    (row,) = after.who_can(tools[1]).subjects
    (lost,) = changes(before, after).subjects

    assert (told.reason, told.step, told.rule) == (Reason.DENIED, 3, words)
    assert [b.rule for b in told.bindings if b.verdict == "denies"] == [words]
    assert (row.allowed, row.binding, row.rule) == (False, after.rules.binding(deny), words)
    assert [(t.tool_id, t.change) for t in lost.tools] == [("team-a/open", "lost")]
    assert lost.tools[0].after.rule == words
    passed = next(s for s in after.explain(BOT, tools[0]).steps if s.step == 3)
    assert passed.detail == "1 of 2 binding(s) of this subject deny tools, none of them this one"


def test_who_can_shows_who_is_denied_and_by_which_object() -> None:
    other = PublishedSubject(kind=SubjectKind.AGENT, namespace="team-a", name="other")
    grant = binding("grant", subjects=(account(), other))
    deny = binding("stop", scopes=(), deny=("*",), subjects=(account(),))
    stranger = binding("stranger", scopes=(), deny=("*",), subjects=(account(name="stranger"),))
    asked = review([tool("team-a/read")], [grant, deny, stranger])

    rows = {r.who.subject: r for r in asked.who_can(asked.find("read")).subjects}

    assert set(rows) == {"ServiceAccount/team-a/bot", "Agent/team-a/other"}, "a stranger had nothing to lose"
    assert rows["Agent/team-a/other"].allowed
    found = rows["ServiceAccount/team-a/bot"]
    assert (found.allowed, found.reason, found.binding) == (False, Reason.DENIED, asked.rules.binding(deny))


def test_scopes_of_several_bindings_name_them_all() -> None:
    first, second = binding("first", scopes=("a",)), binding("second", scopes=("b",))
    both = tool("team-a/both", scopes=("a", "b"), scope_match=ScopeMatch.ALL)
    asked = review([both], [first, second])

    (found,) = asked.what_can(BOT).tools

    assert found.binding == asked.rules.binding(first)
    assert found.others == (asked.rules.binding(second),)
    assert found.scopes == ("a", "b")
    assert "together with AgentScopeBinding team-a/second (generation 0)" in found.rule


def test_what_a_token_must_carry_is_said_where_scopes_of_tokens_count() -> None:
    client = PublishedSubject(kind=SubjectKind.OAUTH_CLIENT, issuer=OAUTH, client_id="ide")
    asked = review([tool("team-a/read")], [binding("grant", subjects=(client, account()))])

    answer = asked.what_can(IDE)
    rows = {r.who.subject: r.token_scopes for r in asked.who_can(asked.find("read")).subjects}

    assert answer.assumptions == ("the token carries every scope that its bindings ask for",)
    assert answer.tools[0].token_scopes == ("use",)
    assert rows == {"OAuthClient/ide": ("use",), "ServiceAccount/team-a/bot": ()}
    without = review(
        [tool("team-a/read")], [binding("grant", subjects=(client,))], tokens=Tokens(scopes=frozenset({"x"}))
    )
    assert without.explain(IDE, without.find("read")).reason is Reason.TOKEN_LACKS_SCOPE


def test_each_shortfall_is_told_in_words() -> None:
    rows = [
        binding("elsewhere", namespace=None, namespaces=("team-b",)),
        binding("servers", servers=("github",)),
        binding("names", allow=("other",)),
        binding("scopes", scopes=("other",)),
        binding("over", expires_at=NOW - 1),
        binding("soon", not_before=NOW + 3600),
        binding("only-denies", scopes=(), deny=("other",)),
    ]
    asked = review([tool("team-a/read")], rows)

    told = {
        b.binding.name: (b.verdict, b.reason, b.rule) for b in asked.explain(BOT, asked.find("read")).bindings
    }

    assert {name: (verdict, reason) for name, (verdict, reason, _) in told.items()} == {
        "elsewhere": ("passes", Reason.NO_BINDING),
        "servers": ("passes", Reason.NO_BINDING),
        "names": ("passes", Reason.NOT_ALLOWED_BY_NAME),
        "scopes": ("passes", Reason.SCOPE_NOT_GRANTED),
        "over": ("passes", Reason.NOT_VALID_NOW),
        "soon": ("passes", Reason.NOT_VALID_NOW),
        "only-denies": ("passes", Reason.NO_BINDING),
    }
    for name, words in {
        "elsewhere": "reaches only tools of team-b",
        "servers": "reaches only tools of the servers github",
        "names": "allows only other",
        "scopes": "grants other, none of the tool's scopes",
        "over": "expired at 2027-01-15T07:59:59Z",
        "soon": "begins at 2027-01-15T09:00:00Z",
        "only-denies": "grants nothing: it only denies",
    }.items():
        assert words in told[name][2]


def test_an_account_that_is_gone_sees_nothing_and_one_that_is_there_is_taken_to_be_it() -> None:
    known = (PublishedAccount(namespace="team-a", name="bot", uid="u1"),)
    tools, grants = [tool("team-a/read")], [binding("grant")]

    there = review(tools, grants, accounts=known)
    gone = review(tools, grants, accounts=())

    assert there.what_can(BOT).visible == 1
    assert there.explain(BOT, tools[0]).assumptions == ()
    assert (gone.what_can(BOT).visible, gone.explain(BOT, tools[0]).reason) == (0, Reason.ACCOUNT_GONE)
    assert gone.who_can(tools[0]).subjects[0].reason is Reason.ACCOUNT_GONE
    assert review(tools, grants).what_can(BOT).assumptions == ("the ServiceAccount team-a/bot exists",)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("team-a/bot", BOT),
        ("ServiceAccount/team-a/bot", BOT),
        ("system:serviceaccount:team-a:bot", BOT),
        ("Agent/team-a/bot", Who(SubjectKind.AGENT, "bot", "team-a")),
        ("OAuthClient/ide", IDE),
        (
            "OAuthClient/https://ide.example/x",
            Who(SubjectKind.OAUTH_CLIENT, "https://ide.example/x", issuer=OAUTH),
        ),
        ("User/alice@example.org", Who(SubjectKind.USER, "alice@example.org", issuer=OAUTH)),
        ("Group/dev", Who(SubjectKind.GROUP, "dev", issuer=OAUTH)),
        ("user/alice", Who(SubjectKind.SERVICE_ACCOUNT, "alice", "user")),
    ],
)
def test_subjects_are_read_as_people_write_them(text: str, wanted: Who) -> None:
    found = subjects.parse(text, OAUTH)

    assert found == wanted
    assert subjects.parse(str(found), OAUTH) == wanted


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "write NAMESPACE/NAME or ServiceAccount/NAMESPACE/NAME"),
        ("bot", "write NAMESPACE/NAME or ServiceAccount/NAMESPACE/NAME"),
        ("a/b/c", "write NAMESPACE/NAME or ServiceAccount/NAMESPACE/NAME"),
        ("serviceaccount/team-a/bot", "write the kind as ServiceAccount"),
        ("Team_A/bot", "not a namespace and a name"),
        ("User/", "names nobody"),
        ("system:serviceaccount:team-a", "write NAMESPACE/NAME or ServiceAccount/NAMESPACE/NAME"),
        ("x" * 600, "not a subject"),
    ],
)
def test_what_is_no_subject_is_refused_with_the_way_to_write_one(text: str, hint: str) -> None:
    with pytest.raises(SubjectError, match=hint):
        subjects.parse(text)


@pytest.mark.parametrize(
    ("who", "groups"),
    [
        (Who(SubjectKind.USER, "alice", issuer=OAUTH), {"dev"}),
        (Who(SubjectKind.GROUP, "ops", issuer=OAUTH), {"dev", "ops"}),
        (IDE, {"dev"}),
    ],
)
def test_groups_that_belong_to_the_cluster_are_in_no_token_of_another_issuer(
    who: Who, groups: set[str]
) -> None:
    claimed = ("dev", "system:masters", "system:serviceaccounts", "system:serviceaccounts:team-a")
    named = [PublishedSubject(kind=SubjectKind.GROUP, issuer=OAUTH, name=g) for g in claimed[1:]]
    tokens = Tokens(TOKENS.cluster_issuer, TOKENS.policies, groups=frozenset(claimed))
    asked = review([tool("team-a/a")], [binding("masters", subjects=tuple(named))], tokens=tokens)

    identity = asked.identity(who)

    assert identity is not None
    assert identity.groups == groups
    assert asked.what_can(who).tools == ()


@pytest.mark.parametrize("kind", [SubjectKind.USER, SubjectKind.GROUP, SubjectKind.OAUTH_CLIENT])
def test_no_token_of_another_issuer_has_a_name_of_the_cluster(kind: SubjectKind) -> None:
    assert subjects.identity_of(Who(kind, "system:masters", issuer=OAUTH), Snapshot(), TOKENS) is None


def test_an_issuer_is_taken_from_the_bindings_where_only_one_is_meant() -> None:
    def named(issuer: str) -> PublishedSubject:
        return PublishedSubject(kind=SubjectKind.USER, issuer=issuer, name="alice")

    one = review([], [binding("one", subjects=(named(OAUTH),))])
    two = review([], [binding("two", subjects=(named(OAUTH), named("https://other.example")))])
    alice = subjects.parse("User/alice")

    assert subjects.settled(alice, one.snapshot, Tokens()).issuer == OAUTH
    with pytest.raises(
        SubjectError, match=r"bindings name it with https://login\.example, https://other\.example"
    ):
        subjects.settled(alice, two.snapshot, Tokens())
    with pytest.raises(SubjectError, match="no binding names it"):
        subjects.settled(subjects.parse("User/bob"), two.snapshot, Tokens())


def test_a_name_that_bindings_know_with_another_issuer_is_not_called_misspelt() -> None:
    named = PublishedSubject(kind=SubjectKind.GROUP, issuer=OAUTH, name="devs")
    asked = review([], [binding("one", subjects=(named,))])

    def noted(name: str, issuer: str) -> tuple[str, ...]:
        return asked.what_can(Who(SubjectKind.GROUP, name, issuer=issuer)).notes

    assert noted("devs", "https://typo.example") == (
        f"no binding names Group/devs of the issuer https://typo.example: bindings name it with the issuer {OAUTH}",
    )
    assert noted("devz", OAUTH) == ("no binding names Group/devz; did you mean devs?",)


def test_an_explanation_names_whose_token_is_valid_also_for_a_group_of_accounts() -> None:
    group = Who(SubjectKind.GROUP, "system:serviceaccounts:team-a", issuer=CLUSTER_ISSUER)
    asked = review([tool("team-a/a")], [])

    first = asked.explain(group, asked.find("team-a/a")).steps[0]

    assert first.detail == "a valid token of Group/system:serviceaccounts:team-a"


def test_a_tool_is_found_by_id_by_name_and_by_the_name_that_the_subject_lists() -> None:
    tools = [
        tool("team-a/x", name="read_file"),
        tool("team-b/x", name="read_file"),
        tool("team-b/y", name="grep"),
    ]
    grants = [binding("everywhere", namespace=None)]
    asked = review(tools, grants)

    assert asked.find("team-b/x") is asked.snapshot.tools["team-b/x"]
    assert asked.find("grep").tool_id == "team-b/y"
    assert asked.find("read_file", BOT).tool_id == "team-a/x", "the subject's own namespace"
    with pytest.raises(AmbiguousName):
        asked.find("read_file")
    named = review(tools, [binding(namespace="team-b"), *grants])
    elsewhere = Who(SubjectKind.SERVICE_ACCOUNT, "bot", "team-c")
    assert named.find("read_file", BOT).tool_id == "team-a/x", "a binding's namespace comes second"
    with pytest.raises(AmbiguousName):
        named.find("read_file", elsewhere)
    with pytest.raises(UnknownTool) as error:
        asked.find("read_fil")
    assert error.value.close == ("read_file",)


def test_a_diff_tells_what_is_gained_lost_and_decided_by_another_object() -> None:
    tools = [tool("team-a/read"), tool("team-a/grep"), tool("team-a/off", state=ToolState.DISABLED)]
    before = review(tools, [binding("one"), binding("away", subjects=(account(name="idle"),))])
    after = review(
        [*tools, tool("team-a/new")],
        [
            binding("a-first"),
            binding("one", generation=2),
            binding("no-grep", scopes=(), deny=("grep",)),
            binding("away", subjects=(account(name="idle"),), generation=7),
        ],
    )

    answer = changes(before, after, [BOT])

    (bot,) = answer.subjects
    assert (bot.gained, bot.lost, bot.changed) == (1, 1, 1)
    rows = {t.tool_id: t for t in bot.tools}
    assert rows["team-a/new"].before.reason is Reason.UNKNOWN_TOOL
    assert rows["team-a/grep"].after.reason is Reason.DENIED
    changed = rows["team-a/read"]
    assert (changed.before.binding, changed.after.binding) == (
        before.rules.binding(before.snapshot.bindings["uid:team-a/one"]),
        after.rules.binding(after.snapshot.bindings["uid:team-a/a-first"]),
    )
    # whoever the new tool reaches is affected; an edit that changes no grant is no news
    assert [s.who.subject for s in changes(before, before).subjects] == []
    assert {s.who.subject for s in changes(before, after).subjects} == {
        "ServiceAccount/team-a/bot", "ServiceAccount/team-a/idle",
    }  # fmt: skip


def test_pages_of_a_diff_end_at_so_many_subjects_or_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    tools = [tool("team-a/read"), tool("team-a/grep")]
    crowd = tuple(account(name=f"bot-{i}") for i in range(7))
    before, after = review(tools, []), review(tools, [binding("all", subjects=crowd)])
    whole = changes(before, after).subjects

    def walked(limit: int) -> list[int]:
        sizes, found, start = [], [], ""
        while True:
            page = changes(before, after, start=start, limit=limit)
            sizes.append(len(page.subjects))
            found += page.subjects
            if page.next_cursor is None:
                assert tuple(found) == whole
                return sizes
            start = page.next_cursor

    assert walked(3) == [3, 3, 1]
    monkeypatch.setattr(access_changes, "_LINES", 4)
    assert walked(100) == [2, 2, 2, 1]


def test_what_each_binding_is_said_to_do_adds_up_to_the_decision() -> None:
    """`considered` shows parts; put together by hand they are what `reach` answers, where bindings decide."""
    for seed in range(100):
        api = ApiObjects()
        api.apply(random_world(seed).manifests)
        asked = AccessReview(api.snapshot, NOW, TOKENS)
        for who, one in product(asked.subjects(), api.snapshot.tools.values()):
            identity = asked.identity(who)
            if identity is None or identity.policy is not ScopesPolicy.BINDINGS or not one.active:
                continue
            parts = considered(identity, one, api.snapshot.policy, NOW)
            given = {scope for p in parts for scope in p.grants}
            enough = given == set(one.scopes) if one.scope_match is ScopeMatch.ALL else bool(given)
            wanted = enough and not any(p.denies for p in parts)

            assert asked.decide(identity, one).allowed is wanted


def test_resources_and_prompts_of_servers_are_reviewed_as_tools_are() -> None:
    grants = binding(allow=("docs:@resources",))
    snapshot = Snapshot().apply(Publish(to=Revision(epoch=1, seq=1), servers=(server(),), bindings=(grants,)))
    asked = AccessReview(snapshot, NOW, TOKENS)
    (who,) = asked.subjects()
    assert [(row.tool_id, row.allowed) for row in asked.what_can(who, hidden=True).tools] == [
        ("team-a/docs:@prompts", False),
        ("team-a/docs:@resources", True),
    ]
    assert asked.what_can(who).visible == 1
    resources = asked.find("team-a/docs:@resources")
    assert [row.allowed for row in asked.who_can(resources).subjects] == [True]
