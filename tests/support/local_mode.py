"""The local mode as a process of its own, on a free port, for tests and benchmarks."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

import httpx

from realparts import loaded
from realparts.processes import Child, wait_until

HEIST = Path(__file__).parents[2] / "examples" / "heist"


class LocalMode:
    """`toolcrib up` over some manifests; a context manager. `kill` and `start` again keep the data folder.

    `patience` is how long a start may take, in seconds.
    """

    def __init__(
        self,
        folder: Path,
        *manifests: Path,
        embedder: str = "none",
        extra: tuple[str, ...] = (),
        patience: float = 60,
    ) -> None:
        self.data = folder / "data"
        self.log = folder / "up.log"
        self._patience = patience
        flags = [a for m in manifests for a in ("--manifests", str(m))]
        self._argv = [
            sys.executable, "-m", "toolcrib_cli", "up", "--port", "0", "--data", str(self.data), "--no-tour",
            "--embedder", embedder, *flags, *extra,
        ]  # fmt: skip
        self.child = self._new()
        self.url = ""

    def _new(self) -> Child:
        environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
        return Child("toolcrib up", self._argv, log=self.log, env=environ)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.child.stop()

    def start(self) -> Self:
        """Start it and wait until it has published."""
        self.log.unlink(missing_ok=True)
        self.child = self._new()
        self.child.start()
        self.child.wait_ready(lambda: "\nup in " in self.output, timeout=self._patience)
        found = re.search(r"registry\t.*\t(http://\S+)", self.output)
        assert found is not None, self.output
        self.url = found.group(1)
        return self

    @property
    def output(self) -> str:
        """Everything it has printed."""
        return self.log.read_text(encoding="utf-8") if self.log.exists() else ""

    def interrupt(self) -> int:
        """Ctrl-C; the exit code."""
        os.kill(self.child.pid, signal.SIGINT)
        self.child.wait(60)
        code = self.child.returncode
        assert code is not None
        return code

    def toolcrib(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Another `toolcrib` command against it, to its end."""
        env = {**os.environ, "TOOLCRIB_DATA": str(self.data), "TOOLCRIB_URL": self.url}
        return loaded.run([sys.executable, "-m", "toolcrib_cli", *arguments], env=env, timeout=60)

    def token(self, name: str, *flags: str) -> str:
        """A token as `toolcrib token` prints it."""
        done = self.toolcrib("token", name, *flags)
        assert done.returncode == 0, done.stderr
        return str(done.stdout.strip())

    def names(self, token: str) -> list[str]:
        """The names that `GET /` lists for a token."""
        answer = httpx.get(
            self.url + "/", headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=30
        )
        return sorted(t["name"] for t in json.loads(answer.text)["tools"])

    def until_names(self, token: str, expected: list[str], timeout: float = 60.0) -> None:
        """Wait until `GET /` lists exactly these."""
        wait_until(lambda: self.names(token) == expected, timeout=timeout)
