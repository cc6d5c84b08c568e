"""Leadership by a Lease: who works, since when, and until when it is safe to act on it.

After client-go's leaderelection: a candidate trusts nobody's clock but its own; it takes a Lease that it has seen
unchanged for a whole lease duration. The holder stops acting at the renew deadline, before anybody can take over.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable

from toolcrib.telemetry import logs
from toolcrib_operator.errors import ClusterUnavailable, Conflict
from toolcrib_operator.ports import Lease, Leases
from toolcrib_operator.settings import ElectionSettings
from toolcrib_operator.timers import wait

log = logging.getLogger(__name__)

EPOCH_START = 1_767_225_600
"""2026-01-01. An epoch is at least the seconds since then, so that neither a Lease that was deleted nor a cluster that
was restored from a backup turns epochs back: replicas would refuse the new leader and keep what the old one said."""

_MOST = 2**31 - 1
"""What `leaseTransitions` can hold."""


class Elector:
    """Competes for one Lease. The epoch of a leadership is the Lease's `leaseTransitions`."""

    def __init__(
        self,
        leases: Leases,
        identity: str,
        *,
        settings: ElectionSettings | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`identity` must be this process's alone: a restarted one is another candidate."""
        self.identity = identity
        self._trouble = logs.Trouble(log)
        self.problem: str | None = None
        self._leases = leases
        self._settings = settings or ElectionSettings()
        self._monotonic, self._wall = monotonic, wall
        self._held: Lease | None = None
        self._renewed: tuple[float, float] | None = None
        self._observed: tuple[Lease, float] | None = None

    @property
    def epoch(self) -> int:
        """Of the present leadership. Raises RuntimeError if there was none."""
        if self._held is None:
            raise RuntimeError("not a leader")
        return self._held.transitions

    def valid(self) -> bool:
        """Whether it is certain that nobody else leads. By both clocks: one stops in a suspended machine."""
        if self._renewed is None:
            return False
        monotonic, wall = self._renewed
        deadline = self._settings.renew
        return self._monotonic() - monotonic < deadline and abs(self._wall() - wall) < deadline

    async def acquire(self, stop: asyncio.Event) -> bool:
        """Try until this process leads (True) or `stop` is set (False)."""
        while not stop.is_set():
            try:
                if await self._try():
                    log.info(
                        "%s leads, epoch %d", self.identity, self.epoch, extra=logs.about(epoch=self.epoch)
                    )
                    return True
                self.problem = None
                self._trouble.over("leader election works again")
            except ClusterUnavailable as error:
                self._trouble.failed("leader election: %s", error)
                self.problem = str(error)
            except Conflict:
                pass
            await wait(stop, self._settings.retry)
        return False

    async def keep(self, stop: asyncio.Event) -> None:
        """Renew until `stop`, or until the Lease is lost."""
        while not await wait(stop, self._settings.retry):
            if not self.valid():
                return
            try:
                if not await self._renew():
                    self._renewed = None
                    return
                self.problem = None
                self._trouble.over("the Lease is renewed again")
            except (ClusterUnavailable, Conflict) as error:
                self.problem = str(error)
                self._trouble.failed("renewing the Lease: %s", error)

    async def release(self) -> None:
        """Let another take over at once. Nothing may be done as leader afterwards."""
        held, self._renewed = self._held, None
        if held is None:
            return
        free = Lease("", held.transitions, "", 1.0, held.resource_version)
        try:
            await self._leases.write(free, acquired=False)
        except (ClusterUnavailable, Conflict):
            log.info("the Lease was not released; it expires by itself")

    def guard(self, lost: Callable[[], None]) -> None:
        """Call `lost` from a thread as soon as leadership is not certain any more, however busy the loop is."""

        def watch() -> None:
            while self._renewed is not None:
                if not self.valid():
                    lost()
                    return
                time.sleep(0.1)

        threading.Thread(target=watch, name="lease-guard", daemon=True).start()

    async def _try(self) -> bool:
        lease = await self._leases.read()
        now = self._monotonic()
        if lease is None:
            return await self._take(Lease("", 0, "", 0.0, ""))
        if self._observed is None or self._observed[0] != lease:
            self._observed = (lease, now)
        expired = now - self._observed[1] >= max(lease.duration, self._settings.lease)
        return await self._take(lease) if not lease.holder or expired else False

    async def _take(self, lease: Lease) -> bool:
        sent = (self._monotonic(), self._wall())
        seconds = int(self._wall()) - EPOCH_START
        epoch = max(lease.transitions + 1, seconds if seconds <= _MOST else 1)
        mine = Lease(self.identity, epoch, "", self._settings.lease, lease.resource_version)
        self._held = await self._leases.write(mine, acquired=True)
        self._renewed = sent
        return True

    async def _renew(self) -> bool:
        assert self._held is not None
        sent = (self._monotonic(), self._wall())
        held = self._held
        try:
            self._held = await self._leases.write(held, acquired=False)
        except Conflict:
            # somebody touched it; if it still names us (an annotation was set), go on from there
            now = await self._leases.read()
            if now is None or now.holder != self.identity or now.transitions != held.transitions:
                return False
            self._held = now
            return True
        self._renewed = sent
        return True
