"""Parts of the stdio bridge by themselves: tokens of the local mode, headers, addresses, lines."""

import asyncio
import os
from typing import Any

import pytest

from toolcrib_cli import options
from toolcrib_cli.bridge import headers, messages
from toolcrib_cli.bridge.identity import Minted
from toolcrib_cli.bridge.pipes import Lines, TooLong


class Mint:
    """Counts its tokens."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self, ttl: float) -> str:
        assert ttl == 100
        self.made += 1
        return f"token-{self.made}"


def test_a_minted_token_is_replaced_while_it_has_a_fifth_of_its_time_left() -> None:
    now = [1000.0]
    tokens = Minted(Mint(), ttl=100, clock=lambda: now[0])

    seen = []
    for moment in (1000, 1079, 1080, 1159, 1161):
        now[0] = moment
        seen.append(tokens.current())

    assert seen == ["token-1", "token-1", "token-2", "token-2", "token-3"]


def test_a_minted_token_is_replaced_when_it_was_refused_and_when_the_clock_goes_back() -> None:
    now = [1000.0]
    tokens = Minted(Mint(), ttl=100, clock=lambda: now[0])

    first = tokens.current()
    tokens.discard()
    second = tokens.current()
    now[0] = 500
    assert [first, second, tokens.current()] == ["token-1", "token-2", "token-3"]


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("calculator", "calculator"),
        ("a b", "a b"),
        ("", ""),
        (" a", "=?base64?IGE=?="),
        ("a\r\nX: y", "=?base64?YQ0KWDogeQ==?="),
        ("ü", "=?base64?w7w=?="),
        ("=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?="),
        ("=?base64?", "=?base64?"),
    ],
)
def test_a_header_carries_any_text(text: str, sent: str) -> None:
    assert headers.field_value(text) == sent


@pytest.mark.parametrize(
    ("schema", "found"),
    [
        ({"properties": {"a": {"x-mcp-header": "A"}}}, {("a",): "A"}),
        ({"properties": {"a": {"properties": {"b": {"x-mcp-header": "B"}}}}}, {("a", "b"): "B"}),
        ({"properties": {"a": {"items": {"x-mcp-header": "no"}}}}, {}),
        ({"properties": {"a": {"x-mcp-header": "no header"}}}, {}),
        ({"properties": {"a": {"x-mcp-header": 1}, "b": True}}, {}),
        ({"properties": []}, {}),
        (None, {}),
    ],
)
def test_marks_in_a_schema_count_where_the_protocol_allows_them(schema: Any, found: dict[Any, str]) -> None:
    assert headers.of_schema(schema) == found


def test_arguments_are_repeated_as_text_and_left_out_where_there_is_none() -> None:
    paths = {(name,): name.upper() for name in ("text", "flag", "count", "none", "list", "absent")}
    arguments = {"text": "ü", "flag": False, "count": 7, "none": None, "list": []}
    meta = {messages.VERSION_KEY: "2026-07-28"}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    message = messages.read(messages.line_of({**call, "params": {"arguments": arguments, "_meta": meta}}))

    found = headers.of_message(message, "2025-11-25", paths)

    assert {k: v for k, v in found.items() if k.startswith("Mcp-Param-")} == {
        "Mcp-Param-TEXT": "=?base64?w7w=?=",
        "Mcp-Param-FLAG": "false",
        "Mcp-Param-COUNT": "7",
    }


@pytest.mark.parametrize(
    ("url", "direct", "endpoint"),
    [
        ("https://x", False, "https://x/mcp"),
        ("https://x/", True, "https://x/mcp/direct"),
        ("https://x/mcp", False, "https://x/mcp"),
        ("https://x/mcp/", True, "https://x/mcp/direct"),
        ("https://x/mcp/direct", False, "https://x/mcp/direct"),
        ("https://x/behind/mcp/direct/", True, "https://x/behind/mcp/direct"),
    ],
)
def test_an_address_may_name_the_endpoint(url: str, direct: bool, endpoint: str) -> None:
    assert options.mcp_endpoint(url, direct) == endpoint


@pytest.mark.anyio
async def test_lines_are_whole_and_blank_ones_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib_cli.bridge.pipes.MAX_LINE", 10)
    theirs, ours = os.pipe()
    parts = (b"on", b"e\n\r\n \ntw", b"o\r\n", b"x" * 11 + b"\n", b"y" * 200_000, b"y\nlast")

    def write() -> None:
        for part in parts:
            os.write(ours, part)
        os.close(ours)

    try:
        writing = asyncio.create_task(asyncio.to_thread(write))
        found = [line if isinstance(line, bytes) else TooLong async for line in Lines(theirs)]
        await writing
    finally:
        os.close(theirs)
    assert found == [b"one", b"two", TooLong, TooLong, b"last"]
