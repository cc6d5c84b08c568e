"""Notices of change, kept up while the registry comes and goes: the stream of 2025, the subscription of 2026."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from toolcrib_cli.bridge import messages
from toolcrib_cli.bridge.messages import Message
from toolcrib_cli.bridge.upstream import EVENTS, JSON, Refusal, Upstream, body_of, events_of, refused

_LIST_CHANGED = "notifications/tools/list_changed"
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 30.0
_STEADY = 5.0
"""Seconds after which a stream that ends counts as one that worked."""

Write = Callable[[bytes], Awaitable[None]]


class _Pauses:
    """Longer and longer ones, and short again after a stream that worked."""

    def __init__(self) -> None:
        self._next = _FIRST_PAUSE
        self._begun = 0.0

    def begin(self) -> None:
        self._begun = asyncio.get_running_loop().time()

    async def wait(self) -> None:
        if asyncio.get_running_loop().time() - self._begun > _STEADY:
            self._next = _FIRST_PAUSE
        await asyncio.sleep(self._next * random.uniform(0.5, 1.0))  # noqa: S311
        self._next = min(self._next * 2, _LONGEST_PAUSE)


class ChangeStream:
    """The GET stream of the handshake era. A gap is followed by a notice: something may have changed meanwhile."""

    def __init__(self, upstream: Upstream, write: Write) -> None:
        self._upstream = upstream
        self._write = write
        self._task: asyncio.Task[None] | None = None

    def open(self, headers: Mapping[str, str]) -> None:
        """Open it, instead of one that is open."""
        self.close()
        self._task = asyncio.create_task(self._follow(headers))

    def close(self) -> None:
        """Close it."""
        if self._task is not None:
            self._task.cancel()

    async def _follow(self, headers: Mapping[str, str]) -> None:
        pauses = _Pauses()
        was_open = False
        while True:
            pauses.begin()
            try:
                async with self._upstream.get(headers) as response:
                    if not response.is_success or _kind(response) != EVENTS:
                        if response.status_code in (404, 405):
                            return  # there is no such stream here: the list never changes
                        raise await refused(response)
                    if was_open:
                        await self._write(messages.line_of({"jsonrpc": "2.0", "method": _LIST_CHANGED}))
                    was_open = True
                    async for text in events_of(response):
                        if messages.decoded(text.encode()) is not None:
                            await self._write(messages.one_line(text.encode()))
            except Refusal:
                pass  # the next request of the client is told why
            await pauses.wait()


class Subscription:
    """One `subscriptions/listen`.

    Where its stream breaks it is asked for again, and the client told that the list may have changed.
    """

    def __init__(self, upstream: Upstream, write: Write, message: Message) -> None:
        self._upstream = upstream
        self._write = write
        self._message = message
        self._acknowledged: Mapping[str, Any] | None = None

    async def follow(self, headers: Mapping[str, str]) -> None:
        """Pass on what comes until the registry ends it.

        Raises:
            Refusal: the registry does not grant it.
        """
        pauses = _Pauses()
        while True:
            pauses.begin()
            try:
                async with self._upstream.post(self._message.raw, headers) as response:
                    if await self._pass_on(response):
                        return
            except Refusal as refusal:
                if self._acknowledged is None or not refusal.away:
                    raise
            await pauses.wait()

    async def _pass_on(self, response: Any) -> bool:
        """Whether the answer came, which ends it."""
        if not response.is_success or _kind(response) != EVENTS:
            body = await body_of(response)
            if _kind(response) == JSON and messages.answers(messages.decoded(body), self._message.id):
                await self._write(messages.one_line(body))
                return True
            raise await refused(response, body)
        async for text in events_of(response):
            parsed = messages.decoded(text.encode())
            if not isinstance(parsed, dict):
                continue
            if parsed.get("method") == _ACKNOWLEDGED and self._acknowledged is not None:
                await self._after_a_gap()
                continue
            if parsed.get("method") == _ACKNOWLEDGED:
                self._acknowledged = parsed.get("params") or {}
            await self._write(messages.one_line(text.encode()))
            if messages.answers(parsed, self._message.id):
                return True
        if self._acknowledged is None:
            raise Refusal("the subscription broke off before it began", away=True, code="connection_lost")
        return False

    async def _after_a_gap(self) -> None:
        granted = (self._acknowledged or {}).get("notifications")
        if isinstance(granted, dict) and granted.get("toolsListChanged"):
            meta = {messages.SUBSCRIPTION_KEY: self._message.id}
            notice = {"jsonrpc": "2.0", "method": _LIST_CHANGED, "params": {"_meta": meta}}
            await self._write(messages.line_of(notice))


def _kind(response: Any) -> str:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()
