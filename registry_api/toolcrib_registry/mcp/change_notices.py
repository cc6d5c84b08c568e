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
from toolcrib_registry.policy.state import CallerView, is_long
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
        began, before, now = self._last is None, self._told, asyncio.get_running_loop().time()
        found = await self._look()
        if found is None:
            return None
        caller_view, digest = found
        if caller_view is self._last:
            return caller_view, None
        changed = not began and digest != before
        if changed and (wait := self._next - now) > 0:
            await asyncio.wait([gone], timeout=wait)
            return None
        self._last, self._told = caller_view, digest
        if began:
            return caller_view, Piece(self._first())
        if not changed:
            return caller_view, None if self._digest_of is None else Piece(b"")
        self._next = now + BETWEEN
        self._parts.metrics.watch_event("list_changed")
        return caller_view, Piece(event(messages.notification(_CHANGED, self._params())))

    async def _look(self) -> tuple[CallerView, str | None] | None:
        """The view, and what names its list; None: look again."""
        state, digest_of = self._parts.state, self._digest_of
        async with state.turn:
            # one stream at a time, and others between two of them: a change wakes all streams at once
            await asyncio.sleep(0)
            caller_view = state.view_at_once(self._identity)
            if caller_view is not None and (caller_view is self._last or digest_of is None):
                return caller_view, self._told
            if caller_view is not None and not is_long(caller_view.view.tools.values()):
                assert digest_of is not None
                return self._checked(caller_view, await digest_of(caller_view))
        async with state.large_turn:
            caller_view = await state.caller_view(self._identity)
            if digest_of is None:
                return caller_view, None
            digest = await digest_of(caller_view)
        return self._checked(caller_view, digest) if await self._verified() else None

    def _checked(self, caller_view: CallerView, digest: str) -> tuple[CallerView, str] | None:
        """None where the token has ended or its key has gone meanwhile: then no change is told, the stream ends."""
        ended = self._identity.expires_at <= self._parts.clock.now()
        return None if ended or self._keys != self._agents.version else (caller_view, digest)

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
