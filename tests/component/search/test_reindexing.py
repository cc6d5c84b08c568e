"""What a change costs: only a text that is new is embedded. And another embedder: its index fills up behind searches that
go on, and never meets the vectors of the one before."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embeddings_endpoint import embeddings_endpoint, hashed
from emptied import empty
from hash_embedder import HashEmbedder
from realparts.weaviate import Weaviate
from reference_ranking import rank
from registry_harness import RunningRegistry, binding, running_registry, tool
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.adapters.embedders.openai import OpenAIEmbedder
from toolcrib_registry.search.document import combined, dense_texts
from toolcrib_registry.search.entries import entry_of
from toolcrib_registry.search.entry import IndexEntry, Vector

GRANT = [binding("bot", ["s"])]
THINGS = ("invoice", "customer", "ticket", "backup", "server", "poem", "flight", "recipe")


class Counting(HashEmbedder):
    """Keeps the texts of documents that it was asked for; `twist` makes another model of the same dimension."""

    def __init__(self, dimension: int = 32, twist: str = "") -> None:
        super().__init__(dimension)
        self.name += twist
        self.texts: list[str] = []
        self._twist = twist

    async def embed_request(self, texts: Sequence[str]) -> Vector:
        return self._twisted(await super().embed_request(texts))

    async def embed_documents(self, texts: Sequence[str]) -> Vector:
        self.texts += texts
        return self._twisted(await super().embed_documents(texts))

    def _twisted(self, rows: Vector) -> Vector:
        return np.ascontiguousarray(rows[:, ::-1]) if self._twist else rows


def some_tool(number: int, **fields: Any) -> PublishedTool:
    thing = THINGS[number % len(THINGS)]
    text = f"Work on the {thing} of department {number // len(THINGS)}, code q{number:04}."
    return tool(f"tool_{number:04}", **{"description": text, "scopes": ("s",), "server": thing, **fields})


def index(r: RunningRegistry, ids: Sequence[str], remove: Sequence[str] = ()) -> dict[str, Any]:
    found: dict[str, Any] = {"indexed": {}, "failed": {}}
    for start in range(0, len(ids) or 1, 64):
        body = {"epoch": 1, "upsert": list(ids[start : start + 64]), "remove": [] if start else list(remove)}
        answer = r.admin("POST", "/v1/admin/index", json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        for part, told in answer.json().items():
            found[part] |= told
    return found


def search(r: RunningRegistry, query: str, limit: int = 5) -> dict[str, Any]:
    answer = r.http.post(
        r.url + "/v1/search",
        headers=r.auth("team", "bot"),
        json={"query": query, "limit": limit, "min_score": 0},
        timeout=30,
    )
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def figure(r: RunningRegistry, name: str) -> float:
    text = r.metrics()
    return float(next(line.split()[1] for line in text.splitlines() if line.startswith(name + " ")))


def store_of(folder: Path, server: Weaviate | None, prefix: str = "Reindexing") -> dict[str, Any]:
    if server is None:
        return {"kind": "embedded", "path": str(folder / "index")}
    places = {"host": "127.0.0.1", "http_port": server.http_port, "grpc_port": server.grpc_port}
    return {"kind": "weaviate", "collection_prefix": prefix, **places}


def test_only_a_text_that_is_new_is_embedded(tmp_path: Path) -> None:
    model = Counting()
    tools = [some_tool(i) for i in range(6)]
    ids = [t.tool_id for t in tools]
    with running_registry(tools, GRANT, embedder=model, store=store_of(tmp_path, None), patient=True) as r:
        assert len(index(r, ids)["indexed"]) == 6
        assert len(model.texts) == 6
        model.texts.clear()

        changed = [
            some_tool(0, tags=("new",)),
            some_tool(1, scopes=("s", "t")),
            some_tool(2, state="Deprecated"),
            some_tool(3, title="Another title", input_schema={"properties": {"x": {"description": "y"}}}),
            some_tool(4, object_name="renamed"),
        ]
        r.publish(changed, remove_tools=[ids[4]])
        assert len(index(r, [t.tool_id for t in changed], remove=[ids[4]])["indexed"]) == 5
        r.publish(remove_tools=[ids[5]])
        index(r, [], remove=[ids[5]])
        r.publish([tools[5]])
        assert index(r, [ids[5]])["indexed"] == {ids[5]: tools[5].digest}
        r.on_loop(lambda: empty(r.registry.store))
        assert len(index(r, [*ids[:4], "team/renamed", ids[5]])["indexed"]) == 6
        assert model.texts == []
        assert figure(r, "toolcrib_index_embedded_tools_total") == 6
        assert figure(r, "toolcrib_index_reused_tools_total") == 12

        r.publish([some_tool(0, description="Something else."), some_tool(1, examples=("do it now",))])
        index(r, ids[:2])
        assert model.texts == ["invoice tool 0000: Something else.", "do it now"]


def test_vectors_outlive_the_process_and_the_index(tmp_path: Path) -> None:
    tools = [some_tool(i) for i in range(5)]
    ids = [t.tool_id for t in tools]
    place = store_of(tmp_path, None)
    with running_registry(tools, GRANT, embedder=Counting(), store=place, patient=True) as r:
        index(r, ids)
    for file in (tmp_path / "index").glob("search-index*"):
        file.unlink()
    model = Counting()
    with running_registry(tools, GRANT, embedder=model, store=place, patient=True) as r:
        assert len(index(r, ids)["indexed"]) == 5
        assert not search(r, "poem q0005")["degraded"]

    assert model.texts == []


def test_what_weaviate_holds_is_not_embedded_again_after_a_restart(
    weaviate_server: Weaviate, tmp_path: Path
) -> None:
    tools = [some_tool(i) for i in range(5)]
    ids = [t.tool_id for t in tools]
    place = store_of(tmp_path, weaviate_server, "Kept")
    with running_registry(tools, GRANT, embedder=Counting(), store=place, patient=True) as r:
        index(r, ids)
    model = Counting()
    with running_registry(tools, GRANT, embedder=model, store=place, patient=True) as r:
        # the operator's first question
        assert len(r.admin("GET", "/v1/admin/index").json()["tools"]) == 5
        r.publish([some_tool(i, scopes=("s", "t"), tags=("x",)) for i in range(5)])
        assert len(index(r, ids)["indexed"]) == 5
        own = {s.tool_id: s.vector for s in r.on_loop(lambda: r.registry.store.get(ids))}
        again = r.on_loop(lambda: _vectors([entry_of(t) for t in tools]))

    assert model.texts == []
    for tool_id, made in zip(ids, again, strict=True):
        np.testing.assert_allclose(own[tool_id], made, atol=1e-6)


async def _vectors(entries: Sequence[IndexEntry], twist: str = "") -> list[Vector]:
    """Anew."""
    model = Counting(twist=twist)
    return [combined(await model.embed_documents(dense_texts(e))) for e in entries]


def test_a_text_that_the_endpoint_refuses_keeps_one_tool_out_and_no_other(tmp_path: Path) -> None:
    tools = [some_tool(i) for i in range(20)]
    with embeddings_endpoint(hashed(16)) as endpoint:
        endpoint.refuses = lambda text: "q0007" in text
        remote = OpenAIEmbedder(base_url=endpoint.url, model="m", dimension=16)
        with running_registry(
            tools, GRANT, embedder=remote, store=store_of(tmp_path, None), patient=True
        ) as r:
            answer = index(r, [t.tool_id for t in tools])
            found = search(r, "code q0007")
            asked = len(endpoint.requests)
            endpoint.refuses = lambda text: True
            r.publish([some_tool(0, description="New.")])
            refused = r.admin("POST", "/v1/admin/index", json={"epoch": 1, "upsert": ["team/tool-0000"]})
            endpoint.refuses = lambda text: False
            after = index(r, ["team/tool-0000", "team/tool-0007"])

    assert set(answer["failed"]) == {"team/tool-0007"}
    assert "the embedder rejects its text" in answer["failed"]["team/tool-0007"]
    assert len(answer["indexed"]) == 19
    assert asked < 16
    # by its words, for which it needs no vector
    assert found["tools"][0]["tool_id"] == "team/tool-0007"
    # where nothing is taken, no text is to blame
    assert (refused.status_code, refused.json()["code"]) == (503, "index_unavailable")
    assert len(after["indexed"]) == 2


COUNT = 210
"""More than a view of which every vector is asked for."""


@pytest.fixture(params=["embedded", pytest.param("weaviate", marks=pytest.mark.real)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Where the index is."""
    server = request.getfixturevalue("weaviate_server") if request.param == "weaviate" else None
    return store_of(tmp_path, server, "Changed")


