"""Starts of our own programs as forks of a loaded one, where the test suite has switched that on.

Standard library only, as `processes`. One server a program and process that starts children, made when first asked for;
`forks` says what it does. Tests whose subject is a start itself, or memory, use the fixture
`fresh_programs` and get new interpreters.
"""

import atexit
import contextlib
import json
import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from realparts import forks, processes

MODULES: Mapping[str, Sequence[str]] = {
    "toolcrib_cli": (
        "toolcrib_cli.main", "toolcrib_cli.local.up", "toolcrib_cli.commands.agents_view", "toolcrib_cli.client",
        "toolcrib_cli.prediction", "toolcrib.view", "toolcrib_cli.example_tools", "toolcrib_cli.bridge.run",
        "toolcrib_cli.local.accounts", "toolcrib_cli.session_store.database", "toolcrib_cli.sessions.running",
        "toolcrib_cli.sessions.preflight", "toolcrib_cli.sessions.team", "toolcrib_cli.sessions.comparison",
    ),
    "toolcrib_registry.main": ("toolcrib_registry.main", "toolcrib_registry.compose"),
    "toolcrib_operator.main": ("toolcrib_operator.main",),
    "toolcrib_runner.main": ("toolcrib_runner.main",),
}  # fmt: skip
"""What is loaded before the forks of each program."""
_LOADING = 240.0
"""Seconds."""
_servers: dict[str, Path] = {}
_starting = threading.Lock()


def switch_on() -> None:
    """From now on children of this process are forks where that can be. On Linux alone: elsewhere loaded libraries may not be forked."""
    if sys.platform == "linux":
        processes.launcher = launch


def takes(argv: Sequence[str]) -> bool:
    """Whether a command is one of our programs, as `python -m` starts it, and forks are on."""
    return processes.launcher is launch and list(argv[:2]) == [sys.executable, "-m"] and argv[2] in MODULES


def launch(argv: Sequence[str], **popen: Any) -> processes.Process:
    """Start a program of ours as a fork, any other by `processes.spawn`, with the keywords that `Child` uses."""
    return spawn(argv, **popen) if takes(argv) else processes.spawn(argv, **popen)


class Fork:
    """A started program, with what `subprocess.Popen` offers of it. It ends when this object is no longer held."""

    def __init__(self, argv: Sequence[str], line: socket.socket) -> None:
        self.args = list(argv)
        self.returncode: int | None = None
        self._line = line
        self._said = b""
        self._reading = threading.Lock()
        while b"\n" not in self._said:
            if not (part := line.recv(64)):
                raise RuntimeError(f"the server of {argv[2]} ended")
            self._said += part
        pid, _, self._said = self._said.partition(b"\n")
        self.pid = int(pid)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):
            self._line.close()

    def poll(self) -> int | None:
        """The exit status, if it has ended."""
        with self._reading:
            while self.returncode is None:
                try:
                    part = self._line.recv(64, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    break
                self._said += part
                if b"\n" in self._said or not part:
                    self.returncode = int(self._said or -signal.SIGKILL)
                    self._line.close()
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, once it has ended. Raises subprocess.TimeoutExpired after `timeout` (s)."""
        until = None if timeout is None else time.monotonic() + timeout
        ready = select.poll()
        ready.register(self._line, select.POLLIN) if self.poll() is None else None
        while (status := self.poll()) is None:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                assert timeout is not None
                raise subprocess.TimeoutExpired(self.args, timeout)
            # another thread may take the answer away from under this one
            ready.poll(1000 if left is None else min(1000, left * 1000))
        return status

    def send_signal(self, number: int) -> None:
        """Nothing happens if it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def spawn(
    argv: Sequence[str],
    *,
    stdin: int | IO[Any] = subprocess.DEVNULL,
    stdout: int | IO[Any] | None = None,
    stderr: int | IO[Any] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Fork:
    """Start a program that `takes` takes, in a session of its own that ends with us."""
    line = socket.socket(socket.AF_UNIX)
    line.connect(str(server_of(argv[2])))
    with open(os.devnull, "r+b") as nothing:
        numbers = [
            own
            if given is None
            else nothing.fileno()
            if given == subprocess.DEVNULL
            else given
            if isinstance(given, int)
            else given.fileno()
            for own, given in enumerate((stdin, stdout, stderr))
        ]
        socket.send_fds(line, [b"-"], numbers)
    question = {
        "argv": list(argv[3:]),
        "program": argv[2],
        "name": "-m",
        "cwd": str(cwd or Path.cwd()),
        "env": dict(os.environ if env is None else env),
    }
    line.sendall(json.dumps(question).encode())
    line.shutdown(socket.SHUT_WR)
    return Fork(argv, line)


def run(
    argv: Sequence[str],
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    input: str = "",
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """A command to its end, with its output; as `subprocess.run`, whether forks are on or not.

    Raises:
        subprocess.TimeoutExpired: it has not ended after `timeout` (s).
    """
    if not takes(argv):
        return subprocess.run(
            argv, env=env, capture_output=True, text=True, timeout=timeout, check=False, input=input, cwd=cwd
        )
    with (
        tempfile.TemporaryFile() as said,
        tempfile.TemporaryFile() as complaints,
        tempfile.TemporaryFile() as given,
    ):
        given.write(input.encode())
        given.seek(0)
        child = spawn(argv, stdin=given, stdout=said, stderr=complaints, env=env, cwd=cwd)
        try:
            status = child.wait(timeout)
        finally:
            child.kill()
        texts = []
        for each in (said, complaints):
            each.seek(0)
            texts.append(each.read().decode())
    return subprocess.CompletedProcess(list(argv), status, *texts)


def write_command(folder: Path, name: str = "toolcrib") -> None:
    """Write `folder/toolcrib`, which runs the installed command: as a fork, where that can be."""
    command = folder / name
    words = [sys.executable, "-m", "toolcrib_cli"]
    if takes(words):
        script = folder / f".{name}.py"
        asked = {
            "socket": str(server_of("toolcrib_cli")),
            "program": "toolcrib_cli.main:main",
            "name": str(command),
        }
        script.write_text(forks.ASK.format(**asked), encoding="utf-8")
        words = [sys.executable, "-IS", str(script)]
    command.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
    command.chmod(0o755)


def server_of(program: str) -> Path:
    """The socket of this process's server of a program; started when first asked for."""
    with _starting:
        if program not in _servers:
            folder = Path(tempfile.mkdtemp(prefix="toolcrib-"))
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            path = folder / "s"
            started = processes.Child(
                f"{program}, loaded",
                [sys.executable, forks.__file__, path, *MODULES[program]],
                log=folder / "log",
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # numpy's threads would be missing in forks
            ).start()
            atexit.register(started.stop)
            started.wait_ready(path.exists, timeout=_LOADING)
            _servers[program] = path
        return _servers[program]
