"""A ranking of given tools in one go: what every other way to rank them is compared with."""

from collections.abc import Iterable, Sequence

from toolcrib_registry.search.document import document
from toolcrib_registry.search.entry import Clause, IndexEntry, Vector
from toolcrib_registry.search.ranking import DENSE_WEIGHT, Ranked, RankingIndex


def rank(
    text: str,
    vector: Vector | None,
    tools: Iterable[tuple[IndexEntry, Vector | None]],
    *,
    limit: int,
    dense_weight: float = DENSE_WEIGHT,
    parts: Sequence[Clause] = (),
) -> list[Ranked]:
    """The best `limit` of `tools` for a query."""
    index = RankingIndex(0 if vector is None else len(vector))
    ids = []
    for entry, own in tools:
        index.put(document(entry), own)
        ids.append(entry.tool_id)
    return index.rank(text, vector, ids, limit=limit, dense_weight=dense_weight, parts=parts)
