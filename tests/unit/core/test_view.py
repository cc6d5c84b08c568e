"""What an identity sees, and the names it knows its tools by."""

import math
import re
from collections import Counter
from typing import Any

import pytest

from published import binding, bot, client, tool
from toolcrib.authorizer import Action, Policy, decide, granted_scopes, has_power
from toolcrib.authorizer.bindings import CompiledBinding
from toolcrib.identity import Identity, ScopesPolicy
from toolcrib.names import TOOL_NAME
from toolcrib.resources.tools import ToolState
from toolcrib.snapshot import Snapshot
from toolcrib.view import EMPTY, AmbiguousName, View, ViewMaker, view_of, view_work
from toolcrib.wire.publish import Publish, PublishedBinding, PublishedTool, Revision

EVERYWHERE = binding("everywhere", None)


def snapshot(*items: PublishedTool | PublishedBinding) -> Snapshot:
    return Snapshot().apply(
        Publish(
            to=Revision(epoch=1, seq=1),
            tools=tuple(i for i in items if isinstance(i, PublishedTool)),
            bindings=tuple(i for i in items if isinstance(i, PublishedBinding)),
        )
    )


def seen(who: Identity | None, *items: PublishedTool | PublishedBinding, now: float = 0.0) -> View:
    return view_of(who, snapshot(*items), now)


def test_a_bare_name_means_the_tool_of_ones_own_namespace_first() -> None:
    view = seen(bot(), tool("team-a/calc"), tool("team-b/calc"), EVERYWHERE, binding(namespace="team-b"))

    assert view.names == {"calc": "team-a/calc", "team-b/calc": "team-b/calc"}
    assert view.ambiguous == {}


@pytest.mark.parametrize(
    "naming",
    [binding(namespace="team-b"), binding("list", None, namespaces=("team-b",), lists_namespaces=True)],
)
def test_else_it_means_the_only_one_from_namespaces_that_bindings_name(naming: PublishedBinding) -> None:
    tools = [tool("team-b/calc"), tool("team-c/calc"), tool("team-d/calc")]

    assert seen(bot(), *tools, EVERYWHERE, naming).resolve("calc") == tools[0]


@pytest.mark.parametrize(
    ("who", "naming"),
    [
        (bot(), binding("selected", None, namespaces=("team-b",))),
        (bot(), binding(namespace="team-b", not_before=10.0)),
        (bot(), binding(namespace="team-b", expires_at=0.0)),
        (bot(), binding(namespace="team-b", scopes=(), deny=("nothing",))),
        (bot(), binding(namespace="team-b", scopes=("registry:write",))),
        (bot(), binding(namespace="team-b", subjects=())),
        (bot(policy=ScopesPolicy.INTERSECTION, scopes=frozenset({"use"})), binding(namespace="team-b", scopes=("x",))),
        (bot(policy=ScopesPolicy.TOKEN, scopes=frozenset({"use"})), binding(namespace="team-b")),
    ],
)  # fmt: skip
def test_a_binding_that_selects_or_grants_nothing_now_names_no_namespace(
    who: Identity, naming: PublishedBinding
) -> None:
    view = seen(who, tool("team-b/calc"), tool("team-c/calc"), EVERYWHERE, naming)

    assert set(view.ambiguous) == {"calc"}


def test_a_foreign_tool_never_blocks_a_name_when_it_is_the_only_one_visible() -> None:
    only_b = binding(namespace="team-b")

    view = seen(bot(), tool("team-a/calc"), tool("team-b/calc"), only_b)

    assert view.names == {"calc": "team-b/calc"}


def test_a_name_that_foreign_tools_share_is_ambiguous_and_names_the_visible_ones() -> None:
    view = seen(bot(), tool("team-b/calc"), tool("team-c/calc"), EVERYWHERE)

    assert view.names == {"team-b/calc": "team-b/calc", "team-c/calc": "team-c/calc"}
    with pytest.raises(AmbiguousName) as raised:
        view.resolve("calc")
    assert raised.value.tool_ids == ("team-b/calc", "team-c/calc")


