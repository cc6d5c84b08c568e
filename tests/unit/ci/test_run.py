"""`.ci/run`: what failed once and passes when run again is told and refuses nothing; what is broken is refused.

Each case is a small repository of its own: the real runner and plugin, a Makefile, real tests, real pytest with xdist.
"""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ci import run as ci
from ci.steps import steps, without_repetition
from realparts import processes

SUPPORT = Path(ci.__file__).parents[1]
CONFTEST = """
import pathlib, pytest
from ci import reports

def pytest_addoption(parser):
    parser.addoption("--suite")

def pytest_configure(config):
    reports.register(config)

def pytest_collection_modifyitems(items):
    reports.mark(items)

def turn(name):
    "How often it was asked before: tests of one run and of the next tell themselves apart by it."
    file = pathlib.Path(__file__).parent / f"{name}.turn"
    number = int(file.read_text()) if file.exists() else 0
    file.write_text(str(number + 1))
    return number

@pytest.fixture
def nth(request):
    return turn(request.node.name)
"""
PASSES = "def test_passes(): pass\n"
FLAKY = "def test_flaky(nth): assert nth, 'the first time'\n"
INI = (
    "[pytest]\nmarkers = guarantee: x\n    long: x\n    node: x\npythonpath = support\n"
    "addopts = --import-mode=importlib -p no:cacheprovider\n"
)

MEETS = (
    "import pathlib as p, time; p.Path('{mine}').touch(); end = time.monotonic() + 60; "
    "[time.sleep(0.05) for _ in iter(lambda: p.Path('{other}').exists() or time.monotonic() > end, True)]; "
    "assert p.Path('{other}').exists()"
)
"""A program that another one, which does the same, must run beside."""


