"""What backends answer: one replica, the one that writes the search index, probes them as long as it is asked to.

A report is compared with the one before: tools of backends of which it says something else are looked at again. While no
replica answers, conditions stay as they are.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping

from toolcrib.errors import EpochFenced
from toolcrib.telemetry import logs
from toolcrib.wire.probes import MOST_BACKENDS, BackendProbe, ProbeOutcome, ProbeRequest, backend_key
from toolcrib.wire.publish import PublishedTool
from toolcrib_operator.errors import ReplicaUnavailable
from toolcrib_operator.ports import ProbeChannel
from toolcrib_operator.replicas.publisher import Publisher
from toolcrib_operator.settings import ProbeSettings
from toolcrib_operator.timers import Backoff, wait

log = logging.getLogger(__name__)

Changed = Callable[[Collection[str]], None]
_LOOK = 1.0
"""Seconds until the next request while there is no replica to ask, or one that has not probed everything yet."""
_GRACE = 3
"""Requests that may fail in a row before the replica stops probing."""


class ProbeReports:
    """Asks the replica for its report until stopped, and keeps the last one."""

    def __init__(
        self,
        publisher: Publisher,
        channel: Callable[[str], ProbeChannel],
        *,
        settings: ProbeSettings | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """
        Args:
            publisher: knows the replicas, and whether this operator may act.
            channel: of a replica, by its name.
            settings: how often backends are probed, and the replica is asked.
            clock: seconds since the epoch.
        """
        self.reported_at: float | None = None
        """When the last report came."""
        self.settings = settings or ProbeSettings()
        self._publisher, self._channel, self._clock = publisher, channel, clock
        self._on_change: Changed = lambda ids: None
        self._report: Mapping[str, BackendProbe] = {}
        self._left_out = 0
        self._trouble = logs.Trouble(log)
        self._asked = 0

    def on_change(self, told: Changed) -> None:
        """`told` gets the ids of the tools of whose backends a report says something else than the one before."""
        self._on_change = told

    def of(self, tool: PublishedTool) -> BackendProbe | None:
        """What the last report says of a tool's backend."""
        key = backend_key(tool.backend)
        if key is None:
            return None
        if key not in self._report and self._left_out:
            return BackendProbe(backend=key, tools=0, settled=True)
        return self._report.get(key)

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop`. Never ends otherwise: granting and revoking do not depend on probes."""
        backoff = Backoff(*self.settings.backoff)
        while not stop.is_set():
            try:
                pause = await self._ask()
                backoff.reset()
            except EpochFenced as error:
                self._publisher.fenced(error)
                return
            except ReplicaUnavailable as error:
                self._trouble.failed("backends are not probed: %s", error)
                pause = backoff.next()
            except Exception as error:
                self._trouble.failed(
                    "backends are not probed: %s: %s", type(error).__name__, error, level=logging.ERROR
                )
                pause = backoff.next()
            await wait(stop, pause)

    async def _ask(self) -> float:
        """Ask once; how long until the next time."""
        replica = self._publisher.indexer()
        if replica is None or not self._publisher.still_leads():
            return _LOOK
        self._asked += 1
        logs.request_id.set(f"op-{self._publisher.epoch}-backends-{self._asked}")
        request = ProbeRequest(
            epoch=self._publisher.epoch,
            every=self.settings.every,
            seconds=max(1.0, _GRACE * self.settings.ask),
        )
        report = await self._channel(replica.name).backends(request)
        self._trouble.over("backends are probed again")
        self.reported_at = self._clock()
        self._crowded(report.left_out)
        self._take({probe.backend: probe for probe in report.backends})
        known = report.looked and all(probe.outcome is not None for probe in report.backends)
        return self.settings.ask if known else min(self.settings.ask, _LOOK)

    def _crowded(self, left_out: int) -> None:
        if bool(left_out) is not bool(self._left_out):
            log.log(
                logging.WARNING if left_out else logging.INFO,
                "%d backends are not probed: a replica probes %d at most", left_out, MOST_BACKENDS,
            )  # fmt: skip
        self._left_out = left_out

    def _take(self, report: Mapping[str, BackendProbe]) -> None:
        before, self._report = self._report, report
        changed = {
            key for key in {*before, *report} if _said(before.get(key)) != _said(report.get(key))
        }  # fmt: skip
        if not changed:
            return
        tools = defaultdict(list)
        for tool_id, tool in self._publisher.snapshot.tools.items():
            if (key := backend_key(tool.backend)) in changed:
                tools[key].append(tool_id)
        for key in sorted(changed & report.keys()):
            outcome = report[key].outcome
            if outcome not in (None, ProbeOutcome.CONNECTED) and tools[key]:
                log.info(
                    "backend %s: %s", key, outcome, extra=logs.about(tools=len(tools[key]), settled=report[key].settled)
                )  # fmt: skip
        self._on_change([tool_id for ids in tools.values() for tool_id in ids])


def _said(probe: BackendProbe | None) -> tuple[object, ...] | None:
    """What of a probe a condition tells."""
    return None if probe is None else (probe.outcome, probe.settled, probe.place)
