"""`/mcp/direct`: the caller's tools under their names for models, in pages, from lists that equal views share."""

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest

from mcp_client import HANDSHAKE, STATELESS, VERSIONS, McpClient
from registry_harness import RunningRegistry, backend, binding, running_registry, tool
from stub_server import Answer, answering
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.mcp.direct_view import DirectView

MANY = [tool(f"t{n:03}", scopes=("many:use",)) for n in range(450)]
GRANTS = [binding("bot", ("many:use",)), binding("twin", ("many:use",)), binding("other", ("t000:use",))]


@pytest.fixture(scope="module")
def running() -> Iterator[RunningRegistry]:
    with running_registry(MANY, GRANTS) as found:
        yield found


@pytest.mark.parametrize("version", VERSIONS)
def test_pages_have_two_hundred_tools_in_the_order_of_their_ids(
    running: RunningRegistry, version: str
) -> None:
    client, pages, cursor = McpClient(running, version), [], {}
    while True:
        page = client.result("tools/list", cursor)
        pages.append([each["name"] for each in page["tools"]])
        if version == STATELESS:
            assert (page["cacheScope"], page["resultType"]) == ("private", "complete"), "on every page"
        if "nextCursor" not in page:
            break
        cursor = {"cursor": page["nextCursor"]}

    assert [len(page) for page in pages] == [200, 200, 50]
    assert [name for page in pages for name in page] == [each.name for each in MANY]


@pytest.mark.parametrize("cursor", ["!", "=", "é", "//", "a", "x" * 100_001, "gICA"])
def test_what_is_no_cursor_is_refused(running: RunningRegistry, cursor: str) -> None:
    assert McpClient(running).error("tools/list", {"cursor": cursor}) == (200, -32602, "Invalid cursor.")


@pytest.mark.parametrize("cursor", [5, [], {}])
def test_a_cursor_is_a_string(running: RunningRegistry, cursor: Any) -> None:
    assert McpClient(running).error("tools/list", {"cursor": cursor})[:2] == (400, -32602)


def test_a_list_that_changes_between_two_pages_lists_nothing_twice_and_leaves_nothing_out() -> None:
    with running_registry(MANY, GRANTS) as r:
        client = McpClient(r)
        first = client.result("tools/list")
        r.publish(
            [tool("t0999", scopes=("many:use",)), tool("t205a", scopes=("many:use",))],
            remove_tools=["team/t199", "team/t300"],
        )
        names = [each["name"] for each in first["tools"]]
        cursor = first["nextCursor"]
        while cursor:
            page = client.result("tools/list", {"cursor": cursor})
            names += [each["name"] for each in page["tools"]]
            cursor = page.get("nextCursor")

        assert len(names) == len(set(names))
        stayed = {each.name for each in MANY} - {"t199", "t300"}
        assert stayed | {"t205a"} <= set(names), (
            "added behind the cursor: listed; before it: on the next round"
        )
        assert "t300" not in names
        assert "t0999" in {each["name"] for each in client.listed()}


def _named(name: str, namespace: str, **fields: Any) -> PublishedTool:
    return tool(name, namespace=namespace, scopes=("named:use",), **fields)


def test_names_for_models_are_bare_or_have_the_namespace_or_digits_of_the_id() -> None:
    long = "n" * 60
    tools = [
        _named("plain", "team"),
        _named("shared", "one"),
        _named("shared", "two"),
        _named("dotted.name", "team"),
        _named(long + "x" * 40, "team"),
    ]
    grant = binding("bot", ("named:use",), namespace=None, namespaces=None)
    with answering(lambda a: Answer(a.body)) as port:
        tools = [each.model_copy(update={"backend": backend(port)}) for each in tools]
        with running_registry(tools, [grant]) as r:
            for version in VERSIONS:
                client = McpClient(r, version)
                names = {each["_meta"]["toolcrib.dev/tool-id"]: each["name"] for each in client.listed()}

                def marked(tool_id: str) -> str:
                    return f"{tool_id.replace('/', '__').replace('.', '_')[:41]}_{hashlib.sha256(tool_id.encode()).hexdigest()[:6]}"

                assert names == {
                    "one/shared": "one__shared",
                    "team/dotted.name": marked("team/dotted.name"),
                    f"team/{long}{'x' * 40}": marked(f"team/{long}{'x' * 40}"),
                    "team/plain": "plain",
                    "two/shared": "two__shared",
                }
                assert all(len(name) <= 48 for name in names.values())
                for name in names.values():
                    assert client.call(name, {"a": 1})["structuredContent"] == {"a": 1}, name


