"""Runs a bridge over this process's standard input and output until the client is gone or it is asked to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from toolcrib.text import escape
from toolcrib_cli.bridge.identity import Tokens
from toolcrib_cli.bridge.pipes import Lines, Output
from toolcrib_cli.bridge.session import Session
from toolcrib_cli.bridge.upstream import Upstream
from toolcrib_cli.errors import CliError

_LAST_ANSWERS = 1.5
"""Seconds that requests under way have once the client has closed its side; clients kill a server after two."""


@dataclass(frozen=True)
class Plan:
    """What a bridge connects."""

    endpoint: Callable[[], str]
    tokens: Tokens
    verify: ssl.SSLContext | bool
    patience: float
    greet: Callable[[Any], Awaitable[None]] | None = None
    """Look at each connection before the token goes over it; None where any registry will do."""


def run(plan: Plan) -> None:
    """Bridge until the end of standard input, SIGTERM, or a client that no longer reads."""
    # whatever some library prints goes to standard error: the client reads nothing but messages
    answers = os.dup(1)
    os.dup2(2, 1)
    asyncio.run(_serve(plan, 0, answers))


async def _serve(plan: Plan, requests: int, answers: int) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    output = Output(answers)
    upstream = Upstream(
        plan.endpoint, plan.tokens, verify=plan.verify, patience=plan.patience, tell=_tell, greet=plan.greet
    )
    session = Session(upstream, output.write, _tell)
    try:
        _tell(f"carrying messages to {plan.endpoint()}")
    except CliError as error:
        _tell(f"{error.message}; messages wait for it")
    reading = asyncio.create_task(_read(session, Lines(requests)))
    ends = [asyncio.create_task(stop.wait()), asyncio.create_task(output.closed.wait())]
    try:
        await asyncio.wait([reading, *ends], return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            reading.result()
            await asyncio.wait(
                [asyncio.create_task(session.drain(_LAST_ANSWERS)), *ends],
                return_when=asyncio.FIRST_COMPLETED,
            )
    finally:
        await session.close()
        await upstream.close()
        for task in (reading, *ends):
            task.cancel()


async def _read(session: Session, lines: Lines) -> None:
    async for line in lines:
        await session.take(line)


def _tell(text: str) -> None:
    """A line on standard error."""
    print(f"toolcrib mcp: {escape(text)}", file=sys.stderr, flush=True)
