"""The looks at trials (ToolCanary): takes what replicas counted, and rolls back a candidate that is worse.

Counts come with each replica's answers to publishes and heartbeats, so they are some seconds old at a look: no matter for a
trial of hours.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from toolcrib.telemetry import logs
from toolcrib_operator.kinds.facts import Facts
from toolcrib_operator.kinds.quotas import TOOL
from toolcrib_operator.kinds.trials import CANARY, Trial, canary_of
from toolcrib_operator.objects import Entry, Ref
from toolcrib_operator.replicas.publisher import Publisher
from toolcrib_operator.timers import wait
from toolcrib_operator.world import World

log = logging.getLogger(__name__)


class Canaries:
    """Follows every trial until stopped."""

    def __init__(
        self,
        world: World,
        publisher: Publisher,
        facts: Facts,
        due: Callable[[Ref], None],
        *,
        clock: Callable[[], float] = time.time,
        every: float = 1.0,
    ) -> None:
        """
        Args:
            world: where the objects are.
            publisher: what is published, and what replicas said.
            facts: has the trials.
            due: has the status of an object written.
            clock: seconds since the epoch.
            every: seconds between two turns.
        """
        self._world, self._publisher, self._facts, self._due = world, publisher, facts, due
        self._clock, self._every = clock, every

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop`."""
        while not stop.is_set():
            if self._publisher.revision is not None and self._publisher.still_leads():
                for record in list(self._facts.records.of(CANARY)):
                    if (entry := self._world.get(record.ref)) is not None and record.verdict is not None:
                        self._follow(entry)
            await wait(stop, self._every)

    def _follow(self, entry: Entry) -> None:
        canary, trial, now = canary_of(entry), self._facts.trials.of(entry), self._clock()
        if canary is None or trial.over:
            return
        tool = self._publisher.snapshot.tools.get(f"{canary.namespace}/{canary.spec.tool}")
        serving = tool is not None and tool.candidate is not None and tool.candidate.canary == entry.uid
        changed, trial.serving = serving is not trial.serving, serving
        if serving:
            changed |= trial.begin(now)
            self._count(trial)
        # a candidate that is not served for a while, as its tool is disabled, is looked at when it was to be
        while (at := trial.next_look(canary.spec)) is not None and now >= at:
            found = trial.look(canary.spec, now)
            changed = True
            log.info(
                "look %d: %s", len(trial.looks), found.value, extra=logs.about_object(CANARY, entry.ref.key)
            )
        if changed:
            self._due(entry.ref)
        if trial.over:
            self._world.touch([Ref(TOOL, f"{canary.namespace}/{canary.spec.tool}")])

    def _count(self, trial: Trial) -> None:
        for link in self._publisher.links:
            for counts in link.canaries:
                if counts.canary == trial.uid:
                    trial.take(link.replica.name, counts)
