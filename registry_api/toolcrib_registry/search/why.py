"""A short reason for a hit: which words of the request stand in which text of the tool, and how near both are in meaning.

`name: read, file; description: folder; meaning: 0.71`. Made of the request and of that one tool, so it says nothing
about any other. The words are the request's own, as they were written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from toolcrib_registry.search.document import field_texts
from toolcrib_registry.search.entry import IndexEntry
from toolcrib_registry.search.text import FIELD_LIMIT, query_terms, terms

_PLACES: Mapping[str, str] = {
    "name": "name",
    "title": "title",
    "server": "server",
    "tags": "tags",
    "parameter_names": "parameters",
    "description": "description",
    "parameter_texts": "parameters",
    "examples": "examples",
}
"""The field of `field_texts` to what a reader calls it. A word is shown once, for the first place that has it."""
_LOOKED_AT = 4_000
"""Characters of a field that are looked at, all that is indexed only where they have no word of the request."""
_WORDS = 6
"""Words that are shown in all."""
_LONGEST = 40
"""Characters of one word that are shown."""


def asked_for(text: str) -> dict[str, str]:
    """The terms that a request is searched by, and the word of the request that each comes from."""
    wanted = dict.fromkeys(query_terms(text), "")
    for word in text.split():
        for piece in terms(word):
            if wanted.get(piece) == "":
                wanted[piece] = _shown(word)
    return {term: word or _shown(term) for term, word in wanted.items()}


def by_evidence(asked: Mapping[str, str], entry: IndexEntry, cosine: float | None) -> str:
    """The reason for a hit of a ranking by words, by meaning (`cosine`) or by both; `asked` is of `asked_for`."""
    texts = field_texts(entry)
    found = _found(asked, texts, _LOOKED_AT)
    if not found and any(len(text) > _LOOKED_AT for text in texts.values()):
        found = _found(asked, texts, FIELD_LIMIT)
    return _written(found, cosine)


def _found(asked: Mapping[str, str], texts: Mapping[str, str], limit: int) -> dict[str, list[str]]:
    left = dict(asked)
    found: dict[str, list[str]] = {}
    for field, place in _PLACES.items():
        if not left or not texts[field]:
            continue
        for term in dict.fromkeys(terms(texts[field], limit)):
            if (word := left.pop(term, None)) is not None:
                found.setdefault(place, []).append(word)
    return found


def by_places(places: Mapping[str, Iterable[str]], cosine: float | None) -> str:
    """The reason where it is known already which words stand where."""
    return _written({p: [_shown(w) for w in words] for p, words in places.items()}, cosine)


def by_filters(entry: IndexEntry, tags: Iterable[str], servers: Iterable[str]) -> str | None:
    """The reason for a hit without words: the filters that it passes."""
    said = []
    if carried := [_shown(t) for t in tags]:
        said.append(f"tags: {', '.join(carried[:_WORDS])}")
    if tuple(servers) and entry.server:
        said.append(f"server: {_shown(entry.server)}")
    return "; ".join(said) or None


def _written(places: Mapping[str, list[str]], cosine: float | None) -> str:
    said, left = [], _WORDS
    for place, words in places.items():
        distinct = list(dict.fromkeys(words))[:left]
        left -= len(distinct)
        if distinct:
            said.append(f"{place}: {', '.join(distinct)}")
    if not said:
        said.append("no word in common")
    if cosine is not None:
        said.append(f"meaning: {cosine:.2f}")
    return "; ".join(said)


def _shown(word: str) -> str:
    kept = "".join(c for c in word if c.isalnum() or c in "_-./:").strip("-./:")
    return kept[:_LONGEST]
