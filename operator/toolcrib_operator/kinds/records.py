"""What the operator has come to about each object: one record, which every part of the loop reads and writes.

The object itself is in the World, which any thread may change. Records are of the loop's thread alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable
from dataclasses import dataclass

from toolcrib.resources.conditions import ConditionReason
from toolcrib.wire.publish import Credential, Revision
from toolcrib_operator.kinds.verdicts import AnyVerdict, Cause, Published
from toolcrib_operator.objects import Ref

Age = tuple[str, str, str]


@dataclass(slots=True)
class Admission:
    """Whether the author of one generation of a grant was asked for his rights (`admission`)."""

    uid: str
    generation: int
    begun: int | None = None
    """Pending: the last look at the policies that had begun when it was noticed. None: it is decided."""
    seen: str | None = None
    """The policies as they had been read then."""
    refusal: Cause | None = None


@dataclass(slots=True)
class Removal:
    """A deletion that waits for the replicas: of which object, the first revision without it, and when that was made."""

    uid: str
    revision: Revision
    since: float


@dataclass(slots=True, eq=False)
class Record:
    """One object. Times are seconds since the epoch."""

    ref: Ref
    keys: tuple[Hashable, ...] = ()
    """What it names, as `facts.Links` has it: other objects, a name that only one may have."""

    # what it means
    verdict: AnyVerdict | None = None
    published: Published | None = None
    credentials: tuple[Credential, ...] = ()
    """What the backend of an accepted Tool needs."""
    admission: Admission | None = None
    run: tuple[str, str, bool] | None = None
    """Of an Agent that the operator runs: its uid, the digest of the run, and whether its author was allowed to write it."""
    age: Age | None = None
    """Its place among the tools of its namespace, where it was counted (`quotas`)."""
    crowded: Cause | None = None
    """Why it has no place."""

    # how far it has come
    judged: tuple[str, int] | None = None
    """Uid and generation of the object that the verdict is of."""
    assessed: tuple[str, int] | None = None
    """The same, once what follows from the verdict is published. None: it was judged, and is not published yet."""
    step: int | None = None
    """In which revision of this leadership it was published as it is."""
    removal: Removal | None = None
    first_seen: tuple[str, int, float] | None = None
    """Its uid and generation, and when it was first assessed so."""
    pending_since: float | None = None
    stale: float | None = None
    """Since when its status may not tell any more what is within its reach."""
    recounted: float | None = None
    escaped: tuple[str, int, dict[str, None]] | None = None
    """Its uid and generation, and the ids of tools that left what it denies."""

    turned: tuple[ConditionReason, float] | None = None
    """What is seen of its backend in the place of what its condition tells, and since when."""

    # what is to be written
    due: float | None = None
    since: float | None = None
    """It is being looked at, or its write has failed so far: since when it was due."""
    failures: int = 0


class Records:
    """Records by kind and object; one is made when it is first asked for."""

    def __init__(self) -> None:
        self._of: defaultdict[str, dict[Ref, Record]] = defaultdict(dict)

    def __getitem__(self, ref: Ref) -> Record:
        found = self._of[ref.kind].get(ref)
        if found is None:
            found = self._of[ref.kind][ref] = Record(ref)
        return found

    def get(self, ref: Ref) -> Record | None:
        """The record, if there is one."""
        return self._of[ref.kind].get(ref)

    def of(self, kind: str) -> Collection[Record]:
        """All records of a kind."""
        return self._of[kind].values()

    def drop(self, ref: Ref) -> None:
        """The object is gone, and everybody knows."""
        self._of[ref.kind].pop(ref, None)
