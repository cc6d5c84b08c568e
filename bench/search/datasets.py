"""The development sets of tool retrieval, read into index entries, with vectors remembered between runs."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from vectors import Remembered, cache_folder

from toolcrib_registry.adapters.onnx_embedder import OnnxEmbedder
from toolcrib_registry.search.document import dense_text
from toolcrib_registry.search.entry import IndexEntry, Vector

WITH_QUERIES = ("azure_mcp", "toole", "sealtools", "bfcl", "toolbench", "livemcp")


@dataclass(frozen=True)
class Query:
    """One request and the tools that answer it."""

    text: str
    relevant: tuple[str, ...]
    equivalent: tuple[str, ...] = ()


@dataclass(frozen=True)
class Dataset:
    """Tools, queries, and a vector for each."""

    name: str
    tools: list[IndexEntry]
    queries: list[Query]
    tool_vectors: Vector
    query_vectors: Vector


def load(data: Path, name: str, cache: Path | None = None, limit: int = 500) -> Dataset:
    """The set `name` under `data` with its first `limit` queries; vectors come from `cache` where it has them."""
    tools = [_entry(t) for t in _lines(data / name / "tools.jsonl")]
    path = data / name / "queries.jsonl"
    rows = _lines(path)[:limit] if path.exists() else []
    queries = [Query(q["query"], tuple(q["relevant"]), tuple(q.get("equivalent") or ())) for q in rows]
    embedder = OnnxEmbedder.packaged()
    return Dataset(
        name,
        tools,
        queries,
        encode(embedder, [dense_text(t) for t in tools], cache),
        encode(embedder, [q.text for q in queries], cache),
    )


def encode(embedder: OnnxEmbedder, texts: Sequence[str], cache: Path | None) -> Vector:
    """Vectors of `texts` as rows, remembered in a file of `cache` named by model and texts; without `cache`, where
    `vectors` keeps them."""
    if not texts:
        return np.zeros((0, embedder.dimension), np.float32)
    key = hashlib.sha256("\0".join([embedder.name, *texts]).encode()).hexdigest()[:24]
    file = cache / f"{key}.npy" if cache else None
    if file and file.exists():
        return np.asarray(np.load(file), np.float32)
    kept = Remembered([embedder], None if file else cache_folder())
    vectors = asyncio.run(kept.embed_documents(texts))
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, vectors)
    return vectors


def _entry(tool: dict[str, Any]) -> IndexEntry:
    parameters = tool.get("parameters") or {}
    assert isinstance(parameters, dict)
    tags = tool.get("tags") or ()
    assert isinstance(tags, list | tuple)
    return IndexEntry(
        tool_id=str(tool["id"]),
        digest="",
        namespace="catalog",
        name=str(tool["name"]),
        server=str(tool["server"]) if tool.get("server") else None,
        description=str(tool.get("description") or ""),
        tags=tuple(map(str, tags)),
        parameters={str(k): str(v or "") for k, v in parameters.items()},
    )


def _lines(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]
