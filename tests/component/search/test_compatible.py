"""Searches as agents of another registry ask them: their names, their shapes, within the caller's grants, recorded."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hash_embedder import HashEmbedder
from realparts.processes import wait_until
from registry_harness import RunningRegistry, binding, running_registry, tool

SCHEMA = {
    "type": "object",
    "properties": {"tz": {"type": "string", "description": "A time zone."}, "at": {"type": "number"}},
    "required": ["tz"],
}
TOOLS = [
    tool("current_time", description="Tell the time in a city.", scopes=("s",), tags=("clock",), server="world",
         input_schema=SCHEMA, returns="The time."),
    tool("convert_time", description="Convert a time between cities.", scopes=("s",), tags=("Clock",), server="world"),
    tool("forecast", description="The weather of a city.", scopes=("s",), server="sky"),
    tool("old_forecast", description="The weather of a city, once.", scopes=("s",), server="sky", state="Deprecated"),
    tool("calculator", description="Compute a sum.", scopes=("s",)),
    tool("secret_time", description="Tell the secret time in a city.", scopes=("hidden",), tags=("clock",), server="world"),
]  # fmt: skip
VISIBLE = len(TOOLS) - 1


class Asked:
    """A registry whose agent sees all tools but one, with its decision log."""

    def __init__(self, running: RunningRegistry, log: Path) -> None:
        self.running, self._log = running, log

    def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        """As the agent."""
        return self.running.http.post(
            self.running.url + path, headers=self.running.auth("team", "bot"), json=body
        )

    def answer(self, path: str, **body: Any) -> Any:
        """What is said to the agent."""
        found = self.post(path, body)
        assert found.status_code == 200, found.text
        return found.json()

    def records(self) -> list[dict[str, Any]]:
        """The searches in the decision log, as far as they are written."""
        # what follows the last end of a line is being written
        lines = [json.loads(line) for line in self._log.read_bytes().split(b"\n")[:-1]]
        return [line for line in lines if line["action"] == "search"]


FINDER = "/v1/compat/intelligent_tool_finder"
SEMANTIC = "/api/search/semantic"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    log = tmp_path_factory.mktemp("log") / "decisions.jsonl"
    with running_registry(
        TOOLS, [binding("bot", ["s"])], embedder=HashEmbedder(64), decision_log=str(log), patient=True
    ) as running:
        body = {"epoch": 1, "upsert": [t.tool_id for t in TOOLS]}
        assert len(running.admin("POST", "/v1/admin/index", json=body).json()["indexed"]) == len(TOOLS)
        yield Asked(running, log)


def test_the_first_generation_gets_a_list_with_its_fields(registry: Asked) -> None:
    found = registry.answer(FINDER, natural_language_query="tell the time in a city")

    assert [row["tool_name"] for row in found] == ["current_time"]
    (row,) = found
    score = row.pop("overall_similarity_score")
    assert row == {
        "tool_name": "current_time",
        "tool_parsed_description": {
            "main": "Tell the time in a city.",
            "args": "tz (string): A time zone.\nat (number)",
            "returns": "The time.",
            "raises": "",
        },
        "tool_schema": SCHEMA,
        "service_path": "/world",
        "service_name": "world",
    }
    assert 0 < score <= 1


def test_the_second_generation_gets_an_object_with_results(registry: Asked) -> None:
    found = registry.answer(FINDER, query="tell the time in a city", top_n=2)

    assert set(found) == {"results", "query", "total_results", "status"}
    assert (found["query"], found["total_results"], found["status"]) == (
        "tell the time in a city",
        2,
        "success",
    )
    assert set(found["results"][0]) == {"tool_name", "server_name", "description", "score", "path"}
    assert found["results"][0]["tool_name"] == "current_time"


def test_services_and_numbers_mean_what_they_mean_there(registry: Asked) -> None:
    one_service = registry.answer(
        FINDER, natural_language_query="tell the time in a city", top_k_services=1, top_n_tools=50
    )
    three = registry.answer(FINDER, natural_language_query="tell the time in a city", top_n_tools=50)
    five = registry.answer(FINDER, query="tell the time in a city")

    assert {row["service_name"] for row in one_service} == {"world"}
    assert len(one_service) == 2
    assert len({row["service_name"] for row in three}) == 3
    assert five["total_results"] == VISIBLE


def test_tags_alone_find_by_name_without_a_score(registry: Asked) -> None:
    first = registry.answer(FINDER, tags=["CLOCK"], top_n_tools=9)
    second = registry.answer(FINDER, tags=["CLOCK"], top_n=9)
    both = registry.answer(FINDER, natural_language_query="weather", tags=["clock"], top_n_tools=9)

    assert [row["tool_name"] for row in first] == ["convert_time", "current_time"]
    assert all("overall_similarity_score" not in row for row in first)
    assert [row["score"] for row in second["results"]] == [None, None]
    assert {row["tool_name"] for row in both} <= {"convert_time", "current_time"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "specify natural_language_query (or query), tags, or both"),
        ({"natural_language_query": "  "}, "specify natural_language_query (or query), tags, or both"),
        ({"query": "a", "natural_language_query": "b"}, "natural_language_query and query are two names of one parameter and differ"),
        ({"query": "a", "top_n": 1, "top_n_tools": 2}, "top_n_tools and top_n are two names of one parameter and differ"),
        ({"query": "a", "top_n": 0}, "greater than or equal to 1"),
        ({"query": "a", "top_k_services": 1_000}, "less than or equal to 100"),
        ({"query": "a", "tags": ["x"] * 1_000}, "at most 16 items"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit_are_told_precisely(
    registry: Asked, body: dict[str, Any], said: str
) -> None:
    answer = registry.post(FINDER, body)

    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert said in answer.json()["detail"]


def test_fields_that_mean_nothing_here_are_ignored_and_written_nowhere(registry: Asked) -> None:
    found = registry.answer(
        FINDER, query="time", top_n=4, session_cookie="s3cret-cookie", username="u", password="p4ss"
    )
    wait_until(lambda: [r["count"] for r in registry.records()[-1:]] == [4], 60)

    assert found["status"] == "success"
    assert "s3cret-cookie" not in json.dumps(registry.records()) + json.dumps(found)


def test_semantic_search_answers_with_its_fields(registry: Asked) -> None:
    found = registry.answer(SEMANTIC, query="tell the time in a city", max_results=2)

    assert found["search_mode"] == "hybrid"
    best = found["tools"][0]
    assert (best["tool_name"], best["server_name"], best["server_path"]) == (
        "current_time",
        "world",
        "/world",
    )
    assert best["inputSchema"] == SCHEMA
    assert 0 < best["relevance_score"] <= 1
    assert all(0 <= tool["similarity_score"] <= 1 for tool in found["tools"])
    assert best["match_context"].startswith("name: time; description: tell")
    server = found["servers"][0]
    assert (server["path"], server["num_tools"], server["is_enabled"]) == ("/world", 2, True)
    assert server["relevance_score"] == best["relevance_score"]
    assert server["matching_tools"][0]["tool_name"] == "current_time"
    assert (found["total_tools"], found["total_servers"]) == (2, len(found["servers"]))
    assert found["agents"] == found["skills"] == found["virtual_servers"] == found["custom"] == []
    assert server["proxy_pass_url"] is server["endpoint_url"] is None


def test_semantic_search_knows_tags_in_the_query_kinds_and_states(registry: Asked) -> None:
    hashed = registry.answer(SEMANTIC, query="#Clock")
    words = registry.answer(SEMANTIC, query="tell #clock time", tags=["clock"])
    kinds = registry.answer(SEMANTIC, query="weather of a city", entity_types=["a2a_agent"])
    active = registry.answer(SEMANTIC, query="weather of a city", max_results=50)
    old = registry.answer(SEMANTIC, query="weather of a city", max_results=50, include_deprecated=True)

    assert hashed["search_mode"] == "tag-only"
    assert [t["tool_name"] for t in hashed["tools"]] == ["convert_time", "current_time"]
    assert {t["relevance_score"] for t in hashed["tools"]} == {1.0}
    assert {t["tool_name"] for t in words["tools"]} <= {"convert_time", "current_time"}
    assert (kinds["tools"], kinds["servers"], kinds["total_tools"]) == ([], [], 0)
    assert "old_forecast" not in [t["tool_name"] for t in active["tools"]]
    assert "old_forecast" in [t["tool_name"] for t in old["tools"]]


def test_without_an_embedder_semantic_search_says_that_words_alone_decided() -> None:
    with running_registry(TOOLS, [binding("bot", ["s"])]) as running:
        found = running.http.post(
            running.url + SEMANTIC, headers=running.auth("team", "bot"), json={"query": "weather of a city"}
        ).json()

    assert found["search_mode"] == "lexical-only"
    assert found["tools"][0]["tool_name"] == "forecast"
    assert found["tools"][0]["similarity_score"] is None


def test_semantic_search_for_nothing_is_refused(registry: Asked) -> None:
    answer = registry.post(SEMANTIC, {"query": " "})

    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert "Provide a search query, tags, or both." in answer.json()["detail"]


def test_what_the_caller_may_not_see_is_in_none_of_them(registry: Asked) -> None:
    said = [
        registry.post(FINDER, {"natural_language_query": "tell the secret time", "top_n_tools": 100}).text,
        registry.post(FINDER, {"query": "tell the time", "top_n": 100}).text,
        registry.post(FINDER, {"tags": ["clock"], "top_n": 100}).text,
        registry.post(SEMANTIC, {"query": "tell the time", "max_results": 50}).text,
    ]

    assert all("current_time" in text for text in said)
    assert not [text for text in said if "secret_time" in text]


def test_they_are_recorded_and_counted_as_searches(registry: Asked) -> None:
    registry.answer(FINDER, query="tell the time once more")
    registry.answer(SEMANTIC, query="#clock")
    metrics = registry.running.metrics()

    wanted = [("hybrid", VISIBLE), ("filter", 2)]
    deadline = time.monotonic() + 60
    while (last := [(r["mode"], r["count"]) for r in registry.records()[-2:]]) != wanted:
        assert time.monotonic() < deadline, last
        time.sleep(0.01)
    assert 'toolcrib_search_duration_seconds_count{mode="filter"}' in metrics


def test_the_name_that_is_found_is_a_name_to_call(registry: Asked) -> None:
    (row,) = registry.answer(FINDER, natural_language_query="compute a sum")

    assert registry.answer("/v1/describe", tool=row["tool_name"])["tool_id"] == "team/calculator"
    assert (row["service_path"], row["service_name"]) == ("/team", "team")
