"""Building a real server from its pinned Go module into the cache, once, with progress.

The program appears in the cache by one rename, with its checksum, or not at all; a lock keeps two runs from
building the same. Standard library only.
"""

import contextlib
import fcntl
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TextIO

from realparts import lookup, processes
from realparts.parts import GO_MINIMUM, Part

_STALE = ".building-"


class GoMissingError(RuntimeError):
    """There is no Go here that can build the parts; the message says how to get one."""


class BuildFailedError(RuntimeError):
    """Go could not build a part; the message ends with what Go said."""


def build(part: Part, environ: Mapping[str, str], out: TextIO) -> lookup.Found:
    """Build a part into the cache and return it; at once if another run has done so meanwhile.

    Progress goes to `out`: one line that changes on a terminal, a line every 15 s elsewhere.
    Raises GoMissingError or BuildFailedError; then, and when interrupted, the cache is as before.
    """
    folder = lookup.cache_folder(environ)
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / ".lock", out):
        found = lookup.cached(part, environ)
        if found:
            return found
        require_go(part, environ)
        for leftover in folder.glob(f"{_STALE}*"):  # of a run that was killed: we hold the lock
            shutil.rmtree(leftover, ignore_errors=True)
        scratch = Path(tempfile.mkdtemp(prefix=_STALE, dir=folder))
        try:
            # What an interrupted Go leaves of its own work goes with the rest.
            (scratch / "tmp").mkdir()
            _build_into(scratch / "new", part, {**environ, "GOTMPDIR": str(scratch / "tmp")}, out)
            target = lookup.cache_path(part, environ).parent
            if target.exists():  # damaged, or lookup would have returned it
                target.rename(scratch / "old")
            (scratch / "new").rename(target)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        found = lookup.cached(part, environ)
    if not found:
        raise BuildFailedError(f"{part.name}: the built file cannot be read back")
    return found


def require_go(part: Part, environ: Mapping[str, str]) -> None:
    """Raises GoMissingError unless there is a Go that can build this part."""
    oldest = ".".join(map(str, GO_MINIMUM))
    advice = (
        f"Building {part.name} {part.version} takes Go {oldest} or newer on PATH: https://go.dev/dl/ or your "
        "package manager.\nOr set KUBEBUILDER_ASSETS to a folder that holds kube-apiserver, etcd and kubectl "
        "(weaviate too, there or on PATH)."
    )
    go = shutil.which("go", path=environ.get("PATH", ""))
    if not go:
        raise GoMissingError(f"There is no Go on this machine.\n{advice}")
    # In the module's folder: a Go that may fetch the newer toolchain which go.mod asks for does it here.
    run = subprocess.run(
        [go, "env", "GOVERSION"], cwd=part.folder, env=_environment(environ), capture_output=True, text=True
    )
    stated = re.match(r"go(\d+)\.(\d+)", run.stdout)
    if not stated:
        raise GoMissingError(f"The Go on this machine does not work: {run.stderr.strip()}\n{advice}")
    if (int(stated[1]), int(stated[2])) < GO_MINIMUM:
        raise GoMissingError(f"The Go on this machine is too old: {run.stdout.strip()}.\n{advice}")


def _build_into(folder: Path, part: Part, environ: Mapping[str, str], out: TextIO) -> None:
    folder.mkdir()
    binary = folder / part.binaries[0]
    listed = _run(["go", "list", "-deps", part.package], part, environ, out, "fetching modules", most=0)
    build = ["go", "build", "-v", "-p", "2", "-trimpath", f"-ldflags={part.ldflags}", "-o", str(binary)]
    _run([*build, part.package], part, environ, out, "building", most=len(listed))
    lookup.write_checksum(binary)


def _run(
    command: list[str], part: Part, environ: Mapping[str, str], out: TextIO, doing: str, most: int
) -> list[str]:
    """Run Go in the part's folder, showing what it reports on standard error; return its output lines."""
    title = f"{part.name} {part.version}: {doing}"
    with tempfile.TemporaryFile() as output:
        process = processes.spawn(
            command,
            cwd=part.folder,
            env=_environment(environ),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
        )
        try:
            assert process.stderr is not None
            with process.stderr, _Progress(title, most, out) as progress:
                progress.follow(process.stderr)
                status = process.wait()
        finally:
            processes.end(process)
        if status:
            said = "\n".join(progress.said)
            raise BuildFailedError(f"{part.name}: `{' '.join(command[:2])}` failed with {status}:\n{said}")
        output.seek(0)
        return output.read().decode(errors="replace").splitlines()


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    # Pure Go, so no C compiler is needed; the modules are exactly those of go.sum.
    return {**environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}


@contextlib.contextmanager
def _locked(path: Path, out: TextIO) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another run is building; waiting for it.", file=out, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


class _Progress:
    """Counts the lines that Go reports and shows the count, from a thread of its own."""

    def __init__(self, title: str, most: int, out: TextIO) -> None:
        self.said: deque[str] = deque(maxlen=30)
        self._title, self._most, self._out = title, most, out
        self._count, self._latest = 0, ""
        self._live = out.isatty()
        self._start = time.monotonic()
        self._done = threading.Event()
        self._painter = threading.Thread(target=self._paint, daemon=True)

    def __enter__(self) -> "_Progress":
        self._painter.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._painter.join()
        self._show(end="\n")

    def follow(self, reports: IO[bytes]) -> None:
        """Read reports until there are no more."""
        for raw in reports:
            line = raw.decode(errors="replace").rstrip()
            self.said.append(line)
            self._count += 1
            self._latest = line.removeprefix("go: downloading ")

    def _paint(self) -> None:
        while not self._done.wait(0.3 if self._live else 15):
            self._show(end="" if self._live else "\n")

    def _show(self, end: str) -> None:
        # Go reports only what it does: what its own cache holds already is not counted.
        count = f"{self._count:,} of at most {self._most:,} packages" if self._most else f"{self._count:,}"
        minutes, seconds = divmod(int(time.monotonic() - self._start), 60)
        text = f"{self._title}: {count}, {minutes}:{seconds:02}"
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            latest = "" if end else f"  {self._latest}"
            text = "\r\x1b[K" + (text + latest)[:width]
        print(text, end=end, file=self._out, flush=True)
