"""What a caller asks, and what it comes to for one view: the searcher makes one of the other, the ranker answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Literal, TypeAlias

from toolcrib_registry.search.entry import Clause, IndexEntry, Pushdown, Vector
from toolcrib_registry.search.fusion import DENSE_WEIGHT

AskedMode: TypeAlias = Literal["hybrid", "lexical", "dense", "compat"]
QuestionMode: TypeAlias = Literal["hybrid", "dense", "compat"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a caller asks of a search, whatever protocol it came by."""

    query: str = ""
    """The request in words; only its first 2,000 characters count. Without one the filters alone decide and nothing is embedded."""
    _: KW_ONLY
    tags: tuple[str, ...] = ()
    """The tool carries all of them, ignoring case."""
    servers: tuple[str, ...] = ()
    """The tool is of one of them (`name` or `namespace/name`), ignoring case."""
    namespaces: tuple[str, ...] = ()
    """The tool is of one of them, ignoring case."""
    states: tuple[str, ...] = ()
    """The tool is in one of them."""
    limit: int = 10
    """How many tools at most; filters are applied before it."""
    min_score: float | None = None
    """The least confidence of a hit by its own evidence; 0 keeps all. A hit that is left out lowers the confidence of none that
    follows. None, what agents get by default: all or, where none fits (`least_fit` of as many tools as pass the filters, or
    `LEAST_WORDS`), none; the mode `compat` always keeps all, and where there is no cosine a word in common is enough."""
    top_k_servers: int | None = None
    """Rank servers by their best tool, then the tools of the best N among themselves."""
    mode: AskedMode = "hybrid"
    """How to rank; words alone, flagged, where no vector can be made or the store is down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of a view. `view` is filtered already."""

    view: Mapping[str, IndexEntry]
    text: str
    vector: Vector | None
    depth: int
    """How many tools are wanted."""
    pushdown: Pushdown
    """A superset of `view`, for the store."""
    parts: tuple[Clause, ...] = ()
    """The things that `text` asks for, where there are several."""
    mode: QuestionMode = "hybrid"
    """`dense` ranks by cosine alone, `compat` by the seed formula; without a vector words decide in every mode."""

    @property
    def dense_weight(self) -> float:
        """The share of the cosine in the ranking that is asked for."""
        return 1.0 if self.mode == "dense" else DENSE_WEIGHT
