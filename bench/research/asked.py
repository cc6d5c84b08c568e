"""Requests with their vectors over indexed sets, for what is fitted to them: confidence and the cut.

Requests that nothing answers come from sets of another kind and from strings without meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import folder
import held
import vectors

from toolcrib_registry.search.clauses import clauses
from toolcrib_registry.search.document import document
from toolcrib_registry.search.entry import Clause, Vector
from toolcrib_registry.search.ranking import Ranked, RankingIndex

SETS = ("azure_mcp", "toole", "sealtools", "bfcl", "toolbench", "livemcp")
FOREIGN = {"azure_mcp": "toole", "toole": "azure_mcp", "sealtools": "azure_mcp", "bfcl": "azure_mcp"}
"""Whose requests hardly any tool of a set answers."""
_LEAST_REQUESTS = 20
"""A set with fewer tells more of chance than of confidence."""
NONSENSE = (
    "asdf qwer zxcv", "lorem ipsum dolor sit amet consectetur", "xyzzy plugh", "flurble the gnarf quickly",
    "blah blah blah", "the of and to", "qqqqq", "purple monkey dishwasher", "colorless green ideas sleep furiously",
    "foo bar baz", "hello", "wibble wobble", "zzz", "1234567890", "jabberwocky brillig slithy toves", "ok thanks",
    "do it", "florbnax vizzle tront", "tell me something", "aaaaaaaa bbbbbbb ccccc",
)  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """One request with its vectors, and what is right."""

    text: str
    vector: Vector
    parts: list[Clause]
    right: frozenset[str]


async def catalogs(
    data: Path, embedder: vectors.Remembered, limit: int, *, trained: bool
) -> tuple[dict[str, tuple[RankingIndex, list[Asked]]], list[Asked]]:
    """The sets under `data` by name with at most `limit` requests each, and the requests without meaning.

    Args:
        trained: the embedder learned from the development sets; only the requests that it never saw count of these.

    Raises:
        DataError: the folder is not what it should be, or no set has enough requests.
    """
    sets: dict[str, tuple[RankingIndex, list[Asked]]] = {}
    for tools in folder.read(data):
        seen = trained and tools.name in SETS
        queries = [q for q in tools.queries if not seen or held.is_held(q.text)][:limit]
        if len(queries) < _LEAST_REQUESTS:
            continue
        made = await understood(embedder, [q.text for q in queries])
        own = [
            Asked(q.text, v, parts, frozenset({*q.relevant, *q.equivalent}))
            for q, (v, parts) in zip(queries, made, strict=True)
        ]
        sets[tools.name] = indexed(tools, await embedder.embed_tools(tools.tools)), own
    if not sets:
        raise folder.DataError(
            f"{data}: no set has {_LEAST_REQUESTS} requests that the embedder was not trained on"
        )
    made = await understood(embedder, NONSENSE)
    return sets, [Asked(t, v, [], frozenset()) for t, (v, _) in zip(NONSENSE, made, strict=True)]


async def understood(embedder: vectors.Remembered, texts: Sequence[str]) -> list[tuple[Vector, list[Clause]]]:
    """The vector of each text, and its parts with theirs."""
    cut = [c if len(c := clauses(t)) > 1 else [] for t in texts]
    made = await embedder.embed_requests([[t, *parts] for t, parts in zip(texts, cut, strict=True)])
    return [
        (rows[0], [Clause(p, row) for p, row in zip(parts, rows[1:], strict=True)])
        for rows, parts in zip(made, cut, strict=True)
    ]


def indexed(tools: folder.ToolSet, rows: Vector) -> RankingIndex:
    """An index of `tools` with their vectors."""
    index = RankingIndex(rows.shape[1])
    for entry, row in zip(tools.tools, rows, strict=True):
        index.put(document(entry), row)
    return index


def ranked(index: RankingIndex, one: Asked, view: set[str], limit: int, dense: bool) -> list[Ranked]:
    """The answer of `view`."""
    parts = one.parts if dense else [Clause(p.text) for p in one.parts]
    return index.rank(one.text, one.vector if dense else None, view, limit=limit, parts=parts)
