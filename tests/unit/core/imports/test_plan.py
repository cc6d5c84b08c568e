"""What a list changes: new, changed, gone, shrunk, twice, in the way of others, and above the quota."""

from collections.abc import Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from manifests import manifest
from toolcrib import names, publishing
from toolcrib.imports.plan import Others, Plan, Standing, asked_for, plan
from toolcrib.resources import Tool, ToolServer, parse
from toolcrib.wire.imports import ListedTool, ServerList, UnusableTool


def server(**import_: Any) -> ToolServer:
    spec = {
        "mcp": {"service": {"name": "s", "port": 80}},
        "defaults": {"scopes": ["s:use"]},
        "import": import_,
    }
    made = manifest("ToolServer", "files", "heist", **spec)
    made["metadata"]["uid"] = "u1"
    found = parse(made)
    assert isinstance(found, ToolServer)
    return found


def tool(name: str, description: str = "d") -> ListedTool:
    return ListedTool(name=name, description=description, input_schema={"type": "object"})


def listing(*tools: str | ListedTool, unusable: Iterable[UnusableTool] = ()) -> ServerList:
    items = tuple(tool(t) if isinstance(t, str) else t for t in tools)
    return ServerList(server="heist/files", set_digest="sha256:0", tools=items, unusable=tuple(unusable))


def after(done: Plan, standing: dict[str, Standing]) -> dict[str, Standing]:
    """The Tools that there are once a plan was carried out."""
    kept = {name: old for name, old in standing.items() if name not in done.delete}
    return kept | {each.object_name: Standing(each.tool, each.mark) for each in done.apply}


def imported(*tools: str | ListedTool) -> dict[str, Standing]:
    return after(plan(server(), listing(*tools), {}), {})


def tools_of(standing: dict[str, Standing]) -> set[str]:
    return {each.tool for each in standing.values()}


def test_a_first_list_is_written_whole_and_the_same_list_writes_nothing() -> None:
    first = plan(server(), listing("a", "b"), {})
    assert [each.tool for each in first.apply] == ["a", "b"]
    assert (first.delete, first.left_out, first.imported, first.listed) == ((), (), 2, 2)
    again = plan(server(), listing("b", "a"), after(first, {}))
    assert (again.apply, again.delete, again.imported) == ((), (), 2)


def test_what_changed_is_written_and_what_is_gone_goes() -> None:
    found = plan(server(), listing(tool("a", "other"), "b", "d"), imported("a", "b", "c"))
    assert [each.tool for each in found.apply] == ["a", "d"]
    assert found.delete == (names.object_name("files", "c"),)


def test_what_the_toolserver_does_not_ask_for_is_not_imported_and_goes_at_once() -> None:
    standing = imported("read_a", "read_b", "write_a", "delete_a")
    found = plan(
        server(include=["read_*", "write_*"], exclude=["*_b"]),
        listing("read_a", "read_b", "write_a"),
        standing,
    )
    assert tools_of(after(found, standing)) == {"read_a", "write_a"}
    assert not found.shrunk
    none = plan(server(include=["x"]), listing("read_a"), standing)
    assert tools_of(after(none, standing)) == set()


def test_an_empty_list_or_one_that_lost_more_than_half_takes_nothing_away_until_the_grace_is_over() -> None:
    standing = imported("a", "b", "c", "d")
    for left in ((), ("a",), ("new",)):
        found = plan(server(), listing(*left), standing)
        assert found.shrunk
        assert tools_of(after(found, standing)) == {"a", "b", "c", "d", *left}
        late = plan(server(), listing(*left), standing, patient=False)
        assert not late.shrunk
        assert tools_of(after(late, standing)) == set(left)
    half = plan(server(), listing("a", "b"), standing)
    assert not half.shrunk
    assert tools_of(after(half, standing)) == {"a", "b"}


def test_a_list_that_renames_everything_keeps_nothing_and_its_tools_wait_for_approval() -> None:
    wary, standing = server(approval="Manual"), imported("a", "b")
    found = plan(wary, listing("x", "y"), standing)
    assert not found.shrunk
    assert tools_of(after(found, standing)) == {"x", "y"}
    for each in found.apply:
        bare = each.manifest
        bare["metadata"].pop("ownerReferences")
        resource = parse(bare)
        assert isinstance(resource, Tool)
        assert publishing.tool(resource, server=wary).quarantined


