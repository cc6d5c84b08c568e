"""Lists of tools: pages, cursors, and how much of them is kept."""

import asyncio
import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry_harness import tool
from toolcrib.view import View
from toolcrib_registry.mcp import tool_list
from toolcrib_registry.mcp.protocol import RpcError
from toolcrib_registry.mcp.tool_list import PAGE, ToolList, ToolLists, after, cursor, made

_IDS = st.lists(st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=8), unique=True).map(
    sorted
)


def listed(ids: list[str], size: int = 0) -> ToolList:
    """A list of these ids, each of so many bytes at least."""
    texts = tuple(json.dumps([i, "x" * size]).encode() for i in ids)
    return ToolList(tuple(ids), tuple(ids), texts)


def pages(found: ToolList, start: str = "") -> list[list[str]]:
    """The ids of all pages, by their cursors."""
    shown, at = [], start
    while True:
        page, count, more = found.page(at)
        shown.append([each for each, _ in json.loads(page)])
        assert len(shown[-1]) == count
        if more is None:
            return shown
        at = after(cursor(more))


@given(st.integers(0, 1_000))
def test_pages_are_full_but_the_last_and_hold_everything_once(count: int) -> None:
    ids = [f"{n:05}" for n in range(count)]
    found = pages(listed(ids))
    assert [name for page in found for name in page] == ids
    assert all(len(page) == PAGE for page in found[:-1])


@given(_IDS, _IDS, st.data())
def test_what_stays_while_others_come_and_go_is_listed_exactly_once(
    stay: list[str], come: list[str], data: Any
) -> None:
    before = sorted({*stay, *data.draw(_IDS)})
    half = len(before) // 2
    seen, now = before[:half], sorted({*stay, *come})
    rest = [name for page in pages(listed(now), seen[-1] if seen else "") for name in page]
    assert len(rest) == len(set(rest))
    assert not set(rest) & set(seen)
    assert set(stay) <= set(seen) | set(rest)


def test_a_page_ends_before_it_is_too_large_and_one_large_tool_is_a_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tool_list, "PAGE_BYTES", 1_000)
    assert [len(page) for page in pages(listed([f"{n}" for n in range(9)], 400))] == [2, 2, 2, 2, 1]
    assert [len(page) for page in pages(listed(["a", "b"], 5_000))] == [1, 1]


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=40))
def test_a_cursor_is_what_it_was_made_of(text: str) -> None:
    assert after(cursor(text)) == text


@given(st.text(max_size=12))
def test_any_text_is_a_cursor_or_refused(text: str) -> None:
    with contextlib.suppress(RpcError):
        assert type(after(text)) is str


def view(name: str, count: int, size: int = 100) -> View:
    """A view of so many tools."""
    tools = {f"team/t{n}": tool(f"t{n}", description="x" * size) for n in range(count)}
    names = {each.name: i for i, each in tools.items()}
    return View(dict(sorted(tools.items())), names, {}, 0.0, name)


def test_lists_are_kept_by_what_is_seen_and_the_latest_used_stay_within_the_bound() -> None:
    async def run() -> None:
        one = made(view("x", 10), stateless=True).weight
        lists = ToolLists(3 * one)
        a = await lists.of(view("a", 10), "2026-07-28")
        assert await lists.of(view("a", 10), "2026-07-28") is a
        assert await lists.of(view("a", 10), "2025-11-25") is not a
        assert await lists.of(view("a", 10), "2025-11-25") is await lists.of(view("a", 10), "2025-03-26")
        await lists.of(view("b", 10), "2026-07-28")
        assert await lists.of(view("a", 10), "2026-07-28") is a, "used again"
        for name in "cd":
            await lists.of(view(name, 10), "2026-07-28")
            assert lists.size <= 3 * one
        assert await lists.of(view("a", 10), "2026-07-28") is a
        whole = await lists.of(view("large", 1_000), "2026-07-28")
        assert await lists.of(view("large", 1_000), "2026-07-28") is whole, "the latest stays, however large"
        await lists.of(view("e", 10), "2026-07-28")
        assert lists.size <= 3 * one

    asyncio.run(run())


def test_those_who_want_a_long_list_at_the_same_time_wait_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    count, real = 0, tool_list.made

    def counted(*given: Any, **options: Any) -> ToolList:
        nonlocal count
        count += 1
        return real(*given, **options)

    monkeypatch.setattr(tool_list, "made", counted)

    async def run() -> set[int]:
        lists, seen = ToolLists(), view("a", 500)
        return {id(each) for each in await asyncio.gather(*(lists.of(seen, "2026-07-28") for _ in range(20)))}

    assert len(asyncio.run(run())) == 1
    assert count == 1


def test_the_digest_names_what_is_listed() -> None:
    one, other = made(view("a", 3), stateless=True), made(view("b", 3), stateless=True)
    assert one.digest == other.digest
    assert made(view("a", 4), stateless=True).digest != one.digest
    assert made(view("a", 3, 101), stateless=True).digest != one.digest


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({}, {"type": "object"}),
        ({"properties": {"a": {}}}, {"type": "object", "properties": {"a": {}}}),
        ({"$ref": "#/$defs/a", "$defs": {"a": {}}}, {"type": "object", "$ref": "#/$defs/a", "$defs": {"a": {}}}),
        ({"properties": {}, "type": "object"}, {"properties": {}, "type": "object"}),
        ({"type": "object", "x": 1}, {"type": "object", "x": 1}),
    ],
)  # fmt: skip
def test_the_root_of_a_schema_says_that_it_is_of_objects(
    schema: dict[str, Any], shown: dict[str, Any]
) -> None:
    for stateless in (False, True):
        text = tool_list.definition(tool("a", input_schema=schema), "a", stateless=stateless)
        assert json.loads(text)["inputSchema"] == shown
