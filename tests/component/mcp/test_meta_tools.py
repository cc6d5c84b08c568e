"""`/mcp`: a handful of tools, the same for every caller, that find, describe and call the caller's own."""

from collections.abc import Iterator
from typing import Any

import pytest

from mcp_client import STATELESS, VERSIONS, McpClient
from registry_harness import RunningRegistry, backend, binding, running_registry, tool
from stub_server import Answer, Asked, answering
from toolcrib.wire.publish import PublishedTool

DEFAULT = ["search_tools", "describe_tool", "call_tool", "load_tools"]
SPLIT = ["search_tools", "describe_tool", "call_read_tool", "call_write_tool", "load_tools"]
COMPATIBLE = ["intelligent_tool_finder", "search_registry", "invoke_mcp_tool"]
GRANTS = [
    binding("bot", ("calculator:use", "writer:use", "sum:use")),
    binding("small", ("calculator:use",)),
]


@pytest.fixture(scope="module")
def tools() -> Iterator[list[PublishedTool]]:
    def echo(asked: Asked) -> Answer:
        return Answer(asked.body)

    with answering(echo) as port:
        b = backend(port)
        yield [
            tool(
                "calculator",
                backend=b,
                description="Adds numbers.",
                server="maths",
                tags=("maths",),
                examples=("what is 1 + 1",),
                input_schema={"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                annotations={"readOnlyHint": True},
            ),
            tool("writer", backend=b, description="Writes a file.", annotations={"readOnlyHint": False}),
            tool("sum", backend=b, description="Sums numbers.", server="maths"),
            tool("vault", backend=b, description="Opens the vault; adds numbers."),
        ]


@pytest.fixture(scope="module")
def r(tools: list[PublishedTool]) -> Iterator[RunningRegistry]:
    with running_registry(tools, GRANTS) as running:
        yield running


@pytest.fixture(scope="module")
def switched(tools: list[PublishedTool]) -> Iterator[RunningRegistry]:
    mcp = {"split_calls": True, "compatible_names": True}
    with running_registry(tools, GRANTS, mcp=mcp) as running:
        yield running


@pytest.fixture(params=VERSIONS)
def client(r: RunningRegistry, request: pytest.FixtureRequest) -> McpClient:
    return McpClient(r, request.param, "/mcp")


def test_the_list_is_the_same_to_the_byte_for_every_caller_and_catalog(client: McpClient) -> None:
    with running_registry([], []) as empty:
        answers = {
            McpClient(where, client.version, "/mcp", who).ask("tools/list").content
            for where, who in ((client.r, "bot"), (client.r, "small"), (client.r, "nobody"), (empty, "bot"))
        }
    assert len(answers) == 1
    found = client.result("tools/list")
    assert [each["name"] for each in found["tools"]] == DEFAULT
    assert "nextCursor" not in found
    assert client.error("tools/list", {"cursor": ""})[1] == -32602
    if client.version == STATELESS:
        assert (found["cacheScope"], found["ttlMs"]) == ("private", 3_600_000)


def test_switches_add_names_and_split_calls(switched: RunningRegistry, tools: list[PublishedTool]) -> None:
    both = McpClient(switched, path="/mcp")
    assert [each["name"] for each in both.listed()] == SPLIT + COMPATIBLE
    for mcp, names in (({"split_calls": True}, SPLIT), ({"compatible_names": True}, DEFAULT + COMPATIBLE)):
        with running_registry(tools, GRANTS, mcp=mcp) as one:
            assert [each["name"] for each in McpClient(one, path="/mcp").listed()] == names


@pytest.mark.parametrize("name", [*COMPATIBLE, "call_read_tool", "call_write_tool", "calculator", ""])
def test_what_is_not_listed_cannot_be_called(client: McpClient, name: str) -> None:
    assert client.error("tools/call", {"name": name, "arguments": {"tool_id": "calculator"}}) == (
        200, -32602, "Unknown tool",
    )  # fmt: skip


def test_a_hit_has_exactly_five_keys_and_with_schemas_a_sixth(client: McpClient) -> None:
    found = client.value("search_tools", {"query": "add numbers"})["tools"]

    assert {each["name"] for each in found} <= {"calculator", "sum", "writer"}
    assert found[0]["name"] == "calculator"
    assert all(list(each) == ["tool_id", "name", "short_desc", "server", "confidence"] for each in found), (
        found
    )
    assert found[0]["server"] == "maths"
    (first, *_) = client.value("search_tools", {"query": "add numbers", "schemas": True})["tools"]
    assert first == {**found[0], "inputSchema": first["inputSchema"]}
    assert first["inputSchema"]["required"] == ["a"]


def test_a_search_is_narrowed(client: McpClient) -> None:
    def names(**arguments: Any) -> set[str]:
        found = client.value("search_tools", {"query": "numbers", **arguments})["tools"]
        return {each["name"] for each in found}

    assert names(tags=["maths"]) == {"calculator"}
    assert names(allow_servers=["maths"]) == {"calculator", "sum"}
    assert len(names(max_results=1)) == 1
    # the same request that all of them answer to, asked for more than the second best is sure of
    hits = client.value("search_tools", {"query": "add numbers", "min_score": 0})["tools"]
    sure = [hit for hit in hits if hit["confidence"] >= hits[1]["confidence"] + 0.001]
    kept = client.value("search_tools", {"query": "add numbers", "min_score": hits[1]["confidence"] + 0.001})
    assert kept["tools"] == sure
    assert len(sure) < len(hits)
    assert McpClient(client.r, client.version, "/mcp", "nobody").value("search_tools", {"query": "numbers"}) == {
        "tools": []
    }  # fmt: skip


def test_a_limit_takes_of_the_tools_of_the_servers_that_are_allowed() -> None:
    """Thirty tools of another server fit the request as well or better: the limit is for what the filter leaves."""
    others = [
        tool(f"adds-numbers-{n}", server="web", description="Adds numbers.", scopes=("use",))
        for n in range(30)
    ]
    allowed = [
        tool(name, server="maths", description="Deals with numbers.", scopes=("use",))
        for name in ("a", "b", "c")
    ]
    with running_registry([*others, *allowed], [binding("bot", ("use",))]) as r:
        client = McpClient(r, path="/mcp")

        def found(**filters: Any) -> list[tuple[str, str]]:
            hits = client.value("search_tools", {"query": "adds numbers", **filters})["tools"]
            return [(hit["server"], hit["name"]) for hit in hits]

        assert {server for server, _ in found(max_results=10)} == {"web"}
        for most in (1, 2, 3):
            assert found(max_results=most, allow_servers=["maths"]) == [("maths", n) for n in "abc"[:most]]
        assert len(found(max_results=10, allow_servers=["maths"])) == 3


@pytest.mark.parametrize("name", ["calculator", "team/calculator"])
def test_a_description_has_the_schema_and_the_examples(client: McpClient, name: str) -> None:
    found = client.value("describe_tool", {"tool_id": name})

    assert (found["tool_id"], found["name"], found["server"]) == ("team/calculator", "calculator", "maths")
    assert found["inputSchema"]["required"] == ["a"]
    assert found["examples"] == ["what is 1 + 1"]
    assert found["annotations"] == {"readOnlyHint": True}
    assert "scopes" not in found


def test_definitions_are_loaded_and_the_list_stays_as_it_is(client: McpClient) -> None:
    before = client.ask("tools/list").content
    found = client.value("load_tools", {"tool_ids": ["calculator", "vault", "team/sum", "absent"]})

    assert [each["name"] for each in found["tools"]] == ["calculator", "sum"]
    assert found["tools"][0]["inputSchema"]["required"] == ["a"]
    errors = {each["tool"]: {**each, "tool": "x", "detail": each["detail"].replace(each["tool"], "x")}
              for each in found["errors"]}  # fmt: skip
    assert errors["vault"] == errors["absent"]
    assert client.ask("tools/list").content == before


def test_a_call_reaches_the_tool(client: McpClient) -> None:
    assert client.call("call_tool", {"tool_id": "calculator", "args": {"a": 1}})["structuredContent"] == {
        "a": 1
    }
    assert client.call("call_tool", {"tool_id": "writer"})["structuredContent"] == {}


def test_calls_are_split_by_the_hint_that_the_tool_only_reads(switched: RunningRegistry) -> None:
    client = McpClient(switched, path="/mcp")
    definitions = {each["name"]: each for each in client.listed()}
    assert definitions["call_read_tool"]["annotations"]["readOnlyHint"] is True
    assert "annotations" not in definitions["call_write_tool"]

    read = {"tool_id": "calculator", "args": {"a": 1}}
    for name in ("call_read_tool", "call_write_tool"):
        assert client.call(name, read)["structuredContent"] == {"a": 1}
    assert client.call("call_write_tool", {"tool_id": "writer"})["structuredContent"] == {}
    for writes in ("writer", "sum"):  # one says that it writes, the other says nothing
        refused = client.call("call_read_tool", {"tool_id": writes})
        assert refused["isError"] is True
        assert refused["_meta"]["toolcrib.dev/code"] == "not_read_only"
    for name in ("vault", "absent"):
        for call in ("call_read_tool", "call_write_tool"):
            assert client.error("tools/call", {"name": call, "arguments": {"tool_id": name}}) == (
                200, -32602, "Unknown tool",
            )  # fmt: skip


def test_compatible_names_answer_as_that_project_does(switched: RunningRegistry) -> None:
    client = McpClient(switched, path="/mcp")

    found = client.value(
        "intelligent_tool_finder", {"natural_language_query": "add numbers", "top_n_tools": 2}
    )["tools"]
    assert found[0]["tool_name"] == "calculator"
    path = found[0]["service_path"]
    assert client.value("intelligent_tool_finder", {"query": "add numbers"})["status"] == "success"
    registry = client.value("search_registry", {"query": "add numbers", "entity_types": ["tool"]})
    assert registry["tools"][0]["tool_name"] == "calculator"
    for server in (path, path.strip("/"), None):
        arguments = {"tool_name": "calculator", "arguments": {"a": 1}, "auth_token": "ignored"}
        if server is not None:
            arguments["server_name"] = server
        assert client.call("invoke_mcp_tool", arguments)["structuredContent"] == {"a": 1}
    for name in ("vault", "absent"):
        arguments = {"tool_name": name, "server_name": "/maths"}
        assert client.error("tools/call", {"name": "invoke_mcp_tool", "arguments": arguments})[1] == -32602


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("search_tools", {}, "/query: required, but missing (got nothing)"),
    ("search_tools", {"query": 5}, "/query: must be text (got integer)"),
    ("search_tools", {"query": "x", "max_results": 0}, "/max_results"),
    ("search_tools", {"query": "x", "max_results": True}, "/max_results"),
    ("search_tools", {"query": "x", "min_score": 1.01}, "/min_score"),
    ("search_tools", {"query": "x", "min_score": -0.01}, "/min_score"),
    ("search_tools", {"query": "x", "min_score": "0.1"}, "/min_score: a number is expected (got string)"),
    ("search_tools", {"query": "x", "tags": "y"}, "/tags: must be an array (got string)"),
    ("search_tools", {"query": "x", "schemas": []}, "/schemas: must be true or false (got array)"),
    ("search_tools", {"query": "x", "other": "hush-hush"}, "/other"),
    ("describe_tool", {"tool_id": ""}, "/tool_id"),
    ("describe_tool", {"tool_id": "hush-hush" * 100}, "/tool_id"),
    ("describe_tool", {"tool_id": None}, "(got null)"),
    ("load_tools", {"tool_ids": []}, "/tool_ids"),
    ("load_tools", {"tool_ids": ["hush-hush"] * 101}, "/tool_ids"),
    (
        "call_tool",
        {"tool_id": "calculator", "args": ["hush-hush"]},
        "/args: must be an object (got array)",
    ),
    ("call_tool", {"tool_id": "calculator", "args": None}, "/args"),
    ("call_tool", {"tool_id": "calculator", "args": {"a": "hush-hush"}}, "/a"),
]


@pytest.mark.parametrize(("name", "arguments", "told"), WRONG)
def test_wrong_arguments_are_told_without_their_values(
    client: McpClient, name: str, arguments: dict[str, Any], told: str
) -> None:
    found = client.call(name, arguments)

    assert found["isError"] is True
    assert found["_meta"]["toolcrib.dev/code"] == "invalid_arguments"
    text = found["content"][0]["text"]
    assert told in text
    assert "hush-hush" not in text


def test_at_most_five_mistakes_are_told(client: McpClient) -> None:
    found = client.call("search_tools", {"query": 5, **{f"other{n}": n for n in range(20)}})

    first, *mistakes = found["content"][0]["text"].splitlines()
    assert first == "Invalid arguments."
    assert len(mistakes) == 5
    assert all(line.startswith("- /") for line in mistakes)
