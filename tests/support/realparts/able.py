"""Whether this machine can run `make cluster-test`, asked before anything is installed or built.

    python tests/support/realparts/able.py     says all that is missing at once; 0 if nothing is, else 1

Changes nothing. Standard library only: it runs before there is an environment.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

if __package__ in (None, ""):
    # Run as a file: Python put this folder first, where `weaviate` would be the wrong one.
    sys.path.remove(str(Path(__file__).resolve().parent))
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from realparts import debian, docker, gotool, lookup
from realparts.parts import NODE, PARTS, SUITE

GB = 10**9
# Measured: what a run writes, docker's layers and the images, the parts with Go's caches where all are built.
_RUN, _IMAGES, _PARTS = 4 * GB, 8 * GB, 13 * GB
_MEMORY = 4 * GB


def main() -> int:
    """Print what is missing; the exit status."""
    found = list(lacking(os.environ))
    if not found:
        return 0
    print("make cluster-test cannot run on this machine:", file=sys.stderr)
    for text in found:
        print(f"  - {text}", file=sys.stderr)
    print(
        "make cluster-demo shows the same flow without pods, and takes neither root nor docker.",
        file=sys.stderr,
    )
    return 1


def lacking(environ: Mapping[str, str]) -> Iterator[str]:
    """What is missing, each with its remedy, the most decisive first."""
    yield from lacking_rights("make cluster-test", "--mount", "--pid", "--net")
    if sys.platform != "linux":
        return
    yield from lacking_programs()
    to_build = [PARTS[name] for name in (*SUITE, *NODE) if lookup.find(PARTS[name], environ) is None]
    if to_build and not gotool.has_wheel() and (problem := gotool.lacking(to_build[0].folder, environ)):
        yield f"{problem}\n{gotool.ADVICE}".replace("\n", "\n    ")
    kept = docker.cache_folder()
    images = 0 if (kept / "images").exists() else _IMAGES
    yield from lacking_room(kept, _RUN + images + _PARTS * len(to_build) // len(SUITE + NODE))
    yield from lacking_memory(Path("/proc/meminfo").read_text())


def lacking_rights(target: str, *namespaces: str) -> Iterator[str]:
    """Linux, root, and the right to make these namespaces (options of unshare)."""
    if sys.platform != "linux":
        yield f"it needs Linux, this is {sys.platform}: use a virtual machine with Debian"
    elif os.geteuid() != 0:
        yield f"it needs root (this is user {os.geteuid()}): sudo {target}, or a virtual machine"
    elif shutil.which("unshare"):
        tried = ["unshare", *namespaces, "--fork", "true"]
        if subprocess.run(tried, capture_output=True, check=False).returncode:
            yield "root may not make namespaces here: in a container, it has to be a privileged one"


def lacking_programs() -> Iterator[str]:
    """Debian's packages, where apt-get cannot bring them; a docker client that can build."""
    absent = debian.missing(*dict.fromkeys([*debian.NODE, *debian.DOCKER, *debian.BROWSER]))
    if absent and not shutil.which("apt-get"):
        yield (
            f"not here: {', '.join(absent)} (their names on Debian and Ubuntu), and there is no apt-get to "
            "install them with"
        )
    # Debian's docker.io brings a client of its own.
    if "docker.io" not in absent and docker.client_path() is None:
        yield (
            "no docker client here can build: one from 23 on needs buildx; install docker-buildx-plugin "
            "(Docker's packages) or docker-buildx (Debian 13's, Ubuntu's)"
        )


def lacking_room(folder: Path, needed: int) -> Iterator[str]:
    """Bytes on the file system of `folder`, which need not exist."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(there).free
    if free < needed:
        yield f"it needs {needed / GB:.0f} GB of disk below {there}, free are {free / GB:.0f}"


def lacking_memory(meminfo: str) -> Iterator[str]:
    """Memory that is available, by the text of /proc/meminfo."""
    numbers = dict(line.split(":", 1) for line in meminfo.splitlines())
    available = int(numbers["MemAvailable"].split()[0]) * 1024
    if available < _MEMORY:
        yield f"it needs {_MEMORY // GB} GB of memory, available are {available / GB:.1f}"


if __name__ == "__main__":
    sys.exit(main())