@pytest.mark.parametrize("version", VERSIONS)
def test_a_definition_is_the_tools_own(version: str) -> None:
    made = tool(
        "reader",
        title="Reader",
        description="Reads.",
        input_schema={"properties": {"a": {"type": "string"}}},
        output_schema={"type": "array"},
        annotations={"readOnlyHint": True},
        scopes=("named:use",),
        tags=("secret-tag",),
    )
    with running_registry([made], [binding("bot", ("named:use",))]) as r:
        (found,) = McpClient(r, version).listed()

    assert found == {
        "name": "reader",
        "title": "Reader",
        "description": "Reads.",
        "inputSchema": {"type": "object", "properties": {"a": {"type": "string"}}},
        # before 2026 an output is an object, or has no schema
        **({"outputSchema": {"type": "array"}} if version == STATELESS else {}),
        "annotations": {"readOnlyHint": True},
        "_meta": {"toolcrib.dev/tool-id": "team/reader"},
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_schemas_that_a_client_would_refuse_are_listed_in_a_form_that_it_takes(version: str) -> None:
    odd = {"properties": {"a": True, "b": False, "c": {"type": "string"}}}
    formed = {"a": {}, "b": {"not": {}}, "c": {"type": "string"}}
    made = [
        tool("rootless", input_schema=odd, output_schema={"type": "object", **odd}, scopes=("named:use",)),
        tool("bare", input_schema={}, scopes=("named:use",)),
    ]
    with running_registry(made, [binding("bot", ("named:use",))]) as r:
        bare, found = McpClient(r, version).listed()
        meta = McpClient(r, version, path="/mcp")
        described = meta.call("describe_tool", {"tool_id": "rootless"})["structuredContent"]
        loaded = meta.call("load_tools", {"tool_ids": ["rootless", "bare"]})["structuredContent"]["tools"]
        hits = meta.call("search_tools", {"query": "rootless", "schemas": True})["structuredContent"]["tools"]

    assert found["inputSchema"] == {"type": "object", "properties": formed}
    assert found["outputSchema"] == {"type": "object", "properties": formed}
    assert bare["inputSchema"] == {"type": "object"}
    assert described["inputSchema"] == found["inputSchema"]
    assert [one["inputSchema"] for one in loaded] == [found["inputSchema"], {"type": "object"}]
    assert {hit["name"]: hit["inputSchema"] for hit in hits}["rootless"] == found["inputSchema"]


def test_equal_views_share_one_list_within_a_bound_of_bytes() -> None:
    with running_registry(MANY, GRANTS) as r:
        lists = _lists(r)
        for who in ("bot", "twin"):
            McpClient(r, STATELESS, who=who).listed()
        assert len(lists._known) == 1
        for version in HANDSHAKE:
            McpClient(r, version).result("tools/list")
        assert len(lists._known) == 2, "one for each era"
        one = lists.size // 2
        lists._most = int(one * 2.5)
        for n in range(5):
            r.publish([tool(f"t{n:03}", scopes=("many:use",), description="Another.")])
            McpClient(r).result("tools/list")
            assert lists.size <= lists._most
            assert lists.size == sum(each.weight for each in lists._known.values())
        assert len(lists._known) == 2


def _lists(r: RunningRegistry) -> Any:
    """The product's own lists, found where its route holds them."""
    import gc

    (found,) = (
        each for each in gc.get_objects() if isinstance(each, DirectView) and each._parts is r.registry.deps
    )
    return found._lists


def test_a_list_is_of_the_revision_in_which_it_is_asked_for() -> None:
    with running_registry([tool("calculator")], [binding("bot")]) as r:
        client = McpClient(r)
        assert [each["name"] for each in client.listed()] == ["calculator"]
        r.publish([tool("calculator", description="Another.")])
        assert [each["description"] for each in client.listed()] == ["Another."]
        r.publish(remove_bindings=["uid-team-bot"])
        assert client.listed() == []


def test_who_sees_nothing_lists_nothing_and_a_large_tool_takes_a_page_of_its_own() -> None:
    big = [
        tool(f"big{n}", scopes=("big:use",), description="x" * 60_000, input_schema={"description": "y" * 60_000})
        for n in range(100)
    ]  # fmt: skip
    with running_registry(big, [binding("bot", ("big:use",))]) as r:
        assert McpClient(r, who="nobody").listed() == []
        client = McpClient(r)
        page = client.result("tools/list")
        assert 0 < len(page["tools"]) < 100
        assert [each["name"] for each in client.listed()] == sorted(f"big{n}" for n in range(100))
