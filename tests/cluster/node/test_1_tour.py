"""The README's cluster tour on a real node: the chart, pods with projected tokens, and kubectl."""

import time
from typing import Any

import pytest

import figures
from cluster import counter
from node_cluster import EXAMPLES, NodeCluster
from node_release import AGENTS, RELEASE, SYSTEM, condition

pytestmark = pytest.mark.node

HEIST = {
    "planner": [],
    "hacker": ["file_reader", "simulation_data"],
    "safecracker": ["calculator"],
}


def test_everything_is_ready_without_a_restart_and_restricted(cluster: NodeCluster) -> None:
    assert cluster.ready()
    assert set(cluster.restarts().values()) == {0}
    label = "pod-security.kubernetes.io/enforce=restricted"
    said = cluster.node.try_kubectl("label", "--dry-run=server", "--overwrite", "namespace", SYSTEM, label)

    assert said.returncode == 0
    assert "violate" not in said.stderr


def test_agents_discover_exactly_their_tools_by_url_and_token(cluster: NodeCluster) -> None:
    tokens = {name: cluster.token("heist", name) for name in HEIST}
    found: dict[str, list[str]] = {}

    def answered() -> bool:
        for name, token in tokens.items():
            found[name] = found.get(name) or cluster.discover(token)
        return all(found[name] for name, tools in HEIST.items() if tools)

    # an answer that does not come in time counts as no tools
    cluster.node.until(answered, timeout=60)
    nothing = cluster.request("GET", "/", tokens["planner"])

    assert found == HEIST
    assert (nothing.status_code, nothing.json()["authenticated"], nothing.json()["tools"]) == (200, True, [])


def test_a_tool_is_found_by_meaning_and_called_through_the_registry(
    cluster: NodeCluster, safecracker: str
) -> None:
    found = cluster.search_by_meaning(safecracker, "square root of 2 to four digits")
    answer = cluster.call(safecracker, "calculator", {"expression": "310 / 4.5"})

    assert found["tools"][0]["name"] == "calculator"
    assert answer.json()["result"] == pytest.approx(68.888, rel=1e-4)


def test_what_an_agent_may_not_use_does_not_exist_for_it(cluster: NodeCluster, safecracker: str) -> None:
    denied, unknown = (
        cluster.call(safecracker, tool, {"query": "select 1"}) for tool in ("database_query", "no_such_tool")
    )

    assert denied.status_code == unknown.status_code == 403
    assert denied.json()["code"] == unknown.json()["code"] == "not_permitted"


def test_a_bad_manifest_is_refused_at_apply(cluster: NodeCluster) -> None:
    bad = (
        "{apiVersion: toolcrib.dev/v1alpha1, kind: Tool, metadata: {name: bad, namespace: heist}, "
        "spec: {scopes: [], backend: {none: {}}}}"
    )
    said = cluster.node.try_kubectl("apply", "-f", "-", input=bad)

    assert said.returncode == 1
    assert "spec.scopes" in said.stderr


def test_an_agent_of_the_release_becomes_a_ready_pod_that_discovers_without_a_list_of_tools(
    cluster: NodeCluster,
) -> None:
    """At this first install its kind came with the release; it followed as a hook."""
    pod = cluster.agent_pod("safecracker")
    (container,) = pod["spec"]["containers"]

    assert pod["spec"]["serviceAccountName"] == f"{RELEASE}-agent-safecracker"
    assert "calculator" not in str(container)
    _wait_available(cluster, pod, 2)

    def told() -> tuple[str, str, Any]:
        agent = cluster.agent("safecracker")
        return condition(agent, "Deployed"), condition(agent, "Discovering"), agent["status"].get("tools")

    cluster.node.until(lambda: told() == ("True", "True", 2), timeout=60, interval=0.5)


def test_a_change_of_scope_reaches_the_running_pod(cluster: NodeCluster) -> None:
    pod = cluster.agent_pod("safecracker")
    _wait_available(cluster, pod, 2)
    path = "/apis/toolcrib.dev/v1alpha1/namespaces/heist/agentscopebindings/chart-agent"
    took = []
    with cluster.node.client() as client:
        for scopes in (["calculator:use"], ["calculator:use", "simulation:read"]) * 2:
            began = time.monotonic()
            client.patch(
                path,
                json={"spec": {"scopes": scopes}},
                headers={"Content-Type": "application/merge-patch+json"},
            ).raise_for_status()
            _wait_available(cluster, pod, len(scopes))
            took.append(time.monotonic() - began)
    figures.note("scope change to seen by the running pod", ", ".join(f"{each:.2f} s" for each in took))

    # the figures say how long; a busy machine is slower once, not four times
    assert min(took) < 1
    assert _same(cluster, pod)


