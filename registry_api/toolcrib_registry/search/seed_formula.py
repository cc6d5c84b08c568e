"""The seed formula, for agents that rely on its order: `(cosine + 1)/2 + 0.05 * boost`.

The boost adds 5 for each word of the request that stands in a tool's path, 3 in its name, 2 in its description and
1.5 in one of its tags (DESIGN §6). Words are runs of letters, digits and underscores of more than two characters,
without the words that say nothing; "stands in" means anywhere in the text, ignoring case, as the registry that
the formula comes from looks for them. A tool's path is its server's name; a tool without a server has none.

Every score is computed from one tool and the request alone: a view changes which tools are scored, never a score.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Mapping

from toolcrib_registry.search.entry import IndexEntry
from toolcrib_registry.search.text import STOP_WORDS

BOOSTS: Mapping[str, float] = {"path": 5.0, "name": 3.0, "description": 2.0, "tag": 1.5}
"""What one word of the request adds where it stands in that text."""
_SHARE = 0.05
_SHORTEST = 3
_WORD = re.compile(r"\w+")
MOST_WORDS = 64
"""Words of a request that count: each is looked for in every text of the view."""
_SAYS_NOTHING = STOP_WORDS | {"get", "put", "set"}


def words(text: str) -> list[str]:
    """The words of a request that count, in lower case and in order; one said twice counts twice."""
    found = (w.lower() for w in _WORD.findall(text))
    return [w for w in found if len(w) >= _SHORTEST and w not in _SAYS_NOTHING][:MOST_WORDS]


def matches(entry: IndexEntry, asked: Iterable[str]) -> dict[str, list[str]]:
    """Which of the words `asked` stand in which text of `entry`, by the names of `BOOSTS`."""
    found: dict[str, list[str]] = {place: [] for place in BOOSTS}
    texts = _texts(entry)
    for word in asked:
        for place, text in zip(BOOSTS, texts, strict=True):
            if word in text:
                found[place].append(word)
    return found


def boost(entry: IndexEntry, asked: Iterable[str]) -> float:
    """What the words `asked` add up to in `entry`."""
    path, name, description, tags = _texts(entry)
    total = 0.0
    for word in asked:
        if word in path:
            total += BOOSTS["path"]
        if word in name:
            total += BOOSTS["name"]
        if word in description:
            total += BOOSTS["description"]
        if word in tags:
            total += BOOSTS["tag"]
    return total


def _texts(entry: IndexEntry) -> tuple[str, str, str, str]:
    """In the order of `BOOSTS`. A word holds no line break, so it cannot stand across two tags."""
    return (
        (entry.server or "").lower(),
        entry.name.lower(),
        entry.description.lower(),
        "\n".join(entry.tags).lower(),
    )


def score(cosine: float, boosted: float) -> float:
    """The formula. May exceed 1."""
    return (cosine + 1.0) / 2.0 + _SHARE * boosted


def best(
    view: Mapping[str, IndexEntry], cosines: Mapping[str, float], text: str, limit: int
) -> list[tuple[IndexEntry, float, float | None]]:
    """The best `limit` tools of `view` with score and cosine, best first, ties by tool id.

    A tool without a cosine (it is not in the index yet) counts as neither near nor far. About 40 ms for 10,000 tools:
    run it in a thread.
    """
    asked = words(text)
    scored = (
        (-score(cosines.get(tool_id, 0.0), boost(entry, asked)), tool_id) for tool_id, entry in view.items()
    )
    return [(view[i], -negative, cosines.get(i)) for negative, i in heapq.nsmallest(limit, scored)]
