"""Search ranks tools whose backend is down last, and says so; where none is down nothing is different."""

from collections.abc import Iterator
from typing import Any

import pytest

from mcp_client import McpClient
from mcp_requests import VERSIONS
from realparts.processes import wait_until
from registry_harness import RunningRegistry, backend, binding, running_registry, tool
from stub_server import Answer, answering
from toolcrib.wire.backends import PublishedBackend
from toolcrib_client import Toolcrib

QUERY = "add numbers"
SCOPES = ("adder:use", "calculator:use", "notes:use")
FAILED = 5


class Stage:
    """Two tools fit; the backend of the better one, at `place`, answers with `status`. The other one's is a Service."""

    def __init__(self) -> None:
        self.r: RunningRegistry
        self.place, self.status = "", 200

    def search(self, **body: Any) -> list[dict[str, Any]]:
        answer = self.r.http.post(
            self.r.url + "/v1/search", headers=self.r.auth("team", "bot"), json={"query": QUERY, **body}
        )
        assert answer.status_code == 200, answer.text
        hits: list[dict[str, Any]] = answer.json()["tools"]
        return hits

    def order(self) -> list[tuple[str, bool]]:
        return [(hit["name"], "unavailable" in hit) for hit in self.search()]

    def call(self) -> int:
        """The status of a call of the better one."""
        return self.r.http.post(
            self.r.url + "/v1/call", headers=self.r.auth("team", "bot"), json={"tool": "adder"}
        ).status_code

    def fail(self) -> None:
        """Call the better one until its breaker opens."""
        self.status = 503
        assert [self.call() for _ in range(FAILED)] == [502] * FAILED


SERVICE = PublishedBackend(
    service_namespace="team", service_name="maths", service_port=80, cluster_ip="127.0.0.1"
)
UP = [("adder", False), ("calculator", False)]
LAST = [("calculator", False), ("adder", True)]


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Its breaker stays open for a minute, unless a test says otherwise."""
    stage = Stage()
    with answering(lambda _: Answer(b"{}", status=stage.status)) as port:
        stage.place = f"http://127.0.0.1:{port}"
        tools = [
            tool("adder", description="Add numbers. Add them.", backend=backend(port)),
            tool("calculator", description="Add numbers, and more that nobody asked for.", backend=SERVICE),
            tool("notes", description="Write a note."),
        ]
        limits = {"breaker_failures": FAILED, "breaker_seconds": getattr(request, "param", 60)}
        with running_registry(tools, [binding("bot", SCOPES)], limits=limits) as stage.r:
            yield stage


@pytest.mark.parametrize("stage", [5], indirect=True)
def test_a_tool_whose_breaker_is_open_comes_last_with_the_same_evidence_until_it_may_be_tried(
    stage: Stage,
) -> None:
    before = {hit["name"]: hit for hit in stage.search()}
    assert stage.order() == UP
    stage.fail()
    after = stage.search()
    assert [hit["name"] for hit in after] == ["calculator", "adder"]
    assert after[0] == before["calculator"]
    assert after[1] == {**before["adder"], "unavailable": True}

    # nobody calls what is ranked last: it must not stay there for that
    wait_until(lambda: stage.order() == UP)


def test_a_tool_whose_backend_the_operator_cannot_reach_comes_last_until_it_says_otherwise(
    stage: Stage,
) -> None:
    assert stage.r.heartbeat(stage.place).status_code == 200
    assert stage.order() == LAST
    assert stage.r.heartbeat("team/maths:80").status_code == 200
    assert stage.order() == [("adder", False), ("calculator", True)]
    assert stage.r.heartbeat("team/maths:81").status_code == 200, "another port of the Service"
    assert stage.order() == UP
    assert stage.r.heartbeat().status_code == 200
    assert stage.order() == UP


def test_hits_without_words_are_told_apart_too(stage: Stage) -> None:
    def names() -> list[str]:
        return [hit["name"] for hit in stage.search(query=None, namespaces=["team"])]

    assert names() == ["adder", "calculator", "notes"], "by name"
    assert stage.r.heartbeat(stage.place).status_code == 200
    assert names() == ["calculator", "notes", "adder"]


@pytest.mark.parametrize("version", VERSIONS)
def test_models_that_search_over_mcp_are_told(stage: Stage, version: str) -> None:
    client = McpClient(stage.r, version, "/mcp")
    arguments = {"name": "search_tools", "arguments": {"query": QUERY}}
    before = client.result("tools/call", arguments)["structuredContent"]["tools"]
    assert [set(hit) & {"unavailable"} for hit in before] == [set(), set()]
    stage.fail()
    hits = client.result("tools/call", arguments)["structuredContent"]["tools"]
    assert [(hit["name"], hit.get("unavailable")) for hit in hits] == [("calculator", None), ("adder", True)]


def test_the_client_has_it_in_its_hits(stage: Stage) -> None:
    stage.fail()
    with Toolcrib(stage.r.url, lambda: stage.r.token("team", "bot")) as crib:
        assert [(hit.name, hit.unavailable) for hit in crib.search(QUERY).hits] == LAST


def test_who_does_not_see_a_tool_learns_nothing_of_its_backend(stage: Stage) -> None:
    stage.r.publish(bindings=[binding("other", ("calculator:use",))])
    stage.fail()
    answer = stage.r.http.post(
        stage.r.url + "/v1/search", headers=stage.r.auth("team", "other"), json={"query": QUERY}
    )
    assert [(hit["name"], "unavailable" in hit) for hit in answer.json()["tools"]] == [("calculator", False)]


@pytest.mark.parametrize("stage", [5], indirect=True)
def test_a_backend_that_answers_again_stands_where_it_stood(stage: Stage) -> None:
    stage.fail()
    assert stage.order() == LAST
    stage.status = 200
    wait_until(lambda: stage.call() == 200)
    assert stage.order() == UP
    assert "toolcrib_backend_breakers_open 0.0" in stage.r.metrics()
