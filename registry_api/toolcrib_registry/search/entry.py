"""What the search index holds about a tool, what is asked of it, and what it answers.

Plain frozen data, shared by the port, both stores and the searcher. Nothing here is secret: an entry holds what
a model may read (never a backend, an address or a credential).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float32]
"""One embedding (dimension,) or a batch of them (n, dimension), L2-normalised."""

Mode: TypeAlias = Literal["hybrid", "lexical", "dense", "nearest"]

INDEX_FORMAT = 2
"""Raise it when the fields, the tokens or the dense text change: every store is then rebuilt."""


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
    """`namespace/objectname`."""
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
    """A cheap superset of a view: an entry may be in the view only if it passes all four. None: no restriction."""

    scopes: frozenset[str] | None = None
    """The entry carries one of them."""
    namespaces: frozenset[str] | None = None
    servers: frozenset[str] | None = None
    """Server names; an entry without a server passes none."""
    states: frozenset[str] | None = None

    def admits(self, entry: IndexEntry) -> bool:
        """Whether `entry` passes."""
        return (
            (self.scopes is None or not self.scopes.isdisjoint(entry.scopes))
            and (self.namespaces is None or entry.namespace in self.namespaces)
            and (self.servers is None or entry.server in self.servers)
            and (self.states is None or entry.state in self.states)
        )


@dataclass(frozen=True, slots=True)
class Part:
    """One of several things that a request asks for (`search.clauses`), ranked beside the whole."""

    text: str
    vector: Vector | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreQuery:
    """One question to a store. A restriction is required: either `ids` or `within`."""

    text: str
    limit: int
    vector: Vector | None = None
    parts: tuple[Part, ...] = ()
    """The things that `text` asks for, where there are several; a vector each where `vector` is given."""
    mode: Mode = "hybrid"
    """`hybrid` without a vector, or whose text has no words, uses the evidence there is. `nearest` is exact in every
    store: by the best cosine with `vector` or with that of a part, so what is not in a full answer is no nearer than
    the last in it."""
    ids: frozenset[str] | None = None
    """Answer only with these tools."""
    within: Pushdown | None = None
    """Answer only with tools that it admits."""
    tags: tuple[str, ...] = ()
    """The tool carries all of them, ignoring case."""
    servers: tuple[str, ...] = ()
    """The tool is of one of these servers: `name` or `namespace/name`, ignoring case."""

    def __post_init__(self) -> None:
        if (self.ids is None) == (self.within is None):
            raise ValueError("a store query is restricted either by ids or by a pushdown")

    def admits(self, entry: IndexEntry) -> bool:
        """Whether the restriction and the filters let `entry` into the answer."""
        return (
            (self.ids is None or entry.tool_id in self.ids)
            and (self.within is None or self.within.admits(entry))
            and has_tags(entry, self.tags)
            and is_of_server(entry, self.servers)
        )


@dataclass(frozen=True, slots=True)
class StoreHit:
    """One answer of a store, best first."""

    tool_id: str
    digest: str
    """Of the version that the store holds: another one than the caller's means the hit is stale."""
    score: float
    """For ordering within one answer only."""
    lexical: float | None = None
    """How much of the query's words it carries, 0 to 1; None where the store cannot tell."""
    dense: float | None = None
    """Cosine between query and tool, -1 to 1; None without a vector. Of an exact store: as its ranking counts it,
    which is of the whole and the parts together."""
    parts: tuple[float, ...] = ()
    """The cosine with each of the query's parts; empty where `dense` is None, there are no parts, or the store is
    exact (except in the mode `nearest`)."""
    vector: Vector | None = field(default=None, compare=False, repr=False)
    """The tool's own, as it was stored: for the mode `nearest` alone."""

    @property
    def nearness(self) -> float:
        """The best of its cosines; -1 if it has none."""
        return -1.0 if self.dense is None else max((self.dense, *self.parts))


def cosines(rows: Vector, query: StoreQuery) -> list[list[float]]:
    """For each of `rows` its cosine with the vector of `query` and those of its parts; bit for bit what the ranking
    computes, whatever else is in `rows`.

    Raises:
        ValueError: the query has no vector.
    """
    if query.vector is None:
        raise ValueError("a query without a vector")
    wanted = [query.vector, *(p.vector for p in query.parts if p.vector is not None)]
    found: list[list[float]] = np.stack([np.einsum("ij,j->i", rows, v) for v in wanted], axis=1).tolist()
    return found


def has_tags(entry: IndexEntry, tags: tuple[str, ...]) -> bool:
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
