"""Which command runs a test, and how much of it.

    make test        --suite quick   what needs Python alone: a cover of each table, a tenth of the examples of a property
    make test-real   --suite real    what needs more, and tables and properties whole
    pytest PATH                      all of it, whole

Marks of a test say where it stands (`[tool.pytest.ini_options]` in pyproject.toml describes them).
"""

import os
import random
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import settings

QUICK, REAL = "quick", "real"
TARGETS = {
    "long": "make test-long",
    "node": "make cluster-test",
    "fresh": "make fresh-machine-test",
    "peers": "make mcp-peers",
}
"""Marks whose tests one target of their own runs."""
PARTS = {
    "apiserver": "real",
    "namespace": "real",
    "weaviate_server": "real",
    "redis_server": "real",
    "postgres_server": "real",
}
"""Fixtures of real parts, and the mark that they bring."""
FOLDERS = {"cluster": "real"}
"""Folders of tests/ whose tests all have a mark."""
_TESTS = Path(__file__).resolve().parents[1]
_VARIABLE = "TOOLCRIB_SUITE"
_BEGAN = "TOOLCRIB_BEGAN"
"""Set by make: when it began, in seconds of the epoch, so that the time told includes the set-up."""


def choose(suite: str | None) -> None:
    """Make this process and its children run a suite; before tests are imported, since their sizes depend on it."""
    if suite:
        os.environ[_VARIABLE] = suite
    else:
        os.environ.pop(_VARIABLE, None)
    os.environ.setdefault(_BEGAN, str(time.time()))
    # whoever tries Toolcrib meets no rare example by chance; continuous integration looks for new ones each time
    settings.register_profile("quick", deadline=None, max_examples=20, derandomize=True, database=None)
    settings.register_profile("thorough", deadline=None, derandomize=False)
    settings.load_profile("quick" if is_quick() else "thorough")


def is_quick() -> bool:
    return os.environ.get(_VARIABLE) == QUICK


def size(*, quick: int, whole: int) -> int:
    """How many cases a test draws."""
    return quick if is_quick() else whole


def examples(whole: int) -> settings:
    """Settings of a property test: `whole` examples, a tenth of them (10 at least) in `make test`."""
    return settings(max_examples=size(quick=max(10, whole // 10), whole=whole))


def commands(marks: Iterable[str]) -> frozenset[str]:
    """The make targets that run a test with these marks."""
    marks = frozenset(marks)
    if own := frozenset(target for mark, target in TARGETS.items() if mark in marks):
        return own
    if marks & {"real", "slow"}:
        return frozenset({"make test-real"})
    if marks & {"table", "property"}:
        return frozenset({"make test", "make test-real"})
    return frozenset({"make test"})


def mark(items: Iterable[pytest.Item]) -> None:
    """Add the marks that follow from what a test is made of: `property`, and those of the real parts it asks for."""
    for item in items:
        if getattr(getattr(item, "function", None), "is_hypothesis_test", False):
            item.add_marker("property")
        folder = item.path.relative_to(_TESTS).parts[0] if _TESTS in item.path.parents else ""
        for name in (PARTS[f] for f in getattr(item, "fixturenames", ()) if f in PARTS):
            item.add_marker(name)
        if folder in FOLDERS:
            item.add_marker(FOLDERS[folder])


def select(items: Sequence[pytest.Item], suite: str) -> tuple[list[pytest.Item], Counter[str]]:
    """The tests of a suite, and how many others each command runs, for the last lines."""
    target = "make test" if suite == QUICK else "make test-real"
    chosen, left_out = [], Counter[str]()
    for item in items:
        where = commands(m.name for m in item.iter_markers())
        if target in where:
            chosen.append(item)
        else:
            left_out.update(where)
    if suite == QUICK:
        covered = _cover(chosen)
        left_out["make test-real"] += len(chosen) - len(covered)
        chosen = covered
    return chosen, left_out


def _cover(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Reduce each `table` to a pairwise cover of its rows; all other tests stay, in order."""
    tables: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("table"):
            tables.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out = {
        rows[i]
        for name, rows in tables.items()
        for i in set(range(len(rows))) - pairwise(name, [_row(r) for r in rows])
    }
    return [item for item in items if item not in left_out]


def _row(item: pytest.Item) -> dict[str, int]:
    """Value of each parameter of a row, by identity: `parametrize` hands the same objects to each row."""
    spec = getattr(item, "callspec", None)
    return {name: id(value) for name, value in spec.params.items()} if spec else {}


def pairwise(name: str, rows: Sequence[dict[str, int]]) -> set[int]:
    """Indexes of rows in which each pair of values of two parameters occurs that occurs in any row.

    The same for each process: the order in which rows are looked at depends on the name alone.
    """
    order = list(range(len(rows)))
    random.Random(name).shuffle(order)
    pairs = [set(combinations(sorted(row.items()), min(2, len(row)))) for row in rows]
    covered: set[tuple[tuple[str, int], ...]] = set()
    cover: set[int] = set()
    for least in (0.75, 0.5, 0.25, 0.0):
        for i in order:
            fresh = pairs[i] - covered
            if fresh and len(fresh) > least * len(pairs[i]):
                cover.add(i)
                covered |= fresh
    return cover


def last_lines(
    suite: str, left_out: Counter[str], skipped: Counter[str], processor_seconds: float
) -> list[str]:
    """List what did not run, by the command that runs it or the reason, and the time of this run."""
    minutes, seconds = divmod(round(time.time() - float(os.environ[_BEGAN])), 60)
    target = "make test" if suite == QUICK else "make test-real"
    return [
        *(f"{n:,} tests left out here: `{other}` runs them" for other, n in sorted(left_out.items()) if n),
        *(
            f"{n:,} tests did not run: {reason.removeprefix('Skipped: ')}"
            for reason, n in sorted(skipped.items())
        ),
        f"{target}: {minutes} min {seconds:02} s with its set-up, {processor_seconds:.0f} s of processor time in its tests",
    ]
