"""Callers whose scopes show a share of a catalog: do they get the quality of those who see all, and of what they see alone?

Every tool carries one scope of each share, dealt at random: the tenth and the hundredth of the catalog that it is in. A
request is asked by the caller who sees its right tool. So the same requests are asked at every share, in fewer tools.
"""

from __future__ import annotations

import dataclasses
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence

import folder
import metrics
import numpy as np
import product
from vectors import Remembered

from toolcrib_registry.search.entry import IndexEntry, Pushdown, Vector, fingerprint
from toolcrib_registry.search.ranking import Ranked

SHARES = (100, 10, 1)
"""Percent of the catalog."""
REQUESTS = 40
"""Of each set: together they are asked in two seconds."""
_SEED = 16
_CLOSE = 1e-6
"""Scores that differ by less are the same, as in `recall.py`."""


async def measured(sets: Sequence[folder.ToolSet], remembered: Remembered) -> dict[str, metrics.Figures]:
    """hit@1, nDCG@5, nothing_found and identical of each share, with the number of requests; empty without requests."""
    whole = folder.pooled([dataclasses.replace(s, queries=s.queries[:REQUESTS]) for s in sets])
    tools = dealt(whole.tools)
    ids = {t.tool_id for t in tools}
    asked = [q for q in whole.queries if ids & q.sought.places.keys() and not product.refused(q.text)]
    if not asked:
        return {}
    rows = await remembered.embed_tools(tools)
    async with product.embedded(tools, rows, remembered) as everything:
        return {
            str(share): await _of_share(share, tools, rows, asked, everything, remembered) for share in SHARES
        }


def dealt(tools: Sequence[IndexEntry]) -> list[IndexEntry]:
    """`tools` in another order, with a scope for each share, and a digest of all that."""
    made = []
    for number, tool in enumerate(random.Random(_SEED).sample(tools, len(tools))):
        entry = dataclasses.replace(
            tool, scopes=tuple(f"share-{s}-{number % (100 // s)}:use" for s in SHARES)
        )
        made.append(dataclasses.replace(entry, digest=fingerprint(entry)))
    return made


async def _of_share(
    share: int, tools: Sequence[IndexEntry], rows: Vector, asked: Sequence[folder.Query],
    everything: product.Product, remembered: Remembered,
) -> metrics.Figures:  # fmt: skip
    scope_of = {t.tool_id: t.scopes[SHARES.index(share)] for t in tools}
    callers: dict[str, list[folder.Query]] = defaultdict(list)
    for query in asked:
        callers[next(scope_of[i] for i in query.sought.places if i in scope_of)].append(query)
    each, empty, same = [], 0, 0
    for scope, queries in callers.items():
        numbers = [n for n, t in enumerate(tools) if scope in t.scopes]
        view = {tools[n].tool_id: tools[n] for n in numbers}
        down = Pushdown(scopes=frozenset({scope}))
        async with product.embedded([*view.values()], rows[numbers], remembered) as alone:
            for query in queries:
                hits = await everything.hits(query.text, all_hits=False, view=view, down=down)
                each.append(metrics.judge([h.tool_id for h in hits], _within(query.sought, view.keys())))
                empty += not hits
                # every hit, so that two empty answers do not pass for one ranking
                rankings = [
                    await everything.hits(query.text, view=view, down=down),
                    await alone.hits(query.text),
                ]
                same += _same(*rankings)
    found = metrics.mean(each)
    return {
        "requests": len(each), "hit@1": found["hit@1"], "ndcg@5": found["ndcg@5"],
        "nothing_found": empty / len(each), "identical": same / len(each),
    }  # fmt: skip


def _within(sought: metrics.Sought, visible: Iterable[str]) -> metrics.Sought:
    """What of the right tools a caller sees."""
    seen = frozenset(visible)
    places = {i: place for i, place in sought.places.items() if i in seen}
    return metrics.Sought(len({*places.values()}), places, sought.anywhere & seen)


def _same(one: Sequence[Ranked], other: Sequence[Ranked]) -> bool:
    """Whether two rankings have the same tools in the same order with the same scores and confidence."""
    return [(h.tool_id, h.confidence) for h in one] == [(h.tool_id, h.confidence) for h in other] and bool(
        np.allclose([h.score for h in one], [h.score for h in other], atol=_CLOSE)
    )
