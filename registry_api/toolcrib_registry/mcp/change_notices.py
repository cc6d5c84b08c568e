"""Notices that a caller's own lists, or resources that it follows, have changed, as a stream of server-sent events.

They come from the same looks at the view as `/v1/watch`. A notice is sent only if the list differs from the one of the
last notice: the first at once, further ones of that second at its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from toolcrib.identity import Identity
from toolcrib_registry.identity.authenticator import Authenticator
from toolcrib_registry.mcp import messages, results
from toolcrib_registry.mcp.following import Followed
from toolcrib_registry.mcp.messages import Id
from toolcrib_registry.mcp.requests import Offered
from toolcrib_registry.policy.state import CallerView, is_long
from toolcrib_registry.upstream.lists import ACKNOWLEDGED, CHANGING, Kind
from toolcrib_registry.watch.stream import Parts, Piece, ViewStream

BETWEEN = 1.0
"""Seconds between two notices of one stream."""
SUBSCRIPTION_META_KEY = "io.modelcontextprotocol/subscriptionId"
_UPDATED = "notifications/resources/updated"


Digests = dict[Kind, str]
"""What names the content of each list that is watched."""


def event(message: bytes) -> bytes:
    """A message as a server-sent event. It has no id: no stream is resumed."""
    return b"event: message\ndata: %b\n\n" % message


class ChangeNotices(ViewStream):
    """The stream of one identity.

    Args:
        digest: names the content of the caller's list of tools.
        wanted: the lists whose changes are told.
        followed: the resources whose changes are told.
        follow: begins to follow those that the request names; the stream's end ends it. None: it names none.
        offered: names the content of those of resources and prompts.
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
        digest: Callable[[CallerView], Awaitable[str]],
        wanted: frozenset[Kind],
        followed: Followed,
        follow: Callable[[], Awaitable[None]] | None,
        offered: Offered,
        subscription: Id | None,
        version: str,
    ) -> None:
        super().__init__(parts, identity, agents, authorization, followed.woken)
        self._followed, self._follow = followed, follow
        self._digest_of, self._wanted, self._offered = digest, wanted, offered
        self._changes = offered.changes
        self._subscription, self._version = subscription, version
        self._last: CallerView | None = None
        self._told: Digests = {}
        self._next = 0.0

    async def run(self, hand_over: Callable[[bytes], Awaitable[None]], left: asyncio.Task[None]) -> None:
        """See `ViewStream`."""
        self._followed.opened()
        try:
            await super().run(hand_over, left)
        finally:
            self._followed.closed()
            if self._follow is not None:
                self._followed.close()

    def _end(self, reason: str) -> Piece:
        """In the stateless era the request is answered where the replica stops; else the stream just ends."""
        if self._subscription is None or reason != "shutting_down":
            return Piece(b"")
        result = results.complete(self._version, {}, meta=self._meta)
        return Piece(event(messages.answered(self._subscription, result)))

    async def _round(self, gone: asyncio.Task[None]) -> tuple[CallerView, Piece | None] | None:
        began, before = self._last is None, self._told
        if began and self._follow is not None:
            await self._follow()
        found, now = await self._look(), asyncio.get_running_loop().time()
        if found is None:
            return None
        caller_view, digest, changes = found
        updated = () if began else self._followed.updated(caller_view)
        if caller_view is self._last and digest == before and not updated:
            self._changes = changes
            return caller_view, None
        changed = [] if began else [kind for kind in digest if digest[kind] != before[kind]]
        if (changed or updated) and (wait := self._next - now) > 0:
            await asyncio.wait([gone], timeout=wait)
            return None
        self._last, self._told, self._changes = caller_view, digest, changes
        if began:
            return caller_view, Piece(self._first())
        if not changed and not updated:
            return caller_view, Piece(b"") if self._wanted else None
        self._next = now + BETWEEN
        if changed:
            self._parts.metrics.watch_event("list_changed")
        notices = [event(messages.notification(kind.changed, self._params())) for kind in changed]
        if updated:
            self._followed.told(updated)
            self._parts.metrics.watch_event("resource_updated", len(updated))
        notices += [event(messages.notification(_UPDATED, {"uri": uri, **self._params()})) for uri in updated]
        return caller_view, Piece(b"".join(notices))

    async def _look(self) -> tuple[CallerView, Digests, int] | None:
        """The view, what names its lists, and after how many changes of servers' lists; None: look again."""
        state = self._parts.state
        async with state.turn:
            # one stream at a time, and others between two of them: a change wakes all streams at once
            await asyncio.sleep(0)
            caller_view = state.view_at_once(self._identity)
            same = caller_view is self._last and self._changes == self._offered.changes
            if caller_view is not None and (same or not self._wanted):
                return caller_view, self._told, self._changes
            if caller_view is not None and not is_long(caller_view.view.tools.values()):
                return self._checked(caller_view, *await self._digests(caller_view))
        async with state.large_turn:
            caller_view = await state.caller_view(self._identity)
            if not self._wanted:
                return caller_view, {}, self._changes
            digests = await self._digests(caller_view)
        return self._checked(caller_view, *digests) if await self._verified() else None

    async def _digests(self, caller_view: CallerView) -> tuple[Digests, int]:
        found: Digests = {}
        if Kind.TOOLS in self._wanted:
            found[Kind.TOOLS] = await self._digest_of(caller_view)
        changes = self._offered.changes
        for kind in self._wanted & {Kind.RESOURCES, Kind.PROMPTS}:
            found[kind] = self._offered.digest(caller_view, kind)
        return found, changes

    def _checked(
        self, caller_view: CallerView, digests: Digests, changes: int
    ) -> tuple[CallerView, Digests, int] | None:
        """None where the token has ended or its key has gone meanwhile: then no change is told, the stream ends."""
        ended = self._identity.expires_at <= self._parts.clock.now()
        return None if ended or self._keys != self._agents.version else (caller_view, digests, changes)

    def _first(self) -> bytes:
        """What the stream begins with: in the stateless era which notices will come."""
        if self._subscription is None:
            return b": ready\n\n"
        honored: dict[str, Any] = {kind.wanted: True for kind in CHANGING if kind in self._wanted}
        if self._follow is not None:
            honored["resourceSubscriptions"] = list(self._followed)
        params = {"notifications": honored, **self._params()}
        return event(messages.notification(ACKNOWLEDGED, params))

    @property
    def _meta(self) -> dict[str, Id]:
        return {} if self._subscription is None else {SUBSCRIPTION_META_KEY: self._subscription}

    def _params(self) -> dict[str, dict[str, Id]]:
        return {"_meta": self._meta} if self._meta else {}
