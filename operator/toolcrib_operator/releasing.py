"""Uninstalling: bindings lose our finalizer, so that they can be deleted where no operator runs any more.

The Lease is taken from the leader first, whoever it is: a leader that went on would set the finalizer again. It notices
within its renew deadline and ends itself. The Lease is renewed at the end: nobody leads for another lease duration, in
which the uninstall goes on; one that is given up heals itself after that.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import replace

from toolcrib.resources import KINDS
from toolcrib_operator.errors import ClusterUnavailable, Conflict, Gone, NotListable
from toolcrib_operator.ports import ClusterReader, ClusterWriter, Lease, Leases
from toolcrib_operator.settings import FINALIZER, ElectionSettings
from toolcrib_operator.world import BINDINGS, Ref, key_of

log = logging.getLogger(__name__)

_TRIES = 5


async def release(
    reader: ClusterReader, writer: ClusterWriter, leases: Leases, *, election: ElectionSettings, identity: str
) -> int:
    """Take the Lease, let the former leader end, and remove the finalizer from every binding; how many had it.

    Where the API server does not know the kinds (any more), there is none. Raises ClusterUnavailable.
    """
    lease = await _take(leases, Lease(identity, 0, "", election.lease, ""))
    if lease is not None:
        await asyncio.sleep(election.renew)
        lease = await _renew(leases, lease)
    released = sum([await _strip(reader, writer, kind) for kind in BINDINGS])
    if lease is not None:
        await _renew(leases, lease)
    return released


async def _take(leases: Leases, mine: Lease) -> Lease | None:
    """The Lease as it is after it was taken; None where there is none, so nobody leads."""
    for _ in range(_TRIES):
        lease = await leases.read()
        if lease is None:
            return None
        taken = replace(mine, transitions=lease.transitions + 1, resource_version=lease.resource_version)
        with suppress(Conflict):  # the leader has just renewed it
            return await leases.write(taken, acquired=True)
    raise ClusterUnavailable("the Lease changes faster than it can be taken")


async def _renew(leases: Leases, lease: Lease) -> Lease:
    try:
        return await leases.write(lease, acquired=False)
    except Conflict as error:
        raise ClusterUnavailable("an operator has taken the Lease back") from error


async def _strip(reader: ClusterReader, writer: ClusterWriter, kind: str) -> int:
    began, released = time.monotonic(), 0
    for _ in range(_TRIES):
        try:
            found = (await reader.list(kind)).objects
        except NotListable as error:
            if not isinstance(error.__cause__, Gone):
                raise
            log.info("no %s to release: %s", KINDS[kind].plural, error)
            return released
        left = [o["metadata"] | {"key": key_of(o)} for o in found if FINALIZER in _finalizers(o["metadata"])]
        if not left:
            if released:
                log.info("released %d %s in %.1f s", released, KINDS[kind].plural, time.monotonic() - began)
            return released
        for metadata in left:
            kept = [name for name in _finalizers(metadata) if name != FINALIZER]
            ref = Ref(kind, metadata["key"])
            try:
                await writer.write_finalizers(
                    ref, resource_version=metadata["resourceVersion"], finalizers=kept
                )
            except (Conflict, Gone):
                continue  # somebody changed or deleted it: the next list says what is left
            released += 1
    raise ClusterUnavailable(f"{KINDS[kind].plural} change faster than they can be released")


def _finalizers(metadata: dict[str, object]) -> list[str]:
    found = metadata.get("finalizers")
    return [str(name) for name in found] if isinstance(found, list) else []