def test_a_tool_of_a_server_is_meant_by_server_and_name_too() -> None:
    read = tool("team-b/read", server="files")

    view = seen(bot(), read, tool("team-c/read", server="web"), tool("team-d/read"), EVERYWHERE)

    assert view.resolve("files:read") == read
    assert [
        view.resolve(name) for name in ("files:", ":read", "none:read", "files:Read", "Files:read", ":")
    ] == [None] * 6


@pytest.mark.parametrize("state", [ToolState.ACTIVE, ToolState.DISABLED])
def test_servers_of_one_name_in_two_namespaces_share_the_names_of_their_tools(state: ToolState) -> None:
    """Even where only one of the tools is visible: else calls would go to another as soon as the first is disabled."""
    other = tool("team-c/read", server="files", state=state)

    view = seen(bot(), tool("team-b/read", server="files"), other, EVERYWHERE)

    with pytest.raises(AmbiguousName) as raised:
        view.resolve("files:read")
    assert raised.value.tool_ids == ("team-b/read", "team-c/read")[: 1 + (state is ToolState.ACTIVE)]


def test_a_disabled_tool_keeps_its_name_for_itself() -> None:
    off = tool("team-a/calc", state=ToolState.DISABLED)

    view = seen(bot(), off, tool("team-b/calc"), EVERYWHERE)

    assert view.resolve("calc") is None
    assert view.names == {"team-b/calc": "team-b/calc"}


def test_a_deprecated_tool_stays_visible() -> None:
    assert seen(bot(), tool(state=ToolState.DEPRECATED), EVERYWHERE).names


def test_several_tools_of_one_name_in_ones_own_namespace_leave_it_to_none_and_not_to_a_foreign_one() -> None:
    view = seen(
        bot(),
        tool("team-a/one", name="search", server="web"),
        tool("team-a/two", name="search", server="wiki"),
        tool("team-b/search"),
        EVERYWHERE,
        binding(namespace="team-b"),
    )

    assert sorted(view.names) == ["team-a/one", "team-a/two", "team-b/search"]
    assert set(view.ambiguous) == {"search"}


@pytest.mark.parametrize("name", ["team-b.calc", "team-b__calc", "team-b-calc"])
def test_a_listed_name_never_collides_with_the_bare_name_of_another_tool(name: str) -> None:
    view = seen(bot(), tool("team-a/calc"), tool("team-b/calc"), tool("team-c/x", name=name), EVERYWHERE)

    assert view.names == {"calc": "team-a/calc", name: "team-c/x", "team-b/calc": "team-b/calc"}
    assert len({view.model_name(i) for i in view.tools}) == 3
    assert view.model_name("team-b/calc") == "team-b__calc"


def test_no_tool_name_has_the_slash_of_an_id() -> None:
    assert not re.fullmatch(TOOL_NAME, "team-b/calc")


def test_what_is_not_visible_resolves_like_what_does_not_exist() -> None:
    view = seen(bot(), tool("team-a/calc"), tool("team-a/secret", scopes=("other",)), EVERYWHERE)

    assert view.resolve("secret") is view.resolve("no-such-tool") is None
    assert view.resolve("team-a/secret") is view.resolve("team-a/no-such-tool") is None


def test_nobody_sees_nothing() -> None:
    assert seen(None, tool(), EVERYWHERE) == EMPTY


def test_an_anonymous_caller_may_list_and_nothing_else_where_that_is_switched_on() -> None:
    policy = Policy.compile([], anonymous_list=True)

    assert decide(None, tool(), Action.LIST, policy, 0.0)
    assert not decide(None, tool(state=ToolState.DISABLED), Action.LIST, policy, 0.0)
    assert not decide(None, None, Action.LIST, policy, 0.0)
    for action in set(Action) - {Action.LIST}:
        assert not decide(None, tool(), action, policy, 0.0)


def test_an_anonymous_list_is_in_order_whatever_the_order_of_publishing() -> None:
    tools = [tool(f"team-a/{name}") for name in ("c", "a", "b")]
    published = Publish(to=Revision(epoch=1, seq=1), tools=tuple(tools))
    snapshot = Snapshot(policy=Policy.compile([], anonymous_list=True)).apply(published)

    assert list(view_of(None, snapshot, 0.0).tools) == ["team-a/a", "team-a/b", "team-a/c"]


