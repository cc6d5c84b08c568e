"""What statuses say once everything has confirmed what is published: for those who judge objects without a cluster. Pure."""

from __future__ import annotations

from collections.abc import Collection

from toolcrib.snapshot import Snapshot
from toolcrib.wire.publish import PublishedBinding, PublishedTool
from toolcrib_operator.assessment import Assessor
from toolcrib_operator.kinds.kind import Told
from toolcrib_operator.kinds.records import Record
from toolcrib_operator.kinds.statuses import Progress
from toolcrib_operator.kinds.verdicts import Cause
from toolcrib_operator.objects import Objects, Ref


class Preview:
    """A `Situation` in which one replica has confirmed `snapshot`, and the index holds all of it."""

    def __init__(self, objects: Objects, assessor: Assessor, snapshot: Snapshot) -> None:
        self.facts = assessor.facts
        self._objects, self._kinds, self._snapshot = objects, assessor.kinds, snapshot

    def told(self, ref: Ref, now: float) -> Told | None:
        """What the status of an object of ours will say; None where it has none."""
        entry, record = self._objects.get(ref), self.facts.records.get(ref)
        if entry is None or record is None or record.verdict is None:
            return None
        return self._kinds[ref.kind].told(entry, record, self, now)

    @property
    def snapshot(self) -> Snapshot:
        """What is published."""
        return self._snapshot

    def progress(self, record: Record) -> Progress:
        """All of it is confirmed."""
        return Progress(published=True, propagated=True, replicas=1)

    def indexed(self, tool: PublishedTool) -> tuple[bool | None, Cause | None]:
        """It is."""
        return True, None

    @property
    def probing(self) -> bool:
        """Nobody connects to anything."""
        return False

    def probe(self, tool: PublishedTool) -> None:
        """Nothing is known."""
        return

    def imported(self, server: Ref) -> None:
        """Nothing is known."""
        return

    def escaped(self, binding: PublishedBinding) -> Collection[str]:
        """None: nothing has changed yet."""
        return ()

    def deployed(self, agent: Ref) -> None:
        """Files run nothing."""
        return