def test_a_tool_that_is_listed_twice_is_left_out_and_does_not_stay() -> None:
    standing = imported("a", "b")
    found = plan(server(), listing("a", tool("a", "evil"), "b"), standing)
    assert [str(each) for each in found.left_out] == ["'a': the server lists two tools of this name."]
    assert tools_of(after(found, standing)) == {"b"}


def test_a_definition_that_became_unusable_does_not_stay() -> None:
    standing = imported("a", "b")
    broken = ListedTool(name="a", input_schema={"type": "array"})
    found = plan(server(), listing(broken, "b"), standing)
    assert tools_of(after(found, standing)) == {"b"}
    unusable = UnusableTool(name="a", reason="it has no inputSchema")
    found = plan(server(), listing("b", unusable=[unusable]), standing)
    assert tools_of(after(found, standing)) == {"b"}
    assert [str(each) for each in found.left_out] == ["'a': it has no inputSchema"]


def test_a_tool_that_the_toolserver_does_not_own_is_neither_adopted_nor_deleted() -> None:
    taken = names.object_name("files", "a")
    found = plan(server(), listing("a", "b", "c"), {}, Others(objects={taken}, names={"b": "by-hand"}))
    assert [each.tool for each in found.apply] == ["c"]
    assert found.delete == ()
    assert [each.tool for each in found.left_out] == ["a", "b"]
    assert "'by-hand' has the name 'b'" in found.left_out[1].reason


def test_an_imported_tool_keeps_its_name_from_one_that_was_written_later() -> None:
    standing = imported("a")
    found = plan(server(), listing("a"), standing, Others(names={"a": "by-hand"}))
    assert (found.delete, found.left_out) == ((), ())


def test_new_tools_above_the_quota_are_left_out_and_old_ones_stay() -> None:
    found = plan(server(), listing("a", "b", "c", "d"), imported("d"), Others(room=2))
    assert [each.tool for each in found.apply] == ["a", "b"]
    assert [each.tool for each in found.left_out] == ["c"]
    assert "quota" in found.left_out[0].reason
    assert found.delete == ()


def test_two_thousand_tools_are_planned_and_the_same_again_writes_none() -> None:
    tools = [f"tool_{i}" for i in range(2_000)]
    first = plan(server(), listing(*tools), {})
    assert len({each.object_name for each in first.apply}) == 2_000
    assert plan(server(), listing(*tools), after(first, {})).apply == ()


_NAMES = st.sampled_from(["a", "b", "c", "d e", "A", "__", "health", "x.y"])
_TOOLS = st.lists(st.builds(tool, _NAMES, st.sampled_from(["d", "e", "x" * 5000])), max_size=8)
_GLOBS = st.lists(st.sampled_from(["*", "a*", "?", "b", "x.?", "A"]), min_size=1, max_size=3, unique=True)


@given(
    before=_TOOLS, now=_TOOLS, include=_GLOBS, exclude=_GLOBS, patient=st.booleans(), filtered=st.booleans()
)
def test_a_plan_that_was_carried_out_leaves_nothing_to_do_and_only_what_was_listed(
    before: list[ListedTool], now: list[ListedTool], include: list[str], exclude: list[str], patient: bool, filtered: bool
) -> None:  # fmt: skip
    asking = server(include=include, exclude=exclude) if filtered else server()
    standing = after(plan(server(), listing(*before), {}), {})
    found = plan(asking, listing(*now), standing, patient=patient)
    result = after(found, standing)

    again = plan(asking, listing(*now), result, patient=patient)
    assert again.apply == ()
    assert found.held or again.delete == ()
    # nothing is there that is not listed once, unless it is held; nothing that is not asked for is
    listed_once = {
        t.name for t in now if sum(o.name == t.name for o in now) == 1 and len(t.description) < 4097
    }
    held = {result[name].tool for name in found.held}
    assert tools_of(result) <= listed_once | held
    assert all(asked_for(asking.spec.import_, tool) for tool in tools_of(result))
    assert {t for t in listed_once if asked_for(asking.spec.import_, t)} <= tools_of(result)
    assert not set(found.delete) & {each.object_name for each in found.apply}
    assert patient or not found.held
