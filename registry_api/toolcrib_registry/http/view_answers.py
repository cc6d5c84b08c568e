"""Answers made of a caller's view: sent only if all that is in them is still in the view when they are ready.

Where something has left meanwhile they are made again; a namespace from which tools leave again and again is left out then.
So a publisher that never stops delays the others' tools by some encodings at most, and nobody is sent what was revoked.

A long one is encoded in a thread, one at a time, callers in turns. While it is sent it counts among the large answers
that wait to be read, so neither many of them nor slow readers fill the memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.deps import Deps
from toolcrib_registry.http.problems import ProblemError
from toolcrib_registry.http.slices import SLICE, send_all_but_last
from toolcrib_registry.identity.authenticator import Asker
from toolcrib_registry.limits.large_requests import RETRY_SECONDS
from toolcrib_registry.policy.state import CallerView, is_long


@dataclass(frozen=True, slots=True)
class Made:
    """An answer, encoded. `record` writes down that a caller got it, before the first byte is sent."""

    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()
    unchanged: bool = False
    """The caller has it already (304)."""
    record: Callable[[CallerView], None] = lambda _: None


TRIES = 3
"""Times that an answer is made of all that may be seen, while tools leave."""

Make = Callable[[CallerView], Awaitable[Made]]


def matches(none_match: bytes, etag: bytes) -> bool:
    """Whether If-None-Match names `etag` (weak comparison, RFC 9110 §13.1.2)."""
    if none_match.strip() == b"*":
        return True
    return any(tag.strip().removeprefix(b"W/") == etag for tag in none_match.split(b","))


async def encoded(
    deps: Deps, asker: Asker, tools: Collection[PublishedTool], encode: Callable[[], bytes]
) -> bytes:
    """What `encode` makes of `tools`: on the event loop only where that is short."""
    if not is_long(tools):
        return encode()
    async with deps.large.turn(asker.account):
        return await asyncio.to_thread(encode)


class Attempts:
    """Which view an answer is made of, try after try, and whether what was made may be sent.

    Attributes:
        shown: what to make it of.
    """

    def __init__(self, seen: CallerView) -> None:
        self.shown = self._seen = seen
        self._tries = 0
        self._left: set[str] = set()
        self._steady = frozenset(seen.scopes)

    def hold(self, now: CallerView) -> bool:
        """Whether all of `shown` may be seen now, names and texts of some moments ago included. Else `shown` is another one."""
        if is_same(now, self._seen):
            return True
        still = now.view.tools
        gone = {
            tool.namespace
            for i, tool in self.shown.view.tools.items()
            if (same := still.get(i)) is not tool and (same is None or same.uid != tool.uid)
        }
        if not gone and frozenset(self.shown.scopes) <= frozenset(now.scopes):
            return True
        self._tries += 1
        self._left |= gone
        self._steady &= frozenset(now.scopes)
        self.shown = self._seen = now
        if self._tries >= TRIES:
            steady = self._steady if self._tries < 2 * TRIES else frozenset()
            self.shown = now.without(self._left, tuple(s for s in now.scopes if s in steady))
        return False


async def send_view_answer(deps: Deps, asker: Asker, make: Make, send: Send, *, head: bool = False) -> None:
    """Send what `make` makes of the caller's view, if all of it is in the view of the moment at which sending begins.

    Raises:
        ProblemError: what `make` raised, or too much waits to be read.
    """
    state, identity, bad_token = deps.state, asker.identity, asker.problem is not None
    attempts = Attempts(await state.caller_view(identity, bad_token=bad_token))
    while True:
        made = await make(attempts.shown)
        if len(made.body) > SLICE:
            if await _send_large(deps, asker, attempts, made, send, head=head):
                return
        elif attempts.hold(await state.caller_view(identity, bad_token=bad_token)):
            await _send(attempts.shown, made, send, head=head)
            return


async def _send_large(
    deps: Deps, asker: Asker, attempts: Attempts, made: Made, send: Send, *, head: bool
) -> bool:
    """Send it while there is room. False: it has to be made again."""
    begun = False
    try:
        async with deps.large.sending(asker.account, len(made.body), id(made.body)):
            now = await deps.state.caller_view(asker.identity, bad_token=asker.problem is not None)
            if not attempts.hold(now):
                return False
            begun = True
            await _send(attempts.shown, made, send, head=head)
            return True
    except TimeoutError:
        if begun:
            return True  # without the end, which makes the server close the connection
        raise ProblemError(
            "large_requests_busy",
            "Too many large responses are waiting to be read. Read open ones first.",
            headers={"Retry-After": str(RETRY_SECONDS)},
        ) from None


def is_same(now: CallerView, seen: CallerView) -> bool:
    """Whether both show the same."""
    return now is seen or (now.view.digest == seen.view.digest and now.scopes == seen.scopes)


async def _send(seen: CallerView, made: Made, send: Send, *, head: bool) -> None:
    made.record(seen)
    if made.unchanged:
        await send({"type": "http.response.start", "status": 304, "headers": [*made.headers]})
        await send({"type": "http.response.body", "body": b""})
        return
    size = str(len(made.body)).encode()
    headers = [*made.headers, (b"content-type", b"application/json"), (b"content-length", size)]
    start: Message = {"type": "http.response.start", "status": 200, "headers": headers}
    body = b"" if head else made.body
    if len(body) <= SLICE:
        await send(start)
    else:
        body = await send_all_but_last(send, start, body)
    await send({"type": "http.response.body", "body": body})


class ViewAnswer(Response):
    """The same as the answer of a route."""

    def __init__(self, deps: Deps, asker: Asker, make: Make) -> None:
        super().__init__()
        self._deps, self._asker, self._make = deps, asker, make

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Make it and send it."""
        await send_view_answer(self._deps, self._asker, self._make, send)
