"""Watches the servers that the operator names, for as long as it asks, and reports what is known of each."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
from collections.abc import Callable
from typing import Protocol

from toolcrib.wire.imports import ServerOutcome, ServersReport, ServersRequest, ServerWanted
from toolcrib_registry.clock import Clock
from toolcrib_registry.importing.room import Room
from toolcrib_registry.importing.routes import Routes
from toolcrib_registry.importing.turns import Turns
from toolcrib_registry.importing.watch import Parts, Watch
from toolcrib_registry.upstream.client import McpClient
from toolcrib_registry.upstream.lists import Kind
from toolcrib_registry.upstream.servers import Bounds

log = logging.getLogger(__name__)

AT_ONCE = 30
"""Servers that are looked at at once when they become known together; the others follow. As objects, small lists of as many
take less than 256 MiB."""
SPREAD = 0.01
"""Seconds between two of those."""
CHECK = 1.0
"""Seconds between looks at what routes depend on, and whether anybody still asks."""
TOGETHER = 0.05
"""Seconds that a report waits for further changes."""
LARGE_AT_ONCE = 2
"""Lists beyond `watch.SMALL` that are read at the same time: as objects one takes up to half a gigabyte."""


class Observer(Protocol):
    """Counts what becomes of looks."""

    def server_seen(self, server: str, outcome: ServerOutcome) -> None:
        """A server was looked at."""
        ...

    def server_gone(self, server: str) -> None:
        """A server is not watched any more."""
        ...


class Importer:
    """Watches from `asked` on, for as long as that says. Used from one event loop only.

    Args:
        client: asks the servers.
        routes: finds them.
        clock: of the registry.
        observer: counts.
        bounds: of lists.
        room: memory for lists.
        dice: from 0 to 1.
    """

    def __init__(
        self,
        client: McpClient,
        routes: Routes,
        clock: Clock,
        observer: Observer,
        *,
        bounds: Bounds | None = None,
        room: Room | None = None,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self._routes, self._clock, self._observer = routes, clock, observer
        large = Turns(LARGE_AT_ONCE)
        self._parts = Parts(
            client, routes, bounds or Bounds(), clock, large, room or Room(), self._change,
            observer.server_seen, self._told, dice,
        )  # fmt: skip
        client.on_change = self._noticed
        self.on_change: Callable[[str, Kind], None] = lambda server, kind: None
        """Told a server and which of its lists has changed, at each notice: on its stream, or during a call."""
        self._watches: dict[str, Watch] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._until = 0.0
        self._counter = secrets.randbelow(1 << 48)  # one of another process is not taken for it
        self._changed = asyncio.Event()
        self._wake = asyncio.Event()

    @property
    def importing(self) -> bool:
        """Whether the operator has asked for it, and its time is not over."""
        return self._clock.elapsed() < self._until

    def asked(self, request: ServersRequest) -> None:
        """Watch exactly these from now on, for the time that is asked for."""
        self._until = self._clock.elapsed() + request.seconds
        wanted = {each.server: each for each in request.servers}
        for name in self._watches.keys() - wanted.keys():
            self._drop(self._watches.pop(name))
        new = 0
        for name, each in wanted.items():
            before = self._watches.get(name)
            if before is not None and before.wanted == each:
                continue
            delay = max(0, new - AT_ONCE) * SPREAD
            new += 1
            self._watches[name] = self._replaced(each, before, delay)
        if new:
            self._change()
        self._wake.set()

    async def report(
        self, after: int, wait: float, stopping: Callable[[], bool] = lambda: False
    ) -> ServersReport:
        """What is known: at once if the counter is not `after`, else after the next change or `wait` seconds."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait
        while self._counter == after and not stopping() and (left := until - loop.time()) > 0:
            changed = self._changed
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, CHECK)):
                    await changed.wait()
            if self._counter != after:
                await asyncio.sleep(TOGETHER)
        rows = tuple(watch.row for _, watch in sorted(self._watches.items()))
        return ServersReport(counter=self._counter, servers=rows)

    async def listed(self, server: str, set_digest: str) -> bytes | None:
        """`ServerList` as JSON; None: that list is not held."""
        watch = self._watches.get(server)
        held = None if watch is None else watch.held
        if held is None or held.set_digest != set_digest:
            return None
        return await asyncio.to_thread(lambda: held.body)

    async def run(self) -> None:
        """Work until cancelled: let go of servers that nobody asks for, and notice changes of what routes depend on."""
        version = self._routes.version
        try:
            while True:
                self._wake.clear()
                if not self.importing:
                    self._forget()
                    await self._wake.wait()
                    continue
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CHECK):
                        await self._wake.wait()
                if version != (now := self._routes.version):
                    version = now
                    for watch in list(self._watches.values()):
                        watch.recheck()
        finally:
            self._forget()
            await asyncio.gather(*self._ending, return_exceptions=True)

    def _replaced(self, wanted: ServerWanted, before: Watch | None, delay: float) -> Watch:
        """A watch in the place of another; what was known of the same server is kept."""
        if before is not None and not _same(before.wanted, wanted):
            self._drop(before)
            before = None
        elif before is not None:
            before.stop()
            self._later(before)
        watch = Watch(wanted, self._parts, before)
        watch.begin(delay)
        return watch

    def _drop(self, watch: Watch) -> None:
        watch.stop()
        watch.forget()
        self._observer.server_gone(watch.wanted.server)
        self._later(watch)

    def _later(self, watch: Watch) -> None:
        task = asyncio.create_task(watch.ended())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _forget(self) -> None:
        """Another replica imports from now on, or none."""
        watches, self._watches = list(self._watches.values()), {}
        for watch in watches:
            self._drop(watch)

    def _noticed(self, server: str, kind: Kind) -> None:
        self._told(server, kind)
        if kind is Kind.TOOLS and (watch := self._watches.get(server)) is not None:
            watch.notice()

    def _told(self, server: str, kind: Kind) -> None:
        self.on_change(server, kind)

    def _change(self) -> None:
        self._counter += 1
        self._changed.set()
        self._changed = asyncio.Event()


def _same(one: ServerWanted, other: ServerWanted) -> bool:
    """Whether both are at one address, by what the ToolServer says."""
    a, b = one.backend, other.backend
    commands = [None if each.program is None else each.program.command for each in (a, b)]
    return commands[0] == commands[1] and (
        (a.url, a.service, a.service_port, a.path) == (b.url, b.service, b.service_port, b.path)
    )
