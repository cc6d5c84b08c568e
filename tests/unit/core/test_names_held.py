"""Who holds a bare name: no new Tool takes one from another tool, but where the caller has chosen its namespace.

The attack (issue 13, B.1): an editor of another namespace creates a tool, or names one, such that a call by a name that
meant somebody else's tool reaches his. Random worlds, one creation.
"""

import functools
from collections.abc import Iterable
from dataclasses import dataclass

from hypothesis import assume, given
from hypothesis import strategies as st

from published import binding, bot, client, tool
from suites import examples
from toolcrib.authorizer import Action, Policy, Question, reach
from toolcrib.identity import Identity, ScopesPolicy
from toolcrib.resources.tools import ToolState
from toolcrib.snapshot import Snapshot
from toolcrib.view import View, view_of
from toolcrib.wire.publish import Publish, PublishedBinding, PublishedSubject, PublishedTool, Revision

ALL_NAMESPACES = ["team-a", "heist", "tools", "evil"]
NAMESPACES = st.sampled_from(ALL_NAMESPACES)
# bare names, and whatever another tool is listed or offered as
NAMES = st.sampled_from(
    ["calculator", "Calculator", "heist.calculator", "heist__calculator", "heist__t1", "tools.web.calculator", "t1"]
)  # fmt: skip
SCOPES = st.sampled_from(["use", "more"])
SUBJECTS = (
    PublishedSubject(kind="ServiceAccount", namespace="team-a", name="bot"),
    PublishedSubject(kind="OAuthClient", issuer=client().issuer, client_id="cli"),
)


@dataclass(frozen=True)
class World:
    tools: tuple[PublishedTool, ...]
    bindings: tuple[PublishedBinding, ...]

    def view(self, who: Identity, now: float) -> View:
        return view_of(who, snapshot_of(self.tools, self.bindings), now)

    def reached(self, who: Identity, now: float) -> list[PublishedTool]:
        """In any state."""
        policy = Policy.compile(self.bindings)
        return [t for t in self.tools if reach(Question(who, t, Action.LIST, policy, now))]


def snapshot_of(tools: Iterable[PublishedTool], bindings: Iterable[PublishedBinding]) -> Snapshot:
    return Snapshot().apply(
        Publish(to=Revision(epoch=1, seq=1), tools=tuple(tools), bindings=tuple(bindings))
    )


# made once: a strategy that is made while drawing is examined anew for each draw, which takes most of a test's time
SERVERS = st.sampled_from([None, "web", "wiki"])
STATES = st.sampled_from([ToolState.ACTIVE, ToolState.ACTIVE, ToolState.DISABLED])
HOMES = st.none() | NAMESPACES
REACHES = st.none() | st.lists(NAMESPACES, max_size=2, unique=True).map(tuple)
SUBJECT_SETS = st.sampled_from([SUBJECTS, SUBJECTS, ()])
SCOPE_SETS = st.sampled_from([("use",), ("use", "more"), ("more",), ("registry:write",), ()])
DENIALS = st.sampled_from([(), (), (), ("heist*",)])
MOMENTS = st.sampled_from([None, None, None, 5.0])
SOME_TOOLS, SOME_BINDINGS = st.integers(0, 8), st.integers(1, 4)


@functools.cache
@st.composite
def one_tool(draw: st.DrawFn, number: int) -> PublishedTool:
    return tool(
        f"{draw(NAMESPACES)}/t{number}",
        name=draw(NAMES),
        server=draw(SERVERS),
        scopes=(draw(SCOPES),),
        state=draw(STATES),
    )


