"""A view narrowed down by what a caller asks for."""

from __future__ import annotations

import pytest

from index_entries import entry
from toolcrib_registry.search.visible import Filter, Visible, ids_of, narrowed

pytestmark = pytest.mark.anyio


def view(count: int) -> Visible:
    """Tools of two servers, every third with a tag."""
    entries = [
        entry(
            f"ns/t{i}",
            server="AB"[i % 2],
            tags=("Red",) if i % 3 == 0 else (),
            state="Active" if i % 5 else "Deprecated",
        )
        for i in range(count)
    ]
    return Visible((e.tool_id, e) for e in entries)


@pytest.mark.parametrize("count", [30, 3_000])
async def test_filters_combine_and_the_same_filter_gives_the_same_object(count: int) -> None:
    visible = view(count)
    asked = Filter(tags=("red",), servers=("ns/b",), namespaces=("NS",), states=("Active",))

    found = await narrowed(visible, asked)

    assert set(found) == {f"ns/t{i}" for i in range(count) if i % 2 and i % 3 == 0 and i % 5}
    assert await narrowed(visible, Filter(("red",), ("ns/b",), ("NS",), ("Active",))) is found
    assert ids_of(found) is ids_of(found)
    assert len(await narrowed(visible, Filter(tags=("red", "blue")))) == 0
    assert await narrowed(visible, Filter()) is visible
    assert set(await narrowed(dict(visible), asked)) == set(found)


async def test_only_so_many_filters_are_remembered() -> None:
    visible = view(5)
    for i in range(100):
        await narrowed(visible, Filter(tags=(f"tag {i}",)))

    assert len(visible._narrowed or {}) <= 8
