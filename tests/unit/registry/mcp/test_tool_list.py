"""Lists for models: pages by count and by bytes, shared by equal views, within a bound."""

import json
from typing import Any

import pytest

from registry_harness import tool
from toolcrib.identity import Identity, ScopesPolicy
from toolcrib.snapshot import Snapshot
from toolcrib.view import View, view_of
from toolcrib.wire.publish import Publish, Revision
from toolcrib_registry.mcp import tool_list
from toolcrib_registry.mcp.protocol import RpcError
from toolcrib_registry.mcp.tool_list import ToolList, ToolLists


def listed(*texts: bytes) -> ToolList:
    ids = [f"team/{i:03}" for i in range(len(texts))]
    return ToolList(ids, [f"name-{i}" for i in range(len(texts))], texts)


def walked(found: ToolList) -> list[list[Any]]:
    """The pages from the first to the last."""
    pages: list[list[Any]] = []
    after: str | None = ""
    while after is not None:
        page, count, after = found.page(after)
        pages.append(json.loads(page))
        assert len(pages[-1]) == count
    return pages


@pytest.mark.parametrize(("count", "sizes"), [(0, [0]), (1, [1]), (200, [200]), (401, [200, 200, 1])])
def test_a_page_has_at_most_200_tools(count: int, sizes: list[int]) -> None:
    pages = walked(listed(*(b'{"n":%d}' % i for i in range(count))))

    assert [len(page) for page in pages] == sizes
    assert [one["n"] for page in pages for one in page] == list(range(count))


def test_a_page_ends_earlier_where_tools_are_large_and_has_one_at_least(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tool_list, "PAGE_BYTES", 50)
    texts = [b'"%b"' % (b"x" * size) for size in (10, 20, 100, 5, 5)]

    pages = walked(listed(*texts))

    assert [[len(text) for text in page] for page in pages] == [[10, 20], [100], [5, 5]]


def test_a_walk_goes_on_after_a_tool_that_has_gone_meanwhile() -> None:
    page, count, more = listed(b"1", b"2", b"3").page("team/001x")

    assert (page, count, more) == (b"[3]", 1, None)


def test_the_digest_names_the_content() -> None:
    assert listed(b"1", b"2").digest == listed(b"1", b"2").digest != listed(b"1", b"3").digest


@pytest.mark.parametrize("cursor", ["*", "ä", "a", "/w=="])
def test_what_is_no_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(RpcError, match="Invalid cursor"):
        tool_list.after(cursor)


def test_a_cursor_means_the_id_that_it_was_made_of() -> None:
    assert tool_list.after(tool_list.cursor("team/a-tool")) == "team/a-tool"
    assert tool_list.after(None) == ""


def view(*names: str) -> View:
    """Of a token whose scopes decide, which sees all of them."""
    identity = Identity(
        issuer="https://issuer.test",
        subject="alice",
        scopes=frozenset(f"{name}:use" for name in names),
        policy=ScopesPolicy.TOKEN,
        expires_at=1e12,
    )
    step = Publish(to=Revision(epoch=1, seq=1), tools=tuple(map(tool, names)), bindings=())
    return view_of(identity, Snapshot().apply(step), 1.0)


@pytest.mark.anyio
async def test_equal_views_share_one_list_in_each_era() -> None:
    lists = ToolLists()

    one = await lists.of(view("a", "b"), "2025-11-25")

    assert await lists.of(view("b", "a"), "2025-03-26") is one
    assert await lists.of(view("a"), "2025-11-25") is not one
    assert await lists.of(view("a", "b"), "2026-07-28") is not one


@pytest.mark.anyio
async def test_the_lists_used_longest_ago_make_room_and_the_latest_stays_however_large_it_is() -> None:
    weight = (await ToolLists().of(view("a"), "2026-07-28")).weight
    lists = ToolLists(most=2 * weight)
    kept = [await lists.of(view(name), "2026-07-28") for name in "ab"]
    assert await lists.of(view("a"), "2026-07-28") is kept[0]

    await lists.of(view("c"), "2026-07-28")

    assert lists.size == 2 * weight
    assert await lists.of(view("a"), "2026-07-28") is kept[0]
    assert await lists.of(view("b"), "2026-07-28") is not kept[1]
    large = await lists.of(view("a", "b", "c", "d"), "2026-07-28")
    assert lists.size == large.weight > 2 * weight