def test_the_ids_of_an_ambiguous_name_are_in_order_whatever_the_order_of_publishing() -> None:
    tools = [tool(f"team-{team}/calc") for team in ("c", "a", "b")]
    published = Publish(to=Revision(epoch=1, seq=1), tools=tuple(tools))
    snapshot = Snapshot(policy=Policy.compile([], anonymous_list=True)).apply(published)

    assert view_of(None, snapshot, 0.0).ambiguous == {"calc": ("team-a/calc", "team-b/calc", "team-c/calc")}


def test_a_disabled_tool_keeps_its_name_for_itself_before_callers_without_a_token_too() -> None:
    tools = (tool("team-a/calc", state=ToolState.DISABLED), tool("team-b/calc"))
    snapshot = Snapshot(policy=Policy.compile([], anonymous_list=True)).apply(
        Publish(to=Revision(epoch=1, seq=1), tools=tools)
    )

    assert view_of(None, snapshot, 0.0).names == {"team-b/calc": "team-b/calc"}


def test_a_view_says_until_when_it_holds() -> None:
    later = binding("later", not_before=50.0, expires_at=90.0)

    assert seen(bot(), tool(), later).valid_until == 50.0
    assert seen(bot(), tool(), later, now=60.0).valid_until == 90.0
    assert seen(bot(expires_at=70.0), tool(), later, now=60.0).valid_until == 70.0
    assert seen(bot(expires_at=70.0), tool(), later, now=70.0).valid_until == math.inf
    assert seen(bot(not_before=100.0), tool(), EVERYWHERE, now=60.0).valid_until == 70.0


def test_a_views_digest_changes_with_anything_that_is_shown() -> None:
    variants = [
        tool(),
        tool(description="other"),
        tool(scopes=("use", "more")),
        tool(state=ToolState.DEPRECATED),
        tool(state=ToolState.DEPRECATED, replaced_by="abacus"),
        tool(state=ToolState.DEPRECATED, message="old"),
    ]

    digests = {seen(bot(), t, EVERYWHERE).digest for t in variants}

    assert len(digests) == len(variants)


def test_a_views_digest_does_not_depend_on_what_is_outside_of_it() -> None:
    alone = seen(bot(), tool(), EVERYWHERE)

    assert alone == seen(
        bot(), tool(), tool("team-z/other", scopes=("x",)), EVERYWHERE, binding("b", "team-z")
    )


