"""What the cluster (or the folder) is known to hold, and which of it has to be assessed again. No I/O.

Watches and lists record here from any thread; the loop takes what is dirty. A version that is older than the one
held is ignored, so that lists and watches may race.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, from_json, to_json

from toolcrib.errors import Finding, InvalidManifest
from toolcrib.resources.kinds import KINDS, Resource, parse
from toolcrib.resources.tools import Tool
from toolcrib_operator.service_facts import service_facts, slice_facts

NAMESPACE = "Namespace"
SECRET = "Secret"
SERVICE_ACCOUNT = "ServiceAccount"
SERVICE = "Service"
ENDPOINT_SLICE = "EndpointSlice"
BINDINGS = ("AgentScopeBinding", "ClusterAgentScopeBinding")
WATCHED = ("Tool", *BINDINGS, SERVICE_ACCOUNT, NAMESPACE, SERVICE, ENDPOINT_SLICE)

_TOMBSTONES = 20_000
_MOST_FIELD_SETS = 1_024
_FIELD_SETS: dict[frozenset[str], set[str]] = {}
_ACCOUNT_METADATA = frozenset({"namespace", "name", "uid", "resourceVersion", "deletionTimestamp"})
_PLACE_METADATA = frozenset({"namespace", "name", "resourceVersion"})
_LABELS = frozenset({"toolcrib.dev/source"})
"""All labels of our kinds that are kept: nobody asks for more, and an object may carry a megabyte of them."""
_FACTS = {SERVICE: service_facts, ENDPOINT_SLICE: slice_facts}


@dataclass(frozen=True, slots=True, order=True)
class Ref:
    """Which object: kind, `namespace/name` (or the name alone, where there is no namespace)."""

    kind: str
    key: str

    @property
    def namespace(self) -> str | None:
        return self.key.split("/", 1)[0] if "/" in self.key else None

    @property
    def name(self) -> str:
        return self.key.rsplit("/", 1)[-1]

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One object as last seen. Of our kinds either `head` or `findings` is set.

    `head` is the object without annotations and most labels; a Tool's schemas are kept compressed in `schemas`.
    `body` holds what is kept of other kinds (a Secret's annotations and data, the facts of `services`); it is never shown.
    """

    ref: Ref
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    created: str = ""
    deleting: str | None = None
    finalizers: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    head: Resource | None = None
    schemas: bytes = field(default=b"", repr=False)
    findings: tuple[Finding, ...] = ()
    status: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def resource(self) -> Resource | None:
        """The object with its schemas, read each time: a parsed schema takes several times its JSON."""
        if not isinstance(self.head, Tool) or not self.schemas:
            return self.head
        input_schema, output_schema = from_json(zlib.decompress(self.schemas))
        schemas = {"input_schema": input_schema, "output_schema": output_schema}
        return self.head.model_copy(update={"spec": self.head.spec.model_copy(update=schemas)})


class World:
    """Objects by kind and key, what is dirty, and which kinds have been listed.

    `change` grows with every recorded change; `Loop.published(change)` waits until it is in force.
    """

    def __init__(self, required: Collection[str] = WATCHED) -> None:
        """`required` are the kinds that must have been listed before anything may be published."""
        self._lock = threading.RLock()
        self._required = tuple(required)
        self._entries: dict[str, dict[str, Entry]] = {k: {} for k in (*WATCHED, SECRET)}
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
            kind: one of `WATCHED` or `SECRET`.
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
                status=entry.status if status is None else status,
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
        entry = manifest if isinstance(manifest, Entry) else entry_of(kind, manifest)
        held = self._entries[kind].get(entry.ref.key)
        version = _number(entry.resource_version)
        if held is not None and _older(entry.resource_version, held.resource_version):
            return False
        buried = self._tombstones.get(entry.ref)
        if version is not None and buried is not None and version <= buried:
            return False
        if version is None:
            entry = _with_generation(entry, held)
        if held is not None and _same(entry, held):
            self._entries[kind][entry.ref.key] = entry
            return False
        self._entries[kind][entry.ref.key] = entry
        self._dirty.add(entry.ref)
        return True

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
        self._dirty.add(ref)
        return True


def key_of(manifest: Mapping[str, Any] | Resource) -> str:
    """`namespace/name`, or the name of what has no namespace."""
    if isinstance(manifest, Mapping):
        metadata = manifest.get("metadata") or {}
        namespace, name = metadata.get("namespace"), metadata.get("name", "")
    else:
        namespace, name = manifest.metadata.namespace, manifest.metadata.name
    return f"{namespace}/{name}" if namespace else name


