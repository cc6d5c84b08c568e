"""Catalogs of any size out of the 2,651 real tools: their words, names and vectors, recombined.

The first 2,651 are the real ones. Each further tool takes the name of one real tool, half of its sentences from it and
half from another, and a vector between theirs, so that words are as frequent as in a real catalog and near neighbours
exist; nothing has to be encoded for it.
"""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from folder import ToolSet
from vectors import Remembered

from toolcrib_registry.adapters.embedders.onnx import OnnxEmbedder
from toolcrib_registry.search.entry import IndexEntry, Vector

SHARES = {"all": 1, "tenth": 10, "hundredth": 100}
"""Scope to how many tools there are for one that carries it."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+")


async def real(sets: Sequence[ToolSet], cache: Path) -> tuple[list[IndexEntry], Vector]:
    """The tools of the real catalog with their vectors, which are kept in `cache`; without it those of all `sets`."""
    chosen = [s for s in sets if s.name == "mcp_tools"] or sets
    tools = [t for s in chosen for t in s.tools]
    kept = Remembered([OnnxEmbedder.packaged()], cache)
    try:
        return tools, await kept.embed_tools(tools)
    finally:
        await kept.aclose()


def grown(
    tools: list[IndexEntry], vectors: Vector, count: int, seed: int = 7
) -> tuple[list[IndexEntry], Vector]:
    """`count` tools and a vector each; the same for the same arguments."""
    chance = random.Random(seed)
    noise = np.random.default_rng(seed)
    made, rows = list(tools[:count]), [np.asarray(v) for v in vectors[:count]]
    while len(made) < count:
        i, j = chance.randrange(len(tools)), chance.randrange(len(tools))
        made.append(_between(tools[i], tools[j], len(made), chance))
        drift = noise.standard_normal(vectors.shape[1], np.float32) * np.float32(0.01)
        rows.append(np.float32(0.75) * vectors[i] + np.float32(0.25) * vectors[j] + drift)
    matrix = np.stack(rows).astype(np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    return [_scoped(e, n) for n, e in enumerate(made)], matrix


def _between(one: IndexEntry, other: IndexEntry, number: int, chance: random.Random) -> IndexEntry:
    mine, theirs = _SENTENCE.split(one.description), _SENTENCE.split(other.description)
    sentences = mine[: len(mine) // 2 + 1] + theirs[len(theirs) // 2 :]
    parameters = dict(
        [*one.parameters.items(), *chance.sample([*other.parameters.items()], len(other.parameters) // 2)]
    )
    return dataclasses.replace(
        one, name=f"{one.name}_{number}", server=other.server if chance.random() < 0.5 else one.server,
        description=" ".join(sentences), parameters=parameters,
    )  # fmt: skip


def _scoped(entry: IndexEntry, number: int) -> IndexEntry:
    scopes = tuple(f"{name}:use" for name, every in SHARES.items() if number % every == 0)
    return dataclasses.replace(entry, tool_id=f"catalog/t{number}", digest=f"d{number}", scopes=scopes)
