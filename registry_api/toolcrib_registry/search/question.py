"""What is asked of a view: the searcher asks it, the ranker answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from toolcrib_registry.search.entry import IndexEntry, Part, Pushdown, Vector
from toolcrib_registry.search.fusion import DENSE_WEIGHT

QuestionMode: TypeAlias = Literal["hybrid", "dense", "compat"]


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
    parts: tuple[Part, ...] = ()
    """The things that `text` asks for, where there are several."""
    mode: QuestionMode = "hybrid"
    """`dense` ranks by cosine alone, `compat` by the seed formula; without a vector words decide in every mode."""

    @property
    def dense_weight(self) -> float:
        """The share of the cosine in the ranking that is asked for."""
        return 1.0 if self.mode == "dense" else DENSE_WEIGHT
