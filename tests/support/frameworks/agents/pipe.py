"""The model of every agent here is a pipe: each request to it is told on standard output, and answered on standard input.

A line of JSON each. Told: {"version": …} once, then of a run {"turn": {"tools": names, "results": texts since the last
turn}}, and {"done": text}, {"error": text} or {"cancelled": true} at its end; {"log": text} for a warning.
Obeyed: {"run": true}, {"reply": {"calls": [{"name", "arguments"}]}} or {"reply": {"text"}}, {"cancel": true}. The end of
input ends the agent. The environment says where to and how: AGENT_URL, AGENT_TOKEN, AGENT_WAY. Standard library only.
"""

import asyncio
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

URL, TOKEN = os.environ["AGENT_URL"], os.environ["AGENT_TOKEN"]
DISCOVERY = os.environ["AGENT_WAY"] == "discovery"
_replies: asyncio.Queue[dict[str, Any]] = asyncio.Queue()


def say(**value: Any) -> None:
    """Tell."""
    print(json.dumps(value), flush=True)


async def turn(tools: Sequence[str], results: Sequence[str]) -> dict[str, Any]:
    """What the model replies to a request with these tools, after these results."""
    say(turn={"tools": list(tools), "results": list(results)})
    return await _replies.get()


class _Told(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(log=record.getMessage())


async def obey(version: str, run: Callable[[], Awaitable[Any]]) -> None:
    """Obey until the input ends; `run` is one run of the agent and gives its answer."""
    logging.getLogger("toolcrib_client").addHandler(_Told())
    running: asyncio.Task[None] | None = None

    async def one() -> None:
        try:
            say(done=str(await run()))
        except asyncio.CancelledError:
            say(cancelled=True)
        except Exception as error:
            say(error=f"{type(error).__name__}: {error}")

    say(version=version)
    while line := await asyncio.to_thread(sys.stdin.readline):
        command = json.loads(line)
        if "run" in command:
            running = asyncio.create_task(one())
        elif "reply" in command:
            _replies.put_nowait(command["reply"])
        elif running is not None:
            running.cancel()
