"""Files that only their owner may read: refused if others can, written whole or not at all."""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from toolcrib_registry.identity.issuer.errors import UnsafePermissions


def private_folder(path: Path) -> Path:
    """Make the folder (0700) or make sure that it is private.

    Raises:
        UnsafePermissions: others can reach into it, or it belongs to somebody else.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.stat()
    if not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o077 or found.st_uid != os.geteuid():
        raise UnsafePermissions(f"{path} is readable by others; run: chmod 700 {path}")
    return path


def read(path: Path) -> bytes | None:
    """The content, None where there is no such file.

    Raises:
        UnsafePermissions: others can read it, it belongs to somebody else, or it is no plain file.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnsafePermissions(f"{path} cannot be opened as a plain file: {error.strerror}") from error
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise UnsafePermissions(f"{path} is not a plain file")
        if found.st_mode & 0o077 or found.st_uid != os.geteuid():
            raise UnsafePermissions(f"{path} is readable by others; run: chmod 600 {path}")
        return file.read()


def write(path: Path, content: bytes, *, keep: bool = False) -> None:
    """Write the file (0600) so that a crash leaves the old or the new content, and it stays after a power cut.

    Args:
        path: in a private folder.
        content: all of it.
        keep: where somebody else has written the file meanwhile, leave theirs.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if keep:
            try:
                os.link(draft, path)
            except FileExistsError:
                return
        else:
            os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an advisory lock on `path` (made if need be), so that processes change a file one after the other."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
