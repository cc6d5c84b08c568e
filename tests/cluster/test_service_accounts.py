"""Service accounts that come and go on a real API server, with real tokens: who holds an old one is refused at once."""

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import yaml

import manifests
from cluster import UNPROVEN, Cluster
from realparts.processes import wait_until
from realparts.required import require_real

pytestmark = pytest.mark.real

ONCE = 5.0
"""Seconds for what takes well under one, where it is measured once and the machine may stand still meanwhile."""


def manifest(kind: str, name: str, namespace: str = "crew", **spec: Any) -> dict[str, Any]:
    return manifests.manifest(kind, name, namespace, **spec)


def objects(issuer: str) -> list[dict[str, Any]]:
    group = {"kind": "Group", "issuer": issuer, "name": "system:serviceaccounts:guests"}
    return [
        *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": n}} for n in ("crew", "guests")),
        manifest("Tool", "calculator", scopes=["calculator:use"], backend={"none": {}}),
        manifest(
            "AgentScopeBinding",
            "bot",
            scopes=["calculator:use"],
            subjects=[{"kind": "ServiceAccount", "name": "bot"}],
        ),
        manifest("AgentScopeBinding", "guests", scopes=["calculator:use"], subjects=[group]),
    ]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    require_real("kube-apiserver", "etcd", "kubectl")
    quiet = {"embedder": {"kind": "none"}}
    # the Lease of a killed leader runs out soon
    flags = ["--lease-duration", "6", "--lease-renew", "4.5", "--lease-retry", "0.3", *UNPROVEN]
    with Cluster(replicas=2, store="embedded", registry=quiet, operator_flags=flags) as running:
        running.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(objects(running.api.issuer)))
        running.wait_ready("agentscopebindings")
        yield running


def create(cluster: Cluster, namespace: str, name: str) -> str:
    """Make the account; a token of it."""
    cluster.kubectl("create", "serviceaccount", name, "-n", namespace)
    return cluster.token(namespace, name)


def everywhere(cluster: Cluster, token: str, names: list[str]) -> Callable[[], bool]:
    return lambda: [cluster.discover(token, r) for r in range(len(cluster.replicas))] == [names] * 2


def refused(cluster: Cluster, token: str) -> bool:
    """Whether every replica treats it like a bad token."""
    with httpx.Client(
        headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=60, verify=False
    ) as agent:
        for replica in cluster.replicas:
            listed = agent.get(f"{replica.url}/v1/tools")
            called = agent.post(f"{replica.url}/tools/calculator", json={})
            if (listed.status_code, called.status_code) != (401, 401):
                return False
            if agent.get(replica.url).json()["tools"]:
                return False
    return True


def seconds_until_refused(cluster: Cluster, token: str) -> float:
    at = time.monotonic()
    wait_until(lambda: refused(cluster, token), interval=0.01)
    return time.monotonic() - at


def test_the_token_of_a_deleted_or_recreated_account_is_refused_within_a_second(cluster: Cluster) -> None:
    api = cluster.api.client  # kubectl takes longer to start than all that is measured
    path = "/api/v1/namespaces/crew/serviceaccounts"
    deleted, recreated = [], []
    for _ in range(3):
        old = create(cluster, "crew", "bot")
        wait_until(everywhere(cluster, old, ["calculator"]), interval=0.02)
        assert api.delete(f"{path}/bot").status_code == 200
        deleted.append(seconds_until_refused(cluster, old))

        new = create(cluster, "crew", "bot")
        wait_until(everywhere(cluster, new, ["calculator"]), interval=0.02)
        assert refused(cluster, old)

        # deleted and made anew at once: there may be no moment without one
        assert api.delete(f"{path}/bot").status_code == 200
        assert api.post(path, json={"metadata": {"name": "bot"}}).status_code == 201
        recreated.append(seconds_until_refused(cluster, new))
        wait_until(everywhere(cluster, cluster.token("crew", "bot"), ["calculator"]), interval=0.02)
        assert api.delete(f"{path}/bot").status_code == 200
    print(f"\nrefused by 2 replicas after {deleted} s where deleted, {recreated} s where made anew")
    # one moment in which this machine stands still is no news about the operator
    assert max(statistics.median(deleted), statistics.median(recreated)) < 1, (deleted, recreated)
    assert max(deleted + recreated) < 10, (deleted, recreated)


def test_an_account_bound_through_the_group_of_its_namespace_is_refused_when_it_is_gone(
    cluster: Cluster,
) -> None:
    token = create(cluster, "guests", "visitor")
    wait_until(everywhere(cluster, token, ["calculator"]), interval=0.02)
    api = cluster.api.client
    assert api.delete("/api/v1/namespaces/guests/serviceaccounts/visitor").status_code == 200
    assert seconds_until_refused(cluster, token) < ONCE


def test_one_that_is_being_deleted_counts_as_deleted(cluster: Cluster) -> None:
    token = create(cluster, "guests", "held")
    wait_until(everywhere(cluster, token, ["calculator"]), interval=0.02)
    api = cluster.api.client
    path = "/api/v1/namespaces/guests/serviceaccounts/held"
    patch = {"metadata": {"finalizers": ["example.com/hold"]}}
    merge = {"Content-Type": "application/merge-patch+json"}
    assert api.patch(path, json=patch, headers=merge).status_code == 200
    assert api.delete(path).status_code in (200, 202)
    assert seconds_until_refused(cluster, token) < ONCE
    api.patch(path, json={"metadata": {"finalizers": []}}, headers=merge)


@pytest.mark.long
def test_a_new_leader_refuses_what_was_deleted_while_nobody_led(cluster: Cluster) -> None:
    token = create(cluster, "guests", "late")
    wait_until(everywhere(cluster, token, ["calculator"]), interval=0.02)
    cluster.operators[0].kill()
    api = cluster.api.client
    assert api.delete("/api/v1/namespaces/guests/serviceaccounts/late").status_code == 200
    assert not refused(cluster, token), "nobody has told the replicas"
    cluster.add_operator()
    wait_until(lambda: refused(cluster, token), timeout=60, interval=0.1)
