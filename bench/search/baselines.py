"""What our ranking is compared with, each written as one would first write it: none of it uses the
product's ranking.

Each ranks all tools of a set and answers ids, best first; a tool without any evidence is not answered, ties go by id.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from metrics import DEPTH
from numpy.typing import NDArray

from toolcrib_registry.search import seed_formula
from toolcrib_registry.search.entry import IndexEntry, Vector

Scores = NDArray[np.float64]

_WORD = re.compile(r"\w+")
SEED_BOOSTS = {"path": 5.0, "name": 3.0, "description": 2.0, "tag": 1.5}
SEED_STEP = 0.05


class Baseline(Protocol):
    """A way to rank."""

    name: str
    needs_vector: bool

    def rank(self, text: str, vector: Vector | None) -> list[str]:
        """The best ten for a request."""
        ...


class _Words:
    """Rows by word, so that a request costs the rows of its words alone."""

    def __init__(self, texts: Sequence[str]) -> None:
        counts = [Counter(words(t)) for t in texts]
        self.lengths: Scores = np.array([sum(c.values()) for c in counts], np.float64)
        rows: dict[str, list[tuple[int, int]]] = {}
        for row, count in enumerate(counts):
            for word, n in count.items():
                rows.setdefault(word, []).append((row, n))
        self.rows = {
            word: (np.array([r for r, _ in found]), np.array([n for _, n in found], np.float64))
            for word, found in rows.items()
        }


class _Ranking:
    """The ids of the tools, and the best of them by score."""

    def __init__(self, tools: Sequence[IndexEntry]) -> None:
        # in the order of their ids, so that a stable sort lets ids decide ties
        self.tools = sorted(tools, key=lambda t: t.tool_id)

    def best(self, scores: Scores, least: float = -math.inf) -> list[str]:
        order = np.argsort(-scores, kind="stable")[:DEPTH]
        return [self.tools[i].tool_id for i in order.tolist() if scores[i] > least]


class Keyword(_Ranking):
    """How many distinct words of the request the tool's name, server, description and tags have."""

    name, needs_vector = "keyword", False

    def __init__(self, tools: Sequence[IndexEntry]) -> None:
        super().__init__(tools)
        self._words = _Words(
            [f"{t.name} {t.server or ''} {t.description} {' '.join(t.tags)}" for t in self.tools]
        )

    def rank(self, text: str, vector: Vector | None) -> list[str]:
        """By the count."""
        scores = np.zeros(len(self.tools))
        for word in set(words(text)):
            if (found := self._words.rows.get(word)) is not None:
                scores[found[0]] += 1.0
        return self.best(scores, 0.0)


class Bm25(_Ranking):
    """Okapi BM25 (k1 1.2, b .75) over raw lower-case words of everything a tool says, in one text."""

    name, needs_vector = "bm25", False

    def __init__(self, tools: Sequence[IndexEntry]) -> None:
        super().__init__(tools)
        self._words = _Words([_all_of(t) for t in self.tools])
        mean = float(self._words.lengths.mean()) or 1.0
        self._damping = 1.2 * (0.25 + 0.75 * self._words.lengths / mean)

    def rank(self, text: str, vector: Vector | None) -> list[str]:
        """By the sum over the words of the request, repeated ones counted again."""
        scores, total = np.zeros(len(self.tools)), len(self.tools)
        for word, times in Counter(words(text)).items():
            if (found := self._words.rows.get(word)) is not None:
                rows, n = found
                idf = math.log(1.0 + (total - len(rows) + 0.5) / (len(rows) + 0.5))
                scores[rows] += times * idf * n * 2.2 / (n + self._damping[rows])
        return self.best(scores, 0.0)


class Dense(_Ranking):
    """The embedder alone: cosine."""

    name, needs_vector = "dense", True

    def __init__(self, tools: Sequence[IndexEntry], vectors: Vector) -> None:
        super().__init__(tools)
        self._vectors = _in_order(tools, vectors, self.tools)

    def rank(self, text: str, vector: Vector | None) -> list[str]:
        """By cosine."""
        assert vector is not None
        return self.best((self._vectors @ vector).astype(np.float64))


class Seed(_Ranking):
    """The seed formula: (cos + 1)/2 + 0.05·boost; each word of the request that stands in a field adds its boost.

    Which words count, and that the path is the server's name, is as in the product's mode `compat`.
    """

    name, needs_vector = "seed", True

    def __init__(self, tools: Sequence[IndexEntry], vectors: Vector) -> None:
        super().__init__(tools)
        self._vectors = _in_order(tools, vectors, self.tools)
        fields = {
            "path": [(t.server or "").lower() for t in self.tools],
            "name": [t.name.lower() for t in self.tools],
            "description": [t.description.lower() for t in self.tools],
            "tag": [" ".join(t.tags).lower() for t in self.tools],
        }
        # one long text a field, and where each tool's begins: a word is looked for once, not once a tool
        self._joined = {name: "\n".join(texts) for name, texts in fields.items()}
        self._begins = {
            name: np.cumsum([0, *(len(t) + 1 for t in texts)])[:-1] for name, texts in fields.items()
        }
        self._known: dict[str, tuple[NDArray[np.intp], Scores]] = {}

    def rank(self, text: str, vector: Vector | None) -> list[str]:
        """By the formula; not cut at 1."""
        assert vector is not None
        boost = np.zeros(len(self.tools))
        for word in seed_formula.words(text):
            rows, boosts = self._boosts(word)
            boost[rows] += boosts
        return self.best(((self._vectors @ vector) + 1.0) / 2.0 + SEED_STEP * boost)

    def _boosts(self, word: str) -> tuple[NDArray[np.intp], Scores]:
        if (known := self._known.get(word)) is None:
            boosts = np.zeros(len(self.tools))
            for name, text in self._joined.items():
                places = [m.start() for m in re.finditer(re.escape(word), text)]
                boosts[np.unique(np.searchsorted(self._begins[name], places, "right") - 1)] += SEED_BOOSTS[
                    name
                ]
            rows = np.flatnonzero(boosts)
            known = self._known[word] = rows, boosts[rows]
        return known


def words(text: str) -> list[str]:
    """Lower-case runs of letters, digits and underscores."""
    return _WORD.findall(text.lower())


def _all_of(tool: IndexEntry) -> str:
    parameters = " ".join(f"{k} {v}" for k, v in tool.parameters.items())
    return f"{tool.name} {tool.server or ''} {tool.description} {' '.join(tool.tags)} {parameters}"


def _in_order(tools: Sequence[IndexEntry], vectors: Vector, wanted: Sequence[IndexEntry]) -> Vector:
    row_of = {t.tool_id: row for row, t in enumerate(tools)}
    ordered: Vector = np.ascontiguousarray(vectors[[row_of[t.tool_id] for t in wanted]])
    return ordered
