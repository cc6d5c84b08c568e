"""How a tool lies in Weaviate: the collection, its properties, and the filters over them."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from typing import Any

from weaviate.classes.config import (
    Configure,
    DataType,
    Property,
    StopwordsPreset,
    Tokenization,
    VectorDistances,
)
from weaviate.classes.query import Filter
from weaviate.collections.classes.filters import _Filters as Condition

from toolcrib_registry.search.document import FIELD_WEIGHTS, field_texts
from toolcrib_registry.search.entry import IndexEntry, StoreQuery
from toolcrib_registry.search.lexical import K1, B
from toolcrib_registry.search.text import terms

_NAMESPACE = uuid.UUID("5b0f6c7e-6a0a-5f0c-9d1b-2f2f7c1f4a10")
NO_SERVER = ""
TERMS_SUFFIX = "_terms"
QUERY_PROPERTIES = [f"{name}{TERMS_SUFFIX}^{int(weight * 4)}" for name, weight in FIELD_WEIGHTS.items()]
"""Boosts are whole numbers in Weaviate's syntax: weights are multiples of a quarter."""
IDS_PER_REQUEST = 200
"""An id filter costs 0.08 ms an id (measured): longer lists are split or not sent at all."""


def object_id(tool_id: str) -> uuid.UUID:
    """The one object of `tool_id`, so that writing it again replaces it."""
    return uuid.uuid5(_NAMESPACE, tool_id)


def collection_settings(dimension: int, replicas: int) -> dict[str, Any]:
    """Keyword arguments of `collections.create`, the name excluded."""
    settings: dict[str, Any] = {
        "properties": _properties(),
        "inverted_index_config": Configure.inverted_index(
            bm25_b=B, bm25_k1=K1, stopwords_preset=StopwordsPreset.NONE
        ),
        "replication_config": Configure.replication(factor=replicas),
        "vector_config": Configure.Vectors.self_provided(
            # Flat: exact, as quick as HNSW under our filters up to 10,000 tools and written in half the time.
            # When the server is killed, both may lose vectors whose objects stay (1.39, 2026-11): flat those of
            # the last second, HNSW also older ones. The inventory does not count them.
            vector_index_config=Configure.VectorIndex.flat(distance_metric=VectorDistances.COSINE)
        ),
    }
    if not dimension:
        settings.pop("vector_config")
    return settings


def _properties() -> list[Property]:
    exact = [
        Property(
            name=name,
            data_type=DataType.TEXT_ARRAY if many else DataType.TEXT,
            tokenization=Tokenization.FIELD,
            index_filterable=name != "digest",
            index_searchable=False,
        )
        for name, many in (
            ("tool_id", False),
            ("digest", False),
            ("namespace", False),
            ("server", False),
            ("server_key", False),
            ("state", False),
            ("scopes", True),
            ("tags", True),
        )
    ]
    words = [
        Property(
            name=name + TERMS_SUFFIX,
            data_type=DataType.TEXT,
            # split and stemmed here: Weaviate only cuts at spaces
            tokenization=Tokenization.WHITESPACE,
            index_filterable=False,
            index_searchable=True,
        )
        for name in FIELD_WEIGHTS
    ]
    return exact + words


def properties_of(entry: IndexEntry) -> dict[str, Any]:
    """The stored properties of `entry`: what filters and BM25 read, ids and digests; no definition, no secret."""
    stored: dict[str, Any] = {
        "tool_id": entry.tool_id,
        "digest": entry.digest,
        "namespace": entry.namespace,
        "server": entry.server or NO_SERVER,
        "server_key": (entry.server or NO_SERVER).casefold(),
        "state": entry.state,
        "scopes": list(entry.scopes),
        "tags": sorted({t.casefold() for t in entry.tags}),
    }
    for name, text in field_texts(entry).items():
        stored[name + TERMS_SUFFIX] = " ".join(terms(text))
    return {name: _clean(value) for name, value in stored.items()}


def _clean(value: Any) -> Any:
    # protobuf takes UTF-8 only: a lone surrogate would fail the whole batch
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return [_clean(v) for v in value]


class NothingPasses(Exception):
    """A restriction that no tool can pass."""


def filter_of(query: StoreQuery) -> Condition | None:
    """The query's restriction and filters in Weaviate's terms; None if everything passes.

    A server given as `namespace/name` is filtered by its name alone: the caller decides each hit anyway. No filter at
    all is cheap (10,000 tools: 10 ms), a filter that everything passes is not (40 ms).

    Raises:
        NothingPasses: nothing does, so there is nothing to ask for.
    """
    within = query.within
    wanted: list[tuple[str, Collection[str] | None]] = [("tool_id", query.ids)]
    if within is not None:
        wanted += [
            ("scopes", within.scopes),
            ("namespace", within.namespaces),
            ("server", None if within.servers is None else within.servers - {NO_SERVER}),
            ("state", within.states),
        ]
    if query.servers:
        wanted.append(("server_key", {s.rpartition("/")[2].casefold() for s in query.servers}))
    conditions: list[Condition] = []
    for name, values in wanted:
        if values is None:
            continue
        if not values:
            raise NothingPasses
        conditions.append(Filter.by_property(name).contains_any(_clean(sorted(values))))
    if query.tags:
        tags = sorted({t.casefold() for t in query.tags})
        conditions.append(Filter.by_property("tags").contains_all(_clean(tags)))
    return Filter.all_of(conditions) if conditions else None


def tool_filter(ids: Collection[str]) -> Condition:
    """Exactly the objects of `ids`."""
    return Filter.by_property("tool_id").contains_any(_clean(sorted(ids)))


def differences(properties: Mapping[str, str]) -> list[str]:
    """Names of properties whose tokenization is not what this module creates: an alien or automatic collection."""
    wanted = {p.name: p.tokenization.value if p.tokenization else "" for p in _properties()}
    return sorted(name for name, tokenization in wanted.items() if properties.get(name) != tokenization)
