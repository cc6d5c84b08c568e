"""Changes of the cache of built programs: one run at a time, each whole or not at all; how long each took.

Standard library only.
"""

import contextlib
import fcntl
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

_STALE = ".building-"
_TIMES = ".seconds.json"


@contextlib.contextmanager
def locked(folder: Path, out: TextIO) -> Iterator[None]:
    """Keep other runs from changing the cache; wait for one that does."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another run is building; waiting for it.", file=out, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def renewed(target: Path) -> Iterator[Path]:
    """A scratch folder. Its `new` replaces `target` by a rename at the end, unless there is an error.

    The caller holds the lock.
    """
    for leftover in target.parent.glob(f"{_STALE}*"):  # of a run that was killed: we hold the lock
        shutil.rmtree(leftover, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=_STALE, dir=target.parent))
    try:
        yield scratch
        if target.exists():  # damaged, or it would have been used
            target.rename(scratch / "old")
        (scratch / "new").rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def last_time(folder: Path, name: str) -> int | None:
    """Seconds that making this took last time on this machine, if known."""
    seconds = _times(folder).get(name)
    return seconds if type(seconds) is int and 0 <= seconds < 10**6 else None


def record_time(folder: Path, name: str, seconds: float) -> None:
    """Keep how long making this took. The caller holds the lock."""
    partial = folder / f"{_TIMES}.partial"
    # A figure for people: that it cannot be kept is no reason to fail.
    with contextlib.suppress(OSError):
        partial.write_text(json.dumps(_times(folder) | {name: round(seconds)}))
        partial.replace(folder / _TIMES)


def _times(folder: Path) -> dict[str, object]:
    try:
        times = json.loads((folder / _TIMES).read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return times if isinstance(times, dict) else {}
