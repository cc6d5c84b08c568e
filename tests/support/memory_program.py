"""`toolcrib memory` as a process of its own behind a local mode, for tests."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import httpx

from local_mode import HEIST, LocalMode
from realparts.processes import Child, free_port

EXAMPLE = HEIST.parent / "memory"


class MemoryProgram:
    """`toolcrib memory` on one port; a context manager. `kill` and `start` again keep the store."""

    def __init__(self, folder: Path, issuer: str, port: int, *flags: str, before: Sequence[str] = ()) -> None:
        """`before`: a command that runs the program, such as that of a small disk."""
        self.url = f"http://127.0.0.1:{port}"
        self.log = folder / "memory.log"
        argv = [
            *before,
            sys.executable,
            "-m",
            "toolcrib_cli",
            "memory",
            "--issuer",
            issuer,
            "--port",
            str(port),
            *flags,
        ]
        self.child = Child("toolcrib memory", argv, log=self.log, env={**os.environ, "PYTHONUNBUFFERED": "1"})

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.child.stop()

    def start(self) -> Self:
        """Start it and wait until it listens."""
        self.log.unlink(missing_ok=True)
        self.child.start()
        self.child.wait_ready(lambda: f"memory at {self.url}" in self.output, timeout=60)
        return self

    def kill(self) -> None:
        """End it at once, as `kill -9` does."""
        self.child.kill()

    def interrupt(self) -> int:
        """SIGTERM; the exit code."""
        os.kill(self.child.pid, signal.SIGTERM)
        self.child.wait(60)
        code = self.child.returncode
        assert code is not None
        return code

    @property
    def output(self) -> str:
        """Everything it has printed and logged."""
        return self.log.read_text(encoding="utf-8") if self.log.exists() else ""


class Crew:
    """The heist's agents at a local mode whose Service `heist/memory` is at `port`."""

    def __init__(self, folder: Path, *manifests: Path) -> None:
        self.port = free_port()
        self.local = LocalMode(
            folder,
            HEIST,
            *(manifests or (EXAMPLE,)),
            extra=("--backend", f"heist/memory=127.0.0.1:{self.port}"),
        )
        self._tokens: dict[str, str] = {}

    def __enter__(self) -> Self:
        self.local.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.local.__exit__(*error)

    def token(self, agent: str) -> str:
        """The agent's token."""
        if agent not in self._tokens:
            self._tokens[agent] = self.local.token(agent)
        return self._tokens[agent]

    def call(self, agent: str, tool: str, **arguments: Any) -> httpx.Response:
        """A call of a tool by an agent, through the registry."""
        headers = {"Authorization": f"Bearer {self.token(agent)}"}
        return httpx.post(
            f"{self.local.url}/tools/{tool}", headers=headers, json=arguments, trust_env=False, timeout=30
        )

    def store(self, agent: str, turn: int, message: str, session: str = "s1", **more: Any) -> httpx.Response:
        """Store a message as this agent."""
        given = {"agent_id": agent, "turn_id": turn, "message": message, "game_session_id": session, **more}
        return self.call(agent, "store_memory", **given)

    def recall(self, agent: str, session: str = "s1", **more: Any) -> dict[str, Any]:
        """What this agent recalls."""
        answer = self.call(
            agent, "get_compressed_memory", **{"agent_id": agent, "game_session_id": session, **more}
        )
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body
