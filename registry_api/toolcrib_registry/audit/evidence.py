"""What a file needs so that its records can be decided again from it alone.

The policy at its start and each change of it, and who the callers are. Used from the writer's thread only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from toolcrib.audit import chain as audit_chain
from toolcrib.audit import policy_records
from toolcrib.audit.callers import Caller
from toolcrib.identity import Issuer
from toolcrib.snapshot import Snapshot
from toolcrib_registry.audit.folding import Record

SEEN = 20_000
"""Callers of a file that are remembered as explained, about 3 MB; the oldest beyond that are explained again."""
EVERY = 3600.0
"""Seconds after which a stream states the policy again."""

_FILES = (audit_chain.BEGIN, audit_chain.ROTATED, audit_chain.REOPENED)
"""After each of these a file, or a run, begins."""


class Evidence:
    """Adds to the records that are written those that explain them.

    Args:
        own: makes a record of the log itself of its action and members.
        issuers: whose tokens are taken, and what their scopes count for.
        stream: the log is no file.
        elapsed: monotonic seconds.
    """

    def __init__(
        self,
        own: Callable[[str, Record], Record],
        issuers: Iterable[Issuer],
        *,
        stream: bool,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        self._own, self._issuers, self._stream, self._elapsed = own, tuple(issuers), stream, elapsed
        self.policy: Snapshot | None = None
        """The latest that was stated, or is to be."""
        self._stated_at: float | None = None
        """In monotonic seconds; None: the policy is to be stated whole."""
        self._seen: dict[str, bytes] = {}

    def of(self, items: Iterable[tuple[Record | None, Snapshot | None]]) -> Iterator[Record]:
        """Each record with what must stand before it, and each new policy in its place."""
        if self._stream and self._stated_at is not None and self._elapsed() - self._stated_at >= EVERY:
            self._stated_at = None
        for record, policy in items:
            if record is not None:
                if not str(record["action"]).startswith(audit_chain.OWN):
                    yield from self._explained(record)
                yield record
                if record["action"] == audit_chain.END:
                    return  # it is the last line
                if record["action"] in _FILES or _loses_policy(record):
                    self._stated_at = None
            if policy is not None:
                yield from self._changed(policy)
        yield from self._whole()

    def undo(self, policy: Snapshot | None) -> None:
        """What was made since `policy` was the latest will not be written."""
        self.policy, self._stated_at = policy, None
        self._seen.clear()

    def _explained(self, record: Record) -> Iterator[Record]:
        yield from self._whole()
        caller: Caller | None = record.get("who")
        if caller is None or self._seen.get(caller.digest) == caller.key:
            return
        if len(self._seen) >= SEEN:
            del self._seen[next(iter(self._seen))]
        self._seen[caller.digest] = caller.key
        yield self._own(audit_chain.IDENTITY, {"who": caller, **caller.fields})

    def _changed(self, policy: Snapshot) -> Iterator[Record]:
        before, self.policy = self.policy, policy
        told = None
        if before is not None and self._stated_at is not None:
            told = policy_records.changes(before, policy)
        if told is None:
            self._stated_at = None
            yield from self._whole()
            return
        for action, fields in told:
            yield self._own(action, fields)

    def _whole(self) -> Iterator[Record]:
        """The whole policy, where a file has begun, and what was explained in the last one is forgotten."""
        if self._stated_at is not None or self.policy is None:
            return
        self._stated_at = self._elapsed()
        self._seen.clear()
        for action, fields in policy_records.start(self.policy, self._issuers):
            yield self._own(action, fields)


def _loses_policy(record: Record) -> bool:
    lost: list[dict[str, Any]] = record.get("lost", []) if record["action"] == audit_chain.GAP else []
    return any(entry["action"] == audit_chain.LOST_POLICY for entry in lost)
