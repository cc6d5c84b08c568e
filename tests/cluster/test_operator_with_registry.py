"""The real operator and the real registry together: what is applied is what an agent discovers."""

import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from operator_harness import conditions
from operator_process import OperatorProcess, running
from realparts.apiserver import ApiServer
from realparts.processes import wait_until
from realparts.required import require_real
from registry_harness import OPERATOR, RunningRegistry, mint, running_registry
from slow_backend import slow_backend

ROOT = Path(__file__).parents[2]
LASTING = ("Ready", "Accepted", "Propagated", "Expired")

pytestmark = pytest.mark.real


@pytest.fixture
def server() -> Iterator[ApiServer]:
    require_real("kube-apiserver", "etcd", "kubectl")
    with ApiServer() as server:
        for path in ("crds", "examples/cluster/rbac.yaml"):
            applied = server.kubectl("apply", "-f", str(ROOT / path))
            assert applied.returncode == 0, applied.stderr
        yield server


def headers_of(server: ApiServer, registry: RunningRegistry, account: str) -> dict[str, str]:
    """A token of the account that there is."""
    got = server.kubectl("get", "-n", "heist", "serviceaccount", account, "-o", "jsonpath={.metadata.uid}")
    return registry.auth("heist", account, uid=got.stdout)


def seen(registry: RunningRegistry, headers: dict[str, str]) -> set[str]:
    """The names that an agent discovers."""
    return {tool["name"] for tool in registry.http.get(registry.url, headers=headers).json()["tools"]}


def patch(server: ApiServer, name: str, **spec: Any) -> None:
    change = json.dumps({"spec": spec})
    done = server.kubectl("patch", "-n", "heist", name, "--type=merge", "-p", change)
    assert done.returncode == 0, done.stderr


def items(server: ApiServer, plural: str) -> dict[str, dict[str, Any]]:
    """The objects of a kind, by name."""
    listed = server.client.get(f"/apis/toolcrib.dev/v1alpha1/{plural}").json()["items"]
    return {item["metadata"]["name"]: item for item in listed}


def written(server: ApiServer) -> dict[str, Any]:
    """What has been written and stays: of a Tool its version, of a binding what is not corrected a minute later, which
    is how many tools it reaches."""
    found: dict[str, Any] = {n: i["metadata"]["resourceVersion"] for n, i in items(server, "tools").items()}
    for plural in ("agentscopebindings", "clusteragentscopebindings"):
        for name, item in items(server, plural).items():
            lasting = [c for c in item["status"]["conditions"] if c["type"] in LASTING]
            found[f"{plural}/{name}"] = (
                item["metadata"]["generation"],
                item["metadata"]["finalizers"],
                lasting,
            )
    return found


def limits_of_the_example_hold(server: ApiServer, registry: RunningRegistry, headers: dict[str, str]) -> None:
    """Apply examples/limits, call beyond it, edit it, call again, and delete it."""
    example = str(ROOT / "examples/limits")
    assert server.kubectl("apply", "-f", example).returncode == 0
    wait_until(lambda: "database_query" in seen(registry, headers))

    def called() -> int:
        url = f"{registry.url}/tools/database_query"
        return registry.http.post(url, headers=headers, json={"query": "SELECT 1"}).status_code

    assert [called() for _ in range(4)] == [200, 200, 200, 429]
    name = "agentscopebinding.toolcrib.dev/hacker-queries"
    patch(server, name, limits={"callsPerMinute": 5})
    # one call at a time: the first that is let through is the fourth that counts
    wait_until(lambda: called() == 200)
    assert [called() for _ in range(2)] == [200, 429]
    none = '{"spec": {"limits": {"callsPerMinute": 0}}}'
    wrong = server.kubectl("patch", "-n", "heist", name, "--type=merge", "-p", none)
    assert "callsPerMinute" in wrong.stderr
    assert server.kubectl("delete", "-n", "heist", name, "--timeout=60s").returncode == 0


def test_an_agent_discovers_what_is_applied_and_loses_what_is_revoked(
    server: ApiServer, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(mint(OPERATOR, audience="toolcrib-admin"))
    kubeconfig = server.kubeconfig_for(server.token_request("toolcrib-system", "toolcrib-operator"))
    with (
        slow_backend() as backend,
        running_registry(
            publish=False, backends={"heist/example-tools": f"127.0.0.1:{backend.port}"}
        ) as registry,
    ):
        backend.answer()
        options = (kubeconfig, [registry.admin_url], tmp_path, "--token-file", str(token))
        with running(OperatorProcess(*options)) as first:
            heist = str(ROOT / "examples/heist")
            assert server.kubectl("apply", "-f", heist).returncode == 0
            waited = server.kubectl("wait", "-n", "heist", "--for=condition=Ready", "--timeout=60s", "--all",
                                    "tools.toolcrib.dev,agentscopebindings.toolcrib.dev")  # fmt: skip
            assert waited.returncode == 0, waited.stderr
            names = ("planner", "hacker", "safecracker")
            planner, hacker, safecracker = (headers_of(server, registry, name) for name in names)
            # their accounts are published beside the bindings
            wait_until(lambda: bool(seen(registry, hacker) and seen(registry, safecracker)))
            assert seen(registry, planner) == set()
            assert seen(registry, hacker) == {"file_reader", "simulation_data"}
            assert seen(registry, safecracker) == {"calculator"}
            limits_of_the_example_hold(server, registry, hacker)
            took: dict[str, list[float]] = {"Active": [], "Disabled": []}
            for state in ("Disabled", "Active", "Disabled", "Active", "Disabled"):
                wanted = {"file_reader"} | ({"simulation_data"} if state == "Active" else set())
                before = first.propagated()
                patch(server, "tool.toolcrib.dev/simulation-data", state=state)
                wait_until(lambda wanted=wanted: seen(registry, hacker) == wanted, interval=0.02)  # type: ignore[misc]
                took[state].append(first.propagation(before))
            # one moment in which this machine stands still is no news about the operator
            assert max(map(statistics.median_low, took.values())) < 1, took
            assert max(map(max, took.values())) < 10, took
            binding = "agentscopebinding.toolcrib.dev/safecracker"
            deleted = server.kubectl("delete", "-n", "heist", binding, "--timeout=60s")
            assert deleted.returncode == 0, deleted.stderr
            assert seen(registry, safecracker) == set()
            off = ("False", "Disabled")
            tool = "simulation-data"
            wait_until(lambda: conditions(items(server, "tools")[tool]["status"]).get("Ready") == off)
            wait_until(lambda: first.report().get("waiting_for_status") == 0)
            before = written(server)
        # a restarted operator finds the registry at another epoch, and everything in place
        with running(OperatorProcess(*options)) as second:
            wait_until(lambda: second.report().get("waiting_for_status") == 0)
            assert seen(registry, hacker) == {"file_reader"}
            assert "agentscopebindings/hacker" in before
            assert written(server) == before
