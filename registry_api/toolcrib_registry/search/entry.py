"""What the search index holds about a tool, what is asked of it, and what it answers.

Plain frozen data, shared by the port, both stores and the ranker. Nothing here is secret: an entry holds what
a model may read (never a backend, an address or a credential).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float32]
"""One embedding (dimension,) or a batch of them (n, dimension), L2-normalised."""

INDEX_FORMAT = 3
"""Raise it when the dense text changes, or how a tool lies in a store: every store is then rebuilt. 3: no words in stores."""


@dataclass(frozen=True, slots=True)
class IndexIdentity:
    """What makes two indexes interchangeable. Entries of another identity do not count."""

    embedder: str
    dimension: int
    """0 for an index without vectors."""
    format: int = INDEX_FORMAT

    @property
    def key(self) -> str:
        """A short name for this identity, fit for a file, a row or a collection name: 12 hex digits."""
        return hashlib.sha256(f"{self.embedder}|{self.dimension}|{self.format}".encode()).hexdigest()[:12]

    def checked(self, count: int, vectors: Vector | None) -> Vector | None:
        """`vectors` for `count` entries of this index; None if the index has none.

        Raises:
            ValueError: they are missing, of another shape, or not numbers.
        """
        if vectors is None:
            if self.dimension:
                raise ValueError("this index needs a vector for each entry")
            return None
        if vectors.shape != (count, self.dimension):
            raise ValueError(f"vectors of shape {vectors.shape} for {count} entries of {self.dimension}")
        if not np.isfinite(vectors).all():
            raise ValueError("vectors with numbers that are not finite")
        return vectors if self.dimension else None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    """One tool as the index sees it."""

    tool_id: str
    """`namespace/objectname`; of a candidate on trial `namespace/objectname~candidate`."""
    digest: str
    """Names this version of the entry; the store never looks inside. It must change with every field below that
    matters to a search, scopes, tags and state included: `fingerprint` makes such a digest."""
    namespace: str
    name: str
    """What agents see."""
    server: str | None = None
    title: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    state: str = "Active"
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Parameter name to its description (may be empty)."""
    examples: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data, for a store that keeps definitions."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> IndexEntry:
        """The inverse of `to_json`.

        Raises:
            TypeError, KeyError, ValueError: the data is not an entry.
        """
        fields = dict(data)
        for name in ("tags", "scopes", "examples"):
            fields[name] = tuple(fields[name])
        return cls(**fields)


def fingerprint(entry: IndexEntry) -> str:
    """A digest over everything the index holds of `entry`, `entry.digest` excluded: `sha256:` and 64 hex."""
    lines = [
        repr((entry.tool_id, entry.namespace, entry.name, entry.server, entry.title, entry.description)),
        repr((sorted(entry.tags), sorted(entry.scopes), entry.state)),
        repr((sorted(entry.parameters.items()), entry.examples)),
    ]
    return "sha256:" + hashlib.sha256("\n".join(lines).encode("utf-8", "backslashreplace")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushdown:
    """A cheap superset of a view: an entry may be in the view only if it passes all of it. None: no restriction."""

    scopes: frozenset[str] | None = None
    """The entry carries one of them."""
    namespaces: frozenset[str] | None = None
    servers: frozenset[str] | None = None
    """Server names in lower case; an entry without a server passes none."""
    states: frozenset[str] | None = None
    tags: frozenset[str] = frozenset()
    """In lower case: the entry carries all of them."""

    def admits(self, entry: IndexEntry) -> bool:
        """Whether `entry` passes."""
        return (
            (self.scopes is None or not self.scopes.isdisjoint(entry.scopes))
            and (self.namespaces is None or entry.namespace in self.namespaces)
            and (
                self.servers is None or (entry.server is not None and entry.server.casefold() in self.servers)
            )
            and (self.states is None or entry.state in self.states)
            and has_tags(entry, self.tags)
        )


@dataclass(frozen=True, slots=True)
class Clause:
    """One of several things that a request asks for (`search.clauses`), ranked beside the whole."""

    text: str
    vector: Vector | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """A tool's vector as a store holds it."""

    tool_id: str
    digest: str
    """Of the version that the vector is of: another one than the caller's means that it is stale."""
    vector: Vector = field(compare=False, repr=False)
    """(dimension,), bit for bit as it was put in."""


def cosines(rows: Vector, vectors: Sequence[Vector]) -> list[NDArray[np.float64]]:
    """The cosine of each of `rows` (n, dimension) with each of `vectors`: an array of n for each of these.

    A row's number is the same bit for bit whatever else is in `rows`: einsum adds up each row by itself, in one order,
    wherever it lies; a matrix product may not.
    """
    return [np.einsum("ij,j->i", rows, v).astype(np.float64) for v in vectors]


def has_tags(entry: IndexEntry, tags: Collection[str]) -> bool:
    """Whether `entry` carries all of `tags`, ignoring case."""
    if not tags:
        return True
    own = {t.casefold() for t in entry.tags}
    return all(t.casefold() in own for t in tags)


def is_of_server(entry: IndexEntry, servers: tuple[str, ...]) -> bool:
    """Whether `entry` belongs to one of `servers` (`name` or `namespace/name`, ignoring case); none: any."""
    if not servers:
        return True
    if entry.server is None:
        return False
    names = {entry.server.casefold(), f"{entry.namespace}/{entry.server}".casefold()}
    return any(s.casefold() in names for s in servers)
