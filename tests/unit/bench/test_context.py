"""What a task costs in each mode, with the product's loop and prompts: it does not grow with the number of tools."""

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

from toolcrib_runner.modes.kinds import Mode

BENCH = Path(__file__).parents[3] / "bench"
Cost = Callable[[Mode, int], int]


@pytest.fixture
def cost(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cost]:
    """Prompt tokens of a task of azure_mcp in a mode, with so many tools."""
    monkeypatch.syspath_prepend(str(BENCH))
    context = import_module("context")
    rows = context.sets(context.SUBSET)["azure_mcp"]
    yield lambda mode, tools: context.bill(mode, context.catalog(rows, tools), 1).total
    sys.modules.pop("context", None)


@pytest.mark.parametrize("mode", [Mode.DYNAMIC, Mode.BATCHED, Mode.CACHED, Mode.HYBRID])
def test_a_task_costs_at_most_half_a_token_more_for_each_further_tool(cost: Cost, mode: Mode) -> None:
    assert cost(mode, 155) - cost(mode, 15) <= 0.5 * 140


def test_each_committed_set_is_billed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    context = import_module("context")
    for name, rows in context.sets(context.SUBSET).items():
        made = context.catalog(rows, len(rows))
        assert context.bill(Mode.BATCHED, made, context.TOOLS_A_TASK[name]).total > 0
    sys.modules.pop("context", None)


def test_modes_that_search_save_what_the_table_says(cost: Cost) -> None:
    static = cost(Mode.STATIC, 100)
    saved = [1 - cost(mode, 100) / static for mode in (Mode.DYNAMIC, Mode.BATCHED, Mode.CACHED)]
    assert [share >= least for share, least in zip(saved, (0.93, 0.95, 0.97), strict=True)] == [True] * 3
