"""The authorizer against an oracle written from DESIGN §3 that shares no code with it."""

import functools
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from published import CLUSTER, OAUTH, bot, client, suspension, tool
from suites import examples
from toolcrib.authorizer import Action, Policy, Reason, decide, next_change
from toolcrib.identity import Identity, ScopesPolicy
from toolcrib.resources.bindings import SubjectKind
from toolcrib.resources.tools import ScopeMatch, ToolState
from toolcrib.snapshot import Snapshot
from toolcrib.view import view_of
from toolcrib.wire.publish import Publish, PublishedBinding, PublishedSubject, PublishedTool, Revision

pytestmark = pytest.mark.guarantee

# ---- the oracle -------------------------------------------------------------------------------------------------


def fits(pattern: str, text: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(fits(pattern[1:], text[i:]) for i in range(len(text) + 1))
    return bool(text) and pattern[0] in ("?", text[0]) and fits(pattern[1:], text[1:])


def named(patterns: Iterable[str], t: PublishedTool) -> bool:
    for pattern in patterns:
        where, colon, name = pattern.lower().partition(":")
        if not colon:
            if fits(where, t.name.lower()):
                return True
            continue
        if t.server is None or not fits(name, t.name.lower()):
            continue
        server = t.server.lower()
        if "/" in where:
            server = f"{t.namespace}/{server}"
        if fits(where, server):
            return True
    return False


def is_subject(s: PublishedSubject, who: Identity) -> bool:
    if s.kind in (SubjectKind.SERVICE_ACCOUNT, SubjectKind.AGENT):
        return who.cluster and who.subject == f"system:serviceaccount:{s.namespace}:{s.name}"
    if s.issuer != who.issuer:
        return False
    if s.kind is SubjectKind.OAUTH_CLIENT:
        return who.client is not None and s.client_id == who.client
    if s.kind is SubjectKind.USER:
        return who.user is not None and not who.cluster and s.name == who.user
    return s.name in who.groups


def allowed(who: Identity, t: PublishedTool, bindings: Iterable[PublishedBinding], now: float) -> bool:
    if now >= who.expires_at or (who.not_before is not None and now + 30 < who.not_before):
        return False
    if t.state is ToolState.DISABLED or t.quarantined:
        return False
    mine = [b for b in bindings if any(is_subject(s, who) for s in b.subjects)]
    if any(b.suspends for b in mine):
        return False
    territory = [b for b in mine if b.namespaces is None or t.namespace in b.namespaces]
    if any(named(b.deny, t) or set(b.deny_scopes) & set(t.scopes) for b in territory):
        return False
    token = set(who.scopes or ())
    usable = {s for s in t.scopes if not s.lower().startswith("registry:")}
    if who.policy is ScopesPolicy.TOKEN:
        granted = usable & token
    else:
        granted = set()
        for b in territory:
            if b.servers is not None and (
                t.server is None
                or not {t.server.lower(), f"{t.namespace}/{t.server.lower()}"}
                & {s.lower() for s in b.servers}
            ):
                continue
            if b.allow is not None and not named(b.allow, t):
                continue
            if b.not_before is not None and now < b.not_before:
                continue
            if b.expires_at is not None and now >= b.expires_at:
                continue
            granted |= usable & set(b.scopes)
        if who.policy is ScopesPolicy.INTERSECTION:
            granted &= token
    if t.scope_match is ScopeMatch.ALL:
        return bool(t.scopes) and granted == set(t.scopes)
    return bool(granted)


# ---- random worlds ----------------------------------------------------------------------------------------------


def rarely(strategy: st.SearchStrategy[Any], usually: Any) -> st.SearchStrategy[Any]:
    """Worlds in which everything is narrowed grant nothing and prove nothing."""
    always = st.just(usually)
    return st.integers(0, 3).flatmap(lambda n: strategy if n == 3 else always)


NAMESPACES = st.sampled_from(["team-a", "team-b"])
SERVERS = st.sampled_from(["github", "GitHub", "web"])
SCOPES = st.sampled_from(["read", "write", "use"])
NAMES = st.sampled_from(["read_file", "Read_File", "delete_repo", "a.b", "grep"])
PATTERNS = st.sampled_from(
    ["*", "read_*", "READ_FILE", "delete_repo", "web:*", "github:delete_repo", "git*:?ead*", "*:*", "nothing", "a?b"]
)  # fmt: skip
CLUSTER_PATTERNS = st.sampled_from(["*", "read_*", "team-a/github:*", "*/web:*", "team-?/*:delete_*", "grep"])


SUBJECTS = st.sampled_from(
    [
        PublishedSubject(kind=SubjectKind.GROUP, issuer=CLUSTER, name="system:serviceaccounts"),
        PublishedSubject(kind=SubjectKind.SERVICE_ACCOUNT, namespace="team-a", name="bot"),
        PublishedSubject(kind=SubjectKind.AGENT, namespace="team-b", name="bot"),
        PublishedSubject(kind=SubjectKind.OAUTH_CLIENT, issuer=OAUTH, client_id="cli"),
        PublishedSubject(kind=SubjectKind.OAUTH_CLIENT, issuer="https://other.example", client_id="cli"),
        PublishedSubject(kind=SubjectKind.USER, issuer=OAUTH, name="cli"),
        PublishedSubject(kind=SubjectKind.USER, issuer=CLUSTER, name="system:serviceaccount:team-a:bot"),
        PublishedSubject(kind=SubjectKind.GROUP, issuer=CLUSTER, name="system:serviceaccounts:team-a"),
        PublishedSubject(kind=SubjectKind.GROUP, issuer=OAUTH, name="ops"),
        PublishedSubject(kind=SubjectKind.SERVICE_ACCOUNT, namespace="team-a", name="somebody-else"),
    ]
)
# made once: a strategy that is made while drawing is examined anew for each draw, which takes most of a test's time
HOMES, TOOL_SERVERS = st.none() | NAMESPACES, st.none() | SERVERS
NARROWED = {
    home: {
        "allow": rarely(st.lists(patterns, max_size=2).map(tuple), None),
        "deny": rarely(st.lists(patterns, max_size=1).map(tuple), ()),
        "servers": rarely(st.lists(servers, max_size=2).map(tuple), None),
    }
    for home, patterns, servers in (
        (True, PATTERNS, SERVERS),
        (False, CLUSTER_PATTERNS, st.builds("{}/{}".format, NAMESPACES, SERVERS)),
    )
}
SOMEWHERE = st.none() | st.lists(NAMESPACES, max_size=2, unique=True).map(tuple)
SOME_SUBJECTS = st.lists(SUBJECTS, min_size=2, max_size=5).map(tuple)
SOME_SCOPES = st.lists(SCOPES, min_size=1, max_size=3, unique=True).map(tuple)
DENIED_SCOPES = rarely(st.lists(SCOPES, max_size=1).map(tuple), ())
MOMENTS = rarely(st.integers(0, 8).map(float), None)
MATCHES, STATES = (
    rarely(st.just(ScopeMatch.ALL), ScopeMatch.ANY),
    rarely(st.sampled_from(ToolState), ToolState.ACTIVE),
)
QUARANTINED = rarely(st.just(True), False)
SOME = st.integers(1, 5)
STOPPED = rarely(
    st.tuples(st.sampled_from(["team-a", "team-b"]), SUBJECTS, st.booleans()).map(
        # without its deny, which only replicas of earlier versions need
        lambda drawn: [suspension("bot", drawn[0], drawn[1], deny=("*",) if drawn[2] else ())]
    ),
    [],
)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[PublishedTool], list[PublishedBinding]]:
    tools = [
        tool(
            f"{draw(NAMESPACES)}/tool-{i}",
            name=draw(NAMES),
            server=draw(TOOL_SERVERS),
            scopes=draw(SOME_SCOPES),
            scope_match=draw(MATCHES),
            state=draw(STATES),
            quarantined=draw(QUARANTINED),
        )
        for i in range(draw(SOME))
    ]
    bindings = [draw(one_binding(i)) for i in range(draw(SOME))]
    bindings += draw(STOPPED)
    return tools, bindings


