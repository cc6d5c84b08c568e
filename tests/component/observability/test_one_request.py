"""One request through real processes: agent runner, registry, the tool's backend; in logs, decisions and traces."""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from otlp_receiver import Collector, Received, collecting
from realparts import loaded
from registry_harness import backend, binding, mint, tool
from registry_process import RegistryProcess, configuration, process
from stub_server import Answer, Asked, answering
from toolcrib_runner import scripted

SECRET = "the vault is at 4711"
NOTE = {
    "type": "object",
    "properties": {"note": {"type": "string"}, "times": {"type": "integer"}},
    "required": ["note"],
}
SUBJECT = "system:serviceaccount:team:planner"


@dataclass
class Told:
    """What one run left behind."""

    registry: RegistryProcess
    collector: Collector
    runner: list[dict[str, Any]]
    upstream: list[dict[str, str]]
    decisions: list[dict[str, Any]] = field(default_factory=list)
    admin_ids: list[str] = field(default_factory=list)
    token: str = ""

    def everything(self) -> str:
        """All that was written down anywhere."""
        spans = [(s.name, s.attributes) for s in self.collector.spans]
        return json.dumps([self.registry.lines, self.runner, self.decisions, spans])


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    folder = tmp_path_factory.mktemp("one-request")
    seen: list[dict[str, str]] = []

    def answer(asked: Asked) -> Answer:
        seen.append(dict(asked.headers))
        return Answer(b"42", 200 if asked.path == "/calculator" else 500)

    decisions = folder / "decisions.jsonl"
    config = configuration(folder, decision_log=str(decisions), egress={"loopback": True})
    with answering(answer) as port, collecting() as collector, scripted.serving() as model:
        otel = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_EXPORTER_OTLP_HEADERS": "x-collector-key=k1",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test",
            "OTEL_BSP_SCHEDULE_DELAY": "50",
        }
        # at debug: what holds for every line holds for the rarest too
        with process(config, environment={**otel, "TOOLCRIB_LOG_LEVEL": "debug"}) as registry:
            tools = [
                tool("calculator", backend=backend(port, "/calculator"), input_schema=NOTE),
                tool("broken", backend=backend(port, "/broken"), scopes=("calculator:use",)),
            ]
            registry.publish(*tools, bindings=(binding("planner"),))
            told = Told(registry, collector, [], seen, token=mint(SUBJECT))
            (folder / "token").write_text(told.token)
            done = loaded.run(
                [
                    sys.executable, "-m", "toolcrib_runner.main", "--name", "planner", "--registry-url", registry.url,
                    "--token-file", str(folder / "token"), "--model-url", model,
                    "--task", f'call calculator {{"note": "{SECRET}"}}\ncall broken {{}}\n'
                    f'call calculator {{"note": "", "times": "{SECRET}"}}',
                ],
                env={**{k: v for k, v in os.environ.items() if not k.startswith("TOOLCRIB_")}, **otel},
                timeout=60,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            told.runner += [json.loads(line) for line in done.stderr.splitlines()]
            httpx.post(
                f"{registry.url}/v1/search",
                json={"query": "compute"},
                headers={"Authorization": f"Bearer {told.token}", "X-Request-Id": "by-hand-1"},
            )
            for given in ("op-1-1", "no id\t; at all"):
                answer = httpx.get(f"{registry.admin_url}/healthz", headers={"X-Request-Id": given})
                told.admin_ids.append(answer.headers["x-request-id"])
            collector.wait_for("toolcrib-registry", "POST /v1/search")
        told.decisions += [json.loads(line) for line in decisions.read_text().splitlines()]
        yield told


def called(told: Told, tool: str = "calculator") -> dict[str, Any]:
    """The runner's line about its call."""
    return next(line for line in told.runner if line.get("tool") == tool and "outcome" in line)


def test_one_request_id_is_in_the_lines_of_runner_and_registry_in_the_decision_and_at_the_backend(
    told: Told,
) -> None:
    request_id = called(told)["request_id"]
    (access,) = [
        x for x in told.registry.lines if x.get("request_id") == request_id and x.get("route") == "/tools/{name}"
    ]  # fmt: skip
    assert (access["method"], access["status"], access["agent"]) == ("POST", 200, "team/planner")
    (decision,) = [d for d in told.decisions if d.get("request_id") == request_id]
    assert (decision["action"], decision["tool"], decision["outcome"]) == ("call", "team/calculator", "ok")
    assert told.upstream[0]["x-request-id"] == request_id


def test_every_call_has_an_id_of_its_own_that_begins_with_the_tasks(told: Told) -> None:
    ids = [told.upstream[0]["x-request-id"], called(told, "broken")["request_id"]]
    assert len(set(ids)) == 2
    assert len({i.rpartition("-")[0] for i in ids}) == 1


def test_a_failed_call_names_tool_agent_outcome_and_code_as_fields(told: Told) -> None:
    request_id = called(told, "broken")["request_id"]
    lines = [x for x in told.registry.lines if x.get("request_id") == request_id]
    (failed,) = [x for x in lines if x.get("kind") == "Tool"]
    assert (failed["namespace"], failed["name"], failed["outcome"]) == ("team", "broken", "upstream_error")
    (access,) = [x for x in lines if "route" in x]
    assert (access["code"], access["status"], access["level"]) == ("upstream_error", 502, "warning")


def test_the_search_by_hand_is_found_by_the_id_that_was_sent(told: Told) -> None:
    (line,) = [x for x in told.registry.lines if x.get("request_id") == "by-hand-1"]
    assert line["route"] == "/v1/search"
    assert len(line["trace_id"]) == 32


def test_no_line_record_or_span_holds_a_token_an_argument_or_a_description(told: Told) -> None:
    everything = told.everything()
    assert told.token not in everything
    assert SECRET not in everything
    assert "The tool calculator" not in everything


def test_what_agents_and_machines_ask_all_the_time_is_told_at_debug_alone(told: Told) -> None:
    levels = {
        (x["method"], x["route"]): x["level"]
        for x in told.registry.lines
        if x["logger"] == "toolcrib.registry.access" and x["status"] < 400
    }
    assert levels["GET", "/"] == "debug"
    assert levels["GET", "/healthz"] == "debug"
    assert levels["POST", "/v1/admin/publish"] == "info"


def test_the_admin_listener_takes_an_id_over_and_makes_one_of_what_is_none(told: Told) -> None:
    assert told.admin_ids[0] == "op-1-1"
    assert len(told.admin_ids[1]) == 16


def of(told: Told, name: str, service: str = "toolcrib-registry") -> list[Received]:
    return [s for s in told.collector.spans if (s.service, s.name) == (service, name)]


def test_one_trace_leads_from_the_task_to_the_backend(told: Told) -> None:
    (task,) = of(told, "task", "toolcrib-runner")
    trace = {s.id: s for s in told.collector.spans if s.trace == task.trace}
    backends = [s for s in trace.values() if s.service == "toolcrib-registry" and s.kind == 3]
    span = next(s for s in backends if trace[s.parent].attributes["gen_ai.tool.name"] == "calculator")
    chain = [(span.service, span.name)]
    while span.parent:
        span = trace[span.parent]
        chain.append((span.service, span.name))
    assert chain == [
        ("toolcrib-registry", "POST"),
        ("toolcrib-registry", "call tool"),
        ("toolcrib-registry", "POST /tools/{name}"),
        ("toolcrib-runner", "POST"),
        ("toolcrib-runner", "tool call"),
        ("toolcrib-runner", "task"),
    ]
    assert told.upstream[0]["traceparent"].split("-")[1] == task.trace


def test_spans_carry_ids_and_outcomes_by_the_semantic_conventions(told: Told) -> None:
    ok, broken = of(told, "call tool")
    assert ok.attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "calculator",
        "toolcrib.tool.id": "team/calculator",
        "toolcrib.outcome": "ok",
    }
    assert (broken.failed, broken.attributes["error.type"]) == (True, "upstream_error")
    served = of(told, "POST /tools/{name}")[0]
    assert served.attributes["http.response.status_code"] == 200
    assert served.attributes["http.route"] == "/tools/{name}"
    assert served.attributes["toolcrib.agent"] == "team/planner"
    (task,) = of(told, "task", "toolcrib-runner")
    assert (task.attributes["toolcrib.outcome"], task.attributes["gen_ai.agent.name"]) == (
        "answered",
        "planner",
    )
    assert of(told, "discover", "toolcrib-runner")
    assert (
        of(told, "model request", "toolcrib-runner")[0].attributes["gen_ai.response.model"]
        == "toolcrib-scripted"
    )
    assert of(told, "search")[0].attributes["toolcrib.search.mode"] in ("lexical", "hybrid")


def test_the_standard_variables_set_resource_and_headers(told: Told) -> None:
    assert all(r["deployment.environment"] == "test" for r in told.collector.resources)
    assert {r["service.name"] for r in told.collector.resources} == {"toolcrib-registry", "toolcrib-runner"}
    assert all(h["x-collector-key"] == "k1" for h in told.collector.headers)


GUIDE = (Path(__file__).parents[3] / "docs/guides/observability.md").read_text()


def test_the_line_that_the_guide_shows_has_the_fields_of_a_real_one(told: Told) -> None:
    shown = json.loads(GUIDE.split("```json\n")[1].split("```")[0])
    (real,) = [x for x in told.registry.lines if x.get("status") == 502]
    assert shown.keys() == real.keys() - {"trace_id", "span_id"}
    assert [shown[k] for k in ("message", "code", "agent")] == [real[k] for k in ("message", "code", "agent")]


def test_the_guide_names_every_span(told: Told) -> None:
    names = {s.name for s in told.collector.spans if " /" not in s.name and s.kind == 1}
    assert names >= {"task", "search", "call tool"}
    assert [name for name in names if f"`{name}`" not in GUIDE] == []
