"""Servers that break off, lie, flood or trickle: each ends in a typed error, in bounded time and memory."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mcp_upstream import Wire, handshake, serving, stateless
from toolcrib_registry.outbound.errors import (
    Disconnected,
    OutboundError,
    ProtocolViolation,
    TimedOut,
    TooLarge,
)
from toolcrib_registry.upstream.client import McpClient
from toolcrib_registry.upstream.errors import (
    AnswerBroken,
    McpFailure,
    NoticesTooFast,
    RefusedByStatus,
    RequestTooLarge,
)
from toolcrib_registry.upstream.lists import Cut
from toolcrib_registry.upstream.servers import Asking, Question

pytestmark = pytest.mark.anyio
CALL = Question("tools/call", {"name": "read", "arguments": {"path": "a"}})


async def drops(wire: Wire) -> None:
    """No byte of an answer."""


async def drops_mid_stream(wire: Wire) -> None:
    await wire.stream()
    await wire.event({"jsonrpc": "2.0", "method": "notifications/message", "params": {}})


async def drops_mid_json(wire: Wire) -> None:
    await wire.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{")


async def answers_another(wire: Wire) -> None:
    await wire.json({"jsonrpc": "2.0", "id": wire.message["id"] + 1, "result": {"content": []}})


async def answers_another_on_a_stream(wire: Wire) -> None:
    await wire.stream()
    await wire.event({"jsonrpc": "2.0", "id": "none of yours", "result": {"content": []}})


async def answers_true(wire: Wire) -> None:
    await wire.json({"jsonrpc": "2.0", "id": True, "result": {}})


async def no_json(wire: Wire) -> None:
    await wire.raw(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{'a': NaN}"
    )


async def html(wire: Wire) -> None:
    await wire.raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<p>hello")


async def no_result(wire: Wire) -> None:
    await wire.json({"jsonrpc": "2.0", "id": wire.message["id"], "result": [1]})


async def fifty_megabytes(wire: Wire) -> None:
    await wire.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n")
    for _ in range(800):
        await wire.raw(b" " * 65_536)


async def fifty_megabytes_announced(wire: Wire) -> None:
    await wire.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 52428800\r\n\r\n")


async def one_endless_event(wire: Wire) -> None:
    await wire.stream()
    while True:
        await wire.raw(b"data: " + b"x" * 10_000)


async def endless_events(wire: Wire) -> None:
    await wire.stream()
    while True:
        await wire.event({"jsonrpc": "2.0", "method": "n"})


async def endless_requests(wire: Wire) -> None:
    await wire.stream()
    while True:
        await wire.event({"jsonrpc": "2.0", "id": 1, "method": "ping"})


async def nested(wire: Wire) -> None:
    await wire.raw(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" + b"[" * 40_000
    )


async def redirects(wire: Wire) -> None:
    await wire.status(307, "Location: http://127.0.0.1:1/")


async def trickles(wire: Wire) -> None:
    await wire.stream()
    while True:
        await wire.raw(b": slow\n\n")
        await asyncio.sleep(0.02)


async def hangs(_: Wire) -> None:
    await asyncio.Event().wait()


CASES: list[tuple[Callable[[Wire], Awaitable[None]], type[Exception]]] = [
    (drops, Disconnected),
    (drops_mid_stream, AnswerBroken),
    (drops_mid_json, ProtocolViolation),
    (answers_another, AnswerBroken),
    (answers_another_on_a_stream, AnswerBroken),
    (answers_true, AnswerBroken),
    (no_json, AnswerBroken),
    (html, AnswerBroken),
    (no_result, AnswerBroken),
    (fifty_megabytes, TooLarge),
    (fifty_megabytes_announced, TooLarge),
    (one_endless_event, TooLarge),
    (endless_events, AnswerBroken),
    (endless_requests, AnswerBroken),
    (nested, AnswerBroken),
    (redirects, RefusedByStatus),
    (trickles, TimedOut),
    (hangs, TimedOut),
]


@pytest.mark.parametrize("era", [stateless, handshake])
@pytest.mark.parametrize(("behave", "kind"), CASES, ids=lambda each: getattr(each, "__name__", ""))
async def test_a_hostile_answer_is_a_typed_error_in_bounded_time(
    client: McpClient, era: Any, behave: Any, kind: type[Exception]
) -> None:
    up = era()
    works, up.on["tools/call"] = up.on["tools/call"], behave
    async with serving(up):
        began = time.monotonic()
        with pytest.raises(kind):
            await client.ask(up.server(), Asking(1 if kind is TimedOut else 30), CALL)

        assert time.monotonic() - began < 20
        up.on["tools/call"] = works
        assert (await client.ask(up.server(), Asking(), CALL)).fields, "and the next call goes on"


async def test_messages_of_errors_hold_nothing_of_the_servers(client: McpClient) -> None:
    async def says(wire: Wire) -> None:
        await wire.json(
            {"jsonrpc": "2.0", "id": wire.message["id"], "error": {"code": 1, "message": "SECRET"}}
        )

    async with serving(stateless(tools_call=says)) as up:
        with pytest.raises(McpFailure) as told:
            await client.ask(up.server(), Asking(), CALL)

    assert "SECRET" not in str(told.value)


async def test_a_request_that_is_too_large_is_not_sent(client: McpClient) -> None:
    async with serving(stateless()) as up:
        with pytest.raises(RequestTooLarge):
            await client.ask(up.server(), Asking(), Question("tools/call", {"name": "x" * 10_000}))

    assert up.of("tools/call") == []


async def test_a_bad_server_harms_no_other(client: McpClient) -> None:
    async with serving(stateless(tools_call=hangs)) as bad, serving(stateless()) as good:
        waiting = [
            asyncio.create_task(client.ask(bad.server("team/bad"), Asking(60), CALL)) for _ in range(50)
        ]
        await bad.arrived("tools/call", 50)

        assert (await client.ask(good.server("team/good"), Asking(5), CALL)).fields

        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def pages(cursor_of: Callable[[int], str | None], pad: int = 0) -> Callable[[Wire], Awaitable[None]]:
    """A list of a tool a page; its page's number is the cursor's."""
    asked = 0

    async def page(wire: Wire) -> None:
        nonlocal asked
        asked += 1
        tool = {"name": f"tool-{asked}", "description": "x" * pad, "inputSchema": {"type": "object"}}
        cursor = cursor_of(asked)
        more = {} if cursor is None else {"nextCursor": cursor}
        await wire.result(tools=[tool], ttlMs=5_000, **more)

    return page


async def test_a_list_is_read_page_by_page(client: McpClient) -> None:
    async with serving(stateless(tools_list=pages(lambda n: f"c{n}" if n < 3 else None))) as up:
        found = await client.listed(up.server(), Asking())

    assert [tool["name"] for tool in found.entries] == ["tool-1", "tool-2", "tool-3"]
    assert (found.cut, found.ttl_ms, found.facts.info["name"]) == (None, 5_000, "files")
    assert [w.message["params"].get("cursor") for w in up.of("tools/list")] == [None, "c1", "c2"]


@pytest.mark.parametrize(
    ("cursor_of", "pad", "cut", "asked"),
    [
        (lambda n: "same", 0, Cut.REPEATED, 2),
        (lambda n: f"c{n}", 0, Cut.PAGES, 5),
        (lambda n: f"c{n % 2}", 0, Cut.REPEATED, 3),
    ],
)
async def test_a_list_without_an_end_is_cut_and_says_so(
    client: McpClient, cursor_of: Any, pad: int, cut: Cut, asked: int
) -> None:
    async with serving(stateless(tools_list=pages(cursor_of, pad))) as up:
        found = await client.listed(up.server(), Asking())

    assert found.cut is cut
    assert len(up.of("tools/list")) == asked


async def test_a_list_may_not_grow_beyond_its_bytes_over_many_pages(client: McpClient) -> None:
    async with serving(stateless(tools_list=pages(lambda n: f"c{n}", 20_000))) as up:
        with pytest.raises(TooLarge):
            await client.listed(up.server(), Asking())

    assert len(up.of("tools/list")) == 3


@pytest.mark.parametrize("listed", [None, {}, "x", 7])
async def test_a_list_that_is_none_is_refused(client: McpClient, listed: Any) -> None:
    async def page(wire: Wire) -> None:
        await wire.result(tools=listed)

    async with serving(stateless(tools_list=page)) as up:
        with pytest.raises(AnswerBroken):
            await client.listed(up.server(), Asking())


async def test_notices_are_bounded_one_by_one_and_never_pile_up(client: McpClient) -> None:
    async def floods(wire: Wire) -> None:
        await wire.stream()
        while True:
            await wire.event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})

    async with serving(stateless(subscriptions_listen=floods)) as up:
        heard = 0

        async def hear() -> None:
            nonlocal heard
            async with client.listen(up.server(), Asking(5)) as notices:
                async for _ in notices:
                    heard += 1

        with pytest.raises(NoticesTooFast):
            await hear()
        assert 0 < heard < 10_000

        async def too_large(wire: Wire) -> None:
            await wire.stream()
            await wire.raw(b"data: " + json.dumps("x" * 100_000).encode())
            await asyncio.Event().wait()

        up.on["subscriptions/listen"] = too_large

        async def listen() -> None:
            async with asyncio.timeout(10), client.listen(up.server(), Asking(5)) as notices:
                async for _ in notices:
                    pass

        with pytest.raises((AnswerBroken, OutboundError)):
            await listen()
