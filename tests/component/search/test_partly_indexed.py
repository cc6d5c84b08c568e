"""While an index is being filled (a new model, a wiped store, a catalog that grew), an answer lacks no tool: what is not
indexed yet is found by its words, in views of any size and in both stores."""

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from emptied import empty
from hash_embedder import HashEmbedder
from realparts.weaviate import Weaviate
from registry_harness import RunningRegistry, binding, running_registry, tool

COUNT = 300
NOUNS = ("file", "invoice", "customer", "ticket", "city", "flight", "hotel", "backup", "database", "mail")
TOOLS = [
    tool(
        f"read_{NOUNS[i % 10]}_{i:03d}", description=f"Read the {NOUNS[i // 10 % 10]} word{i}.", scopes=("s",)
    )
    for i in range(COUNT)
]
HALF = COUNT // 2
GRANTS = [binding("all", ["s"]), binding("few", ["s"], allow=("*0",))]
"""Two views: 300 tools, and the 30 whose number ends in 0."""


@pytest.fixture(params=["embedded", pytest.param("weaviate", marks=pytest.mark.real)])
def registry(request: pytest.FixtureRequest) -> Iterator[RunningRegistry]:
    """A registry whose index is empty."""
    place: dict[str, Any] = {}
    if request.param == "weaviate":
        server: Weaviate = request.getfixturevalue("weaviate_server")
        place["store"] = {
            "kind": "weaviate",
            "host": "127.0.0.1",
            "http_port": server.http_port,
            "grpc_port": server.grpc_port,
            "collection_prefix": f"Test{secrets.token_hex(4)}",
        }
    with running_registry(TOOLS, GRANTS, embedder=HashEmbedder(), patient=True, **place) as r:
        yield r
        r.on_loop(lambda: empty(r.registry.store))


def index(r: RunningRegistry, *tools: Any) -> None:
    """Write `tools` into the index."""
    for start in range(0, len(tools), 200):
        body: dict[str, Any] = {"epoch": 1, "upsert": [t.tool_id for t in tools[start : start + 200]]}
        assert len(r.admin("POST", "/v1/admin/index", json=body).json()["indexed"]) == len(body["upsert"])


def first(r: RunningRegistry, who: str, number: int) -> tuple[str, str, bool]:
    """The first hit for the words of tool `number`, and how it was found."""
    body = {"query": TOOLS[number].description, "min_score": 0, "limit": 5}
    answer = r.http.post(r.url + "/v1/search", headers=r.auth("team", who), json=body)
    found = answer.json()
    return found["tools"][0]["tool_id"], found["search_mode"], found["degraded"]


def test_what_is_not_indexed_yet_is_found_by_its_words(registry: RunningRegistry) -> None:
    def found() -> list[tuple[str, str, bool]]:
        return [first(registry, who, n) for who in ("all", "few") for n in (0, 120, 160, 290)]

    wanted = [TOOLS[n].tool_id for n in (0, 120, 160, 290)] * 2
    empty = found()
    index(registry, *TOOLS[:HALF])
    half = found()
    index(registry, *TOOLS[HALF:])
    whole = found()

    assert empty == [(tool_id, "lexical", True) for tool_id in wanted]
    assert half == whole == [(tool_id, "hybrid", False) for tool_id in wanted]


def test_a_tool_that_was_changed_is_found_by_its_new_words_before_it_is_indexed_again(
    registry: RunningRegistry,
) -> None:
    index(registry, *TOOLS)
    anew = tool("read_file_250", description="Tune the grand piano.", scopes=("s",), generation=2)
    registry.publish([anew])
    body = {"query": "tune the grand piano", "limit": 5}

    answer = registry.http.post(registry.url + "/v1/search", headers=registry.auth("team", "all"), json=body)

    assert answer.json()["tools"][0]["tool_id"] == anew.tool_id
