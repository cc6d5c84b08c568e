"""Uninstalling: bindings lose our finalizer, so that they can be deleted where no operator runs any more.

The Lease is taken from the leader first, whichever it is: a leader that went on would set the finalizer again. It notices
within its renew deadline and ends itself. The Lease is renewed for as long as the work takes, and once more at the end:
nobody leads for another lease duration, in which the uninstall goes on; one that is given up heals itself after that.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, NoReturn

from toolcrib_operator.errors import ClusterUnavailable, Conflict, Gone, NotListable
from toolcrib_operator.kinds.kind import Governed
from toolcrib_operator.kinds.table import KINDS
from toolcrib_operator.objects import Ref, key_of
from toolcrib_operator.ports import ClusterReader, ClusterWriter, Lease, Leases
from toolcrib_operator.settings import ElectionSettings

log = logging.getLogger(__name__)

_TRIES = 5
_IN_FLIGHT = 8
"""Writes at a time: thousands of bindings must not outlast what waits for an uninstall."""


async def release(
    reader: ClusterReader, writer: ClusterWriter, leases: Leases, *, election: ElectionSettings, identity: str
) -> int:
    """Take the Lease, let the former leader end, and remove the finalizer from every binding; how many had it.

    Where the API server does not know the kinds (any more), there is none. Raises ClusterUnavailable.
    """
    lease = await _take(leases, Lease(identity, 0, "", election.lease, ""))
    if lease is None:
        return await _strip_all(reader, writer)
    held = _Held(leases, lease, election)
    holding = asyncio.create_task(held.keep())
    working = asyncio.create_task(_work(reader, writer, election))
    try:
        await asyncio.wait((holding, working), return_when=asyncio.FIRST_COMPLETED)
        if holding.done() and not working.done():
            holding.result()
    finally:
        for task in (holding, working):
            task.cancel()
        await asyncio.wait((holding, working))
    released = working.result()
    await held.renew()
    return released


class _Held:
    """The Lease that was taken, and the version of it that the next renewal is based on."""

    def __init__(self, leases: Leases, lease: Lease, election: ElectionSettings) -> None:
        self._leases, self._lease, self._election = leases, lease, election

    async def keep(self) -> NoReturn:
        """Renew until cancelled. Raises ClusterUnavailable if it is lost, or not renewed by the renew deadline."""
        renewed = time.monotonic()
        while True:
            await asyncio.sleep(self._election.retry)
            sent = time.monotonic()
            try:
                await self.renew()
            except _LostError:
                raise
            except ClusterUnavailable as error:
                if sent - renewed >= self._election.renew:
                    raise
                log.warning("renewing the Lease: %s", error)
            else:
                renewed = sent

    async def renew(self) -> None:
        """Once. Raises ClusterUnavailable, also if somebody else holds it."""
        for _ in range(_TRIES):
            try:
                self._lease = await self._leases.write(self._lease, acquired=False)
                return
            except Conflict as error:
                # somebody touched it; if it still names us (an annotation was set), go on from there
                now, mine = await self._leases.read(), self._lease
                if now is None or (now.holder, now.transitions) != (mine.holder, mine.transitions):
                    raise _LostError("an operator took the Lease again; stop it first") from error
                self._lease = replace(mine, resource_version=now.resource_version)
        raise ClusterUnavailable("the Lease changes faster than it can be renewed; stop the operators first")


class _LostError(ClusterUnavailable):
    """Somebody else holds the Lease: an operator would add the finalizer again."""


async def _work(reader: ClusterReader, writer: ClusterWriter, election: ElectionSettings) -> int:
    await asyncio.sleep(election.renew)  # until the former leader has ended itself
    return await _strip_all(reader, writer)


async def _strip_all(reader: ClusterReader, writer: ClusterWriter) -> int:
    holding = [k for k in KINDS if isinstance(k, Governed) and k.finalizer is not None]
    return sum([await _strip(reader, writer, kind) for kind in holding])


async def _take(leases: Leases, mine: Lease) -> Lease | None:
    """The Lease as it is after it was taken; None where there is none, so nobody leads."""
    for _ in range(_TRIES):
        lease = await leases.read()
        if lease is None:
            return None
        taken = replace(mine, transitions=lease.transitions + 1, resource_version=lease.resource_version)
        with suppress(Conflict):  # the leader has just renewed it
            return await leases.write(taken, acquired=True)
    raise ClusterUnavailable("the Lease changes faster than it can be taken; stop the operators first")


async def _strip(reader: ClusterReader, writer: ClusterWriter, kind: Governed) -> int:
    began, released = time.monotonic(), 0
    for _ in range(_TRIES):
        try:
            found = (await reader.list(kind.name)).objects
        except NotListable as error:
            if not isinstance(error.__cause__, Gone):
                raise
            log.info("no %s to release: %s", kind.plural, error)
            return released
        left = [
            o["metadata"] | {"key": key_of(o)} for o in found if kind.finalizer in _finalizers(o["metadata"])
        ]
        if not left:
            if released:
                log.info("released %d %s in %.1f s", released, kind.plural, time.monotonic() - began)
            return released
        waiting = iter(left)
        ended = await asyncio.gather(
            *(_write(writer, kind, waiting) for _ in range(_IN_FLIGHT)), return_exceptions=True
        )
        released += sum(number for number in ended if isinstance(number, int))
        for end in ended:
            if isinstance(end, BaseException):
                raise end
    raise ClusterUnavailable(f"{kind.plural} change faster than they can be released; try again")


async def _write(writer: ClusterWriter, kind: Governed, waiting: Iterator[dict[str, Any]]) -> int:
    """Release one after the other of those that wait, beside others that take from the same; how many."""
    released = 0
    for metadata in waiting:
        kept = [name for name in _finalizers(metadata) if name != kind.finalizer]
        ref, version = Ref(kind.name, metadata["key"]), metadata["resourceVersion"]
        with suppress(Conflict, Gone):  # somebody changed or deleted it: the next list says what is left
            await writer.write_finalizers(ref, resource_version=version, finalizers=kept)
            released += 1
    return released


def _finalizers(metadata: dict[str, object]) -> list[str]:
    found = metadata.get("finalizers")
    return [str(name) for name in found] if isinstance(found, list) else []