CALC = tool()
BETWEEN = binding(not_before=60.0, expires_at=90.0)
CHANGES: dict[str, tuple[tuple[Any, ...], float]] = {
    "the clock ends the grant": ((CALC, BETWEEN), 90.0),
    "the clock is set back": ((CALC, BETWEEN), 59.0),
    "the binding is edited": ((CALC, binding(not_before=60.0, expires_at=90.0, allow=())), 60.0),
    "a deny is added": ((CALC, BETWEEN, binding("d", deny=("*",))), 60.0),
    "the tool is disabled": ((tool(state=ToolState.DISABLED), BETWEEN), 60.0),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_view_that_follows_another_keeps_nothing_that_is_over(change: str) -> None:
    items, now = CHANGES[change]
    maker = ViewMaker(bot())

    assert set(maker.of(snapshot(CALC, BETWEEN), 60.0).tools) == {CALC.tool_id}
    assert maker.of(snapshot(*items), now).tools == {}


# ---- the registry's own powers ----------------------------------------------------------------------------------

WRITE = "registry:write"
POWER = binding("power", None, scopes=(WRITE,))


@pytest.mark.parametrize(
    ("who", "bindings", "holds"),
    [
        (bot(), [POWER], True),
        (bot(name="other"), [POWER], False),
        (None, [POWER], False),
        (bot(expires_at=0.0), [POWER], False),
        (bot(), [binding("smuggled", "team-a", scopes=(WRITE,))], False),
        (bot(), [binding("late", None, scopes=(WRITE,), not_before=10.0)], False),
        (bot(), [binding("over", None, scopes=(WRITE,), expires_at=0.0)], False),
        (bot(), [binding("else", None, scopes=("registry:admin",))], False),
        (bot(), [binding("case", None, scopes=("Registry:Write",))], False),
        (bot(policy=ScopesPolicy.TOKEN, scopes=frozenset({WRITE})), [], True),
        (bot(policy=ScopesPolicy.TOKEN, scopes=frozenset()), [POWER], False),
        (bot(policy=ScopesPolicy.INTERSECTION, scopes=frozenset({WRITE})), [POWER], True),
        (bot(policy=ScopesPolicy.INTERSECTION, scopes=frozenset({WRITE})), [], False),
        (bot(policy=ScopesPolicy.INTERSECTION, scopes=frozenset()), [POWER], False),
    ],
)
def test_a_power_comes_from_a_cluster_binding_or_the_token_as_the_policy_says(
    who: Identity | None, bindings: list[PublishedBinding], holds: bool
) -> None:
    assert has_power(who, WRITE, Policy.compile(bindings), 0.0) is holds


def test_an_ordinary_scope_is_no_power() -> None:
    assert not has_power(bot(), "use", Policy.compile([EVERYWHERE]), 0.0)


def test_a_tool_that_carries_a_reserved_scope_is_never_allowed() -> None:
    odd = tool(scopes=(WRITE, "use"))

    assert not decide(bot(), odd, Action.CALL, Policy.compile([POWER, EVERYWHERE]), 0.0)


@pytest.mark.parametrize(
    ("who", "scopes"),
    [
        (None, ()),
        (bot(expires_at=0.0), ()),
        (bot(), ("a", "registry:admin", "use")),
        (client(), ()),
        (bot(policy=ScopesPolicy.INTERSECTION, scopes=frozenset({"use", "z"})), ("use",)),
        (bot(policy=ScopesPolicy.TOKEN, scopes=frozenset({"z", "b"})), ("b", "z")),
        (bot(policy=ScopesPolicy.TOKEN, scopes=None), ()),
    ],
)
def test_the_scopes_in_effect_are_those_that_decisions_use(
    who: Identity | None, scopes: tuple[str, ...]
) -> None:
    policy = Policy.compile(
        [
            EVERYWHERE,
            binding("more", scopes=("a", WRITE)),
            binding("admin", None, scopes=("registry:admin",)),
            binding("over", scopes=("gone",), expires_at=0.0),
            binding("other", subjects=(), scopes=("not-mine",)),
        ]
    )

    assert granted_scopes(who, policy, 0.0) == scopes


def test_bindings_that_stand_in_other_namespaces_cost_a_view_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, in_namespaces = Counter[str](), CompiledBinding.in_namespaces

    def counted(self: CompiledBinding, one: PublishedTool) -> bool:
        asked[self.source.namespace or ""] += 1
        return in_namespaces(self, one)

    monkeypatch.setattr(CompiledBinding, "in_namespaces", counted)
    foreign = [binding(f"foreign-{i}", "evil", deny=("*",)) for i in range(50)]
    tools = [tool(f"team-a/tool-{i}") for i in range(20)]
    world = snapshot(*tools, tool("evil/own"), binding(), EVERYWHERE, *foreign)

    assert sorted(view_of(bot(), world, 0.0).tools) == sorted(t.tool_id for t in tools)
    assert asked["evil"] <= len(foreign), "each is asked of the one tool of its namespace, at most"
    assert view_work(bot(), world) < 400


def test_many_bindings_of_the_same_scopes_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up, candidates = list[Any](), Snapshot.candidates

    def counted(self: Snapshot, scopes: Any, namespaces: Any) -> set[str]:
        looked_up.append(scopes)
        return candidates(self, scopes, namespaces)

    monkeypatch.setattr(Snapshot, "candidates", counted)
    assert list(seen(bot(), tool(), *(binding(f"grant-{i}") for i in range(100))).tools) == [tool().tool_id]
    assert looked_up == [{"use"}]
