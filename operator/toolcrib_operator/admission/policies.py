"""Keeping an eye on the admission policies: read at the start, every few seconds, and before a new grant is judged."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from toolcrib.telemetry import logs
from toolcrib_operator.admission.comparison import obstacle
from toolcrib_operator.errors import ClusterUnavailable, NotListable
from toolcrib_operator.kinds.admission import UNKNOWN, Admitted
from toolcrib_operator.ports import PolicyReader
from toolcrib_operator.settings import PolicySettings
from toolcrib_operator.timers import wait_any

log = logging.getLogger(__name__)


class Policies:
    """Tells `admitted` what the policies are like."""

    def __init__(
        self,
        admitted: Admitted,
        reader: PolicyReader | None = None,
        *,
        settings: PolicySettings | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Without a `reader` there is nothing to look at: `admitted` is external."""
        self.admitted = admitted
        self._reader = reader
        self._settings = settings or PolicySettings()
        self._monotonic = monotonic
        self._versions: dict[tuple[str, str], tuple[str, int]] | None = None
        self._back: float | None = None
        """Since when the policies are in place again; None: they are in effect, or have not come back."""
        self._read: float | None = None
        self._subscribers: list[Callable[[], None]] = []
        self._asked = asyncio.Event()
        self._ended = 0
        self._end = asyncio.Event()
        """Set at the end of the look that is under way, or of the next one."""
        self._trouble = logs.Trouble(log)

    @property
    def known(self) -> bool:
        """Whether they have been read; until then no binding may be judged."""
        return self.admitted.problem != UNKNOWN

    def subscribe(self, wake: Callable[[], None]) -> None:
        """Call `wake` when what is known of them has changed, or grants that waited can be decided."""
        self._subscribers.append(wake)

    async def asked(self, within: float) -> None:
        """Have `run` read them again, from now on, and wait for that at most so many seconds.

        A look that takes longer goes on, and wakes the subscribers when it has an answer.
        """
        if self._reader is None:
            return
        wanted = self.admitted.begun + 1
        self._asked.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                while self._ended < wanted:
                    await self._end.wait()

    def settle(self) -> None:
        """Note that policies that were put back are in effect, if it is time: before grants that come now are noticed."""
        if self._back is not None and self._monotonic() - self._back >= self._settings.settle:
            self._back = None
            self.admitted.seen = _name(self._versions or {})

    async def run(self, stop: asyncio.Event) -> None:
        """Look every few seconds, and when asked to, until `stop`. One at a time: no answer undoes a later one."""
        while self._reader is not None and not stop.is_set():
            self._asked.clear()
            await self.look()
            await wait_any((stop, self._asked), self._settings.every)

    async def look(self) -> None:
        """Read them now. Without an answer new grants wait for the next look."""
        if self._reader is None:
            return
        self.admitted.begun += 1
        number = self.admitted.begun
        try:
            found: Sequence[Mapping[str, Any]] = await self._reader.policies()
        except ClusterUnavailable as error:
            self._trouble.failed("the admission policies cannot be read: %s", error)
            # A server that has just started forbids what RBAC allows, until it has read the roles. But who was
            # never allowed to read them has none.
            never = isinstance(error, NotListable) and self._read is None
            silent = self._read is not None and self._monotonic() - self._read > self._settings.stale_after
            if never:
                self.admitted.answered = number
            elif silent:  # what it said is no reason to refuse a grant for good
                self.admitted.answered = 0
            if never or silent:
                self._say(f"the admission policies cannot be read: {error}")
        else:
            self._trouble.over("the admission policies are readable again")
            self._read = self._monotonic()
            self.admitted.answered = number
            self._say(self._judge(found))
        self._ended = number
        self._end.set()
        self._end = asyncio.Event()

    def _judge(self, found: Sequence[Mapping[str, Any]]) -> str | None:
        problem = obstacle(found, self._settings.account)
        versions = {(m["kind"], m["metadata"]["name"]): _version(m) for m in found}
        first, changed = self._versions is None, versions != self._versions
        self._versions = versions
        if problem is not None:
            self._back = None
            self.admitted.seen = _name(versions)
            return problem
        if changed and not first:  # the same ones, unread for a while, were in effect all the time
            self._back = self._monotonic()
        self.settle()
        if self._back is not None:
            return "the admission policies were restored or changed a moment ago and are not in effect yet"
        self.admitted.seen = _name(versions)
        return None

    def _say(self, problem: str | None) -> None:
        before, self.admitted.problem = self.admitted.problem, problem
        if problem is not None and problem != before:
            log.error("no new grant takes effect: %s", problem)
        elif problem is None and before is not None:
            log.info("the admission policies are in place")
        if problem != before or self.admitted.ripe():
            for wake in self._subscribers:
                wake()


def _name(versions: Mapping[tuple[str, str], tuple[str, int]]) -> str:
    return hashlib.sha256(repr(sorted(versions.items())).encode()).hexdigest()[:12]


def _version(manifest: Mapping[str, Any]) -> tuple[str, int]:
    metadata = manifest["metadata"]
    return metadata.get("uid", ""), metadata.get("generation", 0)
