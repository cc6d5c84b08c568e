"""Header fields that repeat the body: compared with it in 2026, decoded first, so a proxy that routes by them is not deceived."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from mcp_client import BOTH, HANDSHAKE, STATELESS, McpClient, error_of, message
from plain_http import PlainHttp, Reply
from registry_harness import RunningRegistry, backend, binding, running_registry, tool
from stub_server import Answer, Asked, answering

SCHEMA = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "deep": {"type": "object", "properties": {"flag": {"type": "boolean", "x-mcp-header": "Flag"}}},
        "plain": {"type": "string"},
    },
}


@pytest.fixture(scope="module")
def r() -> Iterator[RunningRegistry]:
    def echo(asked: Asked) -> Answer:
        return Answer(asked.body)

    with answering(echo) as port:
        tools = [
            tool("calculator", backend=backend(port)),
            tool("routed", backend=backend(port), input_schema=SCHEMA),
            tool("wrong_mark", backend=backend(port), input_schema={
                "type": "object",
                "properties": {
                    "a": {"type": "string", "x-mcp-header": "Same"},
                    "b": {"type": "string", "x-mcp-header": "same"},
                },
            }),
        ]  # fmt: skip
        with running_registry(
            tools, [binding("bot", ("calculator:use", "routed:use", "wrong_mark:use"))]
        ) as running:
            yield running


@pytest.fixture(scope="module")
def http(r: RunningRegistry) -> Iterator[PlainHttp]:
    plain = PlainHttp(r.url)
    yield plain
    plain.close()


def wrapped(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


@pytest.mark.parametrize("path", ["/mcp", "/mcp/direct"])
@pytest.mark.parametrize(
    "fields",
    [
        {"mcp-method": None},
        {"mcp-method": "tools/list"},
        {"mcp-method": "Tools/Call"},
        {"mcp-method": ""},
        {"mcp-name": None},
        {"mcp-name": ""},
        {"mcp-name": "other"},
        {"mcp-name": "calculator, calculator"},
        {"mcp-name": wrapped("other")},
        {"mcp-name": "=?base64?Y2FsY3VsYXRvcg?="},  # no padding
        {"mcp-name": "=?base64?Y2FsY3VsYXRvcg=?="},  # half of it
        {"mcp-name": "=?base64?Y2FsY3VsYXRvch==?="},  # bits that mean nothing are set
        {"mcp-name": "=?base64?Y2Fs Y3VsYXRvcg==?="},  # a blank
        {"mcp-name": "=?base64?Y2FsY3VsYXRv_g==?="},  # another alphabet
        {"mcp-name": "=?base64?é?="},  # no ASCII
        {"mcp-name": "=?base64?/w==?="},  # no UTF-8
        {"mcp-name": "=?base64??="},
        {"mcp-name": "=?BASE64?Y2FsY3VsYXRvcg==?="},  # no sentinel, so it is the text
        {"mcp-name": "=?base64?Y2FsY3VsYXRvcg==?"},
        {"mcp-name": "x" * 10_000},
    ],
)
def test_a_field_that_is_missing_or_says_something_else_is_refused(
    r: RunningRegistry, fields: dict[str, str | None], path: str
) -> None:
    body = message("tools/call", {"name": "calculator"})
    refused = McpClient(r, path=path).post(body, fields)

    assert error_of(refused)[:2] == (400, -32020)
    assert refused.json()["id"] == 1


def test_a_sentinel_is_decoded_first(r: RunningRegistry) -> None:
    client = McpClient(r)
    body = message("tools/call", {"name": "calculator", "arguments": {"a": 1}})
    assert client.post(body, {"mcp-name": wrapped("calculator")}).json()["result"]["structuredContent"] == {
        "a": 1
    }


def test_a_name_that_no_field_can_carry_is_compared_too(r: RunningRegistry) -> None:
    body = message("tools/call", {"name": "wörk 道具"})
    assert error_of(McpClient(r).post(body, {"mcp-name": wrapped("wörk 道具")})) == (
        200, -32602, "Unknown tool",
    )  # fmt: skip


@pytest.mark.parametrize(
    "twice", ["MCP-Protocol-Version", "Mcp-Method", "Mcp-Name", "Mcp-Param-Region", "mcp-name"]
)
def test_a_field_that_is_there_twice_is_refused_even_if_both_are_right(
    r: RunningRegistry, http: PlainHttp, twice: str
) -> None:
    fields = {
        "MCP-Protocol-Version": STATELESS,
        "Mcp-Method": "tools/call",
        "Mcp-Name": "routed",
        "Mcp-Param-Region": "eu",
    }
    refused = _plain(r, http, fields, twice, fields.get(twice, "routed"))

    assert (refused.status, refused.json()["error"]["code"]) == (400, -32020)


def _plain(r: RunningRegistry, http: PlainHttp, fields: dict[str, str], name: str, value: str) -> Reply:
    headers = [
        ("Authorization", r.auth("team", "bot")["Authorization"].encode()),
        ("Content-Type", b"application/json"),
        ("Accept", BOTH.encode()),
        *((k, v.encode()) for k, v in fields.items()),
        (name, value.encode()),
    ]
    body = json.dumps(message("tools/call", {"name": "routed", "arguments": {"region": "eu"}})).encode()
    return http.ask("POST", "/mcp/direct", headers, body=body)


@pytest.mark.parametrize("version", HANDSHAKE)
def test_the_version_named_twice_is_refused_in_every_era(
    r: RunningRegistry, http: PlainHttp, version: str
) -> None:
    refused = _plain(r, http, {"MCP-Protocol-Version": version}, "mcp-protocol-version", version)
    assert (refused.status, refused.json()["error"]["code"]) == (400, -32020)


@pytest.mark.parametrize("version", HANDSHAKE)
def test_before_2026_nothing_but_the_version_is_looked_at(r: RunningRegistry, version: str) -> None:
    body = message("tools/call", {"name": "routed", "arguments": {"region": "eu"}}, version)
    found = McpClient(r, version).post(
        body, {"mcp-method": "x", "mcp-name": "=?base64?!?=", "mcp-param-region": "us"}
    )
    assert found.json()["result"]["structuredContent"] == {"region": "eu"}


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        ({"region": "eu"}, {"region": "eu"}),
        ({"region": "eu"}, {"region": wrapped("eu")}),
        ({"region": "Österreich"}, {"region": wrapped("Österreich")}),
        ({"region": " eu"}, {"region": wrapped(" eu")}),
        ({"region": "=?base64?eA==?="}, {"region": wrapped("=?base64?eA==?=")}),
        ({"region": ""}, {"region": ""}),
        ({"count": 42}, {"count": "42"}),
        ({"count": -1}, {"count": "-1"}),
        ({"count": 42.0}, {"count": "42"}),
        ({"count": 42}, {"count": "42.0"}),
        ({"deep": {"flag": True}}, {"flag": "true"}),
        ({"deep": {}}, {}),
        ({"plain": "x"}, {"plain": "not looked at"}),
    ],
)
def test_arguments_are_repeated_by_fields_that_say_the_same(
    r: RunningRegistry, arguments: dict[str, Any], fields: dict[str, str]
) -> None:
    body = message("tools/call", {"name": "routed", "arguments": arguments})
    found = McpClient(r).post(body, {f"mcp-param-{k}": v for k, v in fields.items()})
    assert found.json().get("result", found.text)["structuredContent"] == arguments


DECEIVING: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"region": "eu"}, {"region": "us"}),
    ({"region": "eu"}, {"region": "EU"}),
    ({"region": "eu"}, {}),
    ({}, {"region": "eu"}),
    ({"region": None}, {"region": "null"}),
    ({"region": "eu"}, {"region": wrapped("us")}),
    ({"region": "eu"}, {"region": "=?base64?ZXV?="}),
    ({"region": " eu"}, {"region": "eu"}),
    ({"count": 42}, {"count": "43"}),
    ({"count": 42}, {"count": "0x2a"}),
    ({"count": 42}, {"count": "42e0"}),
    ({"count": 42}, {"count": "4" * 5_000}),
    ({"deep": {"flag": True}}, {"flag": "True"}),
    ({"deep": {"flag": True}}, {"flag": "1"}),
    ({"deep": {"flag": True}}, {}),
    ({"deep": 5}, {"flag": "true"}),
]


@pytest.mark.parametrize(("arguments", "fields"), DECEIVING)
@pytest.mark.parametrize("name", ["routed", "team/routed"], ids=["its name", "its id"])
def test_a_field_that_says_something_else_than_its_argument_is_refused_whatever_the_tool_is_called_by(
    r: RunningRegistry, arguments: dict[str, Any], fields: dict[str, str], name: str
) -> None:
    body = message("tools/call", {"name": name, "arguments": arguments})
    refused = McpClient(r).post(body, {f"mcp-param-{k}": v for k, v in fields.items()})
    assert error_of(refused)[:2] == (400, -32020)


def test_marks_that_break_the_specification_mean_nothing(r: RunningRegistry) -> None:
    body = message("tools/call", {"name": "wrong_mark", "arguments": {"a": "x"}})
    found = McpClient(r).post(body, {"mcp-param-same": "y"})
    assert found.json()["result"]["structuredContent"] == {"a": "x"}


def test_fields_of_a_tool_that_the_caller_does_not_see_tell_nothing_of_it(r: RunningRegistry) -> None:
    answers = set()
    for name in ("routed", "absent"):
        body = message("tools/call", {"name": name, "arguments": {"region": "eu"}})
        found = McpClient(r, who="nobody").post(body, {"mcp-param-region": "us"})
        answers.add((found.status_code, found.content))
    assert len(answers) == 1