@functools.cache
@st.composite
def one_binding(draw: st.DrawFn, i: int) -> PublishedBinding:
    home = draw(HOMES)
    narrowed = NARROWED[home is not None]
    return PublishedBinding(
        uid=f"uid-{i}",
        kind="AgentScopeBinding" if home else "ClusterAgentScopeBinding",
        namespace=home,
        name=f"b{i}",
        subjects=draw(SOME_SUBJECTS),
        namespaces=(home,) if home else draw(SOMEWHERE),
        scopes=draw(SOME_SCOPES),
        deny_scopes=draw(DENIED_SCOPES),
        not_before=draw(MOMENTS),
        expires_at=draw(MOMENTS),
        allow=draw(narrowed["allow"]),
        deny=draw(narrowed["deny"]),
        servers=draw(narrowed["servers"]),
    )


DATES: dict[str, Any] = {
    "expires_at": rarely(st.integers(4, 9).map(float), 4e9),
    "not_before": rarely(st.integers(20, 40).map(float), None),
}
CARRIED = st.none() | st.frozensets(SCOPES)
IDENTITIES = st.one_of(
    st.builds(bot, st.sampled_from(["team-a", "team-b"]), **DATES),
    st.builds(
        bot,
        policy=st.just(ScopesPolicy.TOKEN),
        scopes=CARRIED,
        user=st.just("system:serviceaccount:team-a:bot"),
    ),
    st.builds(client, scopes=CARRIED, groups=st.sampled_from([frozenset(), frozenset({"ops"})]), **DATES),
    st.builds(client, scopes=CARRIED, policy=st.sampled_from([ScopesPolicy.TOKEN, ScopesPolicy.BINDINGS])),
    st.builds(client, st.just("nobody"), user=st.none(), client=st.none()),
)
CLOCK = st.integers(0, 9).map(float)


def snapshot_of(tools: Iterable[PublishedTool], bindings: Iterable[PublishedBinding]) -> Snapshot:
    return Snapshot().apply(
        Publish(to=Revision(epoch=1, seq=1), tools=tuple(tools), bindings=tuple(bindings))
    )


