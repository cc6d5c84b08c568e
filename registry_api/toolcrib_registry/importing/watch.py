"""One server: looked at now and then, and at once where it tells of a change.

    look ──► facts ──► listen, if it offers that ──► whole list ──► kept, if another
      ▲                          │ notice, or the stream's beginning or end
      └──── pause: until due, ◄──┘ or a notice within the server's allowance

Everything of a server happens in its own two tasks, so that a bad one delays no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from toolcrib.wire.imports import ServerOutcome, ServerSeen, ServerWanted
from toolcrib_registry.calls.backends.routes import NONE
from toolcrib_registry.calls.errors import CallError
from toolcrib_registry.clock import Clock
from toolcrib_registry.importing import lists, pacing, verdicts
from toolcrib_registry.importing.listening import Listener
from toolcrib_registry.importing.lists import HeldList
from toolcrib_registry.importing.room import Room
from toolcrib_registry.importing.routes import Route, Routes
from toolcrib_registry.importing.turns import Turns
from toolcrib_registry.importing.verdicts import Verdict
from toolcrib_registry.outbound.errors import OutboundError, TooLarge
from toolcrib_registry.upstream.client import McpClient
from toolcrib_registry.upstream.errors import LoginRequired, McpFailure
from toolcrib_registry.upstream.lists import Cut, Kind, Listed
from toolcrib_registry.upstream.servers import Bounds, Facts, Server

log = logging.getLogger(__name__)

SMALL = 256 << 10
"""Bytes of a list that is read without waiting for a turn. As objects it may take 31 times as many."""
LARGE_SECONDS = 60.0
"""For a larger list, in all of its turns."""
GATHER = 0.02
"""Seconds after a notice, for more of them."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What all watches share.

    Attributes:
        client: asks the servers.
        routes: finds them.
        bounds: of lists.
        clock: of the registry.
        large: turns of large lists.
        room: memory for lists.
        changed: told that a row has changed.
        observe: told a server and the outcome of a look.
        told: told a server and which of its lists has changed, at each notice.
        dice: from 0 to 1.
    """

    client: McpClient
    routes: Routes
    bounds: Bounds
    clock: Clock
    large: Turns
    room: Room
    changed: Callable[[], None]
    observe: Callable[[str, ServerOutcome], None]
    told: Callable[[str, Kind], None]
    dice: Callable[[], float] = field(default=random.random)


class Watch:
    """Watches one server from `begin` to `end`.

    Args:
        wanted: which, and how.
        parts: shared.
        before: an earlier watch of the same server, which has ended: what it knew is known.
    """

    def __init__(self, wanted: ServerWanted, parts: Parts, before: Watch | None = None) -> None:
        self.wanted, self._parts = wanted, parts
        self.held: HeldList | None = None if before is None else before.held
        self._row: ServerSeen = ServerSeen(server=wanted.server) if before is None else before.row
        self._route: Route | None = None
        self._noticed = asyncio.Event()
        self._rerouted = False
        self._allowance = pacing.Allowance(time.monotonic)
        self._failures = 0
        self._is_large = False
        self._listener = Listener(parts.client, self._heard, partial(parts.told, wanted.server))
        self._task: asyncio.Task[None] | None = None

    @property
    def row(self) -> ServerSeen:
        """What is known of it now."""
        return self._row

    def begin(self, delay: float) -> None:
        """Begin after some seconds."""
        self._task = asyncio.create_task(self._run(delay))

    def stop(self) -> None:
        """Nothing is kept or said from now on."""
        if self._task is not None:
            self._task.cancel()
        self._listener.stop()

    async def ended(self) -> None:
        """Return once nothing of it runs any more."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        await self._listener.end()

    def forget(self) -> None:
        """Give back the memory of its list."""
        self._parts.room.give_back(self.held)
        self.held = None

    def notice(self) -> None:
        """The server said during a call that its list has changed."""
        self._noticed.set()

    def recheck(self) -> None:
        """Credentials or rules have changed: look now if its route did."""
        try:
            now: Server | None = self._parts.routes.server(self.wanted)
        except (OutboundError, CallError):
            now = None
        if now != (self._route and self._route.server):
            self._rerouted = True
            self._noticed.set()

    async def _run(self, delay: float) -> None:
        await asyncio.sleep(delay)
        noticed = False
        while True:
            try:
                due = await self._look(noticed=noticed)
            except Exception:
                log.exception("the tools of %s cannot be imported", self.wanted.server)
                due = self._failed(verdicts.BROKEN)
            noticed = await self._pause(due)

    async def _pause(self, seconds: float) -> bool:
        """Wait until a look is due; whether it is because of a notice. After a failure no notice makes it due."""
        until = asyncio.get_running_loop().time() + seconds
        if self._failures and not self._rerouted:
            return await self._rerouted_within(until)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._noticed.wait()
        if not self._noticed.is_set():
            return False
        left = max(0.0, until - asyncio.get_running_loop().time())
        await asyncio.sleep(min(left, max(GATHER, self._allowance.wait())))
        return True

    async def _rerouted_within(self, until: float) -> bool:
        """Wait for that moment, or for another route; notices make no difference."""
        while not self._rerouted:
            try:
                async with asyncio.timeout_at(until):
                    await self._noticed.wait()
            except TimeoutError:
                return False
            if not self._rerouted:
                self._noticed.clear()
        return True

    async def _look(self, *, noticed: bool) -> float:
        """Read the list once; seconds until the next look."""
        self._noticed.clear()
        self._rerouted = False
        route: Route | None = None
        size = 0
        try:
            route = await self._parts.routes.of(self.wanted)
            await self._take(route)
            try:
                facts = await self._parts.client.facts(route.server, route.asking)
            except LoginRequired:
                if not self._parts.routes.renewed(route):
                    raise
                route = await self._parts.routes.of(self.wanted)
                facts = await self._parts.client.facts(route.server, route.asking)
            if self.wanted.listen:
                await self._listener.follow(route.server, route.asking, facts)
                self._noticed.clear()
            listed = await self._listed(route)
            size = listed.size
            found = await self._kept(route, listed)
        except (OutboundError, McpFailure, CallError) as failure:
            if route is None:  # it may not be asked any more, so it is not listened to either
                self._route = None
                await self._listener.end()
            credential = NONE if route is None else route.credential
            asked = None if route is None else route.server.target
            found = verdicts.of_failure(failure, credential, self._parts.routes.remedies, asked)
        if noticed:
            self._allowance.spend(size)
        if isinstance(found, Verdict):
            return self._failed(found)
        return self._succeeded(found, listed)

    async def _take(self, route: Route) -> None:
        """A stream of another route ends before the new one is used."""
        if self._route is not None and self._route.server != route.server:
            await self._listener.end()
        self._route = route

    async def _listed(self, route: Route) -> Listed:
        client, server, asking = self._parts.client, route.server, route.asking
        if not self._is_large:
            with contextlib.suppress(TooLarge):
                listed = await client.listed(server, asking, at_most=SMALL)
                if listed.cut is not Cut.BYTES:
                    return listed
        # few at a time: as objects a list takes many times its bytes
        self._is_large = True
        listed = await self._parts.large.take(
            lambda left: client.listed(server, replace(asking, seconds=left)),
            min(asking.seconds, LARGE_SECONDS),
        )
        self._is_large = listed.size > SMALL
        return listed

    async def _kept(self, route: Route, listed: Listed) -> HeldList | Verdict:
        bounds = self._parts.bounds
        if listed.cut is not None:
            return verdicts.of_cut(listed.cut, bounds.pages, bounds.list_bytes)
        try:
            found = await asyncio.to_thread(lists.held, self.wanted.server, listed, route.credential.secrets)
        except lists.CredentialRepeated:
            return verdicts.REPEATED
        return found if self._parts.room.replace(self.held, found) else verdicts.NO_ROOM

    def _succeeded(self, found: HeldList, listed: Listed) -> float:
        self._failures, self.held = 0, found
        now = self._parts.clock.now()
        self._say(
            outcome=ServerOutcome.LISTED,
            detail=self._listener.trouble,
            metadata_url=None,
            listening=self._listener.promised,
            set_digest=found.set_digest,
            tools=found.tools,
            read_at=now,
            tried_at=now,
            **_about(listed.facts),
        )
        self._parts.observe(self.wanted.server, ServerOutcome.LISTED)
        return pacing.after_list(self.wanted.every, listed.ttl_ms)

    def _failed(self, verdict: Verdict) -> float:
        self._failures = self._failures + 1 if verdict.outcome.asked else 1
        asked = {"tried_at": self._parts.clock.now()} if verdict.outcome.asked else {}
        self._say(
            outcome=verdict.outcome,
            detail=verdict.detail,
            metadata_url=verdict.metadata_url,
            listening=self._listener.promised,
            **asked,
        )
        self._parts.observe(self.wanted.server, verdict.outcome)
        return pacing.after_failure(
            verdict.outcome, self.wanted.every, self._failures, verdict.retry_after, self._parts.dice()
        )

    def _heard(self) -> None:
        """The server told of a change, or its stream began or ended."""
        self._noticed.set()
        if self._row.outcome is ServerOutcome.LISTED:
            self._say(listening=self._listener.promised, detail=self._listener.trouble)

    def _say(self, **fields: object) -> None:
        before, self._row = self._row, self._row.model_copy(update=fields)
        times = {"read_at": before.read_at, "tried_at": before.tried_at}
        if self._row.model_copy(update=times) != before:
            self._parts.changed()


def _about(facts: Facts) -> dict[str, str | None]:
    name, version = facts.info.get("name"), facts.info.get("version")
    return {
        "server_name": _text(name, 256),
        "server_version": _text(version, 128),
        "protocol_version": facts.version,
    }


def _text(value: object, most: int) -> str | None:
    if not isinstance(value, str):
        return None
    return value[:most].encode(errors="replace").decode()
