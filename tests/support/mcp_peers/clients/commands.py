"""What every Python client here does: it obeys commands on standard input, a line of JSON each, and answers with one.

    {"do": "list"}                                → {"tools": [names]}
    {"do": "call", "tool": …, "arguments": {…}}   → {"text": …, "failed": whether the tool failed}
    {"do": "changed"}                             → {"changed": true}, once a change notice has come since the last one

An exception answers {"error": its text}; the end of input ends the client. The first line is {"version": …}, once
connected. The environment says where to and how: PEER_URL, PEER_TOKEN, PEER_MODE. Standard library only.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

URL = os.environ["PEER_URL"]
HEADERS = {"Authorization": "Bearer " + os.environ["PEER_TOKEN"]}
MODE = os.environ.get("PEER_MODE", "")


class Changes:
    """Whether a change notice has come since it was last asked for; `hear` is a message handler of any of the SDKs."""

    def __init__(self) -> None:
        self._heard = asyncio.Event()

    async def hear(self, message: Any) -> None:
        """Take a message; an SDK of version 1 wraps it."""
        if getattr(getattr(message, "root", message), "method", "") == "notifications/tools/list_changed":
            self._heard.set()

    async def hear_all(self, subscription: Any) -> None:
        """Take every event of a subscription to changes of the list of tools."""
        async for _ in subscription:
            self._heard.set()

    async def wait(self) -> None:
        """Return once one has come."""
        await self._heard.wait()
        self._heard.clear()


def filled(schema: dict[str, Any]) -> dict[str, Any]:
    """What the person at this client fills into every form: each field is text."""
    return dict.fromkeys(schema["properties"], "Ada")


async def obey(
    version: str | None,
    list_tools: Callable[[], Awaitable[list[str]]],
    call: Callable[[str, dict[str, Any]], Awaitable[tuple[str, bool]]],
    changes: Changes,
) -> None:
    """Say which version was negotiated, then obey until the input ends."""

    async def answer(command: dict[str, Any]) -> dict[str, Any]:
        match command["do"]:
            case "list":
                return {"tools": await list_tools()}
            case "call":
                text, failed = await call(command["tool"], command["arguments"])
                return {"text": text, "failed": failed}
            case "changed":
                await changes.wait()
                return {"changed": True}
            case other:
                raise ValueError(f"unknown command {other!r}")

    say({"version": version})
    while line := await asyncio.to_thread(sys.stdin.readline):
        try:
            answered = await answer(json.loads(line))
        except Exception as error:
            answered = {"error": f"{type(error).__name__}: {error}"}
        say(answered)


def say(value: dict[str, Any]) -> None:
    """One line of JSON."""
    print(json.dumps(value), flush=True)


def text_of(content: list[Any]) -> str:
    """The text of a result's blocks."""
    return "\n".join(block.text for block in content if block.type == "text")
