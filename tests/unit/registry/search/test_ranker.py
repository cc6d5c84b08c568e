"""The ranker: it follows the views it is asked about, however they alternate."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from frozen_heap import frozen_by
from index_entries import entry
from toolcrib.process.garbage import LARGE
from toolcrib_registry.search.entry import IndexEntry, Pushdown
from toolcrib_registry.search.question import Question
from toolcrib_registry.search.ranker import Ranker
from toolcrib_registry.search.visible import Visible

pytestmark = pytest.mark.anyio


def view(*tools: tuple[str, str]) -> Visible:
    """Tools by object name and description."""
    entries = [entry(f"ns/{i}", digest=text, description=text) for i, text in tools]
    return Visible((e.tool_id, e) for e in entries)


def asked(visible: Visible, text: str) -> Question:
    """By words alone."""
    return Question(view=visible, text=text, vector=None, depth=10, pushdown=Pushdown())


async def found(index: Ranker, visible: Visible, text: str) -> list[str]:
    """The ids that `text` finds."""
    return [r.entry.tool_id for r in await index.rank(asked(visible, text))]


async def test_views_with_other_versions_of_a_tool_are_each_ranked_by_their_own() -> None:
    index = Ranker(0)
    older, newer = view(("a", "weather"), ("b", "file")), view(("a", "city"), ("b", "file"))
    try:
        for _ in range(3):
            assert await found(index, older, "weather") == ["ns/a"]
            assert await found(index, older, "weather") == ["ns/a"]
            assert await found(index, newer, "weather") == []
            assert await found(index, newer, "city") == ["ns/a"]
    finally:
        index.close()


async def test_a_view_that_lost_a_tool_to_another_snapshot_gets_it_back() -> None:
    index = Ranker(0)
    visible = view(("a", "weather"), ("b", "file"))
    try:
        assert await found(index, visible, "file") == ["ns/b"]
        await index.retain(["ns/a"])
        assert await found(index, visible, "file") == ["ns/b"]
    finally:
        index.close()


@pytest.mark.parametrize("always", [False, True])
async def test_a_view_is_ranked_by_its_own_words_whatever_another_snapshot_takes_in_meanwhile(
    always: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = Ranker(0)
    before, after = view(("a", "weather"), ("b", "file")), view(("a", "city"), ("b", "file"))
    taken_in = index._follow_view
    others = iter([after] * (100 if always else 1))

    def overtaken(visible: Mapping[str, IndexEntry]) -> int | None:
        complete = taken_in(visible)
        if (other := next(others, None)) is not None:
            index._follow(other.values())
        return complete

    monkeypatch.setattr(index, "_follow_view", overtaken)
    try:
        assert await found(index, before, "weather") == ["ns/a"]
    finally:
        index.close()


@pytest.mark.slow
async def test_the_words_of_many_tools_are_frozen_once_they_are_taken_in() -> None:
    index = Ranker(0)

    async def taken_in(count: int) -> None:
        await found(index, view(*((f"tool-{i}", f"weather {i}") for i in range(count))), "weather")

    try:
        assert await frozen_by(lambda: taken_in(1)) == 0
        assert await frozen_by(lambda: taken_in(1 + LARGE)) > 0
    finally:
        index.close()


async def test_a_tool_that_left_and_came_back_is_ranked_again_and_one_that_left_is_not_kept() -> None:
    index = Ranker(0)
    visible = view(("a", "weather"), ("b", "file"))
    try:
        await index.follow(visible.values())
        assert await index.update([], ["ns/b"]) == 1
        assert await found(index, visible, "file") == ["ns/b"], "a search of the older view still finds it"
        assert await index.update([], []) == 1, "and leaves nothing behind"

        assert await index.update([visible["ns/b"]], []) == 2
        assert await found(index, visible, "file") == ["ns/b"]
        assert await index.update([], []) == 2
    finally:
        index.close()


async def test_a_changed_tool_takes_the_place_of_the_one_before() -> None:
    index = Ranker(0)
    older, newer = view(("a", "weather"), ("b", "file")), view(("a", "city"), ("b", "file"))
    try:
        await index.follow(older.values())
        assert await index.update([newer["ns/a"]], []) == 2
        version = index.version
        assert await found(index, newer, "city") == ["ns/a"]
        assert index.version == version, "the search had nothing to take in"
    finally:
        index.close()
