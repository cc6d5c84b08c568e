"""Words out of names and prose: the one tokenizer that documents and queries share.

Identifiers are split (`getHTTPStatus_v2` gives get, http, status, v, 2) and kept joined as well, so that both
`file reader` and `filereader` find `file_reader`. Words are stemmed with Snowball's English stemmer; runs of
Chinese, Japanese and Korean characters, which have no spaces, give overlapping pairs.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from functools import lru_cache

import snowballstemmer

QUERY_LIMIT = 2_000
"""Characters of a query that are looked at; the rest is ignored."""
QUERY_TERMS = 200
"""Distinct terms of a query that are searched: each costs a look at every tool that carries it."""
FIELD_LIMIT = 20_000
"""Characters of one field of a tool that are indexed."""
_LONGEST_WORD = 64
"""A longer run of letters is data, not a word: it is cut, so that no token is a burden to an index."""

_LINKED = re.compile(r"[^\W_]+(?:[_\-./:][^\W_]+)*")
_CAMEL = re.compile(
    r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])"
)
_SEPARATORS = re.compile(r"[_\-./:\s]+")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]+")

# articles, pronouns, auxiliaries, prepositions: in a request they say nothing about which tool is meant
_STOP_WORDS = """
    a about above after again against all am an and any are as at be because been before being below between
    both but by can could d did do does doing down during each few for from further had has have having he her here
    hers herself him himself his how i if in into is it its itself just ll m me more most my myself no nor not now
    of off on once only or other our ours ourselves out over own please re s same she should so some such t than
    that the their theirs them themselves then there these they this those through to too under until up ve very
    was we were what when where which while who whom why will with would you your yours yourself
    yourselves"""

_local = threading.local()


def split_identifier(name: str) -> str:
    """`name` as words with single spaces, case kept: `azmcp_listKeys` gives `azmcp list Keys`."""
    return " ".join(" ".join(_CAMEL.split(part)) for part in _SEPARATORS.split(name) if part)


def terms(text: str, limit: int = FIELD_LIMIT) -> list[str]:
    """The index terms of `text` in order, repetitions included; at most `limit` characters are looked at."""
    found: list[str] = []
    for linked in _LINKED.findall(_normalised(text, limit)):
        # what is remembered stays small, whatever other people write
        found.extend(_terms_of(linked) if len(linked) <= 2 * _LONGEST_WORD else _terms_of.__wrapped__(linked))
    return found


def query_terms(text: str) -> list[str]:
    """The distinct terms of a request in order of appearance, stop words left out unless there is nothing else.

    Distinct, because a word said twice is not twice as important in a request (1.5 points of nDCG@5 on the
    development data). Documents keep their stop words, so that a tool called `who` can be found by its name.
    """
    distinct = list(dict.fromkeys(terms(text, QUERY_LIMIT)))
    return ([t for t in distinct if t not in _STOP_TERMS] or distinct)[:QUERY_TERMS]


def _normalised(text: str, limit: int) -> str:
    cut = text[:limit]
    return cut if cut.isascii() else unicodedata.normalize("NFKC", cut)[:limit]


@lru_cache(maxsize=16_384)
def _terms_of(linked: str) -> tuple[str, ...]:
    if _UNSPACED.search(linked):
        return tuple(_pairs(linked))
    parts = [p for piece in _SEPARATORS.split(linked) for p in _CAMEL.split(piece) if p]
    words = [_stem(p.lower()[:_LONGEST_WORD]) for p in parts]
    if len(parts) > 1:
        words.append(_stem("".join(parts).lower()[:_LONGEST_WORD]))
    return tuple(words)


def _pairs(mixed: str) -> list[str]:
    found: list[str] = []
    position = 0
    for run in _UNSPACED.finditer(mixed):
        if plain := mixed[position : run.start()].strip("_-./:"):
            found.extend(_terms_of(plain))
        characters = run.group()
        pairs = [characters[i : i + 2] for i in range(len(characters) - 1)]
        found.extend(pairs or [characters])
        position = run.end()
    if plain := mixed[position:].strip("_-./:"):
        found.extend(_terms_of(plain))
    return found


def _stem(word: str) -> str:
    # a Snowball stemmer keeps the word it works on in itself: one a thread
    stemmer = getattr(_local, "stemmer", None)
    if stemmer is None:
        stemmer = _local.stemmer = snowballstemmer.stemmer("english")
    return str(stemmer.stemWord(word))


STOP_WORDS = frozenset(_STOP_WORDS.split())
"""The words that say nothing in a request, as they are written."""
_STOP_TERMS = frozenset(_stem(word) for word in STOP_WORDS)
