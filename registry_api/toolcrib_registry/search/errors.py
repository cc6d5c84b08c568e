"""What can go wrong with the search index and the embedder, in this project's own words.

    SearchError
    ├── StoreError
    │   ├── StoreUnavailable     the index cannot be reached or cannot answer now; try again later
    │   ├── StoreDamaged         what was stored cannot be trusted; it was moved aside and must be rebuilt
    │   └── StoreRejected        the index refuses these entries; carries the ids and a reason
    ├── EmbedderUnavailable      no vector could be made now; lexical search still works
    │   └── EmbedderRefused      not of these texts: one of them may be to blame
    └── ModeUnavailable          a mode that needs vectors was asked for, and there never are any here

Adapters translate the exceptions of their libraries into these once, and chain the original. Messages are cut
short: a server's error body may hold other people's text.
"""

from __future__ import annotations

from collections.abc import Mapping

MESSAGE_LIMIT = 256
"""Characters of a foreign error message that are kept."""


class SearchError(Exception):
    """The root of the tree."""


class StoreError(SearchError):
    """The search index failed."""


class StoreUnavailable(StoreError):
    """The index cannot be reached or cannot answer now; the same request may succeed later."""


class StoreDamaged(StoreError):
    """Stored data cannot be trusted. It has been moved aside; the index is empty and wants to be rebuilt."""


class StoreRejected(StoreError):
    """The index refuses some entries for good; `.reasons` maps each tool id to why."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        self.reasons = dict(reasons)
        first = next(iter(self.reasons.items()), ("", ""))
        super().__init__(f"{len(self.reasons)} entries refused, first {first[0]}: {first[1]}"[:MESSAGE_LIMIT])


class EmbedderUnavailable(SearchError):
    """No vector could be made now."""


class EmbedderRefused(EmbedderUnavailable):
    """The embedder answered, but not with vectors of these texts: try them apart."""


class ModeUnavailable(SearchError):
    """The mode asked for ranks by meaning and no embedder is configured; `.mode` names it."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        super().__init__(f"the search mode {mode} needs an embedder, and none is configured here")


def brief(error: BaseException) -> str:
    """One line of a foreign error, cut to a length that is fit for a log line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:MESSAGE_LIMIT]
