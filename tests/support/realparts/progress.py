"""Running a program that takes long: what it does, how far it is, and how long it took last time.

One line that changes on a terminal, a line every 15 s elsewhere. Standard library only.
"""

import shutil
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TextIO

from realparts import cache, processes

MEASURED = " on two cores"


class ProgramError(RuntimeError):
    """A program failed; `reports` are its last lines on standard error, else on standard output."""

    def __init__(self, status: int, reports: Sequence[str]) -> None:
        super().__init__(f"exit status {status}")
        self.status, self.reports = status, reports


@dataclass(frozen=True)
class Work:
    """Something that is made in the cache by one or more programs."""

    name: str
    version: str
    usual: str
    """How long it takes, in words."""
    start: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self.start


def usual(folder: Path, seconds: Mapping[str, int]) -> str:
    """How long making all of these takes: as long as last time, or these seconds, measured on two cores."""
    last = {name: cache.last_time(folder, name) for name in seconds}
    known = {name: each for name, each in last.items() if each is not None}
    total = sum({**seconds, **known}.values())
    if len(known) == len(seconds):
        return f"last time {clock(total)}"
    return f"about {max(1, round(total / 60))} min{'' if known else MEASURED}"


def clock(seconds: float) -> str:
    """`7:40`."""
    return "{}:{:02}".format(*divmod(int(seconds), 60))


def run(
    command: Sequence[str],
    work: Work,
    doing: str,
    out: TextIO,
    *,
    cwd: Path,
    env: Mapping[str, str],
    most: int | None = None,
) -> list[str]:
    """Run a program and return its output lines, with progress by the lines it writes to standard error.

    At most `most` such lines come; 0: nobody knows how many; None: they say nothing about progress.
    Raises ProgramError.
    """
    with tempfile.TemporaryFile() as output:
        process = processes.spawn(
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE
        )
        try:
            assert process.stderr is not None
            with process.stderr, _Progress(work, doing, most, out) as progress:
                progress.follow(process.stderr)
                status = process.wait()
        finally:
            processes.end(process)
        output.seek(0)
        lines = output.read().decode(errors="replace").splitlines()
        if status:
            raise ProgramError(status, list(progress.reports) or lines[-30:])
        return lines


class _Progress:
    """Counts the lines that a program reports and shows the count, from a thread of its own."""

    def __init__(self, work: Work, doing: str, most: int | None, out: TextIO) -> None:
        self.reports: deque[str] = deque(maxlen=30)
        self._work, self._doing, self._most, self._out = work, doing, most, out
        self._count, self._latest = 0, ""
        self._live = out.isatty()
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
            self.reports.append(line)
            self._count += 1
            self._latest = line.removeprefix("go: downloading ")

    def _paint(self) -> None:
        while not self._done.wait(0.3 if self._live else 15):
            self._show(end="" if self._live else "\n")

    def _show(self, end: str) -> None:
        texts = list(self._texts())
        text = texts[0]
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            text = next((each for each in texts if len(each) <= width), texts[-1])
            latest = "" if end else f"  {self._latest}"
            text = "\r\x1b[K" + (text + latest)[:width]
        print(text, end=end, file=self._out, flush=True)

    def _texts(self) -> Iterator[str]:
        """The line, and shorter forms of it for a narrow terminal."""
        name, estimate = self._work.name, self._work.usual
        elapsed = clock(self._work.seconds)
        # Go reports only what it does: what its own cache holds already is not counted.
        count = f"{self._count:,} of at most {self._most:,} packages" if self._most else f"{self._count:,}"
        doing = self._doing if self._most is None else f"{self._doing}: {count}"
        yield f"{name} {self._work.version}: {doing}, {elapsed}, {estimate}"
        brief = count if self._most else doing
        yield f"{name}: {brief}, {elapsed}, {estimate}"
        yield f"{name}: {brief}, {elapsed}, {estimate.removesuffix(MEASURED)}"
