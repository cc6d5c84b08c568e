"""Fixtures of the whole suite: the real API server and the real Weaviate, started once, when first asked for.

Tests that use them carry the markers `apiserver` and `weaviate` by themselves (`-m "not apiserver"`). Tests marked
`node` run only with `-m node` (`make cluster-test`), those marked `fresh` only with `-m fresh` (`make
fresh-machine-test`), those marked `peers` only with `-m peers` (`make mcp-peers`). Tests marked `long` are left out of
a run of everything, so that it stays short (`make test-long` runs them); a path, `-k` or `-m long` finds them.
"""

import gc
import logging
import os
import secrets
import signal
import sys
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings

from ci import reports
from mcp_peers import environments
from realparts import loaded, lookup, processes
from realparts.apiserver import ApiServer
from realparts.postgres_server import Postgres
from realparts.redis_server import Redis
from realparts.required import require_postgres, require_real, require_redis, required
from realparts.weaviate import Weaviate

# a bound of wall-clock time says how busy the machine is; what must be fast has a test of processor time
settings.register_profile("toolcrib", deadline=None)
settings.load_profile("toolcrib")

_MARKERS = {"apiserver": "apiserver", "weaviate_server": "weaviate", "node": "node"}


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


def pytest_configure(config: pytest.Config) -> None:
    """What children inherit: SIGINT, which a shell's background job ignores; and the right to keep what they compile.

    The suite starts hundreds of processes; without bytecode each compiles a thousand modules, 2 s of processor time.
    With it each still loads them, which those of ours do once (`realparts.loaded`).
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
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
    # A whole node or machine is made only where it is asked for by its marker, whatever else a `-m` says; so are the
    # environments of other people's clients.
    for marker in ("node", "fresh", "peers"):
        if marker not in (config.option.markexpr or ""):
            left_out = [item for item in items if item.get_closest_marker(marker)]
            items[:] = [item for item in items if not item.get_closest_marker(marker)]
            config.hook.pytest_deselected(items=left_out)
    everything = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if everything and not config.option.keyword and not config.option.markexpr:
        left_out = [item for item in items if item.get_closest_marker("long")]
        items[:] = [item for item in items if not item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=left_out)
    reports.mark(items)
    for item in items:
        for fixture, marker in _MARKERS.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(marker)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    # what fails on a new machine fails here too
    environments.hidden = item.get_closest_marker("peers") is None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where real parts are required, a test of a real part that was skipped has failed."""
    report = yield
    real = any(item.get_closest_marker(marker) for marker in _MARKERS.values())
    if required() and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if real or lookup.REMEDY in reason:
            report.outcome = "failed"
            report.longrepr = f"skipped, but TOOLCRIB_REQUIRE_REAL is set: {reason}"
    return report
