"""Lists, contents, prompts and completions of servers of both eras, within the bounds of every answer."""

import asyncio
import base64
from typing import Any

import pytest

from mcp_upstream import POLICY, McpUpstream, Wire, handshake, serving, stateless
from toolcrib_registry.adapters.outbound.http import OutboundHttp
from toolcrib_registry.outbound.errors import TooLarge
from toolcrib_registry.upstream.client import McpClient
from toolcrib_registry.upstream.errors import AnswerBroken, RefusedByRpc
from toolcrib_registry.upstream.lists import Cut, Kind
from toolcrib_registry.upstream.servers import Asking, Bounds, Question

pytestmark = pytest.mark.anyio
LISTED = [Kind.RESOURCES, Kind.TEMPLATES, Kind.PROMPTS]
READ = Question("resources/read", {"uri": "file:///größe.txt"})
GET = Question("prompts/get", {"name": "review", "arguments": {"code": "x"}})
COMPLETE = Question(
    "completion/complete",
    {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "code", "value": "x"}},
)


def pages_of(kind: Kind, numbers: list[int]) -> Any:
    """An entry a page."""

    async def page(wire: Wire) -> None:
        cursor = wire.message["params"].get("cursor")
        at = 0 if cursor is None else int(cursor)
        more = {"nextCursor": str(at + 1)} if at + 1 < len(numbers) else {}
        await wire.result(**{kind.value: [{"name": f"n{numbers[at]}"}], "ttlMs": 7_000}, **more)

    return page


@pytest.mark.parametrize("era", [stateless, handshake])
@pytest.mark.parametrize("kind", LISTED)
async def test_each_list_is_read_page_by_page_in_both_eras(client: McpClient, era: Any, kind: Kind) -> None:
    up: McpUpstream = era()
    up.on[kind.method] = pages_of(kind, [1, 2, 3])
    async with serving(up):
        found = await client.listed(up.server(), Asking(), kind)

    assert [entry["name"] for entry in found.entries] == ["n1", "n2", "n3"]
    assert (found.cut, found.ttl_ms) == (None, 7_000)
    assert [wire.message["params"].get("cursor") for wire in up.of(kind.method)] == [None, "1", "2"]


@pytest.mark.parametrize(
    ("era", "scopes", "private"),
    [
        (stateless, ["public", "public"], False),
        (stateless, ["public", "private"], True),
        (stateless, ["private", "public"], True),
        (stateless, ["public", None], True),  # required in this revision
        (stateless, [{"odd": 1}], True),
        (handshake, [None, None], False),
        (handshake, [None, "private"], True),
        (handshake, ["public"], False),
    ],
)
async def test_a_list_is_private_unless_each_page_is_for_everybody(
    client: McpClient, era: Any, scopes: list[Any], private: bool
) -> None:
    async def page(wire: Wire) -> None:
        at = int(wire.message["params"].get("cursor", 0))
        more: dict[str, Any] = {"nextCursor": str(at + 1)} if at + 1 < len(scopes) else {}
        await wire.result(prompts=[], **more, **({} if scopes[at] is None else {"cacheScope": scopes[at]}))

    up: McpUpstream = era()
    up.on["prompts/list"] = page
    async with serving(up):
        assert (await client.listed(up.server(), Asking(), Kind.PROMPTS)).private is private


@pytest.mark.parametrize("kind", LISTED)
async def test_a_list_without_an_end_is_cut_at_its_pages_and_one_that_repeats_a_cursor_at_once(
    client: McpClient, kind: Kind
) -> None:
    async def endless(wire: Wire) -> None:
        asked = len(up.of(kind.method))
        await wire.result(**{kind.value: [], "nextCursor": str(asked)})

    async def repeats(wire: Wire) -> None:
        await wire.result(**{kind.value: [], "nextCursor": "again"})

    up = stateless()
    async with serving(up):
        up.on[kind.method] = endless
        assert (await client.listed(up.server(), Asking(), kind)).cut is Cut.PAGES
        assert len(up.of(kind.method)) == 5
        up.on[kind.method] = repeats
        assert (await client.listed(up.server(), Asking(), kind)).cut is Cut.REPEATED
        assert len(up.of(kind.method)) == 7


async def test_a_list_has_at_most_so_many_entries_and_bytes() -> None:
    async def many(wire: Wire) -> None:
        await wire.result(resources=[{"uri": f"file:///{n}"} for n in range(40)])

    async with OutboundHttp(POLICY) as outbound, serving(stateless(resources_list=many)) as up:
        client = McpClient(outbound, Bounds(entries=39))
        assert (await client.listed(up.server(), Asking(), Kind.RESOURCES)).cut is Cut.ENTRIES
        with pytest.raises(TooLarge):
            await client.listed(up.server(), Asking(), Kind.RESOURCES, at_most=100)
        await client.close()


