"""Sentences that stand for many: an extract of older messages within a budget, without a model. Pure and deterministic.

The scoring is SumBasic (Nenkova and Vanderwende, "The impact of frequency on summarization", MSR-TR-2005-101): a
sentence scores the mean probability of its words, and each word of a chosen sentence has its probability squared, so
that the next one says something else. Words are counted once a sentence, as Luhn's significant words are ("The
automatic creation of literature abstracts", 1958): stemmed and without stop words, by the registry's own tokenizer.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from toolcrib_registry.search.text import query_terms

LONGEST = 240
"""Characters of a sentence; a longer one is cut between words, so that text without full stops gives extracts too."""
MOST_SENTENCES = 2_000
"""Sentences that are looked at, the latest first."""

_ENDS = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])|[\r\n\u2028\u2029]+")


@dataclass(frozen=True, slots=True, order=True)
class Sentence:
    """A sentence and where it stands: the message's place in the sequence, its own place in the message."""

    message: int
    place: int
    text: str


def extract(messages: Sequence[str], budget: int, cost: Callable[[Sentence], int]) -> list[Sentence]:
    """The sentences that say most of `messages` (the oldest first), in their order, for at most `budget`.

    Args:
        messages: the texts.
        budget: what all chosen sentences may cost together.
        cost: of a sentence, as it will be shown.
    """
    candidates = _latest(messages)
    words = [query_terms(sentence.text) for sentence in candidates]
    counted = Counter(word for each in words for word in each)
    total = sum(counted.values())
    chance = {word: count / total for word, count in counted.items()}

    def score(index: int) -> float:
        return sum(chance[word] for word in words[index]) / len(words[index])

    # the latest of equals comes first: candidates begin with it
    waiting = [(-score(index), index) for index in range(len(candidates)) if words[index]]
    heapq.heapify(waiting)
    chosen: list[Sentence] = []
    while waiting:
        before, index = waiting[0]
        if (now := -score(index)) > before:
            # scores only fall: one that is still the first is the best
            heapq.heapreplace(waiting, (now, index))
            continue
        heapq.heappop(waiting)
        if (price := cost(candidates[index])) > budget:
            continue
        budget -= price
        chosen.append(candidates[index])
        for word in words[index]:
            chance[word] **= 2
    return sorted(chosen)


def _latest(messages: Sequence[str]) -> list[Sentence]:
    """Different sentences, the latest message's first, each where it was said last."""
    found: dict[str, Sentence] = {}
    for message in range(len(messages) - 1, -1, -1):
        for place, text in enumerate(sentences(messages[message])):
            found.setdefault(text, Sentence(message, place, text))
            if len(found) == MOST_SENTENCES:
                return list(found.values())
    return list(found.values())


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text, spaces made single, none longer than `LONGEST`."""
    for found in _ENDS.split(text):
        rest = " ".join(found.split())
        while len(rest) > LONGEST:
            cut = rest.rfind(" ", 1, LONGEST + 1)
            cut = cut if cut > 0 else LONGEST
            yield rest[:cut]
            rest = rest[cut:].lstrip()
        if rest:
            yield rest
