"""Search through the whole registry with the packaged embedder: embedded, and on a real Weaviate."""

from typing import Any

import pytest

from realparts.weaviate import Weaviate
from registry_harness import RunningRegistry, binding, running_registry, tool
from toolcrib_registry.adapters.embedders.onnx import OnnxEmbedder

TOOLS = [
    tool("calculator", description="Compute an arithmetic expression.", scopes=("s",)),
    tool("forecast", description="Tomorrow's weather for a city: rain, wind and temperature.", scopes=("s",)),
    tool("file_reader", description="Read a text file of the shared folder.", scopes=("s",)),
    tool("umbrella_sales", description="How many umbrellas were sold when it rained.", scopes=("hidden",)),
]


def index_all(r: RunningRegistry) -> dict[str, Any]:
    ids = [t.tool_id for t in TOOLS]
    answer: dict[str, Any] = r.admin("POST", "/v1/admin/index", json={"epoch": 1, "upsert": ids}).json()
    return answer


def search(r: RunningRegistry) -> dict[str, Any]:
    body = {"query": "will I get wet outside", "limit": 2}
    found: dict[str, Any] = r.http.post(r.url + "/v1/search", headers=r.auth("team", "bot"), json=body).json()
    return found


def test_search_by_meaning_in_the_embedded_index() -> None:
    with running_registry(TOOLS, [binding("bot", ["s"])], embedder=OnnxEmbedder.packaged()) as r:
        indexed = index_all(r)
        found = search(r)

    assert set(indexed["indexed"]) == {t.tool_id for t in TOOLS}
    assert (found["search_mode"], found["degraded"]) == ("hybrid", False)
    assert found["tools"][0]["name"] == "forecast"
    assert "umbrella_sales" not in [t["name"] for t in found["tools"]]


@pytest.mark.real
def test_search_on_a_real_weaviate_and_without_it(weaviate_server: Weaviate) -> None:
    place = {
        "kind": "weaviate",
        "host": "127.0.0.1",
        "http_port": weaviate_server.http_port,
        "grpc_port": weaviate_server.grpc_port,
    }
    grant = [binding("bot", ["s"])]
    with running_registry(TOOLS, grant, embedder=OnnxEmbedder.packaged(), store=place) as r:
        indexed = index_all(r)
        held = r.admin("GET", "/v1/admin/index").json()["tools"]
        found = search(r)
        r.admin("POST", "/v1/admin/index", json={"epoch": 1, "remove": [t.tool_id for t in TOOLS]})
    away = {**place, "http_port": 1, "grpc_port": 2}
    with running_registry(TOOLS, grant, embedder=OnnxEmbedder.packaged(), store=away) as r:
        refused = r.admin("POST", "/v1/admin/index", json={"epoch": 1, "upsert": ["team/calculator"]})
        words = r.http.post(
            r.url + "/v1/search", headers=r.auth("team", "bot"), json={"query": "weather in a city"}
        ).json()
        ready = r.http.get(r.url + "/readyz")

    assert held == indexed["indexed"] == {t.tool_id: t.digest for t in TOOLS}
    assert (found["search_mode"], found["tools"][0]["name"]) == ("hybrid", "forecast")
    assert (refused.status_code, refused.json()["code"]) == (503, "index_unavailable")
    assert refused.headers["retry-after"] == "5"
    assert (words["search_mode"], words["degraded"]) == ("lexical", True)
    assert words["tools"][0]["name"] == "forecast"
    assert (ready.status_code, ready.json()["parts"]["search"]["ready"]) == (200, False)
