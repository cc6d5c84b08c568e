"""The local mode's data folder: private, one process at a time, everything in it durable.

issuer/              signing key and client secrets (0600)
search-index.sqlite  definitions and vectors
vectors.sqlite       vectors by the hash of their texts, so that none is made twice
registrations/       runtime registrations, a Tool manifest each
agents/              Agents that `toolcrib agent suspend` wrote, a manifest each
access/              access requests, and the bindings that approve them, a manifest each
approvals.json       which tools are approved, and as what
imported.json        tools of ToolServers, for a start while a server is away
decisions.jsonl      the decision log, with decisions.000001.jsonl, … where it was rotated
assertion/           key of call assertions (0600)
audit.key            what its records are chained with (0600)
demo/                the manifests of `up --demo`, to edit
hosts.yaml           where tools may call, besides the options of `up` (written by hand)
stdio/               homes and logs of commands of ToolServers
accepted-sessions/   sessions that were started or accepted here, an empty file each
example-tools/       sample files and database of the example tools
epoch                grows at every start
local.json           where the running local mode listens, the accounts it knows, and how it is set (0600)
lock                 held by the process that uses the folder
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import stat
import tempfile
import time
from pathlib import Path
from typing import Any

from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.private_folders import shared_place

_ATTEMPTS = 5
AGENTS = "agents"
ACCESS = "access"


class Store:
    """An opened data folder, locked for this process until `close`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told: dict[str, Any] = {}
        """What `write_state` leaves besides, for other commands: how this local mode is set."""
        self._state = ""
        self.key = secrets.token_urlsafe(32)
        """Opens the objects of this run (`toolcrib get`) to anyone who may read the folder."""
        self._lock = self._open_lock()

    @classmethod
    def open(cls, folder: Path) -> Store:
        """Make or open the folder (0700) and lock it.

        Raises:
            CliError: others can read it, or write on the way to it; it cannot be written, or another local mode uses it.
        """
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            mode = stat.S_IMODE(folder.stat().st_mode)
        except OSError as error:
            raise CliError(
                f"cannot use the data folder {folder}: {error.strerror}",
                hint="choose another with --data",
                code=Exit.USAGE,
            ) from error
        if mode & 0o077:
            raise CliError(
                f"others can read the data folder {folder} (mode {mode:o}); it holds a signing key",
                hint=f"chmod 700 {folder}, or choose another with --data",
                code=Exit.USAGE,
            )
        if (place := shared_place(folder)) is not None:
            raise CliError(
                f"the data folder {folder} is not safe: {place.problem}", hint=place.hint, code=Exit.USAGE
            )
        return cls(folder)

    def _open_lock(self) -> int:
        try:
            lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise CliError(
                f"cannot write to the data folder {self.folder}: {error.strerror}",
                hint="choose another with --data",
                code=Exit.USAGE,
            ) from error
        for attempt in range(_ATTEMPTS):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if attempt + 1 < _ATTEMPTS:
                    time.sleep(0.02)  # `is_used` may be looking
            else:
                return lock
        os.close(lock)
        raise CliError(
            f"another local mode already uses {self.folder}",
            hint="stop it, or start this one with another --data (and --port)",
            code=Exit.USAGE,
        )

    def path(self, name: str) -> Path:
        """A file or folder of the store."""
        return self.folder / name

    def next_epoch(self) -> int:
        """An epoch greater than any this folder has seen; durable before it is returned."""
        file = self.path("epoch")
        try:
            last = int(file.read_text())
        except (OSError, ValueError):
            last = 0
        write_durably(file, f"{last + 1}\n")
        return last + 1

    def audit_key(self) -> Path:
        """The file with the decision log's secret (0600), made where there is none yet."""
        file = self.path("audit.key")
        if not file.exists():
            write_durably(file, secrets.token_hex(32) + "\n")
        return file

    def write_state(self, url: str, accounts: list[str]) -> None:
        """Let other commands find this local mode, and which accounts it knows."""
        own = {"url": url, "pid": os.getpid(), "accounts": accounts, "key": self.key}
        state = json.dumps(own | self.told)
        if state != self._state:  # an edit waits for the disk
            write_durably(self.path("local.json"), state)
            self._state = state

    def close(self) -> None:
        """Release the folder."""
        os.close(self._lock)


def read_state(folder: Path) -> dict[str, Any] | None:
    """What `write_state` left, or None."""
    try:
        state = json.loads((folder / "local.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return state if isinstance(state, dict) and isinstance(state.get("url"), str) else None


def read_running(folder: Path) -> dict[str, Any] | None:
    """What `write_state` left, if a local mode uses the folder."""
    return read_state(folder) if is_used(folder) else None


def is_used(folder: Path) -> bool:
    """Whether a local mode runs in the folder: it holds the lock. Another process may have its number by now."""
    try:
        lock = os.open(folder / "lock", os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def write_durably(file: Path, text: str) -> None:
    """Replace a file whole, mode 0600: after a crash the old or the new content stands, never a part."""
    # a name that nobody knows and that is no link: others may write to the folder of a client's file
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", suffix=".new", dir=file.parent)
    temporary = Path(name)
    # a plain os.write may take a part of it on a disk that is nearly full, and say so by a number only
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(text.encode())
            out.flush()
            os.fsync(out.fileno())
    except OSError:
        temporary.unlink(missing_ok=True)  # on a full disk its part would be in the way
        raise
    os.replace(temporary, file)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
