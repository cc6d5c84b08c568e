"""The main job on real parts: from `kubectl apply` to a discovered, called and counted tool, and back.

A real API server, a real Weaviate, and every part of Toolcrib as a process of its own.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cluster import EXAMPLES, Cluster, counter
from realparts import lookup
from realparts.processes import Child, clean_environment, free_port, wait_until
from realparts.required import require_real

pytestmark = [pytest.mark.apiserver, pytest.mark.weaviate]

PLANNER = ["calculator", "file_reader", "simulation_data"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    require_real("kube-apiserver", "etcd", "kubectl", "weaviate")
    with Cluster(replicas=2) as running:
        running.kubectl("apply", "-f", str(EXAMPLES / "heist"))
        running.wait_ready("toolcrib")
        yield running


@pytest.fixture
def planner(cluster: Cluster) -> str:
    return cluster.token("heist", "planner")


def test_every_tool_is_ready_once_it_is_indexed_and_read_back(cluster: Cluster) -> None:
    for tool in json.loads(cluster.kubectl("get", "tools", "-n", "heist", "-o", "json"))["items"]:
        found = {c["type"]: (c["status"], c["observedGeneration"]) for c in tool["status"]["conditions"]}
        good = dict.fromkeys(("Ready", "Accepted", "Indexed"), ("True", 1))
        assert found == good | {"Questionable": ("False", 1)}
        assert tool["status"]["digest"].startswith("sha256:")


def test_an_agent_with_a_url_and_a_token_discovers_exactly_its_tools(cluster: Cluster, planner: str) -> None:
    for replica in range(2):
        assert cluster.discover(planner, replica) == PLANNER
        assert cluster.discover(cluster.token("heist", "hacker"), replica) == ["calculator", "database_query"]
        assert cluster.discover("not.a.token", replica) == []


def test_a_call_goes_through_and_shows_in_the_metrics_of_registry_and_runner(
    cluster: Cluster, tmp_path: Path
) -> None:
    before = counter(
        cluster.replicas[0].metrics(), "toolcrib_calls_total", agent="heist/safecracker", outcome="ok"
    )
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
        model.wait_ready(lambda: _ok(f"http://127.0.0.1:{model_port}/v1/models"), timeout=30)
        with Child("runner", runner, log=tmp_path / "runner.log", env=env) as agent:
            url = f"http://127.0.0.1:{metrics_port}/metrics"
            agent.wait_ready(
                lambda: _ok(url) and "calculator" in httpx.get(url, trust_env=False).text, timeout=30
            )
            agent.wait_ready(lambda: "42" in (tmp_path / "runner.log").read_text(), timeout=30)
            own = httpx.get(url, trust_env=False).text
    assert any(
        "calculator" in line and line.endswith(" 1.0") for line in own.splitlines() if "calls_total{" in line
    )
    after = counter(
        cluster.replicas[0].metrics(), "toolcrib_calls_total", agent="heist/safecracker", outcome="ok"
    )
    assert after == before + 1


def _ok(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False, timeout=2).status_code == 200
    except httpx.TransportError:
        return False


def test_search_finds_by_meaning_within_the_view(cluster: Cluster, planner: str) -> None:
    answer = cluster.search(planner, "work out a sum")
    assert answer["search_mode"] == "hybrid"
    assert answer["tools"][0]["name"] == "calculator"
    assert "database_query" not in {
        t["name"] for t in cluster.search(planner, "ask the bank's database")["tools"]
    }


def test_change_disable_and_delete_are_visible_within_a_second_everywhere(
    cluster: Cluster, planner: str
) -> None:
    def described(replica: int) -> str:
        answer = httpx.get(f"{cluster.replicas[replica].url}/tools/simulation_data", headers=_bearer(planner))
        return str(answer.json().get("description"))

    change = '{"spec": {"description": "Rehearse the break-in"}}'
    cluster.kubectl("patch", "tool", "simulation-data", "-n", "heist", "--type=merge", "-p", change)
    wait_until(lambda: [described(r) for r in range(2)] == ["Rehearse the break-in"] * 2, timeout=1)

    cluster.kubectl(
        "patch",
        "tool",
        "simulation-data",
        "-n",
        "heist",
        "--type=merge",
        "-p",
        '{"spec":{"state":"Disabled"}}',
    )
    left = ["calculator", "file_reader"]
    wait_until(lambda: [cluster.discover(planner, r) for r in range(2)] == [left] * 2, timeout=1)
    assert cluster.call(planner, "simulation_data", {"scenario": "quiet_entry"}).status_code == 403
    assert "simulation_data" not in {
        t["name"] for t in cluster.search(planner, "rehearse the break-in")["tools"]
    }

    cluster.kubectl(
        "patch", "tool", "simulation-data", "-n", "heist", "--type=merge", "-p", '{"spec":{"state":"Active"}}'
    )
    wait_until(lambda: cluster.discover(planner) == PLANNER, timeout=1)
    cluster.kubectl("delete", "tool", "simulation-data", "-n", "heist")
    wait_until(lambda: [cluster.discover(planner, r) for r in range(2)] == [left] * 2, timeout=1)
    cluster.kubectl("apply", "-f", str(EXAMPLES / "heist"))
    wait_until(lambda: cluster.discover(planner) == PLANNER, timeout=5)


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_deleting_a_binding_returns_when_every_replica_refuses(cluster: Cluster) -> None:
    hacker = cluster.token("heist", "hacker")
    cluster.kubectl("delete", "agentscopebinding", "hacker", "-n", "heist")
    for replica in range(2):
        assert cluster.discover(hacker, replica) == []
        assert cluster.call(hacker, "calculator", {"expression": "1"}, replica).status_code == 403
    cluster.kubectl("apply", "-f", str(EXAMPLES / "heist"))
    wait_until(lambda: cluster.discover(hacker) == ["calculator", "database_query"], timeout=5)


@pytest.mark.parametrize(
    ("manifest", "says"),
    [
        ("spec: {scopes: [], backend: {none: {}}}", "spec.scopes"),
        ("spec: {scopes: ['registry:admin'], backend: {none: {}}}", "registry's own powers"),
        ("spec: {scopes: [a], backend: {}}", "exactly one backend must be set"),
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


def test_an_unsafe_schema_is_stored_but_never_published(cluster: Cluster, planner: str) -> None:
    text = (
        "apiVersion: toolcrib.dev/v1alpha1\nkind: Tool\nmetadata: {name: unsafe, namespace: heist}\n"
        "spec:\n  scopes: ['calculator:use']\n  backend: {none: {}}\n"
        "  inputSchema: {properties: {x: {$ref: 'http://169.254.169.254/latest'}}}\n"
    )
    cluster.kubectl("apply", "-f", "-", input=text)

    def reason() -> str:
        path = "{.status.conditions[?(@.type=='Accepted')].reason}"
        return cluster.kubectl("get", "tool", "unsafe", "-n", "heist", "-o", f"jsonpath={path}")

    wait_until(lambda: reason() == "SchemaUnsafe", timeout=5)
    assert "unsafe" not in cluster.discover(planner)
    cluster.kubectl("delete", "tool", "unsafe", "-n", "heist")


def test_the_operator_measures_how_long_a_change_takes_to_every_replica(cluster: Cluster) -> None:
    url = cluster.operators[0].url + "/metrics"  # type: ignore[attr-defined]

    def measured() -> float:
        return counter(httpx.get(url, trust_env=False).text, "toolcrib_propagation_seconds_count")

    before = measured()
    cluster.kubectl("label", "tool", "calculator", "-n", "heist", "test=one", "--overwrite")
    change = '{"spec": {"title": "Pocket calculator"}}'
    cluster.kubectl("patch", "tool", "calculator", "-n", "heist", "--type=merge", "-p", change)
    wait_until(lambda: measured() == before + 1, timeout=5)


def test_a_change_is_followed_by_one_id_from_the_operators_log_to_those_of_all_replicas(
    cluster: Cluster,
) -> None:
    def lines(name: str) -> list[dict[str, Any]]:
        return [json.loads(x) for x in (cluster.folder / f"{name}.log").read_text().splitlines()]

    change = '{"spec": {"title": "Slide rule"}}'
    cluster.kubectl("patch", "tool", "calculator", "-n", "heist", "--type=merge", "-p", change)
    generation = json.loads(cluster.kubectl("get", "tool", "calculator", "-n", "heist", "-o", "json"))["metadata"][
        "generation"
    ]  # fmt: skip

    def told() -> list[dict[str, Any]]:
        wanted = {"kind": "Tool", "namespace": "heist", "name": "calculator", "generation": generation}
        return [x for x in lines("operator-0") if wanted.items() <= x.items() and "revision" in x]

    wait_until(lambda: bool(told()), timeout=5)
    request_id = told()[0]["request_id"]
    for replica in ("registry-0", "registry-1"):

        def applied(name: str = replica) -> bool:
            return any(x.get("request_id") == request_id and "applied" in x["message"] for x in lines(name))

        wait_until(applied, timeout=5)
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


def test_a_wiped_index_is_rebuilt_by_itself_and_lists_and_calls_go_on(cluster: Cluster, planner: str) -> None:
    assert cluster.weaviate is not None
    cluster.weaviate.stop()
    assert cluster.discover(planner) == PLANNER
    assert cluster.call(planner, "calculator", {"expression": "1+1"}).json()["result"] == 2
    answer = cluster.search(planner, "work out a sum")
    assert (answer["search_mode"], answer["degraded"]) == ("lexical", True)
    cluster.weaviate.start()
    cluster.weaviate.wipe()
    wait_until(
        lambda: cluster.search(planner, "work out a sum")["search_mode"] == "hybrid", timeout=90, interval=0.5
    )


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
