"""Runtime registration in a cluster: from `POST /tools/register` to an object of the API server that lasts."""

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from cluster import UNPROVEN, Cluster
from realparts.processes import wait_until
from realparts.required import require_real

pytestmark = [pytest.mark.real, pytest.mark.long]

RUNTIME = "toolcrib-runtime"
WAITS = 12.0
"""Seconds: more than the registry's default of 10, so that one is told from the other however slow the machine is."""
GRANTS = """
apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: writer, namespace: team}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: bot, namespace: team}
---
apiVersion: toolcrib.dev/v1alpha1
kind: ClusterAgentScopeBinding
metadata: {name: writer}
spec:
  subjects: [{kind: ServiceAccount, namespace: team, name: writer}]
  namespaces: [toolcrib-runtime]
  scopes: ["registry:write"]
---
apiVersion: toolcrib.dev/v1alpha1
kind: ClusterAgentScopeBinding
metadata: {name: bot}
spec:
  subjects: [{kind: ServiceAccount, namespace: team, name: bot}]
  namespaces: [toolcrib-runtime]
  scopes: ["rates:use"]
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    require_real("kube-apiserver", "etcd", "kubectl")
    settings = {
        "registration": True,
        "egress": {"loopback": True},
        "limits": {"registration_seconds": WAITS},
    }
    flags = [
        "--runtime-registration", "--lease-duration", "6", "--lease-renew", "4.5", "--lease-retry", "0.3",
        "--heartbeat", "0.5", *UNPROVEN,
    ]  # fmt: skip
    with Cluster(
        replicas=2,
        store="embedded",
        embedder="none",
        operator_flags=flags,
        registry=settings,
        open_tools=True,
    ) as running:
        running.kubectl("apply", "-f", "-", input=GRANTS)
        running.wait_ready("clusteragentscopebindings")
        yield running


def register(
    cluster: Cluster, name: str, *, account: str = "writer", replica: int = 0, **fields: Any
) -> httpx.Response:
    """Register a tool as a service account of `team`."""
    body = {"name": name, "endpoint": "/tools/calculator", "scopes": ["rates:use"], "description": "A rate."}
    return httpx.post(
        f"{cluster.replicas[replica].url}/tools/register",
        json={**body, **fields},
        headers={"Authorization": f"Bearer {cluster.token('team', account)}"},
        trust_env=False,
        timeout=60,
    )


def objects(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """The Tools of the runtime namespace, by the names that agents see."""
    listed = json.loads(cluster.kubectl("get", "tools", "-n", RUNTIME, "-o", "json"))["items"]
    return {item["spec"]["name"]: item for item in listed}


def names(cluster: Cluster) -> list[list[str]]:
    """What the agent discovers at each replica; of one that is not ready, nothing."""
    headers = {"Authorization": f"Bearer {cluster.token('team', 'bot')}"}
    answers = [
        httpx.get(r.url, headers=headers, trust_env=False, timeout=60).json() for r in cluster.replicas
    ]
    return [sorted(t["name"] for t in answer.get("tools", ())) for answer in answers]


def forget(cluster: Cluster) -> None:
    """Delete what was registered."""
    cluster.kubectl("delete", "tools", "-n", RUNTIME, "--all")
    wait_until(lambda: names(cluster) == [[], []])


def registered(cluster: Cluster, name: str) -> None:
    """Try until it is registered; an attempt that was not told that nothing has changed may have done it."""
    may_come = False

    def tried() -> bool:
        nonlocal may_come
        answer = register(cluster, name)
        if answer.status_code == 200:
            return True
        said = answer.json()
        may_come |= said["code"] == "not_durable" and "nothing has changed" not in said["detail"].lower()
        return may_come and name in objects(cluster)

    wait_until(tried, timeout=60)


@pytest.fixture
def clean(cluster: Cluster) -> Iterator[Cluster]:
    yield cluster
    forget(cluster)


def test_a_registered_tool_is_an_object_discovered_at_once_everywhere_and_called(clean: Cluster) -> None:
    answer = register(clean, "exchange_rate", host="127.0.0.1", port=clean.tools_port)
    request_id = answer.headers["x-request-id"]
    assert answer.json() == {
        "status": "success",
        "message": "Tool 'exchange_rate' registered successfully",
        "total_tools": 0,  # of those that the writer sees
    }
    assert names(clean) == [["exchange_rate"]] * 2
    found = objects(clean)["exchange_rate"]
    assert found["metadata"]["labels"] == {"toolcrib.dev/source": "runtime"}
    assert found["metadata"]["annotations"] == {"toolcrib.dev/request-id": request_id}
    assert request_id in (clean.folder / "operator-0.log").read_text()
    assert found["metadata"]["name"].startswith("exchange-rate-")
    called = clean.call(clean.token("team", "bot"), "exchange_rate", {"expression": "6*7"}, replica=1)
    assert called.json()["result"] == 42
    clean.wait_ready("tools", RUNTIME)

    for replica in range(2):
        again = register(clean, "exchange_rate", replica=replica)
        assert (again.status_code, again.json()["detail"]) == (
            400,
            "Tool 'exchange_rate' already registered",
        )


def test_one_name_may_stand_under_several_servers(clean: Cluster) -> None:
    answers = [register(clean, "rate", server=server, replica=i) for i, server in enumerate(("ecb", "fed"))]
    alone = register(clean, "rate")
    assert [a.status_code for a in (*answers, alone)] == [200, 200, 200]
    listed = json.loads(clean.kubectl("get", "tools", "-n", RUNTIME, "-o", "json"))["items"]
    assert sorted(item["spec"].get("server", "") for item in listed) == ["", "ecb", "fed"]
    assert len({item["metadata"]["name"] for item in listed}) == 3


def test_a_tool_that_somebody_applied_under_that_name_is_never_touched(clean: Cluster) -> None:
    mine = (
        "apiVersion: toolcrib.dev/v1alpha1\nkind: Tool\nmetadata: {name: mine, namespace: toolcrib-runtime}\n"
        "spec: {name: rate, scopes: ['rates:use'], backend: {none: {}}}\n"
    )
    clean.kubectl("apply", "-f", "-", input=mine)
    wait_until(lambda: names(clean) == [["rate"]] * 2)
    answer = register(clean, "rate", description="Another.")
    assert (answer.status_code, answer.json()["detail"]) == (400, "Tool 'rate' already registered")
    found = objects(clean)
    assert [(t["metadata"]["name"], t["metadata"]["generation"]) for t in found.values()] == [("mine", 1)]


@pytest.mark.parametrize(
    ("account", "fields", "status", "code"),
    [
        ("bot", {}, 403, "not_permitted"),
        ("writer", {"scopes": ["registry:write"]}, 400, "reserved_scope"),
        ("writer", {"scopes": ["registry:admin", "rates:use"]}, 400, "reserved_scope"),
        ("writer", {"input_schema": {"$ref": "http://169.254.169.254/"}}, 400, "schema_unsafe"),
        ("writer", {"host": "169.254.169.254", "port": 80}, 400, "egress_refused"),
        ("writer", {"unknown": 1}, 400, "invalid_request"),
    ],
)
def test_what_may_not_be_registered_leaves_nothing(
    cluster: Cluster, account: str, fields: dict[str, Any], status: int, code: str
) -> None:
    answer = register(cluster, "rate", account=account, **fields)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert objects(cluster) == {}


def test_without_an_operator_the_caller_is_told_in_time_and_nothing_is_half_written(clean: Cluster) -> None:
    operator = clean.operators[0]
    operator.stop()
    started = time.monotonic()
    answer = register(clean, "exchange_rate")
    took = time.monotonic() - started
    assert (answer.status_code, answer.json()["code"]) == (503, "not_durable")
    assert (
        answer.json()["detail"] == "No operator has taken the registration. Nothing has changed; retry later."
    )
    assert answer.headers["Retry-After"] == "5"
    assert WAITS <= took < WAITS + 8
    assert objects(clean) == {}

    operator.start()
    registered(clean, "second")
    wait_until(lambda: names(clean) == [["second"]] * 2)  # what was given up does not come after all
    assert list(objects(clean)) == ["second"]


def test_a_registration_survives_the_restart_of_the_registry_and_of_the_operator(clean: Cluster) -> None:
    assert register(clean, "exchange_rate").status_code == 200
    for replica in clean.replicas:
        replica.child.kill()
        replica.start()
    clean.operators[0].kill()
    clean.operators[0].start()
    wait_until(lambda: names(clean) == [["exchange_rate"]] * 2, timeout=60)
    again = register(clean, "exchange_rate")
    assert again.status_code == 400
    registered(clean, "next")
