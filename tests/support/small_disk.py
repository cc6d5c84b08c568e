"""A disk of a megabyte for one process: a tmpfs in a mount namespace of its own, gone with the process."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

from realparts.required import require

_MOUNT = 'mount -t tmpfs -o size="$1",mode=700 tmpfs "$2" && shift 2 && exec "$@"'


def command(folder: Path, size: str = "1m") -> list[str]:
    """What a command is given to, to find such a disk at `folder`.

    Skips the test where this machine lets nobody mount; fails it where real parts are required.
    """
    unshare = shutil.which("unshare")
    who = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    made = [str(unshare), *who, "--mount", "sh", "-c", _MOUNT, "sh", size, str(folder)]
    able = unshare and subprocess.run([*made, "true"], capture_output=True).returncode == 0
    require(bool(able), "a small disk takes unshare (util-linux) and root, or user namespaces")
    return made


class SmallDisk:
    """The disk of a running process, seen from outside."""

    def __init__(self, pid: int, folder: Path) -> None:
        self.folder = Path(f"/proc/{pid}/root") / folder.relative_to("/")
        self._filler = self.folder / "filler"

    def fill(self) -> None:
        """Take all that is left."""
        with self._filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * 4096)
        assert os.statvfs(self.folder).f_bavail == 0

    def free(self) -> None:
        """Give it back."""
        self._filler.unlink()