@given(worlds(), IDENTITIES, CLOCK, st.sampled_from(Action))
@examples(600)
def test_decide_agrees_with_the_oracle_and_views_hold_exactly_what_it_allows(
    world: tuple[list[PublishedTool], list[PublishedBinding]], who: Identity, now: float, action: Action
) -> None:
    tools, bindings = world
    policy = Policy.compile(bindings)

    wanted = {t.tool_id for t in tools if allowed(who, t, bindings, now)}

    assert {t.tool_id for t in tools if decide(who, t, action, policy, now)} == wanted
    assert set(view_of(who, snapshot_of(tools, bindings), now).tools) == wanted


@given(worlds(), IDENTITIES, CLOCK)
@examples(200)
def test_an_allowing_decision_names_a_binding_of_this_identity_that_holds_now(
    world: tuple[list[PublishedTool], list[PublishedBinding]], who: Identity, now: float
) -> None:
    tools, bindings = world

    for t in tools:
        found = decide(who, t, Action.CALL, Policy.compile(bindings), now)
        if who.policy is ScopesPolicy.TOKEN or not found:
            continue
        assert (found.reason, bool(found.binding)) == (Reason.GRANTED, True)
        assert found.binding is not None
        assert any(is_subject(s, who) for s in found.binding.subjects)
        if t.scope_match is ScopeMatch.ANY:
            assert allowed(who, t, [found.binding], now)
            better = [b for b in bindings if allowed(who, t, [b], now)]
            first = min(better, key=lambda b: (b.namespace is not None, b.namespace or "", b.name))
            assert found.binding == first


@given(worlds(), IDENTITIES, CLOCK, one_binding(9))
@examples(200)
def test_a_binding_of_one_namespace_changes_nothing_in_another(
    world: tuple[list[PublishedTool], list[PublishedBinding]],
    who: Identity,
    now: float,
    added: PublishedBinding,
) -> None:
    tools, bindings = world
    before, after = Policy.compile(bindings), Policy.compile([*bindings, added])

    for t in tools:
        if added.namespaces is not None and t.namespace not in added.namespaces:
            assert decide(who, t, Action.CALL, before, now) == decide(who, t, Action.CALL, after, now)


@given(worlds(), IDENTITIES, CLOCK, CLOCK)
@examples(200)
def test_time_alone_adds_a_tool_only_by_a_start_and_changes_nothing_before_the_announced_moment(
    world: tuple[list[PublishedTool], list[PublishedBinding]], who: Identity, one: float, other: float
) -> None:
    tools, bindings = world
    early, late = min(one, other), max(one, other)
    snapshot = snapshot_of(tools, bindings)
    started = any(b.not_before is not None and early < b.not_before <= late for b in bindings)
    young = who.not_before is not None and early < who.not_before - 30 <= late

    before, after = view_of(who, snapshot, early), view_of(who, snapshot, late)

    if not started and not young:
        assert set(after.tools) <= set(before.tools)
    if late < before.valid_until:
        assert after.tools.keys() == before.tools.keys()
        assert after.digest == before.digest


@given(worlds(), IDENTITIES, CLOCK)
@examples(150)
def test_a_decision_holds_until_the_next_change(
    world: tuple[list[PublishedTool], list[PublishedBinding]], who: Identity, now: float
) -> None:
    tools, bindings = world
    policy = Policy.compile(bindings)
    until = next_change(who, policy, now)

    for later in (now, (now + until) / 2, until - 0.001):
        if now <= later < until:
            for t in tools:
                assert bool(decide(who, t, Action.CALL, policy, later)) == bool(
                    decide(who, t, Action.CALL, policy, now)
                )


@given(worlds(), IDENTITIES, CLOCK)
@examples(200)
def test_what_is_denied_is_absent(
    world: tuple[list[PublishedTool], list[PublishedBinding]], who: Identity, now: float
) -> None:
    """Taking away tools that the caller can never reach changes nothing that he is given."""
    tools, bindings = world
    reachable = [
        t
        for t in tools
        if allowed(who, t.model_copy(update={"state": ToolState.ACTIVE, "quarantined": False}), bindings, now)
    ]

    everything = view_of(who, snapshot_of(tools, bindings), now)
    only_his = view_of(who, snapshot_of(reachable, bindings), now)

    assert everything == only_his


@given(worlds(), IDENTITIES, CLOCK)
@examples(200)
def test_every_visible_tool_has_one_name_that_leads_back_to_it(
    world: tuple[list[PublishedTool], list[PublishedBinding]], who: Identity, now: float
) -> None:
    tools, bindings = world

    view = view_of(who, snapshot_of(tools, bindings), now)

    listed = [view.listed_name(tool_id) for tool_id in view.tools]
    assert len(set(listed)) == len(listed) == len(view.names)
    for tool_id, t in view.tools.items():
        assert view.resolve(view.listed_name(tool_id)) == t
        assert view.resolve(tool_id) == t
    assert not set(view.ambiguous) & set(view.names)