def test_a_suspended_agent_gets_nothing_and_its_pod_stays(cluster: NodeCluster) -> None:
    pod = cluster.agent_pod("safecracker")

    def suspend(value: str) -> None:
        cluster.node.kubectl("patch", "agents.toolcrib.dev", "safecracker", "-n", AGENTS, "--type=merge",
                             "-p", f'{{"spec": {{"suspended": {value}}}}}')  # fmt: skip

    began = time.monotonic()
    suspend("true")
    _wait_available(cluster, pod, 0)
    figures.note("suspended to seen by the running pod", f"{time.monotonic() - began:.2f} s")
    suspend("false")
    _wait_available(cluster, pod, 2)

    assert _same(cluster, pod)


def test_the_crew_runs_as_agents_each_with_what_it_is_granted(cluster: NodeCluster) -> None:
    cluster.apply_crew()
    pods = {name: cluster.agent_pod(name, "heist") for name in ("planner", "safecracker")}

    def last_run() -> Any:
        return cluster.agent("hacker", "heist").get("status", {}).get("lastRun", {}).get("outcome")

    for name, pod in pods.items():
        _wait_available(cluster, pod, len(HEIST[name]))
    cluster.node.until(lambda: last_run() not in (None, "Running"), timeout=120, interval=0.5)
    (pod,) = cluster.agent_pods("hacker", "heist")
    said = cluster.node.logs(pod["metadata"]["name"], "heist")

    assert last_run() == "Succeeded", said
    assert "guard_schedule.txt" in said
    assert pod["status"]["phase"] == "Succeeded"


def _wait_available(cluster: NodeCluster, pod: dict[str, Any], wanted: int) -> None:
    """Wait until the process in the pod has this many tools; shorter than its own look at what has not changed."""
    cluster.node.until(
        lambda: counter(cluster.metrics(pod, 8092), "toolcrib_agent_tools_available") == wanted,
        timeout=30,
        interval=0.02,
    )


def _same(cluster: NodeCluster, pod: dict[str, Any]) -> bool:
    """Whether the Agent still runs by this pod, which was never started again."""
    (now,) = cluster.agent_pods(pod["metadata"]["labels"]["toolcrib.dev/agent"], pod["metadata"]["namespace"])
    restarts = sum(each["restartCount"] for each in now["status"]["containerStatuses"])
    return bool(now["metadata"]["uid"] == pod["metadata"]["uid"] and restarts == 0)


def test_deleting_a_binding_returns_when_the_grant_is_gone(cluster: NodeCluster) -> None:
    token = cluster.token("heist", "hacker")
    cluster.node.until(lambda: len(cluster.discover(token)) == 2, timeout=60, interval=0.1)
    began = time.monotonic()
    cluster.node.kubectl("delete", "agentscopebinding", "hacker", "-n", "heist")
    figures.note("kubectl delete of a binding returns after", f"{time.monotonic() - began:.2f} s")
    answers = [cluster.call(token, "simulation_data", {}).status_code for _ in range(6)]
    cluster.node.kubectl("apply", "-f", str(EXAMPLES / "heist" / "41-binding-hacker.yaml"))

    assert answers == [403] * 6


def test_the_status_tells_what_is_there(cluster: NodeCluster) -> None:
    cluster.wait_objects()
    tools = cluster.node.get("tools.toolcrib.dev", "-n", "heist")["items"]

    assert len(tools) == 4
    assert {condition(tool, "Indexed") for tool in tools} == {"True"}


def test_the_clusters_own_roles_view_and_edit_cover_our_kinds(cluster: NodeCluster) -> None:
    """The controller manager gathers what is labelled for them: only a whole node shows it."""
    for role in ("view", "edit"):
        cluster.node.kubectl("create", "rolebinding", f"my-{role}", "-n", "heist", f"--clusterrole={role}",
                             f"--user=person-who-may-{role}")  # fmt: skip

    def may(role: str, verb: str) -> str:
        return cluster.node.try_kubectl(
            "auth", "can-i", verb, "tools.toolcrib.dev", "-n", "heist", f"--as=person-who-may-{role}"
        ).stdout.strip()

    # the API server reads the bindings a moment later
    cluster.node.until(
        lambda: may("view", "list") == may("edit", "create") == "yes", timeout=60, interval=0.3
    )
    assert [may("view", "list"), may("view", "create"), may("edit", "create")] == ["yes", "no", "yes"]


def test_helm_test_discovers_and_calls(cluster: NodeCluster) -> None:
    said = cluster.helm("test", RELEASE, "--namespace", SYSTEM, "--timeout", "150s", "--logs")

    assert "Succeeded" in said
