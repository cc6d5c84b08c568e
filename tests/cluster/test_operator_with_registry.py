"""The real operator and the real registry together: what is applied is what an agent discovers."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from operator_harness import OperatorProcess, running
from realparts.apiserver import ApiServer
from realparts.processes import wait_until
from realparts.required import require_real
from registry_harness import OPERATOR, RunningRegistry, mint, running_registry
from slow_backend import slow_backend

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.apiserver


@pytest.fixture
def server() -> Iterator[ApiServer]:
    require_real("kube-apiserver", "etcd", "kubectl")
    with ApiServer() as server:
        for path in ("crds", "examples/cluster/rbac.yaml"):
            applied = server.kubectl("apply", "-f", str(ROOT / path))
            assert applied.returncode == 0, applied.stderr
        yield server


def seen(server: ApiServer, registry: RunningRegistry, account: str) -> set[str]:
    """The names that an agent discovers, by a token of the account that there is."""
    got = server.kubectl("get", "-n", "heist", "serviceaccount", account, "-o", "jsonpath={.metadata.uid}")
    headers = registry.auth("heist", account, uid=got.stdout)
    answer = httpx.get(registry.url, headers=headers, timeout=5)
    return {tool["name"] for tool in answer.json()["tools"]}


def limits_of_the_example_hold(server: ApiServer, registry: RunningRegistry) -> None:
    """Apply examples/limits, call beyond it, edit it, call again, and delete it."""
    example = str(ROOT / "examples/limits")
    assert server.kubectl("apply", "-f", example).returncode == 0
    wait_until(lambda: "database_query" in seen(server, registry, "planner"))
    got = server.kubectl("get", "-n", "heist", "serviceaccount", "planner", "-o", "jsonpath={.metadata.uid}")
    headers = registry.auth("heist", "planner", uid=got.stdout)

    def called() -> int:
        url = f"{registry.url}/tools/database_query"
        return httpx.post(url, headers=headers, json={"query": "SELECT 1"}).status_code

    assert [called() for _ in range(4)] == [200, 200, 200, 429]
    name = ("-n", "heist", "agentscopebinding.toolcrib.dev/planner-queries")
    more = '{"spec": {"limits": {"callsPerMinute": 5}}}'
    assert server.kubectl("patch", *name, "--type=merge", "-p", more).returncode == 0
    # one call at a time: the first that is let through is the fourth that counts
    wait_until(lambda: called() == 200)
    assert [called() for _ in range(2)] == [200, 429]
    wrong = server.kubectl(
        "patch", *name, "--type=merge", "-p", '{"spec": {"limits": {"callsPerMinute": 0}}}'
    )
    assert "callsPerMinute" in wrong.stderr
    assert server.kubectl("delete", *name, "--timeout=20s").returncode == 0


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
        with running(OperatorProcess(kubeconfig, [registry.admin_url], tmp_path, "--token-file", str(token))):
            heist = str(ROOT / "examples/heist")
            assert server.kubectl("apply", "-f", heist).returncode == 0
            waited = server.kubectl("wait", "-n", "heist", "--for=condition=Ready", "--timeout=20s", "--all",
                                    "tools.toolcrib.dev,agentscopebindings.toolcrib.dev")  # fmt: skip
            assert waited.returncode == 0, waited.stderr
            assert seen(server, registry, "planner") == {"calculator", "file_reader", "simulation_data"}
            assert seen(server, registry, "hacker") == {"calculator", "database_query"}
            limits_of_the_example_hold(server, registry)
            change = '{"spec": {"state": "Disabled"}}'
            server.kubectl(
                "patch", "-n", "heist", "tool.toolcrib.dev", "calculator", "--type=merge", "-p", change
            )
            wait_until(lambda: seen(server, registry, "hacker") == {"database_query"}, 1, 0.02)
            binding = "agentscopebinding.toolcrib.dev/planner"
            deleted = server.kubectl("delete", "-n", "heist", binding, "--timeout=20s")
            assert deleted.returncode == 0, deleted.stderr
            assert seen(server, registry, "planner") == set()
        # a restarted operator finds the registry at another epoch, and everything in place
        with running(
            OperatorProcess(kubeconfig, [registry.admin_url], tmp_path, "--token-file", str(token))
        ) as second:
            assert seen(server, registry, "hacker") == {"database_query"}
            assert second.metric("toolcrib_operator_status_writes_total") == 0
