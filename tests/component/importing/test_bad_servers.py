"""One bad server costs itself alone: what it sends is bounded and named, and a good one beside it is not delayed."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from imports_harness import BOUNDS, Imports, wanted
from mcp_lists import CHANGED, Listing, definition, modern
from mcp_upstream import McpUpstream, Wire, handshake, serving
from toolcrib.wire.imports import MOST_TOOLS, ServerOutcome, ServerSeen
from toolcrib_registry.importing.importer import AT_ONCE, LARGE_AT_ONCE
from toolcrib_registry.importing.listening import TOO_FAST
from toolcrib_registry.importing.watch import SMALL

pytestmark = pytest.mark.anyio
Behave = Callable[[Wire], Awaitable[None]]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"


async def hangs(wire: Wire) -> None:
    await asyncio.Event().wait()


async def hangs_mid_list(wire: Wire) -> None:
    await wire.raw(HEAD + b'{"jsonrpc": "2.0", "id": 1, "result": {"tools": [')
    await asyncio.Event().wait()


async def fifty_megabytes(wire: Wire) -> None:
    await wire.raw(HEAD)
    for _ in range(800):
        await wire.raw(b" " * 65_536)


async def fifty_megabytes_on_a_stream(wire: Wire) -> None:
    await wire.stream()
    await wire.raw(b"data: ")
    for _ in range(800):
        await wire.raw(b"x" * 65_536)


async def drops_mid_stream(wire: Wire) -> None:
    await wire.stream()
    await wire.event({"jsonrpc": "2.0", "method": "notifications/message", "params": {}})


async def same_cursor(wire: Wire) -> None:
    await wire.result(tools=[definition("read")], nextCursor="again")


async def endless_pages(wire: Wire) -> None:
    number = int(wire.message["params"].get("cursor", "0"))
    await wire.result(tools=[], nextCursor=str(number + 1))


async def many_tools(wire: Wire) -> None:
    await wire.result(tools=[definition(f"tool-{n}") for n in range(MOST_TOOLS + 1)])


async def answers_another(wire: Wire) -> None:
    await wire.json(
        {"jsonrpc": "2.0", "id": wire.message["id"] + 1, "result": {"tools": [definition("read")]}}
    )


async def no_list(wire: Wire) -> None:
    await wire.result(tools={"read": {}})


async def floods(wire: Wire) -> None:
    """10⁶ notices, as fast as they are taken."""
    await wire.stream()
    params = {"notifications": {"toolsListChanged": True}}
    await wire.event(
        {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params}
    )
    notice = b"data: " + json.dumps({"jsonrpc": "2.0", "method": CHANGED}).encode() + b"\n\n"
    for _ in range(1_000):
        await wire.raw(notice * 1_000)


BAD: list[tuple[Behave, ServerOutcome, str]] = [
    (hangs, ServerOutcome.UNREACHABLE, "response"),
    (hangs_mid_list, ServerOutcome.UNREACHABLE, "response"),
    (fifty_megabytes, ServerOutcome.TOO_LARGE, "16"),
    (fifty_megabytes_on_a_stream, ServerOutcome.TOO_LARGE, "16"),
    (drops_mid_stream, ServerOutcome.PROTOCOL_ERROR, "stream"),
    (same_cursor, ServerOutcome.PROTOCOL_ERROR, "cursor came twice"),
    (endless_pages, ServerOutcome.TOO_LARGE, "100 pages"),
    (many_tools, ServerOutcome.TOO_LARGE, "2000 tools"),
    (answers_another, ServerOutcome.PROTOCOL_ERROR, "another request"),
    (no_list, ServerOutcome.PROTOCOL_ERROR, "list"),
]


def with_list(behave: Behave) -> McpUpstream:
    up = modern(Listing())
    up.on["tools/list"] = behave
    return up


@pytest.mark.parametrize(("behave", "outcome", "says"), BAD, ids=lambda each: getattr(each, "__name__", ""))
async def test_a_bad_list_is_named_and_no_part_of_it_is_used(
    imports: Imports, behave: Behave, outcome: ServerOutcome, says: str
) -> None:
    async with serving(with_list(behave)) as up:
        imports.want(wanted(up, timeout=1 if behave in (hangs, hangs_mid_list) else 30, listen=False))
        row = await imports.seen(outcome)

    assert says in row.detail
    assert (row.set_digest, row.tools) == (None, None)


async def test_a_list_of_as_many_tools_as_may_be_is_read(imports: Imports) -> None:
    listing = Listing([definition(f"tool-{n}") for n in range(MOST_TOOLS)])
    async with serving(modern(listing)) as up:
        imports.want(wanted(up))
        row = await imports.seen(ServerOutcome.LISTED)

    assert row.tools == MOST_TOOLS


async def test_a_list_of_megabytes_is_read_within_the_bound(imports: Imports) -> None:
    listing = Listing([definition(f"tool-{n}", title="x" * 100_000) for n in range(30)])
    async with serving(modern(listing)) as up:
        imports.want(wanted(up))
        row = await imports.until(lambda row: row.listening)
        assert row.tools == 30
        await listing.change([definition("read")])
        await imports.until(lambda row: row.tools == 1)


async def test_entries_that_are_no_tools_are_named_and_cost_the_others_nothing(imports: Imports) -> None:
    deep: dict[str, Any] = {}
    for _ in range(100):
        deep = {"properties": deep}
    bad: list[tuple[Any, str, str]] = [
        ("read", "", "object"),
        ({"inputSchema": {}}, "", "name"),
        (definition("", inputSchema={}), "", "name"),
        ({"name": "no schema"}, "no schema", "inputSchema"),
        (definition("odd title", title=7), "odd title", "title"),
        (definition("odd icons", icons=["x"]), "odd icons", "icons"),
        (definition("deep", inputSchema=deep), "deep", "deeper"),
        (definition("vast", title="x" * 600_000), "vast", "larger"),
        (definition("huge", inputSchema={"maximum": 10**400}), "huge", "number"),
    ]
    listing = Listing([definition("read"), *(entry for entry, _, _ in bad), definition("read")])
    async with serving(modern(listing)) as up:
        imports.want(wanted(up))
        row = await imports.seen(ServerOutcome.LISTED)
        found = await imports.listed()

    assert row.tools == len(listing.tools)
    assert [tool.name for tool in found.tools] == ["read", "read"], "of two tools of one name both are told"
    assert [entry.name for entry in found.unusable] == [name for _, name, _ in bad]
    for entry, (_, _, says) in zip(found.unusable, bad, strict=True):
        assert says in entry.reason


async def test_integers_keep_all_their_digits(imports: Imports) -> None:
    schema = {"type": "object", "maximum": 2**70}
    async with serving(modern(Listing([definition("read", inputSchema=schema)]))) as up:
        imports.want(wanted(up))
        await imports.seen(ServerOutcome.LISTED)
        assert (await imports.listed()).tools[0].input_schema == schema


async def test_a_flood_of_notices_is_not_followed_and_the_list_is_read_at_intervals(imports: Imports) -> None:
    listing = Listing()
    up = modern(listing)
    up.on["subscriptions/listen"] = floods
    async with serving(up):
        imports.want(wanted(up, every=1))
        row = await imports.until(lambda row: row.detail == TOO_FAST)
        assert row.outcome is ServerOutcome.LISTED
        assert row.listening is False
        listing.tools = [definition("read"), definition("write")]
        await imports.until(lambda row: row.tools == 2)
        assert len(up.of("subscriptions/listen")) == 1, "it is not asked at once to go on"


async def test_notices_without_an_end_cause_few_looks(imports: Imports) -> None:
    listing = Listing()
    async with serving(modern(listing)) as up:
        imports.want(wanted(up))
        await imports.until(lambda row: row.listening)
        ended = time.monotonic() + 4
        while time.monotonic() < ended:
            await listing.tell()
            await asyncio.sleep(0.005)
        assert len(up.of("tools/list")) < 40


async def test_lists_that_exceed_the_memory_for_all_are_refused_and_the_others_stay(imports: Imports) -> None:
    import secrets

    def filled() -> McpUpstream:  # does not compress well
        return modern(Listing([definition(f"tool-{n}", title=secrets.token_hex(200_000)) for n in range(6)]))

    async with serving(filled()) as one, serving(filled()) as other:
        imports.want(wanted(one))
        await imports.seen(ServerOutcome.LISTED)
        imports.want(wanted(one), wanted(other, "team/other"))
        await imports.seen(ServerOutcome.TOO_LARGE, "team/other")
        imports.want(wanted(other, "team/other", every=1))
        await imports.seen(ServerOutcome.LISTED, "team/other")


@asynccontextmanager
async def beside(*behaviours: tuple[str, Behave]) -> AsyncIterator[list[McpUpstream]]:
    """Bad servers: each does something else than a server does, by method."""
    async with AsyncExitStack() as stack:
        made = []
        for method, behave in behaviours:
            up = modern(Listing())
            up.on[method] = behave
            made.append(await stack.enter_async_context(serving(up)))
        yield made


async def latencies(imports: Imports, listing: Listing, changes: int) -> list[float]:
    """Seconds from each change until it is reported."""
    took = []
    for n in range(changes):
        count = n % 3 + 2
        began = time.monotonic()
        await listing.change([definition(f"tool-{i}") for i in range(count)])

        def listed(row: ServerSeen, count: int = count) -> bool:
            return row.tools == count

        await imports.until(listed, "team/good")
        took.append(time.monotonic() - began)
    return sorted(took)


async def test_a_good_server_beside_bad_ones_is_not_delayed(imports: Imports) -> None:
    """One that hangs, one that sends 50 MB, one that floods, one that breaks off, one that never ends."""
    listing = Listing()
    bad = (
        ("tools/list", hangs),
        ("server/discover", hangs),
        ("tools/list", fifty_megabytes),
        ("subscriptions/listen", floods),
        ("tools/list", drops_mid_stream),
        ("tools/list", endless_pages),
    )
    async with serving(modern(listing)) as good, beside(*bad) as others:
        imports.want(wanted(good, "team/good"))
        await imports.until(lambda row: row.listening, "team/good")
        alone = await latencies(imports, listing, 8)
        named = [wanted(up, f"team/bad-{n}", every=1, timeout=5) for n, up in enumerate(others)]
        imports.want(wanted(good, "team/good"), *named)
        for up, (method, _) in zip(others, bad, strict=True):
            await up.arrived(method)
        together = await latencies(imports, listing, 8)

    # the servers run in this process too: their work is in it
    assert together[len(together) // 2] < max(0.5, 4 * alone[len(alone) // 2])


async def test_hundreds_of_silent_servers_delay_no_other(imports: Imports) -> None:
    silent = handshake()
    silent.on["server/discover"] = hangs
    listing = Listing()
    async with serving(silent), serving(modern(listing)) as good:
        named = [wanted(silent, f"team/silent-{n:03}", timeout=60) for n in range(300)]
        imports.want(*named)
        await silent.arrived("server/discover", 100)
        imports.want(*named, wanted(good, "team/good"))
        began = time.monotonic()
        await imports.seen(ServerOutcome.LISTED, "team/good")
        assert time.monotonic() - began < 5


async def hangs_in_a_large_list(wire: Wire) -> None:
    await wire.raw(HEAD + b'{"jsonrpc": "2.0", "id": 1, "result": {"tools": [' + b" " * 2 * SMALL)
    await asyncio.Event().wait()


async def test_servers_that_hang_in_large_lists_give_way_and_are_read_in_a_later_turn(
    imports: Imports,
) -> None:
    large = Listing([definition(f"tool-{n}", title="x" * 10_000) for n in range(100)])

    async def slow_at_first(wire: Wire) -> None:
        # the first look ends at the bound of small lists, the second one is the first turn
        if len(others[0].of("tools/list")) > 2:
            await wire.result(tools=large.tools)
        else:
            await hangs_in_a_large_list(wire)

    hanging = [("tools/list", hangs_in_a_large_list)] * (LARGE_AT_ONCE - 1)
    async with serving(modern(large)) as good, beside(("tools/list", slow_at_first), *hanging) as others:
        named = [wanted(up, f"bad/server-{n}", timeout=60) for n, up in enumerate(others)]
        imports.want(*named)
        for up in others:
            await up.arrived("tools/list", 2)
        imports.want(*named, wanted(good, "team/good"))
        await imports.seen(ServerOutcome.LISTED, "team/good", seconds=20)
        await imports.seen(ServerOutcome.LISTED, "bad/server-0", seconds=20)


def test_the_bounds_are_those_that_are_documented() -> None:
    assert (BOUNDS.tools, BOUNDS.pages, BOUNDS.list_bytes) == (2_000, 100, 16 << 20)
    assert (AT_ONCE, SMALL) == (30, 256 << 10)
