"""A tool's entry turned into what is ranked: weighted terms for BM25, one sentence for the embedder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from toolcrib_registry.search.entry import IndexEntry, Vector
from toolcrib_registry.search.text import query_terms, split_identifier, terms

FIELD_WEIGHTS: Mapping[str, float] = {
    "name": 2.0,
    "title": 0.5,
    "server": 1.0,
    "description": 1.0,
    "tags": 0.5,
    "parameter_names": 1.0,
    "parameter_texts": 0.5,
    "examples": 0.25,
}
"""How much one occurrence counts. All are multiples of a quarter, so sums of them are exact in floating point
and a document's length does not depend on the order of addition."""

MOST_TERMS = 256
"""Different terms of a tool that are indexed, in the order of the fields; the 2,651 real tools have 100 at most."""
EXAMPLES_EMBEDDED = 8
"""Examples of a tool that are embedded, the first ones: each costs an encoding when the tool is indexed."""
EXAMPLE_SHARE = 0.25
"""How much of a tool's vector comes from its examples: more loses where examples are boilerplate (measured)."""


@dataclass(frozen=True, slots=True)
class Document:
    """One tool ready to be indexed: its entry and the weighted frequency of each term."""

    entry: IndexEntry
    frequencies: Mapping[str, float]
    length: float
    """The sum of the frequencies."""
    named: frozenset[str] = frozenset()
    """The terms that its name consists of, those left out that say nothing."""


def field_texts(entry: IndexEntry) -> dict[str, str]:
    """The text of each field that is searched by words, by the names of `FIELD_WEIGHTS`."""
    title = "" if entry.title == entry.name else entry.title
    return {
        "name": entry.name,
        "title": title,
        "server": entry.server or "",
        "description": entry.description,
        "tags": " ".join(entry.tags),
        "parameter_names": " ".join(entry.parameters),
        "parameter_texts": " ".join(entry.parameters.values()),
        "examples": " ".join(entry.examples),
    }


def document(entry: IndexEntry) -> Document:
    """Split and stem every field of `entry`. Costs about 0.3 ms: do it off the event loop and outside locks."""
    frequencies: dict[str, float] = {}
    for name, text in field_texts(entry).items():
        weight = FIELD_WEIGHTS[name]
        for term in terms(text):
            known = frequencies.get(term)
            if known is not None:
                frequencies[term] = known + weight
            elif len(frequencies) < MOST_TERMS:
                frequencies[term] = weight
    named = frozenset(query_terms(split_identifier(entry.name))) if entry.name else frozenset()
    return Document(entry, frequencies, sum(frequencies.values()), named)


def dense_text(entry: IndexEntry) -> str:
    """The sentence that is embedded: `server splitname: description`. Parameters belong to BM25 (measured)."""
    head = f"{split_identifier(entry.server or '')} {split_identifier(entry.name)}".strip()
    return f"{head}: {' '.join(entry.description.split())}".strip()


def dense_texts(entry: IndexEntry) -> list[str]:
    """The texts whose vectors make up the tool's own.

    In the order that `combined` takes them: the sentence, then its examples.
    """
    examples = dict.fromkeys(" ".join(e.split()) for e in entry.examples)
    return [dense_text(entry), *[e for e in examples if e][:EXAMPLES_EMBEDDED]]


def combined(vectors: Vector) -> Vector:
    """The one vector of a tool from those of its `dense_texts` as rows: the sentence drawn towards the mean example.

    One vector a tool, so that a store needs nothing new and a tool with many examples is not the nearest to
    everything. A tool without examples keeps the vector of its sentence bit for bit.
    """
    sentence: Vector = vectors[0]
    if len(vectors) == 1:
        return sentence
    mixed = (1.0 - EXAMPLE_SHARE) * sentence + EXAMPLE_SHARE * _unit(vectors[1:].mean(axis=0))
    return _unit(mixed)


def _unit(vector: Vector) -> Vector:
    norm = float(np.linalg.norm(vector))
    unit: Vector = np.asarray(vector / norm if norm > 0.0 else vector, np.float32)
    return unit
