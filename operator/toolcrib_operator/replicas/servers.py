"""What MCP servers say of their tools: one replica watches them as long as it is asked to, and reports.

It is asked again and again, and answers when something changes. If it goes, another one is asked. While none answers,
and as long as a new one has not read a list, the last report stands.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping

from toolcrib.errors import EpochFenced
from toolcrib.telemetry import logs
from toolcrib.wire.features import BACKEND_OAUTH, SERVER_IMPORTS, TOKEN_SERVICES
from toolcrib.wire.imports import (
    MOST_SERVERS,
    ListRequest,
    ServerList,
    ServerOutcome,
    ServerSeen,
    ServersReport,
    ServersRequest,
    ServerWanted,
)
from toolcrib_operator.errors import ReplicaUnavailable
from toolcrib_operator.ports import ImportChannel, Replica
from toolcrib_operator.replicas.publisher import Publisher
from toolcrib_operator.settings import ImportSettings
from toolcrib_operator.timers import Backoff, wait, wait_any

log = logging.getLogger(__name__)

_SILENT = 30.0
"""Seconds without a report after which `/readyz` says so: some of its longest waits."""
_LOOK = 1.0
"""Seconds until the next look while there is no replica to ask."""
_NEEDED = {SERVER_IMPORTS, BACKEND_OAUTH, TOKEN_SERVICES}
"""Of a replica that is asked: it reads every server that it is sent."""
_UNFIT = 15.0
"""The same until one is asked again whether it can watch servers."""
_TOGETHER = 0.05
"""Servers that are wanted within this time are asked for together."""


class ServerReports:
    """Asks a replica for its report until stopped, and keeps what it said last of each server."""

    def __init__(
        self,
        publisher: Publisher,
        channel: Callable[[str], ImportChannel],
        *,
        settings: ImportSettings | None = None,
    ) -> None:
        """
        Args:
            publisher: knows the replicas, and whether this operator may act.
            channel: of a replica, by its name.
            settings: how long it is asked to go on, and to wait.
        """
        self.settings = settings or ImportSettings()
        self.named: str | None = None
        """The replica that is asked."""
        self.reported_at: float | None = None
        """When the last report came."""
        self._publisher, self._channel = publisher, channel
        self._on_change: Callable[[Collection[str]], None] = lambda servers: None
        self._wanted: dict[str, ServerWanted] = {}
        self._seen: dict[str, ServerSeen] = {}
        self._counter = 0
        self._changed = asyncio.Event()
        self._moved = asyncio.Event()
        self._unfit: dict[str, float] = {}
        self._told: str | None = None
        self._trouble = logs.Trouble(log)
        self._asked = 0
        self._began = time.time()
        publisher.subscribe(self._moved.set)

    def on_change(self, told: Callable[[Collection[str]], None]) -> None:
        """`told` gets the ids of the servers of which a report says something else than the one before."""
        self._on_change = told

    def want(self, server: str, wanted: ServerWanted | None) -> None:
        """Have a server watched so from now on; None: not any more."""
        before = self._wanted.get(server)
        if before == wanted:
            return
        if wanted is None or before is None or before.backend != wanted.backend:
            # what was said of another address is nothing about this one
            self._seen.pop(server, None)
        if wanted is None:
            del self._wanted[server]
        else:
            if not self._wanted:
                self._began = time.time()  # nobody was to report before
            self._wanted[server] = wanted
        self._changed.set()

    def of(self, server: str) -> ServerSeen | None:
        """What was said last of a server."""
        return self._seen.get(server)

    @property
    def problem(self) -> str | None:
        """Why nobody may know what servers have, in words; None: nothing is wrong, or none is wanted."""
        silent = time.time() - max(self.reported_at or 0.0, self._began)
        if not self._wanted or silent < _SILENT:
            return None
        return f"no registry replica has reported the servers' tools for {silent:.0f} s"

    @property
    def seen(self) -> Mapping[str, ServerSeen]:
        """What was said last of each."""
        return self._seen

    async def list(self, server: str, set_digest: str) -> ServerList | None:
        """A list that the report names; None: it is another one by now. Raises ReplicaUnavailable."""
        if self.named is None:
            raise ReplicaUnavailable("no replica watches servers")
        request = ListRequest(server=server, set_digest=set_digest)
        return await self._channel(self.named).server_list(request)

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop`. Never ends otherwise: granting and revoking do not depend on imports."""
        backoff = Backoff(*self.settings.backoff)
        while not stop.is_set():
            try:
                pause = await self._ask(stop)
                backoff.reset()
            except EpochFenced as error:
                self._publisher.fenced(error)
                return
            except ReplicaUnavailable as error:
                self._trouble.failed(
                    "servers are not watched: %s", error, extra=logs.about(replica=self.named)
                )
                pause = self._failed(backoff)
            except Exception as error:
                self._trouble.failed(
                    "servers are not watched: %s: %s", type(error).__name__, error, level=logging.ERROR
                )
                pause = self._failed(backoff)
            await wait(stop, pause)

    async def _ask(self, stop: asyncio.Event) -> float:
        """Ask once; how long until the next time."""
        if not self._wanted and self._told in (None, self.named):
            self._moved.clear()
            await wait_any([stop, self._changed, self._moved], _LOOK)
            if not self._wanted and not self._changed.is_set():
                return 0.0
        self._moved.clear()
        if not self._publisher.still_leads() or (replica := await self._replica()) is None:
            await wait_any([stop, self._moved], _LOOK)
            return 0.0
        await asyncio.sleep(_TOGETHER)
        self._changed.clear()
        self._asked += 1
        logs.request_id.set(f"op-{self._publisher.epoch}-servers-{self._asked}")
        asking = asyncio.create_task(self._channel(replica.name).servers(self._request()))
        try:
            while not asking.done():
                self._moved.clear()
                if stop.is_set() or self._changed.is_set() or not self._fit(replica.name):
                    return 0.0
                woken = [asyncio.create_task(e.wait()) for e in (stop, self._changed, self._moved)]
                try:
                    await asyncio.wait([asking, *woken], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for each in woken:
                        each.cancel()
        finally:
            asking.cancel()
        self._take(asking.result())
        self._told = replica.name if not self._wanted else None
        return 0.0

    def _request(self) -> ServersRequest:
        servers = [self._wanted[key] for key in sorted(self._wanted)]
        if len(servers) > MOST_SERVERS:
            log.warning("%d servers are not watched: a replica watches %d at most", len(servers) - MOST_SERVERS, MOST_SERVERS)  # fmt: skip
        return ServersRequest(
            epoch=self._publisher.epoch,
            seconds=self.settings.seconds,
            servers=tuple(servers[:MOST_SERVERS]),
            wait=self.settings.wait if servers else 0.0,
            after=self._counter,
        )

    async def _replica(self) -> Replica | None:
        """The one to ask: the same as long as it is fit, else the one that keeps the index, else another."""
        links = {
            link.replica.name: link.replica for link in self._publisher.links if self._fit(link.replica.name)
        }
        indexer = self._publisher.indexer()
        order = [self.named, None if indexer is None else indexer.name, *links]
        now = time.monotonic()
        for name in dict.fromkeys(order):
            if name is None or name not in links or self._unfit.get(name, 0.0) > now:
                continue
            if name == self.named:
                return links[name]
            if set(await self._features(links[name])) >= _NEEDED:
                log.info("servers are watched by a replica", extra=logs.about(replica=name))
                self.named, self._counter = name, 0
                return links[name]
            self._unfit[name] = now + _UNFIT
        return None

    async def _features(self, replica: Replica) -> Collection[str]:
        try:
            return (await replica.report()).features
        except ReplicaUnavailable:
            return ()

    def _fit(self, name: str) -> bool:
        """Whether the replica is there, has been published to and answers."""
        return any(
            link.replica.name == name and link.confirmed is not None and link.problem is None
            for link in self._publisher.links
        )

    def _failed(self, backoff: Backoff) -> float:
        """The replica did not answer: another one is asked at once, if there is one."""
        name, self.named = self.named, None
        pause = backoff.next()
        if name is not None:
            self._unfit[name] = time.monotonic() + pause
        others = any(
            self._fit(link.replica.name) for link in self._publisher.links if link.replica.name != name
        )
        return 0.0 if others and backoff.failures <= len(self._publisher.links) else pause

    def _take(self, report: ServersReport) -> None:
        self._trouble.over("servers are watched again", extra=logs.about(replica=self.named))
        self.reported_at = time.time()
        self._counter = report.counter
        changed = set()
        for seen in report.servers:
            before = self._seen.get(seen.server)
            if seen.server not in self._wanted or (
                before is not None and seen.outcome is ServerOutcome.PENDING
            ):
                continue
            if before is not None and seen.set_digest is None and before.set_digest is not None:
                # another replica, that cannot reach it: the last whole list is still the last one
                kept = ("set_digest", "tools", "read_at", "server_name", "server_version", "protocol_version")
                seen = seen.model_copy(update={name: getattr(before, name) for name in kept})
            self._seen[seen.server] = seen
            if before is None or _said(before) != _said(seen):
                changed.add(seen.server)
                if before is None or before.outcome is not seen.outcome:
                    log.info("server %s: %s", seen.server, seen.outcome, extra=logs.about(told=seen.detail))
        if changed:
            self._on_change(changed)


def _said(seen: ServerSeen) -> ServerSeen:
    """What of it a status tells."""
    return seen.model_copy(update={"tried_at": None, "read_at": None, "listening": False})
