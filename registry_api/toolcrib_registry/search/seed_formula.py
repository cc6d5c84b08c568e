"""The seed formula, for agents that rely on its order: `(cosine + 1)/2 + 0.05 * boost`.

The boost adds 5 for each word of the request that stands in a tool's path, 3 in its name, 2 in its description and
1.5 in one of its tags (DESIGN §6). Words are runs of letters, digits and underscores of more than two characters,
without the words that say nothing; "stands in" means anywhere in the text, ignoring case, as the registry that
the formula comes from looks for them. A tool's path is its server's name; a tool without a server has none.

Every score is computed from one tool and the request alone: a view changes which tools are scored, never a score.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from toolcrib_registry.search.entry import IndexEntry
from toolcrib_registry.search.text import STOP_WORDS

BOOSTS: Mapping[str, float] = {"path": 5.0, "name": 3.0, "description": 2.0, "tag": 1.5}
"""What one word of the request adds where it stands in that text."""
_SHARE = 0.05
_SHORTEST = 3
_WORD = re.compile(r"\w+")
_SAYS_NOTHING = STOP_WORDS | {"get", "put", "set"}


def words(text: str) -> list[str]:
    """The words of a request that count, in lower case and in order; one said twice counts twice."""
    found = (w.lower() for w in _WORD.findall(text))
    return [w for w in found if len(w) >= _SHORTEST and w not in _SAYS_NOTHING]


def matches(entry: IndexEntry, asked: Iterable[str]) -> dict[str, list[str]]:
    """Which of the words `asked` stand in which text of `entry`, by the names of `BOOSTS`."""
    path, name, description = (t.lower() for t in (entry.server or "", entry.name, entry.description))
    tags = [t.lower() for t in entry.tags]
    found: dict[str, list[str]] = {place: [] for place in BOOSTS}
    for word in asked:
        if word in path:
            found["path"].append(word)
        if word in name:
            found["name"].append(word)
        if word in description:
            found["description"].append(word)
        if any(word in tag for tag in tags):
            found["tag"].append(word)
    return found


def boost(entry: IndexEntry, asked: Iterable[str]) -> float:
    """What the words `asked` add up to in `entry`."""
    return sum(BOOSTS[place] * len(found) for place, found in matches(entry, asked).items())


def score(cosine: float, boosted: float) -> float:
    """The formula. May exceed 1."""
    return (cosine + 1.0) / 2.0 + _SHARE * boosted
