"""A Weaviate that is killed, hangs, or is wiped while many search: what is answered meanwhile, and how soon all is well.

Lists go on. Searches are answered from the words of the snapshot and say so; nothing outside a view is ever answered,
and what the words name is found all the time. An index that was wiped is filled by who keeps it, here as the operator
does it: what the inventory lacks is written again.
"""

import asyncio
import gc
import itertools
import math
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fresh_requests import fresh
from hash_embedder import HashEmbedder
from realparts.processes import wait_until
from realparts.required import require_real
from realparts.weaviate import Weaviate
from registry_harness import RunningRegistry, binding, running_registry, tool

pytestmark = [pytest.mark.real, pytest.mark.long]

KILLED, SILENT = 1.0, 2.5
"""Seconds that no search takes by the registry's own histogram, which has these bounds: where nothing listens, and where
nothing answers and the search waits 2 s (`STORE_SECONDS`)."""
REST = 4
"""How many times as long as its search took a caller waits before the next."""
VERBS = ("read", "write", "list", "delete", "create", "update", "send", "fetch")
NOUNS = ("file", "invoice", "customer", "ticket", "city", "flight", "hotel", "backup", "database", "mail")
RARE = [f"{a}{b}{c}" for a in "bdgkmp" for b in "aeiou" for c in ("lor", "nix", "tus", "vane", "zet", "mond")]
TOOLS = [
    tool(
        f"{VERBS[i % 8]}_{NOUNS[i % 10]}_{i:03d}",
        description=f"{VERBS[i % 8]} the {NOUNS[i // 3 % 10]} of {RARE[i % len(RARE)]}{i}.",
        scopes=("few",) if i % 15 == 0 else ("many",) if i % 6 else ("hidden",),
    )
    for i in range(360)
]
VIEWS = {
    # more than 200, of which the store tells the nearest; and few, fetched by their ids
    "broad": {t.tool_id for t in TOOLS if t.scopes[0] in ("many", "few")},
    "narrow": {t.tool_id for t in TOOLS if t.scopes[0] == "few"},
}
NAMED = {who: sorted(t.tool_id for t in TOOLS if t.tool_id in view)[::9] for who, view in VIEWS.items()}


@dataclass
class Answered:
    """What callers were told."""

    said: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    """Who, the tool whose words were searched, the answer."""
    problems: list[str] = field(default_factory=list)

    def modes(self) -> set[tuple[str, bool]]:
        return {(found["search_mode"], found["degraded"]) for _, _, found in self.said}


@dataclass(frozen=True)
class Took:
    """What the registry's own histogram says of searches so far: how many took at most so many seconds."""

    at_most: dict[float, float]

    def longer(self, seconds: float, since: "Took") -> float:
        """How many took longer than `seconds`, one of the histogram's bounds, since another reading."""
        new = {bound: count - since.at_most.get(bound, 0.0) for bound, count in self.at_most.items()}
        return new[math.inf] - new[seconds]

    def bound(self, since: "Took") -> float:
        """The least of the histogram's bounds that none exceeded since another reading."""
        return min(b for b in self.at_most if not self.longer(b, since))


