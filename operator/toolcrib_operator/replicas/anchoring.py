"""Anchors of the replicas' decision logs: every minute the leader keeps each log's head where the registry cannot write.

Anyone who rewrites a log or cuts its end, even with its key, then contradicts what was anchored (`toolcrib audit verify
--anchors`). A head that goes back, or changes, is said at once. So are anchors that vanish: the leader remembers what it
last wrote, and writes it back.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

from toolcrib.audit import anchors as audit_anchors
from toolcrib.audit import chain as audit_chain
from toolcrib.audit.anchors import Anchor, AnchorsError, Regression
from toolcrib.telemetry import logs
from toolcrib.wire.publish import AuditHead
from toolcrib_operator.errors import ClusterUnavailable, Conflict
from toolcrib_operator.ports import AnchorStore, StoredAnchors
from toolcrib_operator.settings import AnchorSettings
from toolcrib_operator.timers import wait

log = logging.getLogger(__name__)


class Anchoring:
    """Keeps the anchors up to date while this process leads.

    Args:
        store: where they are kept.
        heads: what the replicas last said, by chain.
        may_act: whether this process still leads.
    """

    def __init__(
        self,
        store: AnchorStore,
        heads: Callable[[], Mapping[str, AuditHead]],
        *,
        may_act: Callable[[], bool] = lambda: True,
        settings: AnchorSettings | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.anchored: dict[str, float] = {}
        """When each replica's head was last found in the store, or put there: seconds since the epoch."""
        self.regressions = self.failures = 0
        self._store, self._heads, self._may_act = store, heads, may_act
        self._settings = settings or AnchorSettings()
        self._clock = clock
        self._told: set[tuple[str, int, str]] = set()
        self._remembered: list[Anchor] = []
        self._harmed: str | None = None
        """The version of the store whose harm has been said."""
        self._trouble = logs.Trouble(log)

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop`. Never ends otherwise: granting and revoking must not depend on anchors."""
        while not stop.is_set():
            await wait(stop, await self._round())

    async def _round(self) -> float:
        """Look once; how long until the next time."""
        try:
            heads = dict(self._heads())
            if not heads:
                return self._settings.look
            if self._may_act():
                await self.anchor(heads)
                self._trouble.over("the anchors of decision logs can be written again")
            return self._settings.every
        except Conflict:
            return self._settings.look
        except ClusterUnavailable as error:
            self._trouble.failed("the anchors of decision logs cannot be written: %s", error)
        except Exception as error:
            self._trouble.failed(
                "the anchors of decision logs cannot be written: %s: %s",
                type(error).__name__,
                error,
                level=logging.ERROR,
            )
        self.failures += 1
        return self._settings.retry

    async def anchor(self, heads: Mapping[str, AuditHead]) -> None:
        """Bring these heads (by chain) into the store.

        Raises:
            Conflict: somebody else has changed it meanwhile. ClusterUnavailable: it does not answer.
        """
        now = self._clock()
        stored = await self._store.read()
        known, whole = self._known(stored, now)
        anchors, regressions = audit_anchors.added(known, heads, now)
        for regression in regressions:
            self._tell(regression)
        kept = audit_anchors.thinned(anchors, now)
        if (kept != known or not whole) and self._may_act():
            await self._store.write(audit_anchors.write(kept), stored.resource_version if stored else "")
            self._remembered, self._harmed = kept, None
        elif kept == known:
            self._remembered = kept
        wrong = {r.chain for r in regressions}
        current = {audit_chain.replica_of(chain): now for chain in heads if chain not in wrong}
        present = {audit_chain.replica_of(chain) for chain in heads}
        self.anchored = {r: t for r, t in self.anchored.items() if r in present} | current

    def _known(self, stored: StoredAnchors | None, now: float) -> tuple[list[Anchor], bool]:
        """The anchors there are, and whether the store has them all."""
        version = stored.resource_version if stored else ""
        try:
            read = audit_anchors.read(stored.text if stored else "")
        except AnchorsError:
            self._harm(version, "the anchors of decision logs were altered and cannot be read", 0)
            return self._remembered, False
        known, lacking = audit_anchors.restored(read, self._remembered, now)
        if lacking:
            self._harm(version, "anchors of decision logs were deleted or altered", len(lacking))
        return known, not lacking

    def _harm(self, version: str, what: str, lacking: int) -> None:
        if self._harmed == version:
            return
        self._harmed = version
        self.regressions += 1
        log.error(
            "%s; restoring them from memory",
            what,
            extra=logs.about(lacking=lacking, remembered=len(self._remembered)),
        )

    def _tell(self, regression: Regression) -> None:
        reported = regression.reported
        if (told := (regression.chain, reported.seq, reported.hash)) in self._told:
            return
        if len(self._told) > 1000:
            self._told.clear()
        self._told.add(told)
        self.regressions += 1
        log.error(
            "decision log regressed (truncated or rewritten): %s",
            regression,
            extra=logs.about(replica=audit_chain.replica_of(regression.chain)),
        )
