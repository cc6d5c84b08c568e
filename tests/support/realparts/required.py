"""What a test does when a real server is not on this machine: skip, or fail where they are required.

With TOOLCRIB_REQUIRE_REAL=1 (CI) a missing server is a failure: a suite that skipped its real parts proved
nothing about them.
"""

import os
from pathlib import Path
from typing import NoReturn

import pytest

from realparts import debian, lookup, postgres_server, prometheus, redis_server


def required() -> bool:
    """Whether this run must not do without the real servers."""
    return os.environ.get("TOOLCRIB_REQUIRE_REAL", "") not in ("", "0")


def absent(why: object) -> NoReturn:
    """Skip (or fail, see above) the test that runs now, for what is not here."""
    lookup.refuse_in_quick_suite(why)
    if required():
        pytest.fail(str(why), pytrace=False)
    pytest.skip(str(why))


def require(holds: bool, why: str) -> None:
    """The test that runs now needs something of the system; `why` names it where it does not hold."""
    lookup.refuse_in_quick_suite(why)
    if not holds:
        absent(why)


def require_real(*names: str) -> None:
    """The test that runs now needs all of these parts."""
    try:
        for name in names:
            lookup.path_of(name)
    except lookup.MissingPartError as error:
        absent(error)


def require_file(path: Path, why: str) -> None:
    """The same for a file of the system."""
    require(path.exists(), f"{path} does not exist: {why}")


def require_packages(*names: str) -> None:
    """The same for packages of Debian."""
    lookup.refuse_in_quick_suite(", ".join(names))
    try:
        debian.require(*names)
    except debian.MissingPackagesError as error:
        absent(error)


def require_prometheus() -> None:
    """The same for prometheus and promtool."""
    try:
        for program in prometheus.PROGRAMS:
            prometheus.path_of(program)
    except prometheus.PrometheusMissingError as error:
        absent(error)


def require_redis() -> None:
    """The same for redis-server (or valkey-server)."""
    try:
        redis_server.path_of()
    except redis_server.RedisMissingError as error:
        absent(error)


def require_postgres() -> None:
    """The same for postgres and initdb."""
    try:
        postgres_server.path_of()
    except postgres_server.PostgresMissingError as error:
        absent(error)
