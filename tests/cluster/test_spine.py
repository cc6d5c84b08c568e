"""The main job on real parts: from `kubectl apply` to a discovered, called and counted tool, and back.

A real API server, a real Weaviate, and every part of Toolcrib as a process of its own.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import model_stub
from cluster import EXAMPLES, UNPROVEN, Cluster, counter
from realparts import lookup
from realparts.processes import Child, clean_environment, free_port, wait_until
from realparts.required import require_real

pytestmark = [pytest.mark.real, pytest.mark.real]

HACKER = ["file_reader", "simulation_data"]
CHANGES = EXAMPLES / "access" / "changes"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    require_real("kube-apiserver", "etcd", "kubectl", "weaviate")
    # an index that was wiped is noticed at the next inventory
    with Cluster(replicas=2, operator_flags=["--inventory", "3", *UNPROVEN]) as running:
        running.kubectl("apply", "-f", str(EXAMPLES / "heist"))
        running.wait_ready("toolcrib")
        yield running


@pytest.fixture
def hacker(cluster: Cluster) -> str:
    return cluster.token("heist", "hacker")


@pytest.fixture
def safecracker(cluster: Cluster) -> str:
    return cluster.token("heist", "safecracker")


def test_every_tool_is_ready_once_it_is_indexed_and_read_back(cluster: Cluster) -> None:
    for tool in json.loads(cluster.kubectl("get", "tools", "-n", "heist", "-o", "json"))["items"]:
        found = {c["type"]: (c["status"], c["observedGeneration"]) for c in tool["status"]["conditions"]}
        good = dict.fromkeys(("Ready", "Accepted", "Indexed"), ("True", 1))
        found.pop("BackendReachable")
        assert found == good | {"Questionable": ("False", 1)}
        assert tool["status"]["digest"].startswith("sha256:")


def test_a_replica_says_that_the_backends_of_all_tools_can_be_reached(cluster: Cluster) -> None:
    def reasons() -> set[str]:
        tools = cluster.api.read("tools", namespace="heist")["items"]
        told = [c for tool in tools for c in tool["status"]["conditions"] if c["type"] == "BackendReachable"]
        return {c["reason"] for c in told}

    wait_until(lambda: reasons() == {"Connected"})


def test_an_agent_with_a_url_and_a_token_discovers_exactly_its_tools(
    cluster: Cluster, hacker: str, safecracker: str
) -> None:
    own = {hacker: HACKER, safecracker: ["calculator"], cluster.token("heist", "planner"): []}
    for replica in range(2):
        # a Tool is ready once one replica has it
        wait_until(lambda replica=replica: {t: cluster.discover(t, replica) for t in own} == own)  # type: ignore[misc]
        assert cluster.discover("not.a.token", replica) == []


def test_a_call_goes_through_and_shows_in_the_metrics_of_registry_and_runner(
    cluster: Cluster, tmp_path: Path
) -> None:
    def counted() -> float:
        text = cluster.replicas[0].metrics()
        return counter(text, "toolcrib_calls_total", agent="heist/safecracker", outcome="ok")

    before = counted()
    token = tmp_path / "token"
    token.write_text(cluster.token("heist", "safecracker"))
    model_port, metrics_port = free_port(), free_port()
    scripted = [sys.executable, "-m", "toolcrib_runner.scripted", "--port", str(model_port)]
    runner = [
        sys.executable, "-m", "toolcrib_cli", "agent", "run", "--name", "safecracker", "--registry-url", cluster.url,
        "--token-file", str(token), "--model-url", f"http://127.0.0.1:{model_port}/v1", "--model", "toolcrib-scripted",
        "--task", 'call calculator {"expression": "6 * 7"}', "--metrics-port", str(metrics_port), "--keep-serving",
    ]  # fmt: skip
    env = clean_environment({})
    with Child("scripted", scripted, log=tmp_path / "model.log", env=env) as model:
        model.wait_ready(lambda: _ok(f"http://127.0.0.1:{model_port}/v1/models"), timeout=60)
        with Child("runner", runner, log=tmp_path / "runner.log", env=env) as agent:
            url = f"http://127.0.0.1:{metrics_port}/metrics"
            agent.wait_ready(lambda: _ok(url) and "calculator" in _text(url), timeout=60)
            agent.wait_ready(lambda: "42" in (tmp_path / "runner.log").read_text(), timeout=60)
            own = _text(url)
    assert any(
        "calculator" in line and line.endswith(" 1.0") for line in own.splitlines() if "calls_total{" in line
    )
    wait_until(lambda: counted() > before)
    assert counted() == before + 1


def _ok(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False, verify=False, timeout=10).status_code == 200
    except httpx.TransportError:
        return False


def _text(url: str) -> str:
    return httpx.get(url, trust_env=False, verify=False, timeout=60).text


def test_search_finds_by_meaning_within_the_view(cluster: Cluster, safecracker: str) -> None:
    answer: dict[str, Any] = {}

    def searched() -> bool:
        answer.update(cluster.search(safecracker, "work out a sum"))
        return bool(answer["search_mode"] == "hybrid")

    # a busy machine may be too slow for the embedder, and gets words alone
    wait_until(searched, 60, 0.2)
    assert answer["tools"][0]["name"] == "calculator"
    assert "database_query" not in {
        t["name"] for t in cluster.search(safecracker, "ask the bank's database")["tools"]
    }


def test_change_disable_and_delete_are_visible_within_a_second_everywhere(
    cluster: Cluster, hacker: str
) -> None:
    left = ["file_reader"]

    def patch(**spec: str) -> None:
        change = json.dumps({"spec": spec})
        cluster.kubectl("patch", "tool", "simulation-data", "-n", "heist", "--type=merge", "-p", change)

    def described(replica: int) -> str:
        url = f"{cluster.replicas[replica].url}/tools/simulation_data"
        answer = httpx.get(url, headers=_bearer(hacker), trust_env=False, verify=False, timeout=60)
        return str(answer.json().get("description"))

    def seconds_until(seen: Callable[[], bool]) -> float:
        began = time.monotonic()
        wait_until(seen, interval=0.02)
        return time.monotonic() - began

    def listed(names: list[str]) -> Callable[[], bool]:
        return lambda: [cluster.discover(hacker, r) for r in range(2)] == [names] * 2

    edits, disabled, active, deletions = took = ([], [], [], [])  # type: tuple[list[float], ...]
    for text in ("Rehearse", "Rehearse it", "Rehearse the break-in"):
        patch(description=text)
        edits.append(seconds_until(lambda text=text: [described(r) for r in range(2)] == [text] * 2))  # type: ignore[misc]

    patch(state="Disabled")
    disabled.append(seconds_until(listed(left)))
    assert cluster.call(hacker, "simulation_data", {}).status_code == 403
    assert "simulation_data" not in {
        t["name"] for t in cluster.search(hacker, "rehearse the break-in")["tools"]
    }
    patch(state="Active")
    active.append(seconds_until(listed(HACKER)))
    for _ in range(2):
        patch(state="Disabled")
        disabled.append(seconds_until(listed(left)))
        patch(state="Active")
        active.append(seconds_until(listed(HACKER)))

    for _ in range(3):
        cluster.kubectl("delete", "tool", "simulation-data", "-n", "heist")
        deletions.append(seconds_until(listed(left)))
        cluster.kubectl("apply", "-f", str(EXAMPLES / "heist"))
        wait_until(listed(HACKER))
    # one moment in which this machine stands still is no news about the product
    assert max(map(statistics.median, took)) < 1, took
    assert max(map(max, took)) < 10, took


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_a_grant_that_is_applied_gives_a_tool_and_deleting_it_returns_when_every_replica_refuses(
    cluster: Cluster, safecracker: str
) -> None:
    query = {"query": "SELECT count(*) FROM cameras"}
    cluster.kubectl("apply", "-f", str(CHANGES))
    for replica in range(2):
        wait_until(lambda r=replica: cluster.discover(safecracker, r) == ["calculator", "database_query"])  # type: ignore[misc]
        assert cluster.call(safecracker, "database_query", query, replica).json()["rows"] == [[6]]
    cluster.kubectl("delete", "-f", str(CHANGES))
    for replica in range(2):
        assert cluster.discover(safecracker, replica) == ["calculator"]
        assert cluster.call(safecracker, "database_query", query, replica).status_code == 403


def test_the_agent_in_eight_lines_loses_a_tool_as_soon_as_kubectl_delete_returns(
    cluster: Cluster, safecracker: str
) -> None:
    cluster.kubectl("apply", "-f", str(CHANGES))
    wait_until(lambda: cluster.discover(safecracker) == ["calculator", "database_query"])
    asking = model_stub.function("database_query", {"query": "SELECT count(*) FROM cameras"})

    def said(request: dict[str, Any]) -> model_stub.Message:
        answers = len(model_stub.results(request["messages"]))
        if answers == 1:
            cluster.kubectl("delete", "-f", str(CHANGES))
        return asking if answers < 2 else model_stub.text("I have no such tool.")

    with model_stub.serving(said) as model:
        given = {"TOOLCRIB_URL": cluster.url, "TOOLCRIB_TOKEN": safecracker, "OPENAI_BASE_URL": model.url}
        done = subprocess.run(
            [
                sys.executable,
                str(EXAMPLES / "agents" / "eight_lines.py"),
                "stub",
                "How many cameras are there?",
            ],
            env=clean_environment({**given, "OPENAI_API_KEY": "none"}),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    assert done.stdout == "I have no such tool.\n", done.stderr
    offered = [[t["function"]["name"] for t in request["tools"]] for request in model.requests]
    assert offered == [["calculator", "database_query"], ["calculator", "database_query"], ["calculator"]]
    first, second = model_stub.results(model.requests[-1]["messages"])
    assert "6" in first
    assert "not permitted" in second


@pytest.mark.parametrize(
    ("manifest", "says"),
    [
        ("spec: {scopes: [], backend: {none: {}}}", "spec.scopes"),
        ("spec: {scopes: ['registry:admin'], backend: {none: {}}}", "powers of the registry"),
        ("spec: {scopes: [a], backend: {}}", "set exactly one backend"),
        ("spec: {scopes: [a], backend: {none: {}}, colour: red}", 'unknown field "spec.colour"'),
        ("spec: {scopes: [a]}", "spec.backend"),
    ],
)
def test_a_bad_manifest_is_refused_at_apply_and_names_the_field_and_the_remedy(
    cluster: Cluster, manifest: str, says: str
) -> None:
    text = f"apiVersion: toolcrib.dev/v1alpha1\nkind: Tool\nmetadata: {{name: bad, namespace: heist}}\n{manifest}\n"
    done = cluster.api.kubectl("apply", "-f", "-", input=text)
    assert done.returncode == 1
    assert says in done.stderr


def test_an_unsafe_schema_is_stored_but_never_published(cluster: Cluster, safecracker: str) -> None:
    text = (
        "apiVersion: toolcrib.dev/v1alpha1\nkind: Tool\nmetadata: {name: unsafe, namespace: heist}\n"
        "spec:\n  scopes: ['calculator:use']\n  backend: {none: {}}\n"
        "  inputSchema: {properties: {x: {$ref: 'http://169.254.169.254/latest'}}}\n"
    )
    cluster.kubectl("apply", "-f", "-", input=text)

    def reason() -> str:
        path = "{.status.conditions[?(@.type=='Accepted')].reason}"
        return cluster.kubectl("get", "tool", "unsafe", "-n", "heist", "-o", f"jsonpath={path}")

    wait_until(lambda: reason() == "SchemaUnsafe", timeout=60)
    assert "unsafe" not in cluster.discover(safecracker)
    cluster.kubectl("delete", "tool", "unsafe", "-n", "heist")


def test_the_operator_measures_how_long_a_change_takes_to_every_replica(cluster: Cluster) -> None:
    url = cluster.operators[0].url  # type: ignore[attr-defined]

    def measured() -> float:
        return counter(_text(f"{url}/metrics"), "toolcrib_propagation_seconds_count")

    def settled() -> bool:
        report = json.loads(_text(f"{url}/readyz"))
        return set(report["replicas"].values()) == {report["revision"]}

    wait_until(settled)
    before = measured()
    cluster.kubectl("label", "tool", "calculator", "-n", "heist", "test=one", "--overwrite")
    change = '{"spec": {"title": "Pocket calculator"}}'
    cluster.kubectl("patch", "tool", "calculator", "-n", "heist", "--type=merge", "-p", change)
    wait_until(lambda: measured() == before + 1, timeout=60)


def test_a_change_is_followed_by_one_id_from_the_operators_log_to_those_of_all_replicas(
    cluster: Cluster,
) -> None:
    def lines(name: str) -> list[dict[str, Any]]:
        whole = (cluster.folder / f"{name}.log").read_text().rpartition("\n")[0]
        return [json.loads(x) for x in whole.splitlines()]

    change = '{"spec": {"title": "Slide rule"}}'
    cluster.kubectl("patch", "tool", "calculator", "-n", "heist", "--type=merge", "-p", change)
    generation = json.loads(cluster.kubectl("get", "tool", "calculator", "-n", "heist", "-o", "json"))["metadata"][
        "generation"
    ]  # fmt: skip

    def told() -> list[dict[str, Any]]:
        wanted = {"kind": "Tool", "namespace": "heist", "name": "calculator", "generation": generation}
        return [x for x in lines("operator-0") if wanted.items() <= x.items() and "revision" in x]

    wait_until(lambda: bool(told()), timeout=60)
    request_id = told()[0]["request_id"]
    for replica in ("registry-0", "registry-1"):

        def applied(name: str = replica) -> bool:
            return any(x.get("request_id") == request_id and "applied" in x["message"] for x in lines(name))

        wait_until(applied, timeout=60)
    text = (cluster.folder / "operator-0.log").read_text()
    assert "eyJ" not in text


def test_get_describe_and_explain_read_well(cluster: Cluster) -> None:
    table = cluster.kubectl("get", "tools", "-n", "heist")
    assert table.splitlines()[0].split() == ["NAME", "READY", "TOOL", "SERVER", "SCOPES", "STATE", "AGE"]
    assert "file_reader" in table
    assert "Normal" in cluster.kubectl("describe", "tool", "calculator", "-n", "heist")
    explained = cluster.kubectl("explain", "tool.spec.backend.http.path")
    assert "percent-encoded" in explained
    assert "agentscopebinding" in cluster.kubectl("get", "toolcrib", "-A", "-o", "name")


def test_a_wiped_index_is_rebuilt_by_itself_and_lists_searches_and_calls_go_on(
    cluster: Cluster, safecracker: str
) -> None:
    assert cluster.weaviate is not None
    # its only tool may have been published a moment ago: a search fetches the vectors that it lacks
    assert cluster.search(safecracker, "add numbers")["search_mode"] == "hybrid"
    cluster.weaviate.stop()
    assert cluster.discover(safecracker) == ["calculator"]
    assert cluster.call(safecracker, "calculator", {"expression": "1+1"}).json()["result"] == 2
    answer = cluster.search(safecracker, "work out a sum")
    # replicas hold the vectors of what is published
    assert (answer["search_mode"], answer["degraded"]) == ("hybrid", False)
    cluster.weaviate.start()
    server = cluster.weaviate.client

    def stored() -> int:
        objects = server.get("/v1/objects", params={"limit": 100}).raise_for_status().json()["objects"]
        return sum(not found["class"].endswith("_Uses") for found in objects)

    before = stored()
    cluster.weaviate.wipe()
    wait_until(lambda: stored() == before > 0, timeout=120, interval=0.2)


def test_kubectl_finds_it_as_a_plugin() -> None:
    require_real("kubectl")
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    done = subprocess.run(
        [lookup.path_of("kubectl"), "toolcrib", "version"],
        env=clean_environment({"PATH": path}),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("toolcrib ")
