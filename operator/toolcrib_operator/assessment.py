"""From dirty objects to one batch: which objects each change touches, their verdicts, what to publish.

In memory only: it asks the World and its kinds.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterable, Sequence

from toolcrib.resources.conditions import ConditionReason
from toolcrib.resources.tools import Tool
from toolcrib.telemetry.logs import about_object
from toolcrib.wire.publish import Credential, Removed
from toolcrib_operator.kinds.admission import Admitted
from toolcrib_operator.kinds.facts import Batch, Facts
from toolcrib_operator.kinds.kind import Change, Governed
from toolcrib_operator.kinds.records import Record
from toolcrib_operator.kinds.verdicts import AnyVerdict, Cause, Published
from toolcrib_operator.objects import Ref, in_order
from toolcrib_operator.packing import PackedTool
from toolcrib_operator.settings import LoopSettings
from toolcrib_operator.world import World

log = logging.getLogger(__name__)

_LARGE = 500
"""Values in a schema from which judging it takes some milliseconds."""
_POISON = Cause(
    ConditionReason.INVALID, "the operator could not assess this object; the operator's log has the reason"
)
"""One object that nobody foresaw must not stop the others."""


class Assessor:
    """Verdicts on everything in a World, kept up as it changes."""

    def __init__(self, world: World, settings: LoopSettings, admitted: Admitted | None = None) -> None:
        self.facts = Facts(world, settings, admitted or Admitted())
        self.kinds = {name: kind for name, kind in world.kinds.items() if isinstance(kind, Governed)}
        self._world = world
        self._pending: set[Ref] = set()
        self._needed: dict[Ref, tuple[Credential, ...]] = {}
        """By the tool that needs it: a change of one is no reason to look at all."""
        self._credentials: tuple[Credential, ...] | None = ()

    @property
    def verdicts(self) -> dict[Ref, AnyVerdict]:
        """All verdicts, collected at each use."""
        records = self.facts.records
        return {r.ref: r.verdict for name in self.kinds for r in records.of(name) if r.verdict is not None}

    @property
    def published(self) -> dict[Ref, Published]:
        """What is published of each object, collected at each use."""
        records = self.facts.records
        return {
            r.ref: r.published for name in self.kinds for r in records.of(name) if r.published is not None
        }

    @property
    def credentials(self) -> tuple[Credential, ...]:
        """What the backends of accepted tools need, each once; the same object until that changes."""
        if self._credentials is None:
            unique = {(c.namespace, c.name, c.key): c for needed in self._needed.values() for c in needed}
            self._credentials = tuple(unique[key] for key in sorted(unique))
        return self._credentials

    def expand(self, dirty: Iterable[Ref]) -> list[Ref]:
        """The dirty objects of our kinds and those that a change of them or of other kinds touches."""
        touched: set[Ref] = set()
        facts = self.facts
        for ref in dirty:
            kind, entry, record = self._world.kinds[ref.kind], self._world.get(ref), facts.records.get(ref)
            before = () if record is None else record.keys
            after = () if entry is None else tuple(kind.keys(entry))
            if before != after:
                facts.records[ref].keys = facts.links.put(ref, before, after)
            touched.update(kind.touched(Change(ref, entry, before, after), facts))
            if not after and ref.kind not in self.kinds:
                facts.drop(ref)
        return in_order(ref for ref in touched if ref.kind in self.kinds)

    def large(self, ref: Ref) -> Tool | None:
        """The object, if it is a tool whose schema takes long to judge."""
        entry = self._world.get(ref) if ref.kind in self.kinds else None
        # most are small, and none of those is read for this: that costs as much as judging it
        if entry is None or (isinstance(entry.kept, PackedTool) and entry.kept.most_values < _LARGE):
            return None
        tool = entry.resource
        return tool if isinstance(tool, Tool) and _is_large(tool.spec.input_schema) else None

    def judge(self, refs: Iterable[Ref]) -> None:
        """Assess these objects; `batch` collects what follows."""
        self.facts.fresh()
        for ref in refs:
            kind, entry, record = self.kinds[ref.kind], self._world.get(ref), self.facts.records[ref]
            self._pending.add(ref)
            record.judged, record.assessed = None if entry is None else (entry.uid, entry.generation), None
            if entry is None or kind.ends(entry, self.facts):
                record.verdict = None
                kind.forget(record, self.facts)
                self._need(record)
                continue
            try:
                record.verdict = kind.assess(entry, record, self.facts)
            except Exception:
                log.exception("assessment failed", extra=about_object(ref.kind, ref.key))
                record.verdict = kind.refused(_POISON)
                # it may fail for the same reason
                with contextlib.suppress(Exception):
                    record.verdict = kind.failed(_POISON, entry, record, self.facts)
            self._need(record)

    def settle(self) -> tuple[list[Ref], list[Ref]]:
        """Have the quotas decide, once everything that changed was judged; `batch` publishes what follows.

        Returns the tools that have a place again, which are to be judged again, and those that have none from now on.
        """
        moved = self.facts.quotas.settle()
        for ref in moved.lost:
            record = self.facts.records[ref]
            assert record.crowded is not None
            record.verdict, record.credentials = self.kinds[ref.kind].refused(record.crowded), ()
            record.assessed = None
            self._need(record)
            self._pending.add(ref)
        return in_order(moved.regained), in_order(moved.lost)

    def batch(self) -> Batch:
        """What has changed since the last batch, to be published in one step."""
        batch = Batch()
        self.gather(self.pending, batch)
        return self.close(batch)

    @property
    def pending(self) -> list[Ref]:
        """What may have changed since the last batch."""
        return in_order(self._pending)

    def gather(self, refs: Sequence[Ref], batch: Batch) -> None:
        """Put into `batch` what has changed of some that are pending."""
        facts = self.facts
        for ref in refs:
            kind, record = self.kinds[ref.kind], facts.records[ref]
            old, new = record.published, None if record.verdict is None else record.verdict.published
            if new != old:
                batch.changed.add(ref)
                record.published = new
                slot = kind.slot
                if old is not None and (new is None or slot.key(new) != slot.key(old)):
                    batch.gone[slot.name].append(slot.key(old))
                if new is not None:
                    getattr(batch, slot.name).append(new)
                kind.changed(ref, old, new, facts, batch)
            if record.verdict is None and record.published is None and self._world.get(ref) is None:
                facts.drop(ref)
        self._pending.difference_update(refs)

    def close(self, batch: Batch) -> Batch:
        """The batch with what follows from all that is in it."""
        batch.accounts, batch.gone["accounts"], batch.renamed = self.facts.accounts.batch()
        batch.removed = Removed(**{name: tuple(keys) for name, keys in batch.gone.items()})
        return batch

    def _need(self, record: Record) -> None:
        """Note what a judged tool's backend needs."""
        before, now = self._needed.get(record.ref, ()), record.credentials
        if before == now:
            return
        self._credentials = None
        if not now:
            del self._needed[record.ref]
        else:
            self._needed[record.ref] = now

    def surveying(self, namespaces: Collection[str]) -> list[Ref]:
        """Published objects whose status tells of tools in one of `namespaces`."""
        wanted = frozenset(namespaces)
        return [
            record.ref
            for kind in self.kinds.values()
            if kind.surveys and wanted
            for record in self.facts.records.of(kind.name)
            if record.published is not None and kind.reaches(record.published, wanted)
        ]


def _is_large(schema: object) -> bool:
    count, stack = 0, [schema]
    while stack and count < _LARGE:
        node = stack.pop()
        count += 1
        if isinstance(node, dict | list):
            stack.extend(node.values() if isinstance(node, dict) else node)
    return count == _LARGE
