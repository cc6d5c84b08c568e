"""One object as it was last seen, and its name: what the World holds and what kinds are asked about."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from toolcrib.errors import Finding
from toolcrib.resources.kinds import Resource
from toolcrib.resources.meta import API_VERSION
from toolcrib_operator.packing import PackedTool, read_status

NOTHING: dict[str, Any] = {}
"""Of the many objects that have none of it. Nobody writes to it."""


class Ref(NamedTuple):
    """Which object: kind, `namespace/name` (or the name alone, where there is no namespace).

    A tuple, since its hash is taken for each look at one of many thousand objects.
    """

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


def in_order(refs: Iterable[Ref]) -> list[Ref]:
    """Sorted; of thousands that takes a fifth of what comparing them one with another does."""
    return sorted(refs, key=attrgetter("kind", "key"))


@dataclass(frozen=True, slots=True)
class Entry:
    """One object as last seen. Of our kinds either `kept` or `findings` is set.

    `kept` is the object without annotations and most labels, a Tool packed; `said` its status, packed. Both are read
    at each use: as objects they take several times as much.
    `owner` is the uid of the ToolServer that controls it; empty: none does.
    `body` holds what is kept of other kinds (a Secret's annotations and data, the facts of a Service); it is never shown.
    """

    ref: Ref
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    created: str = ""
    deleting: str | None = None
    finalizers: tuple[str, ...] = ()
    owner: str = ""
    labels: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    kept: Resource | PackedTool | None = field(default=None, repr=False)
    findings: tuple[Finding, ...] = ()
    said: bytes = field(default=b"", repr=False)
    body: Mapping[str, Any] = field(default_factory=lambda: NOTHING, repr=False)

    @property
    def resource(self) -> Resource | None:
        """The object, a Tool with its schemas."""
        return self._read(schemas=True)

    @property
    def head(self) -> Resource | None:
        """The object, a Tool without its schemas."""
        return self._read(schemas=False)

    @property
    def status(self) -> Mapping[str, Any]:
        """The status as it is written."""
        return read_status(self.said)

    @property
    def size(self) -> int:
        """Bytes of a Tool's spec as JSON, about; 0 of anything else."""
        return self.kept.size if isinstance(self.kept, PackedTool) else 0

    @property
    def spec(self) -> Any:
        """What of the object an edit changes: equal where nothing was edited."""
        return self.kept if self.kept is None or isinstance(self.kept, PackedTool) else self.kept.spec

    def _read(self, *, schemas: bool) -> Resource | None:
        if not isinstance(self.kept, PackedTool):
            return self.kept
        metadata = {
            "name": self.ref.name, "namespace": self.ref.namespace, "uid": self.uid, "generation": self.generation,
            "creationTimestamp": self.created or None, "deletionTimestamp": self.deleting,
            "finalizers": self.finalizers, "labels": self.labels,
        }  # fmt: skip
        return self.kept.read(metadata, API_VERSION, schemas=schemas)


class Objects(Protocol):
    """What is known of the cluster; the `World`, to those who only ask."""

    def get(self, ref: Ref) -> Entry | None:
        """The object, if there is one."""
        ...

    def all(self, kind: str) -> Collection[Entry]:
        """All objects of a kind."""
        ...

    def versions(self, kind: str) -> Mapping[str, str]:
        """Key to resourceVersion of a kind."""
        ...


def key_of(manifest: Mapping[str, Any] | Resource) -> str:
    """`namespace/name`, or the name of what has no namespace."""
    if isinstance(manifest, Mapping):
        metadata = manifest.get("metadata") or {}
        namespace, name = metadata.get("namespace"), metadata.get("name", "")
    else:
        namespace, name = manifest.metadata.namespace, manifest.metadata.name
    return f"{namespace}/{name}" if namespace else name
