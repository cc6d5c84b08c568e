"""Where the decision log's lines go: a file that is rotated and never holds half a line, or a stream.

Rotated files stand beside the one that is written: `decisions.000001.jsonl`, `decisions.000002.jsonl`, … beside
`decisions.jsonl`, the highest number being the youngest. One process writes to a file at a time: it is locked.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import hashlib
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from toolcrib.audit import chain as audit_chain
from toolcrib.audit.chain import Head, Line

STDOUT = "-"
_BLOCK = 64 * 1024
_LONGEST = 4 << 20
"""Bytes that are looked through for a line: no record is nearly as long."""
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP)


class LogBusy(OSError):
    """Another process writes this log."""


@dataclass(frozen=True, slots=True)
class Found:
    """What an earlier process has left: its last line, and what it left unfinished."""

    last: Line | None = None
    torn: int = 0
    """Bytes of a line that was never finished; they were cut away."""
    torn_hash: str = ""


class Target(Protocol):
    """Takes lines, in the writer's thread. Everything may raise OSError."""

    stream: bool
    found: Found

    def append(self, data: bytes) -> None:
        """Write all of it; after an error nothing of it is there (a stream may hold a part)."""
        ...

    def sync(self) -> None:
        """Return when what was written outlasts the machine; of a stream, at once."""
        ...

    def due(self) -> bool:
        """Whether the file has its full size."""
        ...

    def rotate(self) -> Path:
        """Close the file under a name of its own, which is returned, and begin the next one."""
        ...

    def surplus(self) -> list[Path]:
        """Rotated files that are too many, the oldest first."""
        ...

    def moved(self) -> bool:
        """Whether somebody else has moved or deleted the file that is written."""
        ...

    def reopen(self) -> None:
        """Begin a new file in the place of one that was moved."""
        ...

    def close(self) -> None:
        """Let go."""
        ...


class RotatingFile:
    """A file, mode 0600. Reading what it holds already is part of opening it.

    Args:
        path: of the file that is written; its folder is made (0700).
        most: bytes from which a file is full.
        keep: rotated files that stay.

    Raises:
        LogBusy: another process writes it.
        OSError: it cannot be opened.
    """

    stream = False

    def __init__(self, path: Path, most: int, keep: int) -> None:
        self._path, self._most, self._keep = path, most, keep
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file = self._open()
        self._size, self.found = self._recovered()

    def append(self, data: bytes) -> None:
        """All of `data` or nothing: a full disk takes a part of it, to which the next line would be glued."""
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError:
            if written:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file, os.fstat(self._file).st_size - written)
            raise
        self._size += written

    def sync(self) -> None:
        """Return when what was written outlasts the machine."""
        os.fdatasync(self._file)

    def due(self) -> bool:
        """Whether the file is full."""
        return self._size >= self._most

    def rotate(self) -> Path:
        """Give the file a name of its own and begin the next one. After an error the old one goes on."""
        os.fdatasync(self._file)
        numbered = rotated(self._path)
        number = 1 + (_number(self._path, numbered[-1]) if numbered else 0)
        while os.path.lexists(
            away := self._path.with_name(f"{self._path.stem}.{number:06d}{self._path.suffix}")
        ):
            number += 1  # a rename would delete it
        os.rename(self._path, away)
        try:
            self.reopen()
        except OSError:
            os.rename(away, self._path)
            raise
        return away

    def surplus(self) -> list[Path]:
        """Rotated files that are too many, the oldest first."""
        files = rotated(self._path)
        return files[: max(0, len(files) - self._keep)]

    def moved(self) -> bool:
        """Whether the path means another file by now, or none."""
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return True
        here = os.fstat(self._file)
        return (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino)

    def reopen(self) -> None:
        """Begin a new file."""
        new = self._open()
        os.close(self._file)
        self._file, self._size = new, os.fstat(new).st_size
        _sync_folder(self._path.parent)

    def close(self) -> None:
        """Let go of it."""
        os.close(self._file)

    def _open(self) -> int:
        file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(file, 0o600)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            raise LogBusy(
                errno.EBUSY, "another process is writing this decision log", str(self._path)
            ) from None
        except OSError as error:
            if error.errno not in (*_NO_LOCKS, errno.EPERM):
                os.close(file)
                raise
        return file

    def _recovered(self) -> tuple[int, Found]:
        """Cut away a line that was never finished, and find the last one."""
        size = os.fstat(self._file).st_size
        end, torn = size, b""
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            tail = os.pread(self._file, _LONGEST, max(0, size - _LONGEST))
            torn = tail[tail.rfind(b"\n") + 1 :]
            end = size - len(torn)
            os.ftruncate(self._file, end)
        last = last_line(self._path)
        if last is None and end == 0 and (files := rotated(self._path)):
            last = last_line(files[-1])
        return end, Found(last, len(torn), hashlib.sha256(torn).hexdigest() if torn else "")


