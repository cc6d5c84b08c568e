"""What a decision log grows by so that it can be replayed stays small, whatever is added to its records."""

from importlib import import_module
from pathlib import Path

import pytest

from toolcrib_registry.settings_sections import Audit

BENCH = Path(__file__).parents[3] / "bench"

pytestmark = pytest.mark.guarantee


def test_a_file_and_an_hour_of_a_stream_grow_by_five_percent_at_most_with_1000_tools(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    log_growth = import_module("log_growth")

    grown = log_growth.projected(1_000, 90, Audit().max_bytes)

    assert 0.0 < grown["hour"] <= log_growth.GOAL
    assert 0.0 < grown["file"] <= log_growth.GOAL
