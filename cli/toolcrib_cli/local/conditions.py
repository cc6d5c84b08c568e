"""What the operator's conditions say of the objects of the folders, and what of it was told already."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from toolcrib.resources.conditions import ConditionReason
from toolcrib_cli.local.folders import Folders
from toolcrib_cli.manifests import Loaded
from toolcrib_cli.remarks import Remark, remarks, waits
from toolcrib_operator.kinds.kind import Told
from toolcrib_operator.kinds.statuses import BAD
from toolcrib_operator.objects import Entry, Ref
from toolcrib_operator.world import World

_SETTLED = 0.3
"""Seconds after which what was written is looked at: mostly more follows, and an edit is told of by itself."""


@dataclass(frozen=True, slots=True)
class Said:
    """What is said of one object now.

    `news` are the remarks that were not told before; `waits` why it has no effect, though nothing is wrong.
    """

    item: Loaded
    remarks: tuple[Remark, ...] = ()
    news: tuple[Remark, ...] = ()
    waits: str = ""

    @property
    def in_effect(self) -> bool:
        """Whether it is used, and nothing keeps it from its effect."""
        return not self.waits and all(r.used and r.ready for r in self.remarks)


class Conditions:
    """Asks `tell` what statuses say or are about to say; remembers what was told of each object."""

    def __init__(self, folders: Folders, world: World) -> None:
        self.tell: Callable[[Ref], Told | None] = lambda ref: None
        self.imported: Callable[[Entry], Loaded | None] = lambda entry: None
        """Where an object stands that no file has."""
        self.pending: Callable[[], bool] = lambda: False
        """Whether tools are still on their way: nothing is said to match nothing then."""
        self._early: set[Ref] = set()
        self._folders, self._world = folders, world
        self._told: dict[Ref, tuple[Remark, ...]] = {}
        self._written: set[Ref] = set()
        self._wake = asyncio.Event()

    def wrote(self, ref: Ref) -> None:
        """The status of an object is written."""
        self._written.add(ref)
        self._wake.set()

    def of(self, item: Loaded, *, weak: bool = True) -> Said | None:
        """What is said of an object; it counts as told then. None: nothing is known of it yet.

        Args:
            item: of one of our kinds.
            weak: whether the weaknesses of a Tool's texts are among it.
        """
        ref = ref_of(item)
        told = self.tell(ref)
        if told is None:
            return None
        if not weak and not self._world.kinds[ref.kind].tells_questions:  # type: ignore[attr-defined]
            told = told._replace(oddities=())
        found = tuple(remarks(item, told))
        if any(r.reason == ConditionReason.MATCHES_NOTHING for r in found) and self.pending():
            self._early.add(ref)
            found = tuple(r for r in found if r.reason != ConditionReason.MATCHES_NOTHING)
        before = {(r.reason, r.finding) for r in self._told.pop(ref, ())}
        if found:
            self._told[ref] = found
        news = tuple(r for r in found if (r.reason, r.finding) not in before)
        return Said(item, found, news, waits(told))

    def forget(self, removed: Iterable[tuple[str, str | None, str]]) -> None:
        """These objects are gone."""
        for kind, namespace, name in removed:
            self._told.pop(Ref(kind, f"{namespace}/{name}" if namespace else name), None)

    async def changes(self) -> Sequence[Said]:
        """Wait for statuses, and return what is said of these objects and was not told yet, or is over."""
        await self._wake.wait()
        await asyncio.sleep(_SETTLED)
        self._wake.clear()
        written, self._written = self._written, set()
        early: set[Ref] = set()
        if self._early and not self.pending():
            early, self._early = self._early, set()
        found: list[Said] = []
        for number, ref in enumerate(sorted(written | early)):
            if number % 50 == 49:
                await asyncio.sleep(0)
            item = self._folders.objects.get((ref.kind, ref.namespace, ref.name))
            if item is None and (entry := self._world.get(ref)) is not None:
                item = self.imported(entry)
            if item is None or not (ref in self._told or self._tells(ref)):
                continue
            troubled = not all(r.used and r.ready for r in self._told.get(ref, ()))
            said = self.of(item, weak=False)
            if said is not None and (said.news or (troubled and said.in_effect)):
                found.append(said)
        return found

    def _tells(self, ref: Ref) -> bool:
        """Whether its status says something that is not as it should be."""
        entry = self._world.get(ref)
        conditions = () if entry is None else entry.status.get("conditions") or ()
        return any(c["status"] != ("False" if c["type"] in BAD else "True") for c in conditions)


def ref_of(item: Loaded) -> Ref:
    """The name of an object of a file as the operator has it."""
    return Ref(item.kind, f"{item.namespace}/{item.name}" if item.namespace else item.name)
