"""Signatures of tasks and views, estimates, `auto`, and the memory of the mode cached."""

from pathlib import Path

import pytest

from toolcrib_runner.discovery import DiscoveredTool
from toolcrib_runner.modes import kinds
from toolcrib_runner.modes.estimates import Estimator, size
from toolcrib_runner.modes.kinds import Mode
from toolcrib_runner.modes.signatures import task_signature, view_digest
from toolcrib_runner.ready_sets import MAX_SETS, TTL, ReadySets

ME = ("https://issuer", "agent")


@pytest.mark.parametrize(
    ("task", "other", "alike"),
    [
        ("Read the file", "the FILE: read!", True),
        ('Sum "a b" and 17', "sum and 4.5 'c'", True),
        ("the the file", "the file", True),
        ("Read the file", "Delete the file", False),
        ("Don't read", "read", False),
        ("Mean of `x y`", "mean of", True),
        ("größe é", "É GRÖSSE", False),
    ],
)
def test_tasks_of_the_same_words_are_alike(task: str, other: str, alike: bool) -> None:
    assert (task_signature(task) == task_signature(other)) is alike


def test_the_digest_of_a_view_changes_with_any_tool_and_not_with_their_order() -> None:
    a, b = DiscoveredTool("a", "/a"), DiscoveredTool("b", "/b")
    changed = DiscoveredTool("b", "/b", "other")
    digest = view_digest({"a": a, "b": b})
    assert digest == view_digest({"b": b, "a": a})
    assert len({digest, view_digest({"a": a}), view_digest({"a": a, "b": changed})}) == 3


@pytest.mark.parametrize(("tokens", "mode"), [(4_000, Mode.STATIC), (4_001, Mode.BATCHED)])
def test_auto_shows_everything_up_to_4000_tokens(tokens: int, mode: Mode) -> None:
    assert kinds.settled(Mode.AUTO, tokens) is mode
    assert kinds.settled(Mode.DYNAMIC, tokens) is Mode.DYNAMIC


def test_tokens_are_bytes_by_four_until_the_endpoint_has_counted() -> None:
    estimator = Estimator()
    assert estimator.tokens(size("é" * 9)) == 5  # 18 bytes and two quotes
    estimator.counted(400, 0)
    assert estimator.tokens(400) == 100
    estimator.counted(400, 150)
    assert estimator.tokens(400) == 150


def test_ready_sets_belong_to_a_caller_a_view_and_the_words_of_a_task() -> None:
    sets = ReadySets(clock=lambda: 0.0)
    sets.keep(ME, "v1", "t", ["a"])
    assert sets.find(ME, "v1", "t") == ("a",)
    assert sets.find(("https://issuer", "other"), "v1", "t") is None
    assert sets.find(ME, "v1", "u") is None


def test_any_change_of_the_view_drops_them_for_good() -> None:
    sets = ReadySets(clock=lambda: 0.0)
    sets.keep(ME, "v1", "t", ["a"])
    assert sets.find(ME, "v2", "t") is None
    assert sets.find(ME, "v1", "t") is None


def test_they_live_for_an_hour() -> None:
    now = [0.0]
    sets = ReadySets(clock=lambda: now[0])
    sets.keep(ME, "v1", "t", ["a"])
    now[0] = TTL - 1
    assert sets.find(ME, "v1", "t") == ("a",)
    now[0] = TTL
    assert sets.find(ME, "v1", "t") is None


def test_they_are_bounded() -> None:
    sets = ReadySets(clock=lambda: 0.0)
    for number in range(MAX_SETS + 1):
        sets.keep(ME, "v1", str(number), ["a"])
    assert sets.find(ME, "v1", "0") is None
    assert sets.find(ME, "v1", str(MAX_SETS)) == ("a",)


def test_in_a_file_they_outlive_a_restart_and_a_broken_file_is_empty(tmp_path: Path) -> None:
    file = tmp_path / "sets.json"
    ReadySets(file).keep(ME, "v1", "t", ["a"])
    assert ReadySets(file).find(ME, "v1", "t") == ("a",)
    file.write_text("garbage")
    assert ReadySets(file).find(ME, "v1", "t") is None
