"""`make test` runs without programs of others, covers tables in pairs, and says what it leaves to which command."""

import os
import subprocess
import sys
from itertools import combinations, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import suites
from ci import needs

TESTS = Path(__file__).parents[2]
SUPPORT = TESTS / "support"


@pytest.mark.parametrize(
    ("marks", "targets"),
    [
        ((), {"make test"}),
        (("guarantee",), {"make test"}),
        (("real",), {"make test-real"}),
        (("slow",), {"make test-real"}),
        (("table",), {"make test", "make test-real"}),
        (("property", "guarantee"), {"make test", "make test-real"}),
        (("property", "real"), {"make test-real"}),
        (("real", "long"), {"make test-long"}),
        (("node", "real"), {"make cluster-test"}),
        (("peers",), {"make mcp-peers"}),
    ],
)
def test_the_marks_of_a_test_say_which_command_runs_it(marks: tuple[str, ...], targets: set[str]) -> None:
    assert suites.commands(marks) == targets


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.sets(st.integers(0, 600)), st.text(max_size=5))
def test_a_cover_has_each_pair_of_values_that_any_row_has(
    sizes: list[int], gaps: set[int], name: str
) -> None:
    whole = [dict(enumerate(values)) for values in product(*(range(size) for size in sizes))]
    rows = [{str(k): v for k, v in row.items()} for n, row in enumerate(whole) if n not in gaps]

    cover = suites.pairwise(name, rows)

    def pairs(chosen: list[dict[str, int]]) -> set[tuple[tuple[str, int], ...]]:
        return {pair for row in chosen for pair in combinations(sorted(row.items()), min(2, len(row)))}

    assert pairs([rows[n] for n in cover]) == pairs(rows)
    assert suites.pairwise(name, rows) == cover


def test_a_cover_of_a_table_of_three_parameters_is_much_smaller() -> None:
    rows = [{"a": a, "b": b, "c": c} for a, b, c in product(range(6), repeat=3)]

    assert len(suites.pairwise("t", rows)) < len(rows) / 3


CHECKS = """
import pytest
from realparts.required import require_real

def test_plain(): pass

@pytest.mark.parametrize("a", range(4))
@pytest.mark.parametrize("b", range(4))
@pytest.mark.parametrize("c", range(4))
@pytest.mark.table
def test_rows(a, b, c): pass

@pytest.mark.real
def test_marked(): raise AssertionError

def test_unmarked(): require_real("kubectl")
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A run of pytest over `CHECKS`, with the conftest of this repository."""
    (folder / "test_checks.py").write_text(CHECKS)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "-p", "no:cacheprovider", *arguments, "."],
        env={**os.environ, "PYTHONPATH": f"{TESTS}:{SUPPORT}", "TOOLCRIB_BEGAN": "0"},
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("workers", [("-p", "no:xdist"), ("-n", "2")], ids=["one process", "workers"])
def test_make_test_runs_covers_and_refuses_what_it_does_not_install(
    tmp_path: Path, workers: tuple[str, ...]
) -> None:
    done = run(tmp_path, "--suite", "quick", *workers)
    last = done.stdout.splitlines()[-3:]

    assert done.returncode == 1, done.stdout
    assert (
        "This test asks for something that `make test` does not install: kubectl. Mark it `real`."
        in done.stdout
    )
    assert "test_marked" not in done.stdout
    left_out = int(last[-2].split()[0])
    assert last[-2] == f"{left_out} tests left out here: `make test-real` runs them"
    assert 1 + 16 < left_out < 1 + 48
    assert last[-1].startswith("make test: ")


def test_make_test_real_runs_the_whole_table_and_what_is_marked(tmp_path: Path) -> None:
    done = run(tmp_path, "--suite", "real", "-p", "no:xdist")

    assert "1 failed, 64 passed" in done.stdout
    assert done.stdout.splitlines()[-2] == "2 tests left out here: `make test` runs them"


SUPPORTING = {
    "realparts/lookup.py": "def path_of(name): ...\n",
    "tools.py": "from realparts import lookup\nNAME = 'x'\ndef render(): return lookup.path_of(NAME)\n"
    "class Server:\n    def start(self): render()\n",
}
ASKING = {
    "by a function": "from tools import render\ndef test_it(): render()\n",
    "by a class": "import tools\ndef test_it(): tools.Server()\n",
    "by a function of its own": "from tools import render\ndef own(): render()\ndef test_it(): own()\n",
    "by a fixture": "import pytest\nfrom tools import render\n@pytest.fixture\ndef it(): render()\ndef test_it(it): ...\n",
    "by a fixture of conftest": "def test_it(shared): ...\n",
    "by a fixture's name": "def test_it(request): request.getfixturevalue('shared')\n",
}
NOT_ASKING = {
    "a constant": "from tools import NAME\ndef test_it(): NAME\n",
    "an annotation": "from tools import Server\ndef test_it(x: Server) -> Server: ...\n",
    "a row": "import pytest\n@pytest.mark.parametrize('shared', [1])\ndef test_it(shared): ...\n",
    "a mark": "import pytest\nfrom tools import render\n@pytest.mark.real\ndef test_it(): render()\n",
    "a module's mark": "import pytest\nfrom tools import render\npytestmark = [pytest.mark.long]\ndef test_it(): render()\n",
    "a mark of a fixture's parameter": "import pytest\nfrom tools import render\n"
    "@pytest.fixture(params=['a', pytest.param('b', marks=pytest.mark.real)])\ndef it(): render()\ndef test_it(it): ...\n",
}


@pytest.mark.parametrize(
    ("source", "asks"),
    [*((text, True) for text in ASKING.values()), *((text, False) for text in NOT_ASKING.values())],
    ids=[*ASKING, *NOT_ASKING],
)
def test_a_test_that_reaches_a_real_part_without_a_mark_is_named(
    tmp_path: Path, source: str, asks: bool
) -> None:
    for name, text in {
        **{f"support/{name}": text for name, text in SUPPORTING.items()},
        "unit/conftest.py": "import pytest\nfrom tools import render\n@pytest.fixture\ndef shared(): render()\n",
        "unit/test_one.py": source,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    named = [need.test for need in needs.Tree(tmp_path).needs()]

    assert named == (["tests/unit/test_one.py::test_it"] if asks else [])
