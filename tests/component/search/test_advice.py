"""The advised `min_score`: with the packaged model it keeps the right tools of everyday requests, and the guide names it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bench_search
from toolcrib.wire.advice import ADVISED_MIN_SCORE

pytestmark = pytest.mark.anyio
GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "agents.md"


@pytest.fixture(scope="module")
def everyday() -> Iterator[Any]:
    with bench_search.loaded("everyday") as (module,):
        yield module


async def test_nine_of_ten_right_tools_are_above_the_advised_min_score(everyday: Any) -> None:
    asked = await everyday.measured()

    assert all(3 <= len(tools) <= 15 for tools in everyday.views().values())
    assert len({a.text for a in asked if a.right and a.view != "heist"}) >= 20
    for least in (ADVISED_MIN_SCORE, None):
        kept = everyday.shares(asked, least)
        assert min(kept.heist, kept.everyday) >= everyday.GOAL, everyday.shares(asked, least)
    # an advice of nothing at all would reach the goal too
    assert everyday.shares(asked, ADVISED_MIN_SCORE).wrong < 0.5


def test_the_guide_advises_this_value() -> None:
    assert f'`"min_score": {ADVISED_MIN_SCORE:g}` is the most' in GUIDE.read_text()