class Repository:
    """A repository with the real runner, where all steps but `test-real` do nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(SUPPORT / "ci", folder / "tests" / "support" / "ci")
        (folder / "support").symlink_to(folder / "tests" / "support")
        (folder / "pytest.ini").write_text(INI)
        (folder / "conftest.py").write_text(CONFTEST)
        others = " ".join(s.make[0] for s in steps(0) if s.name != "test-real")
        (folder / "Makefile").write_text(
            f"{others}:\n\t@echo doing $@\ntest-real:\n\t{sys.executable} -m pytest $(ARGS) checks\n"
        )
        (folder / "checks").mkdir()

    def put(self, **files: str) -> None:
        for name, text in files.items():
            (self.folder / "checks" / f"test_{name}.py").write_text(text)

    def target(self, name: str, recipe: str) -> None:
        """Give one of the other steps something to do."""
        makefile = self.folder / "Makefile"
        lines = makefile.read_text().replace(f" {name} ", " ")
        makefile.write_text(f"{lines}{name}:\n\t{recipe}\n")

    def run(self, *steps: str, workers: bool = False) -> subprocess.CompletedProcess[str]:
        ours = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "TOOLCRIB", "MAKE"))}
        return subprocess.run(
            [sys.executable, self.folder / "tests" / "support" / "ci" / "run.py", *steps],
            env={
                **ours, "VENV": sys.prefix, "TOOLCRIB_PROOF_SEED": "1",
                # other plugins take a second to load, and there are many runs here
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                "ARGS": "-p xdist.plugin -n 2 --dist loadfile" if workers else "",
            },
            cwd=self.folder, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip

    def turns(self, name: str) -> int:
        return int((self.folder / f"{name}.turn").read_text())


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_a_run_without_failures_is_green_and_tells_where_the_time_went(repository: Repository) -> None:
    repository.put(one=PASSES, two=PASSES)
    done = repository.run()

    assert done.returncode == 0, done.stdout
    table = done.stdout.partition("=== where the time went")[2]
    for text in (
        *(step.name for step in steps(0) if step.name != "test"),
        "2 tests  checks",
        "checks/test_two.py::test_passes",
    ):
        assert text in table
    assert "FLAKY" not in done.stdout
    assert done.stdout.endswith("=== all green\n")


@pytest.mark.parametrize("passes_at", [1, 2])
def test_what_passes_when_run_again_is_told_and_refuses_nothing(
    repository: Repository, passes_at: int
) -> None:
    repository.put(one=PASSES, sometimes=f"def test_flaky(nth): assert nth >= {passes_at}, 'too early'\n")
    done = repository.run("test-real", workers=True)

    assert done.returncode == 0, done.stdout
    last = done.stdout.partition("=== FLAKY")[2]
    assert "checks/test_sometimes.py::test_flaky" in last
    assert "call: AssertionError: too early" in last
    assert repository.turns("test_flaky") == passes_at + 1


@pytest.mark.parametrize("workers", [False, True], ids=["one process", "workers"])
def test_what_fails_in_a_pytest_that_a_test_starts_is_no_failure_of_the_run(
    repository: Repository, workers: bool
) -> None:
    """The child has the same plugin, and would append to the same report."""
    child = (
        "import pathlib, subprocess, sys\n"
        "def test_outer(nth):\n"
        "    inner = pathlib.Path(__file__).with_name('inner.py')\n"
        "    inner.write_text('def test_inner(): assert False')\n"
        "    done = subprocess.run([sys.executable, '-m', 'pytest', inner], stdout=subprocess.PIPE)\n"
        "    assert done.returncode == 1, done.stdout\n"
        "    assert nth, 'the first time'\n"
    )
    repository.put(one=PASSES, child=child)
    done = repository.run("test-real", workers=workers)

    assert done.returncode == 0, done.stdout
    assert "checks/test_child.py::test_outer" in done.stdout.partition("=== FLAKY")[2]
    assert "inner.py::" not in done.stdout


def test_what_fails_three_times_is_refused(repository: Repository) -> None:
    repository.put(one=PASSES, broken="def test_broken(nth): assert False, nth\n")
    done = repository.run()

    assert done.returncode == 1
    assert "REFUSED at test-real: failed again: checks/test_broken.py::test_broken" in done.stdout
    assert repository.turns("test_broken") == 3


@pytest.mark.parametrize(
    "text",
    [
        "import pytest\n@pytest.mark.guarantee\ndef test_it(nth): assert nth\n",
        "import pytest\npytestmark = pytest.mark.guarantee\ndef test_it(nth): assert nth\n",
        "from conftest import turn\nfrom hypothesis import given, settings, strategies as st\n"
        "@settings(max_examples=1, database=None)\n@given(st.just(0))\ndef test_it(x): assert turn('test_it') > 9\n",
    ],
    ids=["mark", "module", "property"],
)
def test_a_guarantee_never_runs_again(repository: Repository, text: str) -> None:
    repository.put(
        promise="import sys, pathlib; sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))\n" + text
    )
    done = repository.run("test-real")

    assert done.returncode == 1
    assert "a guarantee failed, which never runs again: checks/test_promise.py::test_it" in done.stdout
    assert "=== again" not in done.stdout


def test_a_guarantee_that_fails_only_in_the_second_run_is_refused(repository: Repository) -> None:
    late = "import pytest\n@pytest.mark.guarantee\ndef test_promise(nth): assert not nth\n"
    repository.put(both=FLAKY + late)
    done = repository.run("test-real")

    assert done.returncode == 1
    assert "never runs again: checks/test_both.py::test_promise" in done.stdout


def test_four_failed_files_are_refused_at_once(repository: Repository) -> None:
    repository.put(**{f"f{n}": FLAKY.replace("test_flaky", f"test_flaky{n}") for n in range(4)})
    done = repository.run("test-real")

    assert done.returncode == 1
    assert "4 files failed, more than 3" in done.stdout
    assert "=== again" not in done.stdout


@pytest.mark.slow
def test_errors_of_one_fixture_count_once(repository: Repository) -> None:
    """A server that five files share did not start, in either worker."""
    with (repository.folder / "conftest.py").open("a") as conftest:
        conftest.write(
            "@pytest.fixture(scope='session')\n"
            "def server(request):\n"
            "    if hasattr(request.config, 'workerinput'):\n"
            "        raise RuntimeError('not ready')\n"
        )
    repository.put(**{f"f{n}": "def test_it(server): pass\n" for n in range(5)})
    done = repository.run("test-real", workers=True)

    assert done.returncode == 0, done.stdout
    assert "checks/test_f4.py::test_it\n      setup: RuntimeError: not ready" in done.stdout


@pytest.mark.parametrize(
    "text",
    [
        "from conftest import turn\nif not turn('m'):\n    def test_it(): assert False\n",
        "from conftest import turn\nif not turn('m'):\n    def test_it(): assert False\ndef test_other(): pass\n",
        "import pytest\ndef test_it(nth):\n    if nth: pytest.skip('no more')\n    assert False\n",
    ],
    ids=["no test", "another test", "skipped"],
)
def test_a_second_run_that_does_not_run_the_failed_test_is_refused(repository: Repository, text: str) -> None:
    repository.put(
        gone="import sys, pathlib; sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))\n" + text
    )
    done = repository.run("test-real")

    assert done.returncode == 1, done.stdout
    assert "=== again" in done.stdout
    assert "did not run again" in done.stdout


@pytest.mark.slow
def test_a_worker_that_crashes_is_refused(repository: Repository) -> None:
    """Its test may be a guarantee: the report of a crash does not tell."""
    repository.put(
        one=PASSES,
        crash="import os, pytest\n@pytest.mark.guarantee\ndef test_promise(nth):\n    if not nth: os._exit(1)\n",
    )
    done = repository.run("test-real", workers=True)

    assert done.returncode == 1
    assert "could not run, or finish, checks/test_crash.py::test_promise" in done.stdout
    assert "=== again" not in done.stdout


def test_a_module_that_cannot_be_imported_is_refused(repository: Repository) -> None:
    repository.put(one=PASSES, broken="import nowhere_to_be_found\n")
    done = repository.run("test-real")

    assert done.returncode == 1
    assert "could not run, or finish, checks/test_broken.py" in done.stdout


def test_a_run_that_breaks_without_a_failed_test_is_refused(repository: Repository) -> None:
    repository.put(one="import os\ndef test_it(): pass\n")
    with (repository.folder / "conftest.py").open("a") as conftest:
        conftest.write("def pytest_unconfigure(config):\n    raise SystemExit(3)\n")
    done = repository.run("test-real")

    assert done.returncode == 1
    assert "told of no failed test" in done.stdout


def test_a_step_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    command = ["sh", "-c", f"sleep 300 & echo $! > {pid}; wait"]
    began = ci.bounded(command, 2, os.environ, threading.Event(), "")

    assert began == ci.TIMED_OUT
    processes.wait_until(lambda: not Path(f"/proc/{pid.read_text().strip()}").exists(), timeout=20)


def test_the_time_for_running_again_is_bounded_over_all_steps(tmp_path: Path) -> None:
    run = ci.Run({**os.environ, "VENV": sys.prefix}, tmp_path, again_left=0.0)
    failed = {"checks/test_a.py::test_it": None}

    assert "no time is left" in run._again(steps(0)[2], failed, "")  # type: ignore[arg-type]


def test_lanes_run_side_by_side_and_each_line_names_its_step(repository: Repository) -> None:
    """Each of the two waits until the other has begun."""
    repository.put(met=f"def test_met():\n    {MEETS.format(mine='a', other='b')}\n")
    repository.target(
        "cluster-test", f'@{sys.executable} -c "{MEETS.format(mine="b", other="a")}; print(1, 2)"'
    )
    done = repository.run()

    assert done.returncode == 0, done.stdout
    assert "cluster-test    | 1 2\n" in done.stdout
    assert "of processor time" in done.stdout


def test_a_lane_that_is_done_takes_the_next_of_the_steps_that_belong_to_none(repository: Repository) -> None:
    """The tests wait for the second of them, which the other lane runs, since it is done."""
    repository.put(met=f"def test_met():\n    {MEETS.format(mine='a', other='b')}\n")
    repository.target("test-long", f'@{sys.executable} -c "{MEETS.format(mine="b", other="a")}"')
    done = repository.run()

    assert done.returncode == 0, done.stdout
    assert all(
        done.stdout.count(f"doing {each.make[0]}\n") == 1
        for each in steps(0)
        if each.make[0] not in ("test", "test-real", "test-long")
    )


def test_steps_that_belong_to_no_lane_run_alone_and_two_by_two(repository: Repository) -> None:
    alone = repository.run("cluster-demo")
    both = repository.run("cluster-demo", "wheel")

    assert "\ndoing cluster-demo\n" in alone.stdout
    assert {"wheel           | doing wheel-smoke", "cluster-demo    | doing cluster-demo"} <= set(
        both.stdout.splitlines()
    )


@pytest.mark.parametrize(
    ("others", "root", "left"),
    [((), True, True), (("fresh-machine",), True, False), (("fresh-machine",), False, True)],
)
def test_make_test_runs_once_and_on_the_fresh_machine_where_there_can_be_one(
    others: tuple[str, ...], root: bool, left: bool
) -> None:
    chosen = [step for step in steps(0) if step.name in ("test", *others)]

    assert any(step.name == "test" for step in without_repetition(chosen, root)) is left


def test_a_refusal_ends_what_runs_beside_it(repository: Repository) -> None:
    repository.put(broken=f"def test_broken():\n    {MEETS.format(mine='a', other='b')}; assert False\n")
    repository.target("cluster-test", "@touch b; sleep 300")
    done = repository.run()

    assert done.returncode == 1
    assert "REFUSED at test-real: failed again" in done.stdout
    assert "=== cluster-test ended after" in done.stdout
    assert "doing cluster-demo" not in done.stdout


def test_an_unknown_step_is_refused_by_name(repository: Repository) -> None:
    done = repository.run("nonsense")

    assert done.returncode == 2
    assert "nonsense" in done.stderr
