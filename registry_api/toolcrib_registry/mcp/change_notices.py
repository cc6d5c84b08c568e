"""Notices that a caller's own list of tools has changed, as a stream of server-sent events.

They come from the same looks at the view as `/v1/watch`. A notice is sent only if the list differs from the one of the
last notice: the first at once, further ones of that second at its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from toolcrib.identity import Identity
from toolcrib_registry.identity.authenticator import Authenticator
from toolcrib_registry.mcp import messages, results
from toolcrib_registry.mcp.messages import Id
from toolcrib_registry.policy.state import CallerView
from toolcrib_registry.watch.stream import Parts, Piece, ViewStream

BETWEEN = 1.0
"""Seconds between two notices of one stream."""
SUBSCRIPTION_META_KEY = "io.modelcontextprotocol/subscriptionId"
_CHANGED = "notifications/tools/list_changed"
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


def event(message: bytes) -> bytes:
    """A message as a server-sent event. It has no id: no stream is resumed."""
    return b"event: message\ndata: %b\n\n" % message


class ChangeNotices(ViewStream):
    """The stream of one identity.

    Args:
        digest: names the content of the caller's list; None: it never changes.
        subscription: the id of the request that opened the stream, in the stateless era.
        version: the revision that its client speaks.
    """

    def __init__(
        self,
        parts: Parts,
        identity: Identity,
        agents: Authenticator,
        authorization: list[bytes],
        *,
        digest: Callable[[CallerView], Awaitable[str]] | None,
        subscription: Id | None,
        version: str,
    ) -> None:
        super().__init__(parts, identity, agents, authorization)
        self._digest_of, self._subscription, self._version = digest, subscription, version
        self._last: CallerView | None = None
        self._told: str | None = None
        self._next = 0.0

    def _end(self, reason: str) -> Piece:
        """In the stateless era the request is answered where the replica stops; else the stream just ends."""
        if self._subscription is None or reason != "shutting_down":
            return Piece(b"")
        result = results.complete(self._version, {}, meta=self._meta)
        return Piece(event(messages.answered(self._subscription, result)))

    async def _round(self, gone: asyncio.Task[None]) -> tuple[CallerView, Piece | None] | None:
        parts, began = self._parts, self._last is None
        caller_view = await parts.state.caller_view(self._identity)
        if caller_view is self._last:
            return caller_view, None
        if self._digest_of is None:
            self._last = caller_view
            return caller_view, Piece(self._first()) if began else None
        wait = self._next - parts.clock.elapsed()
        if not began and wait > 0:
            await asyncio.wait([gone], timeout=wait)
            caller_view = await parts.state.caller_view(self._identity)
        digest = await self._digest_of(caller_view)
        if not await self._verified():
            return None
        self._last, before, self._told = caller_view, self._told, digest
        if began:
            return caller_view, Piece(self._first())
        if before == digest:
            return caller_view, Piece(b"")
        self._next = parts.clock.elapsed() + BETWEEN
        parts.metrics.watch_event("list_changed")
        return caller_view, Piece(event(messages.notification(_CHANGED, self._params())))

    def _first(self) -> bytes:
        """What the stream begins with: in the stateless era which notices will come."""
        if self._subscription is None:
            return b": ready\n\n"
        honored = {} if self._digest_of is None else {"toolsListChanged": True}
        params = {"notifications": honored, **self._params()}
        return event(messages.notification(_ACKNOWLEDGED, params))

    @property
    def _meta(self) -> dict[str, Id]:
        return {} if self._subscription is None else {SUBSCRIPTION_META_KEY: self._subscription}

    def _params(self) -> dict[str, dict[str, Id]]:
        return {"_meta": self._meta} if self._meta else {}
