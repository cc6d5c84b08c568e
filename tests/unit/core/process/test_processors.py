"""A container with a limit of processor time has fewer processors than its machine."""

import os
from pathlib import Path

import pytest

from toolcrib.process import processors


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("100000 100000\n", 1),
        ("150000 100000\n", 2),
        ("1000 100000\n", 1),
        ("max 100000\n", 8),
        ("junk", 8),
        ("1 0", 8),
    ],
)
def test_a_container_limit_bounds_the_processors(
    text: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    (tmp_path / "cpu.max").write_text(text)

    assert processors.available(tmp_path / "cpu.max") == most
    assert processors.available(tmp_path / "nothing") == 8
