"""What the cluster (or the folder) is known to hold, and which of it has to be assessed again. No I/O.

Watches and lists record here from any thread; the loop takes what is dirty. A version that is older than the one
held is ignored, so that lists and watches may race.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from toolcrib.resources.kinds import Resource
from toolcrib_operator.kinds.facts import SERVER
from toolcrib_operator.kinds.kind import Kind
from toolcrib_operator.kinds.table import KINDS
from toolcrib_operator.objects import Entry, Ref, key_of
from toolcrib_operator.packing import PackedTool, packed_status

_TOMBSTONES = 20_000


class World:
    """Objects by kind and key, what is dirty, and which kinds have been listed.

    `change` grows with every recorded change; `Loop.published(change)` waits until it is in effect.
    """

    def __init__(
        self,
        required: Collection[str] | None = None,
        *,
        condense: bool = True,
        kinds: Collection[Kind] = KINDS,
    ) -> None:
        """
        Args:
            required: the kinds that must have been listed before anything may be published; None: all that are watched.
            condense: whether Tools are kept compressed; a registry in this process reads them as they are kept.
            kinds: all that there are.
        """
        self.kinds = {kind.name: kind for kind in kinds}
        self.watched = tuple(kind.name for kind in kinds if kind.watched)
        self._lock = threading.RLock()
        self._condense = condense
        self._required = self.watched if required is None else tuple(required)
        self._entries: dict[str, dict[str, Entry]] = {kind: {} for kind in self.kinds}
        self._controlled: dict[str, set[Ref]] = {}
        self._tombstones: dict[Ref, int] = {}
        self._dirty: set[Ref] = set()
        self._listed: set[str] = set()
        self._subscribers: list[Callable[[], None]] = []
        self.change = 0

    def subscribe(self, wake: Callable[[], None]) -> None:
        """Call `wake` after every change, from whatever thread made it."""
        self._subscribers.append(wake)

    def upsert(self, kind: str, manifest: Mapping[str, Any] | Resource) -> int:
        """Record one object; an unchanged or older version changes nothing. Returns `change`.

        Manifests without a resourceVersion (local mode) always count as newer; they get a uid and a generation.
        """
        with self._lock:
            if self._record(kind, manifest):
                self._bump()
            return self.change

    def remove(self, kind: str, key: str, resource_version: str = "") -> int:
        """Record that an object is gone. Returns `change`."""
        with self._lock:
            if self._forget(Ref(kind, key), _number(resource_version)):
                self._bump()
            return self.change

    def replace(
        self, kind: str, objects: Iterable[Mapping[str, Any] | Resource | Entry], resource_version: str = ""
    ) -> int:
        """Record the complete list of a kind, which counts as listed from now on. Returns `change`.

        Args:
            kind: the name of one of `kinds`.
            objects: all objects; what is not among them is gone.
            resource_version: of the list; objects seen since then in a newer version stay as they are.
        """
        with self._lock:
            changed = kind not in self._listed
            at = _number(resource_version)
            seen = set()
            for manifest in objects:
                seen.add(manifest.ref.key if isinstance(manifest, Entry) else key_of(manifest))
                changed |= self._record(kind, manifest)
            for key, entry in list(self._entries[kind].items()):
                held = _number(entry.resource_version)
                if key not in seen and (at is None or held is None or held <= at):
                    changed |= self._forget(entry.ref, at)
            self._listed.add(kind)
            if changed:
                self._bump()
            return self.change

    def wrote(
        self, ref: Ref, uid: str, resource_version: str, *,
        status: Mapping[str, Any] | None = None, finalizers: tuple[str, ...] | None = None,
    ) -> None:  # fmt: skip
        """Record our own write, so that its echo in the watch is no news."""
        with self._lock:
            entry = self._entries[ref.kind].get(ref.key)
            if entry is None or entry.uid != uid or _older(resource_version, entry.resource_version):
                return
            self._entries[ref.kind][ref.key] = replace(
                entry,
                resource_version=resource_version,
                said=entry.said if status is None else packed_status(status),
                finalizers=entry.finalizers if finalizers is None else finalizers,
            )

    def touch(self, refs: Iterable[Ref]) -> None:
        """Mark objects dirty without a change of their own."""
        with self._lock:
            self._dirty.update(refs)
            self._bump()

    def take(self) -> tuple[set[Ref], int]:
        """What is dirty, which is clean then, and the `change` that it covers."""
        with self._lock:
            dirty, self._dirty = self._dirty, set()
            return dirty, self.change

    def get(self, ref: Ref) -> Entry | None:
        """The object, if there is one."""
        with self._lock:
            return self._entries[ref.kind].get(ref.key)

    def all(self, kind: str) -> list[Entry]:
        """All objects of a kind."""
        with self._lock:
            return list(self._entries[kind].values())

    def controlled(self, uid: str) -> list[Entry]:
        """The objects that the ToolServer of this uid controls."""
        with self._lock:
            return [self._entries[ref.kind][ref.key] for ref in self._controlled.get(uid, ())]

    def orphaned(self) -> list[Ref]:
        """The objects whose ToolServer is gone."""
        with self._lock:
            there = {entry.uid for entry in self._entries[SERVER].values()}
            return [ref for uid, refs in self._controlled.items() if uid not in there for ref in refs]

    def versions(self, kind: str) -> dict[str, str]:
        """Key to resourceVersion of a kind."""
        with self._lock:
            return {key: e.resource_version for key, e in self._entries[kind].items()}

    @property
    def unlisted(self) -> tuple[str, ...]:
        """Required kinds that nobody has listed yet; while there are any, nothing may be published."""
        with self._lock:
            return tuple(k for k in self._required if k not in self._listed)

    def _bump(self) -> None:
        self.change += 1
        for wake in self._subscribers:
            wake()

    def _record(self, kind: str, manifest: Mapping[str, Any] | Resource | Entry) -> bool:
        if self._knows(kind, manifest):
            return False
        entry = self._read(kind, manifest)
        held = self._entries[kind].get(entry.ref.key)
        version = _number(entry.resource_version)
        if held is not None and _older(entry.resource_version, held.resource_version):
            return False
        buried = self._tombstones.get(entry.ref)
        if version is not None and buried is not None and version <= buried:
            return False
        if version is None:
            entry = _with_generation(entry, held)
        if held is not None and entry.kept == held.kept:
            entry = replace(entry, kept=held.kept)  # what is published shares it: no second one
        if held is not None and _same(entry, held):
            self._entries[kind][entry.ref.key] = entry
            return False
        self._entries[kind][entry.ref.key] = entry
        self._control(entry.ref, "" if held is None else held.owner, entry.owner)
        self._dirty.add(entry.ref)
        return True

    def _control(self, ref: Ref, before: str, after: str) -> None:
        """Another ToolServer controls an object, or none."""
        if before == after:
            return
        if before:
            self._controlled[before].discard(ref)
            if not self._controlled[before]:
                del self._controlled[before]
        if after:
            self._controlled.setdefault(after, set()).add(ref)

    def _read(self, kind: str, manifest: Mapping[str, Any] | Resource | Entry) -> Entry:
        if isinstance(manifest, Entry):
            return manifest
        if not isinstance(manifest, Mapping):
            manifest = manifest.model_dump(by_alias=True, mode="json", exclude_none=True)
        return self.kinds[kind].read(manifest, condense=self._condense)

    def _knows(self, kind: str, manifest: Mapping[str, Any] | Resource | Entry) -> bool:
        """Whether this very version is held: a list repeats most of what there is, and reading it costs the most."""
        if not isinstance(manifest, Mapping):
            return False
        held = self._entries[kind].get(key_of(manifest))
        metadata = manifest.get("metadata") or {}
        version = metadata.get("resourceVersion")
        return (
            bool(version)
            and held is not None
            and (held.uid, held.resource_version) == (metadata.get("uid"), version)
        )

    def _forget(self, ref: Ref, version: int | None) -> bool:
        held = self._entries[ref.kind].get(ref.key)
        if version is not None:
            if held is not None and (_number(held.resource_version) or 0) > version:
                return False
            if len(self._tombstones) >= _TOMBSTONES:
                self._tombstones.clear()
            self._tombstones[ref] = max(version, self._tombstones.get(ref, 0))
        if held is None:
            return False
        del self._entries[ref.kind][ref.key]
        self._control(ref, held.owner, "")
        self._dirty.add(ref)
        return True


def _with_generation(entry: Entry, held: Entry | None) -> Entry:
    """What an API server would have filled in, for manifests that have not been there."""
    uid = entry.uid or f"manifest:{entry.ref.kind}:{entry.ref.key}"
    if held is None:
        generation = entry.generation or 1
    else:
        same = entry.spec == held.spec and entry.findings == held.findings
        generation = held.generation if same else held.generation + 1
    kept = entry.kept
    if kept is not None and not isinstance(kept, PackedTool):
        metadata = kept.metadata.model_copy(update={"uid": uid, "generation": generation})
        kept = kept.model_copy(update={"metadata": metadata})
    said = entry.said or (b"" if held is None else held.said)
    return replace(entry, uid=uid, generation=generation, kept=kept, said=said)


def _same(a: Entry, b: Entry) -> bool:
    """Nothing differs that an assessment could depend on."""
    return (
        (a.uid, a.generation, a.deleting, a.finalizers, a.owner, a.created)
        == (b.uid, b.generation, b.deleting, b.finalizers, b.owner, b.created)
        and a.labels == b.labels
        and (a.said == b.said or a.status == b.status)
        and a.body == b.body
        and a.findings == b.findings
        and a.spec == b.spec
    )  # fmt: skip


def _number(resource_version: str) -> int | None:
    """resourceVersions of one kind can be ordered as integers (Kubernetes 1.35, KEP-5504); None if it is none."""
    return int(resource_version) if resource_version.isdecimal() else None


def _older(a: str, b: str) -> bool:
    first, second = _number(a), _number(b)
    return first is not None and second is not None and first < second