@pytest.mark.parametrize("listed", [None, {}, "x", 7])
async def test_a_list_that_is_none_is_refused(client: McpClient, listed: Any) -> None:
    async def page(wire: Wire) -> None:
        await wire.result(prompts=listed)

    async with serving(stateless(prompts_list=page)) as up:
        with pytest.raises(AnswerBroken):
            await client.listed(up.server(), Asking(), Kind.PROMPTS)


@pytest.mark.parametrize(
    ("question", "name"),
    [(READ, f"=?base64?{base64.b64encode('file:///größe.txt'.encode()).decode()}?="), (GET, "review"), (COMPLETE, None)],
    ids=["read", "get", "complete"],
)  # fmt: skip
async def test_a_stateless_server_gets_the_name_in_a_header_where_the_revision_has_one(
    client: McpClient, question: Question, name: str | None
) -> None:
    async def answer(wire: Wire) -> None:
        await wire.result(resultType="complete")

    up = stateless()
    up.on[question.method] = answer
    async with serving(up):
        assert (await client.ask(up.server(), Asking(), question)).fields == {"resultType": "complete"}

    (asked,) = up.of(question.method)
    assert asked.request.headers["mcp-method"] == question.method
    assert asked.request.headers.get("mcp-name") == name
    assert {key: asked.message["params"][key] for key in question.params} == question.params


@pytest.mark.parametrize("question", [READ, GET, COMPLETE], ids=["read", "get", "complete"])
async def test_a_server_of_sessions_is_asked_within_one(client: McpClient, question: Question) -> None:
    async def answer(wire: Wire) -> None:
        await wire.result(contents=[])

    up = handshake()
    up.on[question.method] = answer
    async with serving(up):
        await client.ask(up.server(), Asking(), question)

    (asked,) = up.of(question.method)
    assert asked.request.headers["mcp-session-id"] == "session-1"
    assert "mcp-name" not in asked.request.headers
    assert "_meta" not in asked.message["params"]


async def test_a_resource_of_a_hundred_megabytes_is_refused_while_it_comes(client: McpClient) -> None:
    sent, ended = 0, asyncio.Event()

    async def large(wire: Wire) -> None:
        nonlocal sent
        await wire.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n")
        await wire.raw(b'{"jsonrpc":"2.0","id":1,"result":{"contents":[{"uri":"file:///a","text":"')
        try:
            for _ in range(1_600):
                await wire.raw(b"x" * 65_536)
                sent += 65_536
        finally:
            ended.set()

    async with serving(stateless(resources_read=large)) as up:
        with pytest.raises(TooLarge):
            await client.ask(up.server(), Asking(), READ)
        await asyncio.wait_for(ended.wait(), 20)

    assert sent < 50_000_000


async def test_an_unknown_resource_is_the_servers_error_with_its_code(client: McpClient) -> None:
    async def unknown(wire: Wire) -> None:
        await wire.error(-32002, "Resource not found", data={"uri": "file:///größe.txt"})

    async with serving(handshake(resources_read=unknown)) as up:
        with pytest.raises(RefusedByRpc) as refused:
            await client.ask(up.server(), Asking(), READ)

    assert refused.value.code == -32002


async def test_a_list_that_changes_during_a_call_is_told_with_its_kind(client: McpClient) -> None:
    told: list[tuple[str, Kind]] = []
    client.on_change = lambda key, kind: told.append((key, kind))

    async def changes(wire: Wire) -> None:
        await wire.stream()
        for kind in ("prompts", "resources", "tools"):
            await wire.event({"jsonrpc": "2.0", "method": f"notifications/{kind}/list_changed"})
        await wire.answer(contents=[])

    async with serving(stateless(resources_read=changes)) as up:
        await client.ask(up.server(), Asking(), READ)

    assert told == [("team/files", kind) for kind in (Kind.PROMPTS, Kind.RESOURCES, Kind.TOOLS)]


async def test_notices_are_asked_for_by_list(client: McpClient) -> None:
    async def listens(wire: Wire) -> None:
        await wire.stream()
        await wire.event({"jsonrpc": "2.0", "method": "notifications/prompts/list_changed"})

    kinds = (Kind.PROMPTS, Kind.RESOURCES)
    async with (
        serving(stateless(subscriptions_listen=listens)) as up,
        client.listen(up.server(), Asking(), kinds) as notices,
    ):
        heard = [notice.method async for notice in notices]

    assert heard == ["notifications/prompts/list_changed"]
    wanted = up.of("subscriptions/listen")[0].message["params"]["notifications"]
    assert wanted == {"promptsListChanged": True, "resourcesListChanged": True}