class Kept:
    """A registry on a Weaviate of its own, and who searches it and keeps its index."""

    def __init__(self, server: Weaviate, registry: RunningRegistry) -> None:
        self.server = server
        self.registry = registry
        self.by_id = {t.tool_id: t for t in TOOLS}

    def search(self, http: httpx.Client, who: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = http.post(
            self.registry.url + "/v1/search", headers=self.registry.auth("team", who), json=body
        )
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def mend(self) -> int:
        """One round of the operator: write what the inventory lacks. The number of tools written."""
        held = self.registry.admin("GET", "/v1/admin/index", timeout=30)
        if held.status_code != 200:
            return 0
        wanted = [t.tool_id for t in TOOLS if held.json()["tools"].get(t.tool_id) != t.digest]
        written = 0
        for start in range(0, len(wanted), 100):
            body = {"epoch": 1, "upsert": wanted[start : start + 100]}
            answer = self.registry.admin("POST", "/v1/admin/index", json=body, timeout=30)
            written += len(answer.json().get("indexed", ()))
        return written

    def whole(self) -> dict[tuple[str, str], Any]:
        """What is found while all is well; nothing while it is not."""
        found = {
            (who, query): self.search(self.registry.http, who, {"query": query, "min_score": 0})
            for who in VIEWS
            for query in ("read a file", "delete the invoice of a customer", "bamond", "send mail to hotels")
        }
        if any(answer["degraded"] for answer in found.values()):
            return {}
        return {asked: [hit["tool_id"] for hit in answer["tools"]] for asked, answer in found.items()}

    def settled(self) -> dict[tuple[str, str], Any]:
        """The same, once all is well."""
        found: list[dict[tuple[str, str], Any]] = []

        def well() -> bool:
            found.append(self.whole())
            return bool(found[-1])

        wait_until(well, 90)
        return found[-1]

    def took(self) -> Took:
        text = self.registry.http.get(self.registry.metrics_url + "/metrics").text
        found: Counter[float] = Counter()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == "toolcrib_search_duration_seconds_bucket":
                    found[float(sample.labels["le"])] += int(sample.value)
        return Took(dict(found))

    def listed(self, who: str) -> int:
        answer = self.registry.http.get(self.registry.url + "/", headers=self.registry.auth("team", who))
        return int(answer.json()["total_available"])

    @contextmanager
    def under_load(self, callers: int = 8) -> Iterator[Answered]:
        """So many callers who search on and on, each for the words of one tool after the other."""
        done = Answered()
        stop = threading.Event()

        async def call(number: int, http: httpx.AsyncClient) -> None:
            who = list(VIEWS)[number % 2]
            for tool_id in itertools.islice(itertools.cycle(NAMED[who]), number, None):
                if stop.is_set():
                    return
                body = {"query": fresh(self.by_id[tool_id].description), "limit": 5, "min_score": 0}
                headers = self.registry.auth("team", who)
                began = time.perf_counter()
                try:
                    answer = await http.post(self.registry.url + "/v1/search", headers=headers, json=body)
                    assert answer.status_code == 200, answer.text
                except Exception as error:
                    done.problems.append(repr(error))
                    return
                done.said.append((who, tool_id, answer.json()))
                # without a rest eight callers queue for one processor, and that is all there would be to measure
                await asyncio.sleep(REST * (time.perf_counter() - began))

        async def all_of_them() -> None:
            async with httpx.AsyncClient(timeout=20, verify=False) as http:
                await asyncio.gather(*(call(n, http) for n in range(callers)))

        # one thread: the registry shares this process, and each thread more keeps it waiting for the interpreter
        thread = threading.Thread(target=lambda: asyncio.run(all_of_them()))
        thread.start()
        try:
            yield done
        finally:
            stop.set()
            thread.join(30)


def is_right(done: Answered, *, named: bool = True) -> None:
    """Nothing outside a view, nothing twice, and first whatever the words name (if the index is whole)."""
    assert not done.problems
    for who, tool_id, found in done.said:
        ids = [hit["tool_id"] for hit in found["tools"]]
        assert not named or ids[0] == tool_id, (tool_id, found)
        assert len(set(ids)) == len(ids)
        assert set(ids) <= VIEWS[who]
        assert found["degraded"] == (found["search_mode"] != "hybrid")


@pytest.fixture(scope="module")
def kept() -> Iterator[Kept]:
    """All tools indexed."""
    require_real("weaviate")
    with Weaviate() as server:
        place = {
            "kind": "weaviate",
            "host": "127.0.0.1",
            "http_port": server.http_port,
            "grpc_port": server.grpc_port,
            "collection_prefix": f"Test{secrets.token_hex(4)}",
        }
        grants = [binding("broad", ["many", "few"]), binding("narrow", ["few"])]
        # holding no vectors, it asks the store for each search
        hold = {"resident_bytes": 0}
        with running_registry(TOOLS, grants, embedder=HashEmbedder(64), store=place, search=hold) as r:
            made = Kept(server, r)
            assert made.mend() == len(TOOLS)
            # as toolcrib_registry.main does: else a full collection of all that pytest holds stops the registry for a second
            gc.collect()
            gc.freeze()
            yield made
            gc.unfreeze()


def test_a_store_that_is_killed_leaves_search_to_words_and_is_found_again(kept: Kept) -> None:
    before = kept.settled()
    with kept.under_load() as done:
        wait_until(lambda: len(done.said) > 20, 60)
        earlier = kept.took()
        kept.server.kill()
        killed = len(done.said)
        wait_until(lambda: len(done.said) > killed + 100, 60)
        refused = kept.registry.admin(
            "POST", "/v1/admin/index", json={"epoch": 1, "upsert": [TOOLS[0].tool_id]}, timeout=90
        )
        listed = {who: kept.listed(who) for who in VIEWS}
        meanwhile = kept.search(kept.registry.http, "narrow", {"query": "read a file", "min_score": 0})
        ready = kept.registry.http.get(kept.registry.admin_url + "/readyz")
        took = kept.took()
        kept.server.start()
        start = time.perf_counter()
        wait_until(lambda: kept.mend() == 0 and kept.whole() == before, 90)
        recovery = time.perf_counter() - start

    is_right(done)
    assert took.longer(KILLED, since=earlier) == 0, took
    assert ("lexical", True) in done.modes()
    assert (meanwhile["search_mode"], meanwhile["degraded"]) == ("lexical", True)
    assert meanwhile.get("degradation", "store_unavailable") == "store_unavailable"
    assert listed == {who: len(view) for who, view in VIEWS.items()}
    assert (refused.status_code, refused.json()["code"]) == (503, "index_unavailable")
    assert int(refused.headers["retry-after"]) > 0
    assert (ready.status_code, ready.json()["parts"]["search"]["ready"]) == (200, False)
    print(
        f"Weaviate killed under 8 callers: no search took longer than {took.bound(since=earlier):g} s; "
        f"whole again {recovery:.1f} s after its start"
    )


def test_a_store_that_hangs_costs_no_search_more_than_the_deadline(kept: Kept) -> None:
    before = kept.settled()
    with kept.under_load() as done:
        wait_until(lambda: len(done.said) > 20, 60)
        earlier = kept.took()
        kept.server.pause()
        try:
            paused = len(done.said)
            wait_until(lambda: sum(said[2]["degraded"] for said in done.said[paused:]) > 50, 60)
            listed = {who: kept.listed(who) for who in VIEWS}
            took = kept.took()
        finally:
            kept.server.resume()
        start = time.perf_counter()
        wait_until(lambda: kept.whole() == before, 90)
        recovery = time.perf_counter() - start

    is_right(done)
    assert took.longer(SILENT, since=earlier) == 0, took
    assert took.longer(KILLED, since=earlier) > 0, "nobody waited for the store: it was not asked"
    assert ("lexical", True) in done.modes()
    assert listed == {who: len(view) for who, view in VIEWS.items()}
    print(
        f"Weaviate hangs under 8 callers: no search took longer than {took.bound(since=earlier):g} s; "
        f"whole again {recovery:.1f} s after it woke"
    )


def test_a_store_that_is_wiped_under_load_shows_nothing_foreign_and_is_filled_again(kept: Kept) -> None:
    before = kept.settled()
    earlier = kept.took()
    stop = threading.Event()
    rounds: list[int] = []

    def keep() -> None:
        while not stop.wait(0.5):
            rounds.append(kept.mend())

    keeper = threading.Thread(target=keep)
    keeper.start()
    seconds = []
    try:
        with kept.under_load() as done:
            for number in (1, 2):
                wait_until(lambda: kept.whole() == before, 90)
                start = time.perf_counter()
                kept.server.wipe()
                emptied = kept.search(kept.registry.http, "broad", {"query": "read a file"})
                wait_until(lambda n=number: sum(rounds) >= n * len(TOOLS) and kept.whole() == before, 90)
                seconds.append(time.perf_counter() - start)
    finally:
        stop.set()
        keeper.join(60)

    is_right(done, named=False)
    took = kept.took()
    assert took.longer(SILENT, since=earlier) == 0, took
    assert sum(rounds) >= 2 * len(TOOLS)
    assert {hit["tool_id"] for hit in emptied["tools"]} <= VIEWS["broad"]
    print(
        f"Weaviate wiped twice under 8 callers, {len(TOOLS)} tools: {len(done.said)} answers, none after more than "
        f"{took.bound(since=earlier):g} s; "
        f"full recall after {seconds[0]:.1f} and {seconds[1]:.1f} s"
    )
