"""One fresh machine for the numbered files, which go through it in order, as a person with a new machine would."""

import contextlib
import shlex
from collections.abc import Iterator

import pytest

from fresh_debian import Step, installed, simulated, told
from realparts import debian, freshroot
from realparts.freshroot import Done, FreshMachine
from realparts.required import required


@pytest.fixture(scope="session")
def able() -> None:
    """Skip where there can be no fresh machine, with what to do about it; fail where it is required."""
    if lacking := freshroot.lacking():
        reason = "make fresh-machine-test cannot run on this machine: " + "; ".join(lacking)
        if required():
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def fresh_machine(able: None) -> Iterator[FreshMachine]:
    """The machine: nothing is on it but Python, make and certificates."""
    with contextlib.ExitStack() as stack:
        with told("a fresh Debian (the first time debootstrap makes its base)"):
            machine = stack.enter_context(FreshMachine())
        yield machine


@pytest.fixture(scope="session")
def step(fresh_machine: FreshMachine) -> Step:
    """Run a program that must succeed; its output is shown if it does not."""

    def run(*argv: str, timeout: float) -> Done:
        with told(shlex.join(argv)):
            done = fresh_machine.run(*argv, timeout=timeout)
        if done.status != 0:
            pytest.fail(f"{shlex.join(argv)} ended with {done.status}:\n{done.output}", pytrace=False)
        return done

    return run


@pytest.fixture(scope="session")
def base(fresh_machine: FreshMachine, step: Step) -> set[str]:
    """The packages on the machine before the install step, once apt-get knows what there is."""
    step("apt-get", "-qq", "update", timeout=120)
    return installed(fresh_machine)


@pytest.fixture(scope="session")
def without(fresh_machine: FreshMachine, base: set[str]) -> dict[str, set[str]]:
    """Package that is taken off the lists → what is on the machine then, as apt-get foretells; "" takes nothing off."""
    with told("apt-get foretells what comes without each package"):
        return {
            package: base | simulated(fresh_machine, *(name for name in debian.PROGRAMS if name != package))
            for package in ["", *debian.PROGRAMS]
        }


@pytest.fixture(scope="session")
def brought(fresh_machine: FreshMachine, base: set[str]) -> dict[str, set[str]]:
    """Package that brings others → what it brings by its dependencies, as apt-get foretells."""
    names = set(debian.BROUGHT_ALONG.values()) - {debian.BASE}
    return {debian.BASE: base} | {name: simulated(fresh_machine, name) for name in names}


@pytest.fixture(scope="session")
def after(
    fresh_machine: FreshMachine, step: Step, without: dict[str, set[str]], brought: dict[str, set[str]]
) -> set[str]:
    """The packages on the machine once the install step of `make cluster-test` has run, and that of all packages."""
    for lists in (["--node"], []):
        step("python3", "tests/support/realparts/debian.py", *lists, timeout=300)
    return installed(fresh_machine)