def test_another_embedder_fills_its_index_behind_searches_that_lack_nothing(place: dict[str, Any]) -> None:
    tools = [some_tool(i) for i in range(COUNT)]
    ids = [t.tool_id for t in tools]
    with running_registry(tools, GRANT, embedder=Counting(), store=place, patient=True) as r:
        index(r, ids)
        before = search(r, "flight q0006")
    model = Counting(twist="-twisted")
    with running_registry(tools, GRANT, embedder=model, store=place, patient=True) as r:
        empty = search(r, "flight q0006")
        held = r.admin("GET", "/v1/admin/index").json()["tools"]
        stages = []
        for start in range(0, COUNT, 70):
            index(r, ids[start : start + 70])
            # one that is in and one that is not yet: each is found by the words that only it has
            for number in (start + 6, (start + 75) % COUNT):
                found = search(r, f"code q{number:04}")
                stages.append((found["tools"][0]["tool_id"] == ids[number], len(found["tools"])))
        vectors = r.on_loop(lambda: r.registry.store.get(ids))
        exact = _exact(r, "flight of department 7", [entry_of(t) for t in tools])
        # a vector that Weaviate had not a moment ago is asked for again within a second of its being written
        deadline = time.monotonic() + 60
        full = search(r, "flight of department 7", limit=10)
        while [hit["tool_id"] for hit in full["tools"]] != exact and time.monotonic() < deadline:
            full = search(r, "flight of department 7", limit=10)

    assert (before["search_mode"], before["degraded"]) == ("hybrid", False)
    assert (empty["search_mode"], empty["degraded"]) == ("lexical", True)
    assert empty["tools"][0]["tool_id"] == ids[6]
    assert held == {}
    assert stages == [(True, 5)] * len(stages)
    assert (full["search_mode"], full["degraded"]) == ("hybrid", False)
    assert [hit["tool_id"] for hit in full["tools"]] == exact
    assert len(vectors) == COUNT
    assert len(model.texts) == COUNT


def _exact(r: RunningRegistry, query: str, entries: Sequence[IndexEntry]) -> list[str]:
    """The definition of the ranking over the second model's vectors alone."""

    async def ranked() -> list[str]:
        model = Counting(twist="-twisted")
        vector = (await model.embed_request([query]))[0]
        own = await _vectors(entries, "-twisted")
        return [h.entry.tool_id for h in rank(query, vector, zip(entries, own, strict=True), limit=10)]

    return r.on_loop(ranked)
