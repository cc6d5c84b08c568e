"""What /metrics tells of the search index: whether it answers, when it was written to, what the embedder failed at."""

import math
import time
from collections.abc import Sequence

import pytest
from prometheus_client.parser import text_string_to_metric_families

from emptied import empty
from hash_embedder import HashEmbedder
from registry_harness import ManualClock, RunningRegistry, binding, running_registry, tool
from toolcrib_registry.search.entry import Vector
from toolcrib_registry.search.errors import EmbedderUnavailable

AWAY = {"kind": "weaviate", "host": "127.0.0.1", "http_port": 1, "grpc_port": 2}


class Moody(HashEmbedder):
    """An embedder that may be away."""

    away = False

    async def embed_request(self, texts: Sequence[str]) -> Vector:
        if self.away:
            raise EmbedderUnavailable("away")
        return await super().embed_request(texts)

    async def embed_documents(self, texts: Sequence[str]) -> Vector:
        if self.away:
            raise EmbedderUnavailable("away")
        return await super().embed_documents(texts)


def told(r: RunningRegistry) -> dict[str, float]:
    """Series of /metrics by name and label values."""
    text = r.metrics()
    return {
        " ".join((s.name, *s.labels.values())): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def index(r: RunningRegistry, **request: list[str]) -> int:
    return r.admin("POST", "/v1/admin/index", json={"epoch": 1, **request}).status_code


def test_writes_removals_and_failures_of_the_embedder_are_told() -> None:
    embedder = Moody()
    with running_registry([tool("a"), tool("b")], [binding("bot", ["a:use"])], embedder=embedder) as r:
        before = told(r)
        assert before["toolcrib_index_healthy"] == 1
        assert before["toolcrib_index_last_write_timestamp_seconds"] == 0
        assert before["toolcrib_embed_failures_total query"] == 0
        began = time.time()
        assert index(r, upsert=["team/a"]) == 200
        written = told(r)["toolcrib_index_last_write_timestamp_seconds"]
        assert began <= written <= time.time()
        assert index(r, remove=["team/a"]) == 200
        assert told(r)["toolcrib_index_last_write_timestamp_seconds"] > written
        embedder.away = True
        assert index(r, upsert=["team/b"]) == 503
        found = r.http.post(r.url + "/v1/search", headers=r.auth("team", "bot"), json={"query": "the tool"})
        assert found.json()["degraded"] is True
        after = told(r)
        assert after["toolcrib_embed_failures_total query"] == 1
        assert after["toolcrib_embed_failures_total document"] == 1
        assert after["toolcrib_index_healthy"] == 1


def lag(r: RunningRegistry) -> tuple[float, float]:
    """How many tools are in the index as they are, and how many are not."""
    found = told(r)
    return found["toolcrib_index_tools"], found["toolcrib_index_lag_tools"]


def test_the_lag_is_that_of_the_scrape_and_not_of_the_last_inventory() -> None:
    embedder = Moody()
    with running_registry([tool("a"), tool("b"), tool("c")], embedder=embedder) as r:
        embedder.away = True
        assert index(r, upsert=["team/a"]) == 503
        assert lag(r) == (0, 3)
        embedder.away = False
        assert index(r, upsert=["team/a", "team/b"]) == 200
        assert lag(r) == (2, 1)
        r.publish([tool("a", description="Another text."), tool("d")])
        assert lag(r) == (1, 3)
        assert index(r, upsert=["team/a", "team/c"], remove=["team/b"]) == 200
        assert lag(r) == (2, 2)
        r.publish(remove_tools=["team/b", "team/d"])
        assert lag(r) == (2, 0)
        # lost behind our back: the next inventory finds out
        r.on_loop(lambda: empty(r.registry.store))
        assert r.admin("GET", "/v1/admin/index").status_code == 200
        assert lag(r) == (0, 2)


def test_while_the_index_is_away_the_lag_goes_on_growing() -> None:
    with running_registry([tool("a")], embedder=Moody()) as r:
        assert index(r, upsert=["team/a"]) == 200
        r.on_loop(r.registry.store.aclose)
        r.publish([tool("b"), tool("c")])
        assert index(r, upsert=["team/b"]) == 503
        assert r.admin("GET", "/v1/admin/index").status_code == 503
        assert lag(r) == (1, 2)


def test_a_replica_that_nobody_asks_to_index_says_nothing_of_the_lag() -> None:
    clock = ManualClock()
    with running_registry([tool("a")], embedder=Moody(), clock=clock) as r:
        assert all(map(math.isnan, lag(r)))
        assert r.admin("GET", "/v1/admin/index").status_code == 200
        clock.advance(100)
        assert lag(r) == (0, 1)
        clock.advance(100)
        assert all(map(math.isnan, lag(r)))
        assert index(r, upsert=["team/a"]) == 200
        assert lag(r) == (1, 0)


def test_an_index_that_does_not_answer_is_not_healthy() -> None:
    with running_registry([tool("a")]) as r:
        assert told(r)["toolcrib_index_healthy"] == 1
        r.on_loop(r.registry.store.aclose)
        assert told(r)["toolcrib_index_healthy"] == 0


@pytest.mark.long
def test_an_index_that_is_away_is_not_healthy_and_delays_no_scrape() -> None:
    with running_registry([tool("a")], store=AWAY, embedder=HashEmbedder()) as r:
        began = time.monotonic()
        assert told(r)["toolcrib_index_healthy"] == 0
        assert time.monotonic() - began < 3
