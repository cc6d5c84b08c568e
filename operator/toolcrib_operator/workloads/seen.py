"""How many tools the account of an Agent sees, in what is published: what its next discovery gets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from toolcrib.identity import Identity
from toolcrib.snapshot import Snapshot
from toolcrib.view import view_of
from toolcrib.wire.publish import Revision

_ANEW = 30.0
"""Seconds after which it is counted again though nothing was published: grants begin and end by the clock."""


class Seen:
    """Counts, each made once a revision."""

    def __init__(self, snapshot: Callable[[], Snapshot], clock: Callable[[], float]) -> None:
        """
        Args:
            snapshot: what is published.
            clock: seconds since the epoch.
        """
        self._snapshot, self._clock = snapshot, clock
        self._counted: dict[str, tuple[Revision | None, float, int]] = {}

    async def of(self, account: str, uid: str | None) -> int:
        """Tools that the ServiceAccount `namespace/name` sees; `uid` is the account's, None where there is none."""
        snapshot, now = self._snapshot(), self._clock()
        held = self._counted.get(account)
        if held is not None and held[0] == snapshot.revision and 0 <= now - held[1] < _ANEW:
            return held[2]
        subject = f"system:serviceaccount:{account.replace('/', ':')}"
        # the cluster's own issuer, whatever its URL: accounts are told apart by namespace and name
        identity = Identity(issuer="", subject=subject, expires_at=now + _ANEW, cluster=True, account_uid=uid)
        # judging thousands of tools would hold the loop
        count = len((await asyncio.to_thread(view_of, identity, snapshot, now)).tools)
        self._counted[account] = (snapshot.revision, now, count)
        return count

    def forget(self, account: str) -> None:
        """Nobody asks any more."""
        self._counted.pop(account, None)