class Stream:
    """A stream: standard output (`-`), a pipe, a device. Anyone who reads it keeps it; it cannot be rotated or looked at.

    Raises:
        OSError: it cannot be opened.
    """

    stream = True
    found = Found()

    def __init__(self, path: str) -> None:
        self._file = os.dup(1) if path == STDOUT else _writable(path)
        os.set_blocking(self._file, True)
        self._torn = False

    def append(self, data: bytes) -> None:
        """Write all of it, waiting for the reader. After an error the next line begins on a line of its own."""
        data = b"\n" + data if self._torn else data
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError:
            self._torn = self._torn or written > 0
            raise
        self._torn = False

    def sync(self) -> None:
        """Do nothing: a stream has no file to make durable."""

    def due(self) -> bool:
        """Never full."""
        return False

    def rotate(self) -> Path:
        """Never asked for."""
        raise OSError(errno.ENOTSUP, "a stream is not rotated")

    def surplus(self) -> list[Path]:
        """Nothing."""
        return []

    def moved(self) -> bool:
        """Never."""
        return False

    def reopen(self) -> None:
        """Nothing to be done."""

    def close(self) -> None:
        """Let go of it."""
        os.close(self._file)


def _writable(path: str) -> int:
    # a pipe that nobody reads would hold up anyone who opens it until somebody does
    try:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(
                errno.ENXIO,
                "no process reads this decision log (a pipe needs a reader before the registry starts)",
                path,
            ) from None
        raise


def open_target(path: str, most: int, keep: int) -> Target:
    """What `path` means: `-`, what is below /dev and what is no plain file are streams.

    Raises:
        OSError: it cannot be opened.
    """
    # /dev/stdout may lead to a plain file, which is the shell's to rotate
    device = path == STDOUT or path.startswith("/dev/")
    if device or (os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode)):
        return Stream(path)
    return RotatingFile(Path(path), most, keep)


def rotated(path: Path) -> list[Path]:
    """The rotated files of a log, the oldest first."""
    found = [
        p
        for p in path.parent.glob(f"{glob.escape(path.stem)}.*{glob.escape(path.suffix)}")
        if _number(path, p)
    ]
    return sorted(found, key=lambda p: _number(path, p))


def _number(path: Path, file: Path) -> int:
    name = re.fullmatch(rf"{re.escape(path.stem)}\.(\d{{6,12}}){re.escape(path.suffix)}", file.name)
    return int(name[1]) if name else 0


def first_line(path: Path) -> Line | None:
    """The first line of a file, if it can be read as one."""
    with path.open("rb") as file:
        return audit_chain.read_line(file.readline(_LONGEST).rstrip(b"\n"))


def last_line(path: Path) -> Line | None:
    """The last whole line of a file, if it can be read as one."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        tail = b""
        while len(tail) < min(size, _LONGEST) and tail.count(b"\n") < 2:
            step = min(_BLOCK, size - len(tail))
            file.seek(size - len(tail) - step)
            tail = file.read(step) + tail
    lines = [line for line in tail.split(b"\n") if line]
    return audit_chain.read_line(lines[-1]) if lines else None


def place_of(line: Line | Head | None) -> dict[str, object] | None:
    """How a line's place stands in a record."""
    return None if line is None else {"chain": line.chain, "seq": line.seq, "hash": line.hash}


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