def entry_of(kind: str, manifest: Mapping[str, Any] | Resource) -> Entry:
    """An object as the operator keeps it: parsed, with its status beside it."""
    if not isinstance(manifest, Mapping):
        manifest = manifest.model_dump(by_alias=True, mode="json", exclude_none=True)
    metadata = manifest.get("metadata") or {}
    if kind == SERVICE_ACCOUNT:  # there may be very many, and no more of them matters
        metadata = {k: v for k, v in metadata.items() if k in _ACCOUNT_METADATA}
        manifest = {}
    resource: Resource | None = None
    schemas = b""
    findings: tuple[Finding, ...] = ()
    body: dict[str, Any] = {}
    if kind in _FACTS:
        body = _FACTS[kind](manifest)
        metadata = {k: v for k, v in metadata.items() if k in _PLACE_METADATA}
        manifest = {}
    if kind in KINDS:
        ours = KINDS[kind]
        head = {"apiVersion": manifest.get("apiVersion"), "kind": kind, "metadata": metadata}
        try:
            # the status is ours: it is compared as it stands and can make no object invalid
            resource = parse(head | ({"spec": manifest["spec"]} if "spec" in manifest else {}))
            resource, schemas = _packed(resource)
        except InvalidManifest as error:
            findings = error.findings
        except (ValueError, TypeError, RecursionError) as error:  # not even the error was foreseen
            findings = (Finding("", f"cannot be read: {type(error).__name__}"),)
        key = key_of(manifest)
        if ours.namespaced and "/" not in key:
            key = f"default/{key}"
    else:
        key = key_of({"metadata": metadata})
        if kind == SECRET:
            body = {"annotations": metadata.get("annotations") or {}, "data": manifest.get("data") or {},
                    "stringData": manifest.get("stringData") or {}}  # fmt: skip
    return Entry(
        ref=Ref(kind, key),
        uid=metadata.get("uid") or "",
        resource_version=str(metadata.get("resourceVersion") or ""),
        generation=metadata.get("generation") or 0,
        created=metadata.get("creationTimestamp") or "",
        deleting=metadata.get("deletionTimestamp"),
        finalizers=tuple(metadata.get("finalizers") or ()),
        labels=_few(metadata.get("labels") or {}) if kind in KINDS else dict(metadata.get("labels") or {}),
        head=resource,
        schemas=schemas,
        findings=findings,
        status=manifest.get("status") or {},
        body=body,
    )


def _with_generation(entry: Entry, held: Entry | None) -> Entry:
    """What an API server would have filled in, for manifests that have not been there."""
    uid = entry.uid or f"manifest:{entry.ref.kind}:{entry.ref.key}"
    if held is None:
        generation = entry.generation or 1
    else:
        same = _spec(entry) == _spec(held) and entry.findings == held.findings
        generation = held.generation if same else held.generation + 1
    resource = entry.head
    if resource is not None:
        metadata = resource.metadata.model_copy(update={"uid": uid, "generation": generation})
        resource = resource.model_copy(update={"metadata": metadata})
    status = entry.status or ({} if held is None else held.status)
    return replace(entry, uid=uid, generation=generation, head=resource, status=status)


def _spec(entry: Entry) -> Any:
    return None if entry.head is None else (entry.head.spec, entry.schemas)


def _packed(resource: Resource) -> tuple[Resource, bytes]:
    """An object without its annotations and most labels; a Tool also without its schemas, and these."""
    metadata = resource.metadata.model_copy(
        update={"annotations": {}, "labels": _few(resource.metadata.labels)}
    )
    resource = resource.model_copy(update={"metadata": metadata})
    if not isinstance(resource, Tool):
        return resource, b""
    try:
        schemas = zlib.compress(to_json([resource.spec.input_schema, resource.spec.output_schema]), 1)
    except (
        PydanticSerializationError,
        ValueError,
    ):  # no plain JSON: it is refused, with a reason, when it is assessed
        return resource, b""
    spec = resource.spec.model_copy(update={"input_schema": {}, "output_schema": None})
    kept = resource.model_copy(update={"spec": spec})
    for model in (kept, spec, metadata, spec.backend, spec.backend.http):
        if model is not None:
            _share(model)
    return kept, schemas


def _few(labels: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in labels.items() if k in _LABELS}


def _share(model: BaseModel) -> None:
    """Which fields an object sets is the same for most: one set for all of these instead of up to a kilobyte each."""
    held = model.__pydantic_fields_set__
    if len(_FIELD_SETS) < _MOST_FIELD_SETS:
        _FIELD_SETS.setdefault(frozenset(held), held)
    object.__setattr__(model, "__pydantic_fields_set__", _FIELD_SETS.get(frozenset(held), held))


def _same(a: Entry, b: Entry) -> bool:
    """Nothing differs that an assessment could depend on."""
    return (
        (a.uid, a.generation, a.deleting, a.finalizers, a.created) == (b.uid, b.generation, b.deleting, b.finalizers, b.created)
        and a.labels == b.labels
        and a.status == b.status
        and a.body == b.body
        and a.findings == b.findings
        and _spec(a) == _spec(b)
    )  # fmt: skip


def _number(resource_version: str) -> int | None:
    """resourceVersions of one kind can be ordered as integers (Kubernetes 1.35, KEP-5504); None if it is none."""
    return int(resource_version) if resource_version.isdecimal() else None


def _older(a: str, b: str) -> bool:
    first, second = _number(a), _number(b)
    return first is not None and second is not None and first < second
