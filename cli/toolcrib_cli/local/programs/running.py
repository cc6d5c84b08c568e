"""One running program: lines of JSON-RPC in and out, each answer to who waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolcrib_cli.local.programs import keeper
from toolcrib_cli.local.programs.exchanges import Exchange
from toolcrib_registry.calls.echoed_secrets import Secrets
from toolcrib_registry.outbound.errors import Disconnected, ProtocolViolation, TooLarge, Unreachable
from toolcrib_registry.upstream import messages
from toolcrib_registry.upstream.errors import AnswerBroken
from toolcrib_registry.upstream.lists import BY_NOTICE
from toolcrib_registry.upstream.protocol import PROGRESS_TOKEN

LONGEST_LINE = 8 << 20
LOG_BYTES = 1 << 20
"""Of standard error: then another log begins, and the former one is kept beside it."""
_LARGE = 256 << 10
_TELLING = 8
"""Characters of a secret from which on it is looked for in answers."""
_MOST_UNREAD = 4 << 20
"""Bytes that a program has not read, from which on it is sent nothing more."""
_CLOSING, _ENDING = 1.0, 4.0


@dataclass(frozen=True, slots=True)
class Spec:
    """What is started: equal where nothing of it differs."""

    server: str
    command: tuple[str, ...]
    values: Mapping[str, str] = field(repr=False)
    secrets: Mapping[str, str] = field(repr=False)


class Running:
    """A program from `start` to `stop`.

    Args:
        spec: what is started.
        place: a folder of its own: its home, and the log of its standard error.
        path: PATH, where the program is looked for.
    """

    def __init__(self, spec: Spec, place: Path, path: str) -> None:
        self.spec, self._place, self._path = spec, place, path
        self.session = secrets.token_hex(16)
        self.initialized = False
        self.log = place / "stderr.log"
        self.began = time.monotonic()
        self._pending: dict[int | str, Exchange] = {}
        self._listeners: set[Exchange] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writing = asyncio.Lock()
        self._hidden = Secrets.of(v for v in spec.secrets.values() if len(v) >= _TELLING)
        self._process: asyncio.subprocess.Process | None = None
        self._control: int | None = None
        self._ended = asyncio.Event()

    @property
    def over(self) -> bool:
        """Whether it has ended, or is being ended."""
        return self._ended.is_set()

    @property
    def ending(self) -> str:
        """How it ended, without its own words."""
        code = None if self._process is None else self._process.returncode
        name = os.path.basename(self.spec.command[0])
        if code == keeper.NOT_FOUND:
            return f"the program {name!r} of ToolServer {self.spec.server} cannot be started: not found, or not executable"
        with_code = "" if code is None else f" with exit code {code}"
        return f"the program {name!r} of ToolServer {self.spec.server} ended{with_code}; see {self.log}"

    async def start(self) -> None:
        """Start it. Raises Unreachable."""
        home = self._place / "home"
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        environment = {"PATH": self._path, "HOME": str(home), **self.spec.values, **self.spec.secrets}
        reading, self._control = os.pipe()
        keeping = [sys.executable, "-I", "-S", keeper.__file__, str(reading), *self.spec.command]
        pipe = asyncio.subprocess.PIPE
        try:
            self._process = await asyncio.create_subprocess_exec(
                *keeping, stdin=pipe, stdout=pipe, stderr=pipe, cwd=home, env=environment,
                pass_fds=(reading,), start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            raise Unreachable(f"the program of ToolServer {self.spec.server} cannot be started") from error
        finally:
            os.close(reading)
            if self._process is None:
                self._let_go()
        for work in (self._read(), self._keep_log()):
            self._tasks.add(asyncio.create_task(work))

    async def send(self, message: bytes) -> None:
        """Write one message. Raises Disconnected, or Unreachable where the program does not read."""
        assert self._process is not None
        stdin = self._process.stdin
        assert stdin is not None
        try:
            async with self._writing:
                if not self._reads(stdin):
                    raise Unreachable(
                        f"the program of ToolServer {self.spec.server} does not read its requests"
                    )
                stdin.write(_line(message))
                await stdin.drain()
        except (OSError, RuntimeError) as error:
            raise Disconnected(self.ending) from error

    def ask(self, id_: int | str, exchange: Exchange, *, listens: bool) -> None:
        """Give the answer to the request of that id to `exchange`; all notices too, if it `listens`."""
        self._pending[id_] = exchange
        if listens:
            self._listeners.add(exchange)
        if self.over:
            exchange.end(Disconnected(self.ending))

    def listen(self, exchange: Exchange) -> None:
        """Give all notices to `exchange`."""
        self._listeners.add(exchange)

    def forget(self, exchange: Exchange, id_: int | str | None = None) -> None:
        """Nobody reads `exchange` any more."""
        self._listeners.discard(exchange)
        if id_ is not None:
            self._pending.pop(id_, None)

    async def stop(self) -> None:
        """End it: its input is closed, then it gets SIGTERM and SIGKILL. Returns once it has ended."""
        process = self._process
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING):
                await process.wait()
        self._let_go()
        try:
            async with asyncio.timeout(_ENDING):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        self._over(Disconnected(self.ending))
        _, left = await asyncio.wait(self._tasks, timeout=_CLOSING)
        for task in left:  # what left its group may hold the pipes
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _let_go(self) -> None:
        if self._control is not None:
            os.close(self._control)
            self._control = None

    def _over(self, error: Exception) -> None:
        self._ended.set()
        for each in (*self._pending.values(), *self._listeners):
            each.end(error)

    async def _read(self) -> None:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        error: Exception | None = None
        try:
            line = bytearray()
            while piece := await process.stdout.read(1 << 16):
                *whole, rest = piece.split(b"\n")
                for part in whole:
                    line += part
                    await self._take(bytes(line))
                    line.clear()
                line += rest
                if len(line) > LONGEST_LINE:
                    raise TooLarge(f"the program sent a line of more than {LONGEST_LINE} bytes")
        except TooLarge as failure:
            error = failure
        self._let_go()
        while await process.stdout.read(1 << 16):
            pass  # a pipe that is read to its end is closed
        await process.wait()
        self._over(error or Disconnected(self.ending))

    async def _take(self, line: bytes) -> None:
        line = line.strip()
        if not line:
            return
        try:
            value, repeats = (
                await asyncio.to_thread(self._parsed, line) if len(line) > _LARGE else self._parsed(line)
            )
        except AnswerBroken:
            return  # programs print to standard output what they should not
        for each in value if type(value) is list else (value,):
            if type(each) is dict:
                self._give(each, line if each is value else messages.encoded(each), repeats)

    def _parsed(self, line: bytes) -> tuple[Any, bool]:
        """Its value, and whether it repeats a secret. Raises AnswerBroken."""
        return messages.parsed(line), self._hidden.repeated_in(line)

    def _give(self, message: dict[str, Any], line: bytes, repeats: bool) -> None:
        id_, method = message.get("id"), message.get("method")
        line = line.replace(b"\r", b" ")
        if type(method) is str and type(id_) in (int, str):
            self.tell(messages.answer_to(messages.ServerRequest(id_, method)))  # type: ignore[arg-type]
        elif type(method) is str:
            if not repeats:
                self._notify(method, message.get("params"), line)
        elif type(id_) in (int, str) and (waiting := self._pending.pop(id_, None)) is not None:  # type: ignore[arg-type]
            if repeats:
                waiting.end(ProtocolViolation("the program's answer repeats a secret of its environment"))
            else:
                waiting.put(line, last=True)

    def _notify(self, method: str, params: Any, line: bytes) -> None:
        if method == "notifications/progress":
            token = params.get(PROGRESS_TOKEN) if type(params) is dict else None
            waiting = self._pending.get(token) if type(token) in (int, str) else None  # type: ignore[arg-type]
            to = [] if waiting is None else [waiting]
        elif self._listeners or method not in BY_NOTICE:
            to = list(self._listeners)
        else:
            to = list(self._pending.values())[:1]
        for each in to:
            each.put(line)

    def tell(self, message: bytes) -> None:
        """Write one message and wait for nobody; one that does not read gets none."""
        assert self._process is not None
        stdin = self._process.stdin
        assert stdin is not None
        if not self._reads(stdin):
            return
        with contextlib.suppress(OSError, RuntimeError):
            stdin.write(_line(message))

    def _reads(self, stdin: asyncio.StreamWriter) -> bool:
        return stdin.transport.get_write_buffer_size() <= _MOST_UNREAD

    async def _keep_log(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        with contextlib.suppress(OSError):
            self.log.replace(self.log.with_suffix(".log.1"))
        while piece := await self._process.stderr.read(1 << 16):
            await asyncio.to_thread(_append, self.log, piece)


def _line(message: bytes) -> bytes:
    return message.replace(b"\n", b" ") + b"\n"  # between tokens: in texts it is escaped


def _append(log: Path, piece: bytes) -> None:
    """A full disk loses the log and nothing else."""
    with contextlib.suppress(OSError):
        with contextlib.suppress(FileNotFoundError):
            if log.stat().st_size + len(piece) > LOG_BYTES:
                log.replace(log.with_suffix(".log.1"))
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(handle, "ab") as out:
            out.write(piece)
