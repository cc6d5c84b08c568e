"""Debian's packages that tests of images, nodes and pages need: which are missing, and their installation.

    python tests/support/realparts/debian.py [PACKAGE…]    install what is missing (default: all below)
    python tests/support/realparts/debian.py --node        what `make cluster-test` needs: a node, images, a browser

Only as root, on a system with apt-get; nothing recommended comes along and no service is started. Elsewhere
the error names what to install. Standard library only.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

PROGRAMS = {
    "containerd": ("/usr/bin/containerd", "/usr/bin/ctr"),
    "runc": ("/usr/sbin/runc",),
    "iptables": ("/usr/sbin/iptables",),
    "containernetworking-plugins": ("/usr/lib/cni/bridge",),
    "iproute2": ("/usr/sbin/ip", "/usr/bin/ip", "/sbin/ip"),
    "util-linux": ("/usr/bin/unshare", "/usr/bin/nsenter"),
    "docker.io": ("/usr/sbin/dockerd", "/usr/bin/dockerd"),
    "debootstrap": ("/usr/sbin/debootstrap",),
    "gcc": ("/usr/bin/gcc",),
    "libc6-dev": ("/usr/lib/x86_64-linux-gnu/libc.a", "/usr/lib/aarch64-linux-gnu/libc.a"),
    "prometheus": ("/usr/bin/prometheus", "/usr/bin/promtool"),
    "chromium": ("/usr/bin/chromium",),
}
"""What each package is looked for by; one of them is enough. What no PATH leads to is looked for by its path alone."""

NODE = ("containerd", "runc", "iptables", "containernetworking-plugins", "iproute2", "util-linux")
DOCKER = ("docker.io", "iptables", "debootstrap", "iproute2", "gcc", "libc6-dev")
PROMETHEUS = ("prometheus",)
BROWSER = ("chromium",)

BASE = "Debian's base system"
BROUGHT_ALONG = {"containerd": "docker.io", "runc": "docker.io", "iptables": "docker.io", "util-linux": BASE}
"""Packages that would be here even off the lists → what brings them; tried by `make fresh-machine-test`."""

REMEDY = "as root: python tests/support/realparts/debian.py"


class MissingPackagesError(RuntimeError):
    """Programs are not on this machine; the message names the Debian packages that bring them."""


def missing(*packages: str) -> list[str]:
    """Those of the packages whose programs are not here."""
    return [name for name in packages if not any(_there(program) for program in PROGRAMS[name])]


def require(*packages: str) -> None:
    """Raise MissingPackagesError unless the programs of all these packages are here."""
    if absent := missing(*packages):
        raise MissingPackagesError(
            f"not on this machine: {', '.join(absent)} (packages of Debian and Ubuntu); {REMEDY} {' '.join(absent)}"
        )


def install(*packages: str) -> list[str]:
    """Install what is missing, with apt-get, and return it. Raises MissingPackagesError where that cannot be."""
    absent = missing(*packages)
    if not absent:
        return []
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        require(*absent)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with _no_services():
        quiet = ["-qq", "-o", "Dpkg::Use-Pty=0"]
        subprocess.run(["apt-get", "update", *quiet], env=environment, check=False, stdout=sys.stderr)
        subprocess.run(
            ["apt-get", "install", "-y", *quiet, "--no-install-recommends", *absent],
            env=environment,
            check=False,
            stdout=sys.stderr,
        )
    require(*absent)
    return absent


@contextlib.contextmanager
def _no_services() -> Iterator[None]:
    """Packages ask this program before they start a service; 101 forbids it. One that is there stays."""
    policy = Path("/usr/sbin/policy-rc.d")
    if policy.exists():
        yield
        return
    try:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
        yield
    finally:
        policy.unlink(missing_ok=True)


def _there(program: str) -> bool:
    path = Path(program)
    # Another package may have a program of the same name on PATH: iproute2 has a `bridge` too.
    on_path = path.parent.name in ("bin", "sbin")
    return path.exists() or (on_path and shutil.which(path.name) is not None)


def main(arguments: Sequence[str]) -> int:
    """Install what is named, or everything; the exit status."""
    names = dict.fromkeys([*NODE, *DOCKER, *BROWSER]) if list(arguments) == ["--node"] else arguments
    if unknown := [name for name in names if name not in PROGRAMS]:
        print(f"unknown: {', '.join(unknown)}; choose from {', '.join(PROGRAMS)}", file=sys.stderr)
        return 2
    try:
        done = install(*(names or PROGRAMS))
    except MissingPackagesError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"installed: {', '.join(done)}" if done else "Debian packages: all there")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
