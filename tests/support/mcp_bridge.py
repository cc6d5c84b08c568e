"""`toolcrib mcp` as a child process: a client's side of its pipes, and the promise that no token leaves it."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from mcp_types.jsonrpc import jsonrpc_message_adapter

from realparts import processes

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"


def modern(method: str, number: int | str, **params: Any) -> dict[str, Any]:
    """A request of the revision 2026-07-28."""
    meta = {
        VERSION_KEY: "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    }
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, "_meta": meta}}


def plain(method: str, number: int | str, **params: Any) -> dict[str, Any]:
    """A request of an earlier revision."""
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def initialize(number: int = 0, version: str = "2025-11-25") -> dict[str, Any]:
    """The first request of a client of the handshake era."""
    info = {"name": "test", "version": "1"}
    return plain("initialize", number, protocolVersion=version, capabilities={}, clientInfo=info)


INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class BridgeProcess:
    """A context manager. At its end it holds whether a line was no message, or a secret left the process.

    Args:
        arguments: of `toolcrib mcp`.
        token: for TOOLCRIB_TOKEN.
        secrets: texts that may stand in no output; `token` is one by itself.
        reads: False: the other end of its standard output is closed.
    """

    def __init__(
        self, *arguments: str, token: str | None = None, secrets: tuple[str, ...] = (), reads: bool = True
    ) -> None:
        self._argv = [sys.executable, "-m", "toolcrib_cli", "mcp", *arguments]
        self._env = {k: v for k, v in os.environ.items() if not k.startswith("TOOLCRIB_")}
        if token is not None:
            self._env["TOOLCRIB_TOKEN"] = token
        self.secrets = [*secrets, *([token] if token else [])]
        self._reads = reads
        self.lines: list[bytes] = []
        self.errors = b""
        self._arrived: queue.Queue[bytes] = queue.Queue()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            given, written = os.pipe()
            ours, theirs = os.pipe()
            complaints, complained = os.pipe()
            for each in (given, theirs, complained):
                stack.callback(os.close, each)
            self.process = processes.launcher(
                self._argv,
                env=self._env,
                cwd=Path(__file__).parents[2],
                stdin=given,
                stdout=theirs,
                stderr=complained,
            )
        if not self._reads:
            os.close(ours)
            ours = os.open(os.devnull, os.O_RDONLY)
        self.input = os.fdopen(written, "wb")
        self._output = os.fdopen(ours, "rb")
        self._complaints = os.fdopen(complaints, "rb")
        self._readers = [threading.Thread(target=f, daemon=True) for f in (self._follow, self._follow_errors)]
        for reader in self._readers:
            reader.start()
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.input.close()
        processes.end(self.process)
        for reader in self._readers:
            reader.join(30)
        self._output.close()
        self._complaints.close()
        if kind is None:
            said = b"\n".join([*self.lines, self.errors])
            assert not [s for s in self.secrets if s.encode() in said], "a secret was printed"
            for line in self.lines:
                jsonrpc_message_adapter.validate_json(line)

    def _follow(self) -> None:
        for line in self._output:
            self.lines.append(line)
            self._arrived.put(line)

    def _follow_errors(self) -> None:
        for line in self._complaints:
            self.errors += line

    def send(self, *messages: Mapping[str, Any] | bytes) -> None:
        """Write messages; bytes as they are, with a line's end."""
        for message in messages:
            raw = message if isinstance(message, bytes) else json.dumps(message).encode()
            self.input.write(raw + b"\n")
        self.input.flush()

    def receive(self, wanted: Callable[[Any], bool] = lambda _: True, seconds: float = 60.0) -> Any:
        """The next message that is wanted; others before it are passed over."""
        while True:
            try:
                message = json.loads(self._arrived.get(timeout=seconds))
            except queue.Empty:
                raise AssertionError(f"no such message: {self.lines!r} {self.errors!r}") from None
            if wanted(message):
                return message

    def ask(self, message: Mapping[str, Any], seconds: float = 60.0) -> Any:
        """Send a request and return its answer."""
        self.send(message)
        number = message["id"]
        return self.receive(lambda m: m.get("id") == number and "method" not in m, seconds)

    def close_input(self) -> int:
        """Close standard input; the exit code."""
        self.input.close()
        return self.process.wait(60)