@functools.cache
@st.composite
def one_binding(draw: st.DrawFn, number: int) -> PublishedBinding:
    home = draw(HOMES)
    reach_ = (home,) if home else draw(REACHES)
    return binding(
        f"b{number}",
        home,
        namespaces=reach_,
        lists_namespaces=home is None and reach_ is not None and draw(st.booleans()),
        subjects=draw(SUBJECT_SETS),
        scopes=draw(SCOPE_SETS),
        deny=draw(DENIALS),
        not_before=draw(MOMENTS),
        expires_at=draw(MOMENTS),
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    tools = [draw(one_tool(i)) for i in range(draw(SOME_TOOLS))]
    return World(tuple(tools), tuple(draw(one_binding(i)) for i in range(draw(SOME_BINDINGS))))


CALLERS = st.sampled_from(
    [
        bot(),
        bot(),
        client(scopes=frozenset({"use", "more"})),
        client(scopes=frozenset({"use"})),
        bot(policy=ScopesPolicy.TOKEN, scopes=frozenset({"use", "more"})),
    ]
)
CLOCK = st.sampled_from([0.0, 9.0])


def chosen(who: Identity, bindings: Iterable[PublishedBinding], now: float) -> set[str]:
    """The caller's own namespace and those that its bindings name: said again from the issue."""
    found = {who.namespace} if who.namespace else set()
    for b in bindings:
        if b.subjects and b.namespaces and (b.namespace or b.lists_namespaces):
            found |= set(b.namespaces)
    return found


def means(view: View, name: str) -> str | None:
    found = view.tools.get(name) or view.tools.get(view.names.get(name, ""))
    return None if found is None else found.tool_id


@given(worlds(), one_tool(99), CALLERS, CLOCK)
@examples(1_500)
def test_a_new_tool_never_takes_a_bare_name_from_another_unless_its_namespace_was_chosen(
    world: World, new: PublishedTool, who: Identity, now: float
) -> None:
    before, after = world.view(who, now), World((*world.tools, new), world.bindings).view(who, now)
    had = {t.name for t in world.reached(who, now)}

    for name in {*before.names, *after.names, *had, new.name}:
        then, since = means(before, name), means(after, name)
        if since != new.tool_id:
            assert since in (then, None), "of the tools that were there, none gets another's name"
        elif name != new.tool_id and name in had:
            assert new.namespace in chosen(who, world.bindings, now)
        if then is not None and since is None:
            assert name == new.name, "and only its own name becomes ambiguous"


@given(worlds(), one_tool(99), CALLERS, CLOCK)
@examples(1_000)
def test_a_new_tool_never_takes_a_name_for_models_from_another_unless_its_namespace_was_chosen(
    world: World, new: PublishedTool, who: Identity, now: float
) -> None:
    before, after = world.view(who, now), World((*world.tools, new), world.bindings).view(who, now)
    was = {before.model_name(i): i for i in before.tools}

    for tool_id in after.tools:
        then = was.get(after.model_name(tool_id))
        if then != tool_id and then is not None:
            assert tool_id == new.tool_id
            assert new.namespace in chosen(who, world.bindings, now)


@given(worlds(), worlds(), CALLERS, CLOCK)
@examples(600)
def test_names_tell_nothing_of_tools_out_of_reach_or_of_other_callers_bindings(
    world: World, other: World, who: Identity, now: float
) -> None:
    """Every tool, listed or not, that cannot be reached may be added, and every binding of others."""
    strangers = tuple(b.model_copy(update={"uid": f"other-{b.uid}", "subjects": ()}) for b in other.bindings)
    policy = Policy.compile(world.bindings)
    hidden = tuple(
        t.model_copy(update={"tool_id": f"{t.namespace}/hidden-{i}", "scopes": ("secret",)})
        for i, t in enumerate(other.tools)
    )
    assume(not any(reach(Question(who, t, Action.LIST, policy, now)) for t in hidden))

    mixed = World((*world.tools, *hidden), (*world.bindings, *strangers))

    assert mixed.view(who, now) == world.view(who, now)
    assert {i: mixed.view(who, now).model_name(i) for i in world.view(who, now).tools} == {
        i: world.view(who, now).model_name(i) for i in world.view(who, now).tools
    }
