"""An agent of a framework as a child process, whose model asks us what to reply."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from realparts import processes

SECONDS = 40.0
"""For anything that an agent is asked; the import of a framework on a busy machine takes ten."""
SCRIPTS = Path(__file__).parent / "agents"
ROOT = Path(__file__).parents[3]
_WORST = 1 << 14


class AgentFailedError(RuntimeError):
    """An agent ended, said nothing in time, or something else than it was asked; `kind` names the error that it told."""

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class Turn:
    """A request to the model: what it is offered, and the results since the last one."""

    tools: tuple[str, ...]
    results: tuple[str, ...]


class Agent:
    """One agent; `run` starts a run of it, `reply` answers as its model."""

    def __init__(self, child: subprocess.Popen[bytes], log: Path) -> None:
        self._child, self._log = child, log
        self._said: queue.Queue[Any] = queue.Queue()
        self.warnings: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.version = ""

    def start(self) -> None:
        """Wait until its framework is imported."""
        self.version = str(self._next("version"))

    def run(self) -> Turn:
        """The first turn of a new run."""
        self._tell(run=True)
        return self.turn()

    def call(self, name: str, arguments: Mapping[str, Any]) -> Turn:
        """The turn after this call."""
        self.ask(name, arguments)
        return self.turn()

    def ask(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Call, and wait for nothing."""
        self._tell(reply={"calls": [{"name": name, "arguments": dict(arguments)}]})

    def finish(self) -> str:
        """The answer of the run."""
        self._tell(reply={"text": "finished"})
        return str(self._next("done"))

    def cancel(self) -> None:
        """End the run in the middle."""
        self._tell(cancel=True)
        self._next("cancelled")

    def close(self) -> None:
        """The end of the process."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        with contextlib.suppress(OSError):
            self._child.stdin.close()
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            processes.end(self._child)
        self._reader.join(SECONDS)
        self._child.stdout.close()

    def turn(self) -> Turn:
        """The next request to the model."""
        told = self._next("turn")
        return Turn(tuple(told["tools"]), tuple(told["results"]))

    def _tell(self, **command: Any) -> None:
        assert self._child.stdin is not None
        with contextlib.suppress(OSError):  # it has ended, which the next answer tells
            self._child.stdin.write(json.dumps(command).encode() + b"\n")
            self._child.stdin.flush()

    def _next(self, wanted: str) -> Any:
        try:
            said = self._said.get(timeout=SECONDS)
        except queue.Empty:
            raise AgentFailedError(
                f"no {wanted} within {SECONDS:g} s:\n{self._written()}", "no answer"
            ) from None
        if said is None or wanted not in said:
            kind = (said or {}).get("error", "the process ended").partition(":")[0]
            raise AgentFailedError(f"{said} instead of {wanted}:\n{self._written()}", kind)
        return said[wanted]

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            said = json.loads(line)
            if "log" in said:
                self.warnings.append(said["log"])
            else:
                self._said.put(said)
        self._said.put(None)

    def _written(self) -> str:
        return self._log.read_text(errors="replace")[-_WORST:]


@contextlib.contextmanager
def running(command: Sequence[str], url: str, token: str, way: str, folder: Path) -> Iterator[Agent]:
    """The agent, its framework imported; ended with the block."""
    with (folder / "agent.log").open("w+b") as log:
        settings = {"AGENT_URL": url, "AGENT_TOKEN": token, "AGENT_WAY": way, "HOME": str(folder)}
        settings |= {"PYTHONPATH": str(ROOT / "client"), "PYTHONWARNINGS": "default"}
        child = processes.spawn(
            command,
            cwd=folder,
            env=processes.clean_environment(settings) | {"PATH": os.environ["PATH"]},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
        agent = Agent(child, Path(log.name))
        try:
            agent.start()
            yield agent
        finally:
            agent.close()
            processes.end(child)
