"""An embeddings endpoint that is away, hangs or talks nonsense: searches go on by words, in time, and say so; once it
is well again they do as before, without anybody's help."""

import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from faulty_embeddings import DIMENSION, FAULTS, FaultyEmbeddings, faulty_embeddings
from realparts.processes import wait_until
from registry_harness import OPERATOR, binding, mint, tool
from registry_process import RegistryProcess, configuration, process
from toolcrib.wire.index import IndexRequest

DEADLINE = 0.6
"""What a search waits for its vector."""
SLACK = 5.0
"""More than anything else takes, also on a machine that gives caller or registry no time for a while; who waits for an
endpoint that hangs waits longer."""
CALLERS = 50
TOOLS = [
    tool("forecast", description="Tomorrow's weather for a city.", scopes=("s",)),
    tool("calculator", description="Compute an arithmetic expression.", scopes=("s",)),
    tool("weather_secret", description="Weather in a city.", scopes=("hidden",)),
]
_numbers = itertools.count()


class Searches:
    """A registry process on an endpoint that can be made faulty, and callers of it."""

    def __init__(self, registry: RegistryProcess, endpoint: FaultyEmbeddings) -> None:
        self.registry = registry
        self.endpoint = endpoint
        self.http = httpx.Client(timeout=30, limits=httpx.Limits(max_connections=CALLERS))
        self._auth = {"Authorization": f"Bearer {mint('system:serviceaccount:team:bot')}"}

    def index(self) -> httpx.Response:
        """Have all tools indexed."""
        body = IndexRequest(epoch=1, upsert=tuple(t.tool_id for t in TOOLS)).model_dump_json()
        admin = {
            "Authorization": f"Bearer {mint(OPERATOR, audience='toolcrib-admin')}",
            "content-type": "application/json",
        }
        return self.http.post(f"{self.registry.admin_url}/v1/admin/index", headers=admin, content=body)

    def ask(self, query: str = "") -> tuple[dict[str, Any], float]:
        """The answer to `query`, else to words that nobody has asked for yet, and the seconds it took."""
        start = time.perf_counter()
        body = {"query": query or f"weather of city number{next(_numbers)}", "min_score": 0}
        answer = self.http.post(f"{self.registry.url}/v1/search", headers=self._auth, json=body)
        seconds = time.perf_counter() - start
        assert answer.status_code == 200, answer.text
        found = answer.json()
        if found["degraded"]:
            assert found["tools"][0]["tool_id"] == "team/forecast"
        assert "team/forecast" in {hit["tool_id"] for hit in found["tools"]}
        assert {hit["tool_id"] for hit in found["tools"]} <= {"team/forecast", "team/calculator"}
        return found, seconds

    def together(self) -> list[tuple[dict[str, Any], float]]:
        """`CALLERS` of them at once."""
        line = threading.Barrier(CALLERS)

        def one(_: int) -> tuple[dict[str, Any], float]:
            line.wait()
            return self.ask()

        with ThreadPoolExecutor(CALLERS) as pool:
            return list(pool.map(one, range(CALLERS)))

    def well(self, query: str = "") -> dict[str, Any]:
        """The first answer that is whole again: at latest when the longest pause of the registry is over, and one more
        where the machine was too busy for the first try."""
        said: list[dict[str, Any]] = []

        def whole() -> bool:
            said.append(self.ask(query)[0])
            return not said[-1]["degraded"]

        wait_until(whole, 30)
        return said[-1]


@pytest.fixture(scope="module")
def searches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Searches]:
    """A registry that embeds at an endpoint of ours, all tools in its index."""
    with faulty_embeddings() as endpoint:
        embedder = {
            "kind": "openai",
            "base_url": endpoint.url,
            "model": "m",
            "dimension": DIMENSION,
            "query_seconds": DEADLINE,
        }
        folder: Path = tmp_path_factory.mktemp("registry")
        with process(configuration(folder, embedder=embedder)) as registry:
            registry.publish(*TOOLS, bindings=(binding("bot", ("s",)),))
            made = Searches(registry, endpoint)
            assert len(made.index().json()["indexed"]) == len(TOOLS)
            yield made
            made.http.close()
            assert not [line for line in registry.lines if "Traceback" in str(line)]


def is_by_words(found: dict[str, Any]) -> bool:
    """Whether the answer says that it was found without vectors, and why."""
    said = found.get("degradation", "embedder_unavailable")
    return (found["search_mode"], found["degraded"], said) == ("lexical", True, "embedder_unavailable")


QUICK = ("hangs", "closes", "garbage")


@pytest.mark.parametrize(
    "fault", [*QUICK, *(pytest.param(f, marks=pytest.mark.long) for f in FAULTS if f not in QUICK)]
)
def test_a_search_without_its_vector_goes_by_words_says_so_and_recovers_by_itself(
    searches: Searches, fault: str
) -> None:
    searches.well()
    searches.endpoint.fault = fault

    found, seconds = searches.ask()
    again, at_once = searches.ask()
    refused = searches.index() if fault in ("500", "closes") else None
    searches.endpoint.fault = ""
    searches.well()

    assert is_by_words(found)
    assert is_by_words(again)
    assert seconds < DEADLINE + SLACK
    assert at_once < SLACK
    if refused is not None:  # the text is known by its content, nothing had to be embedded
        assert len(refused.json()["indexed"]) == len(TOOLS)


@pytest.mark.long
def test_of_fifty_callers_of_an_endpoint_that_hangs_one_waits_for_it(
    searches: Searches,
) -> None:
    searches.well()
    searches.endpoint.fault = "hangs"
    first = searches.together()
    asked = searches.endpoint.asked
    waits: list[float] = []
    end = time.monotonic() + 4  # several pauses begin and end
    while time.monotonic() < end:
        waits += [seconds for _, seconds in searches.together()]
    later = searches.endpoint.asked - asked
    searches.endpoint.fault = ""
    searches.well()

    assert all(is_by_words(found) for found, _ in first)
    assert max(seconds for _, seconds in first) < DEADLINE + SLACK
    # each time one more try, perhaps repeated once by the client library; not one a caller
    assert later <= 12, later
    assert max(waits) < DEADLINE + SLACK
    print(
        f"50 callers while it hangs: the slowest {max(s for _, s in first):.2f} s; later {sorted(waits)[len(waits) // 2]:.3f} s (median)"
    )


def test_what_was_answered_by_words_is_not_kept_and_what_was_answered_before_still_is(
    searches: Searches,
) -> None:
    searches.well()
    known, unknown = "weather in a town", "weather in a village"
    before = searches.well(known)
    searches.endpoint.fault = "closes"
    by_words, _ = searches.ask(unknown)
    meanwhile, _ = searches.ask(known)
    searches.endpoint.fault = ""
    afterwards = searches.well(unknown)

    assert is_by_words(by_words)
    # its vector and its answer are known: nothing is degraded
    assert meanwhile == before
    assert afterwards["search_mode"] == "hybrid"


def test_an_endpoint_that_comes_and_goes_never_makes_an_error(searches: Searches) -> None:
    searches.well()
    modes = []
    for fault in ("500", "", "closes", "", "garbage", "") * 4:
        searches.endpoint.fault = fault
        found, seconds = searches.ask()
        assert seconds < DEADLINE + SLACK
        assert found["search_mode"] in ("hybrid", "lexical")
        assert found["degraded"] == (found["search_mode"] == "lexical")
        modes.append(found["search_mode"])
    searches.endpoint.fault = ""

    assert "lexical" in modes
    searches.well()
