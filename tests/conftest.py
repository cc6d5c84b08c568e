"""Fixtures of the whole suite: the real servers, each started once, when a test first asks for it.

`suites` says which command runs which test. Tests that use a real server have the mark `real` by themselves. Tests
marked `node`, `fresh` or `peers` run only where `-m` names the mark. Tests marked `long` are left out of a run of
everything; a path, `-k` or `-m long` selects them.
"""

import gc
import logging
import os
import resource
import secrets
import signal
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from typing import Any

import pytest

import suites
from ci import reports
from mcp_peers import environments
from realparts import loaded, lookup, processes
from realparts.apiserver import ApiServer
from realparts.postgres_server import Postgres
from realparts.redis_server import Redis
from realparts.required import require_postgres, require_real, require_redis, required
from realparts.weaviate import Weaviate

_LEFT_OUT = pytest.StashKey[Counter[str]]()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _logging_of_the_suite() -> Iterator[None]:
    """A program that runs in a test's own process sends all logs to a stream that ends with the test: not those of later tests."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def no_collections() -> Iterator[None]:
    """For tests that bound processor time: a garbage collection goes through all that the test runner holds, for up to 0.4 s."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def fresh_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of starts, speed or memory: programs of ours start as new interpreters, not as forks of loaded ones."""
    monkeypatch.setattr(processes, "launcher", processes.spawn)


@pytest.fixture(scope="session")
def apiserver() -> Iterator[ApiServer]:
    """The suite's API server; a test that breaks it, or lists all namespaces, is better off with its own."""
    require_real("kube-apiserver", "etcd", "kubectl")
    with ApiServer() as server:
        yield server


@pytest.fixture
def namespace(apiserver: ApiServer) -> Iterator[str]:
    """A fresh namespace; it goes away after the test with the Toolcrib objects in it, finalizers or not."""
    name = apiserver.create_namespace(f"test-{secrets.token_hex(4)}")
    yield name
    apiserver.delete_namespace(name)


@pytest.fixture(scope="session")
def weaviate_server() -> Iterator[Weaviate]:
    """The suite's Weaviate, without authentication; tests use collections of their own, or `wipe()` first."""
    require_real("weaviate")
    with Weaviate() as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Redis]:
    """The suite's Redis, without a password; keys of different bindings never meet. Who breaks it has one of its own."""
    require_redis()
    with Redis() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """The suite's PostgreSQL; each test makes a database of its own."""
    require_postgres()
    with Postgres() as server:
        yield server


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--suite", choices=[suites.QUICK, suites.REAL], help="run what `make test` or `make test-real` runs"
    )


def pytest_configure(config: pytest.Config) -> None:
    """What children inherit: SIGINT, which a shell's background job ignores; and the right to keep what they compile.

    The suite starts hundreds of processes; without bytecode each compiles a thousand modules, 2 s of processor time.
    With it each still loads them, which those of ours do once (`realparts.loaded`).
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    suites.choose(config.option.suite)
    loaded.switch_on()
    reports.register(config)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """What is loaded for thousands of tests stays: no collection of garbage goes through it again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    suites.mark(items)
    reports.mark(items)
    if suite := config.option.suite:
        chosen, config.stash[_LEFT_OUT] = suites.select(items, suite)
        _deselect(config, items, set(items) - set(chosen))
    # A whole node or machine is made only where it is asked for by its marker, whatever else a `-m` says; so are the
    # environments of other people's clients.
    for marker in ("node", "fresh", "peers"):
        if marker not in (config.option.markexpr or ""):
            _deselect(config, items, {item for item in items if item.get_closest_marker(marker)})
    everything = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if everything and not config.option.keyword and not config.option.markexpr:
        _deselect(config, items, {item for item in items if item.get_closest_marker("long")})


def _deselect(config: pytest.Config, items: list[pytest.Item], left_out: set[pytest.Item]) -> None:
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of xdist tells its controller, which collects nothing, what was left out."""
    output: dict[str, object] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = dict(session.config.stash.get(_LEFT_OUT, Counter()))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    node.config.stash[_LEFT_OUT] = Counter(getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Print the last lines of a suite, below pytest's own: what did not run, what runs it, and how long this run took."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if config.option.suite and reporter is not None and not hasattr(config, "workerinput"):
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        seconds = sum(usage.ru_utime + usage.ru_stime for usage in used)
        skipped = Counter(reason_of(report) for report in reporter.stats.get("skipped", ()))
        left_out = config.stash.get(_LEFT_OUT, Counter())
        for line in suites.last_lines(config.option.suite, left_out, skipped, seconds):
            reporter.write_line(line)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    # what fails on a new machine fails here too
    environments.hidden = item.get_closest_marker("peers") is None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test of a real part that skips has failed where real parts are required."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        missing = (
            item.get_closest_marker("real") or item.get_closest_marker("node") or lookup.REMEDY in reason
        )
        if required() and missing:
            report.outcome = "failed"
            report.longrepr = f"skipped, but TOOLCRIB_REQUIRE_REAL is set: {reason}"
    return report


def reason_of(report: pytest.TestReport) -> str:
    """Why a test was skipped."""
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
