"""Questions to the Debian on a fresh machine: what is installed, what would be, what is missing."""

import contextlib
import re
import time
from collections.abc import Callable, Iterator

from realparts import debian
from realparts.freshroot import Done, FreshMachine

Step = Callable[..., Done]
"""Runs a program that must succeed: its words, and `timeout` in seconds."""

_PATHS = """
import os, sys
sys.path.insert(0, "tests/support/realparts")
import debian
print(*(name for name, paths in debian.PROGRAMS.items() if not any(map(os.path.exists, paths))))
print(*debian.missing(*debian.PROGRAMS))
"""


@contextlib.contextmanager
def told(what: str) -> Iterator[None]:
    """Say what goes on, and when it is over, how long it took."""
    print(f"\n  {what} …", flush=True)
    began = time.monotonic()
    yield
    print(f"  {time.monotonic() - began:.1f} s", flush=True)


def table() -> str:
    """The removal table of docs/contributing/fresh-machine.md."""
    rows = ["| package | looked for | off the lists |", "|---|---|---|"]
    for package, paths in debian.PROGRAMS.items():
        bringer = debian.BROUGHT_ALONG.get(package)
        verdict = f"{bringer} brings it" if bringer else "missed"
        rows.append(f"| {package} | {', '.join(f'`{path}`' for path in paths)} | {verdict} |")
    return "\n".join(rows) + "\n"


def installed(machine: FreshMachine) -> set[str]:
    """The names of the packages on a machine."""
    said = _said(machine, "dpkg-query", "--show", "--showformat", "${db:Status-Status} ${Package}\n")
    return set(re.findall(r"^installed (\S+)$", said, re.MULTILINE))


def simulated(machine: FreshMachine, *packages: str) -> set[str]:
    """The names of what apt-get would install for these packages; it installs nothing."""
    options = ("--simulate", "-qq", "--no-install-recommends")
    return set(
        re.findall(r"^Inst (\S+)", _said(machine, "apt-get", "install", *options, *packages), re.MULTILINE)
    )


def missing(machine: FreshMachine) -> tuple[list[str], list[str]]:
    """The packages of which no path exists on a machine; those that the install step itself would call missing."""
    no_path, missed = _said(machine, "python3", "-c", _PATHS).splitlines()
    return no_path.split(), missed.split()


def remove(machine: FreshMachine, packages: set[str]) -> None:
    """Remove these packages and nothing else, whatever depends on them."""
    if packages:
        _said(machine, "dpkg", "--remove", "--force-depends", *sorted(packages))


def _said(machine: FreshMachine, *argv: str) -> str:
    done = machine.run(*argv, timeout=120)
    assert done.status == 0, done.output
    return done.output
