"""Grants in time and place on a real API server: dates hold without an operator, labels only where an admin says so."""

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

import manifests
from cluster import UNPROVEN, Cluster, counter
from realparts.processes import Child, wait_until
from realparts.required import require_real
from toolcrib_cli.main import main

pytestmark = [pytest.mark.real, pytest.mark.long]

ZONE = "platform.example/zone"
CREW = (
    "ending-hung",
    "coming-hung",
    "ending-killed",
    "coming-killed",
    "brief",
    "tenant",
    "admin",
    "home",
    "leaver",
)


def manifest(kind: str, name: str, namespace: str | None = "crew", /, **spec: Any) -> dict[str, Any]:
    return manifests.manifest(kind, name, namespace, **spec)


def grant(name: str, scope: str = "calculator:use", **spec: Any) -> dict[str, Any]:
    """A binding for the account of its name."""
    subject = {"kind": "ServiceAccount", "name": name}
    return manifest("AgentScopeBinding", name, subjects=[subject], scopes=[scope], **spec)


def selecting(name: str, label: str, value: str) -> dict[str, Any]:
    subject = {"kind": "ServiceAccount", "namespace": "crew", "name": name}
    selector = {"matchLabels": {label: value}}
    return manifest("ClusterAgentScopeBinding", name, None, subjects=[subject], scopes=["calculator:use"],
                    namespaceSelector=selector)  # fmt: skip


def account(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "crew"}}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    require_real("kube-apiserver", "etcd", "kubectl")
    flags = ["--trusted-namespace-labels", f"kubernetes.io/metadata.name,{ZONE}", *UNPROVEN]  # fmt: skip
    with Cluster(store="embedded", registry={"embedder": {"kind": "none"}}, operator_flags=flags) as running:
        objects = [
            *(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": n}}
                for n in ("crew", "tenants")
            ),
            manifest("Tool", "calculator", scopes=["calculator:use"], backend={"none": {}}),
            manifest("Tool", "ledger", "tenants", scopes=["calculator:use"], backend={"none": {}}),
            *map(account, CREW),
        ]
        apply(running, *objects)
        running.wait_ready("tools", "crew")
        yield running


@pytest.fixture
def operator(cluster: Cluster) -> Child:
    """The operator at work."""
    child = cluster.operators[-1]
    url = f"{child.url}/readyz"  # type: ignore[attr-defined]
    wait_until(lambda: httpx.get(url, trust_env=False, timeout=60).json().get("role") == "leader", timeout=60)
    return child


def apply(cluster: Cluster, *objects: dict[str, Any]) -> None:
    cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(objects))


def at(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def condition(cluster: Cluster, kind: str, name: str, wanted: str) -> tuple[str, str]:
    """(status, reason) of a condition of this generation."""
    got = cluster.api.read(kind, name, "" if kind.startswith("cluster") else "crew")
    for c in got["status"]["conditions"]:
        if c["type"] == wanted and c.get("observedGeneration") == got["metadata"]["generation"]:
            return c["status"], c["reason"]
    return "Unknown", ""


def propagated(cluster: Cluster, *names: str) -> None:
    wait_until(
        lambda: all(condition(cluster, "agentscopebindings", n, "Propagated")[0] == "True" for n in names),
        timeout=60,
    )


def test_an_end_shows_in_condition_event_and_metric_and_is_told_once(
    cluster: Cluster, operator: Child
) -> None:
    url = f"{operator.url}/metrics"  # type: ignore[attr-defined]

    def metric() -> float:
        text = httpx.get(url, trust_env=False, timeout=60).text
        return counter(text, "toolcrib_grant_expiry_timestamp_seconds", grant=f"crew/{name}")

    for lead in (3, 10, 30):  # a busy machine takes longer until it is in force
        moment, name = time.time() + lead, f"brief-{lead}"
        brief = grant("brief", expiresAt=at(moment))
        apply(cluster, brief | {"metadata": {"name": name, "namespace": "crew"}})
        propagated(cluster, name)
        ends, expired = metric(), condition(cluster, "agentscopebindings", name, "Expired")
        if time.time() < moment:
            break
    assert ends == pytest.approx(moment, abs=0.001)
    assert expired == ("False", "InForce")
    wait_until(
        lambda: condition(cluster, "agentscopebindings", name, "Expired") == ("True", "Expired"), timeout=60
    )
    assert condition(cluster, "agentscopebindings", name, "Ready") == ("False", "Expired")
    assert condition(cluster, "agentscopebindings", name, "Questionable") == ("False", "NothingOdd")

    def told() -> list[str]:
        items = cluster.api.read("events", namespace="crew")["items"]
        return [e["reason"] for e in items if e["involvedObject"]["name"] == name]

    wait_until(lambda: told().count("Expired") == 1)
    change = {"metadata": {"labels": {"seen": "again"}}}
    cluster.kubectl("patch", "asb", name, "-n", "crew", "--type=merge", "-p", json.dumps(change))
    apply(cluster, manifest("Tool", "another", scopes=["other:use"], backend={"none": {}}))
    cluster.wait_ready("tools", "crew")
    assert told().count("Expired") == 1


def test_relabelling_a_namespace_does_nothing_where_the_label_is_not_trusted(
    cluster: Cluster, operator: Child
) -> None:
    apply(cluster, selecting("tenant", "team", "a"), selecting("admin", ZONE, "a"),
          selecting("home", "kubernetes.io/metadata.name", "crew"))  # fmt: skip
    tokens = {name: cluster.token("crew", name) for name in ("tenant", "admin", "home")}
    wait_until(lambda: cluster.discover(tokens["home"]) == ["calculator"])

    def accepted(name: str) -> tuple[str, str]:
        return condition(cluster, "clusteragentscopebindings", name, "Accepted")

    wait_until(lambda: accepted("tenant") == ("False", "UntrustedLabel"))
    # a tenant labels a namespace of its own, also with the name of another
    for label in ("team=a", "kubernetes.io/metadata.name=crew"):
        cluster.kubectl("label", "namespace", "tenants", label, "--overwrite", check=False)
    # the admin's label comes last: once it has moved its grant, the others have been seen too
    cluster.kubectl("label", "namespace", "tenants", f"{ZONE}=a")
    wait_until(lambda: cluster.discover(tokens["admin"]) == ["ledger"])
    assert cluster.discover(tokens["tenant"]) == []
    assert cluster.discover(tokens["home"]) == ["calculator"]
    cluster.kubectl("label", "namespace", "tenants", f"{ZONE}-")
    wait_until(lambda: cluster.discover(tokens["admin"]) == [])


def test_validate_says_before_what_the_operator_says_after(
    cluster: Cluster, operator: Child, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "new.yaml"
    objects = [
        manifest(
            "Tool",
            "pocket",
            name="calculator",
            description="Compute a sum in the head of the crew's accountant.",
            scopes=["calculator:use"],
            backend={"none": {}},
        ),
        grant("ghost", tools={"allow": ["calc*"], "deny": ["delete_*"]}),
        selecting("outsider", "team", "b"),
    ]
    file.write_text(yaml.safe_dump_all(objects))

    def validate(*options: str) -> tuple[int, dict[str, Any]]:
        kubeconfig = str(cluster.api.admin_kubeconfig)
        with pytest.raises(SystemExit) as ended:
            main(
                [
                    "validate",
                    str(file),
                    "--against-cluster",
                    "-o",
                    "json",
                    "--kubeconfig",
                    kubeconfig,
                    *options,
                ]
            )
        return int(ended.value.code or 0), json.loads(capsys.readouterr().out)

    code, answer = validate("--trusted-namespace-label", ZONE)
    assert code == 1
    assert [(p["field"], p["message"].split(":")[0]) for p in answer["problems"]] == [
        ("spec.name", "Accepted=False/NameConflict"),
        ("spec.namespaceSelector", "Accepted=False/UntrustedLabel"),
    ]
    assert [(w["object"], w["reason"]) for w in answer["warnings"]] == [
        ("AgentScopeBinding crew/ghost", "SubjectNotFound"),
        ("AgentScopeBinding crew/ghost", "DenyNeverFires"),
        ("AgentScopeBinding crew/ghost", "WildcardAllow"),
    ]
    apply(cluster, *objects)
    wait_until(
        lambda: (
            condition(cluster, "agentscopebindings", "ghost", "Questionable") == ("True", "SubjectNotFound")
        )
    )
    wait_until(lambda: condition(cluster, "agentscopebindings", "ghost", "Ready") == ("True", "Ready"))
    wait_until(lambda: condition(cluster, "tools", "pocket", "Accepted") == ("False", "NameConflict"))
    # warnings alone end well, unless that is asked for
    apply(cluster, account("ghost"))
    file.write_text(yaml.safe_dump(grant("ghost", tools={"deny": ["delete_*"]})))
    assert [w["reason"] for w in validate()[1]["warnings"]] == ["DenyNeverFires"]
    assert (validate()[0], validate("--strict")[0]) == (0, 1)


def test_tools_of_a_namespace_are_withdrawn_as_its_deletion_begins(cluster: Cluster, operator: Child) -> None:
    """Nothing deletes its objects here: the API server alone has marked the namespace."""
    name = {"metadata": {"name": "fading"}}
    tool = manifest("Tool", "photo", "fading", scopes=["calculator:use"], backend={"none": {}})
    grant_all = selecting("leaver", "kubernetes.io/metadata.name", "fading")
    apply(cluster, {"apiVersion": "v1", "kind": "Namespace", **name}, tool, grant_all)
    token = cluster.token("crew", "leaver")
    wait_until(lambda: cluster.discover(token) == ["photo"])

    cluster.kubectl("delete", "namespace", "fading", "--wait=false")

    wait_until(lambda: cluster.discover(token) == [])
    left = json.loads(cluster.kubectl("get", "tool", "photo", "-n", "fading", "-o", "json"))
    assert "deletionTimestamp" not in left["metadata"]


def test_grants_end_and_begin_at_the_registry_while_the_operator_hangs_and_after_it_was_killed(
    cluster: Cluster, operator: Child
) -> None:
    tokens = {n: cluster.token("crew", n) for n in CREW if n.startswith(("ending", "coming"))}
    for lead in (6, 15, 40):  # a busy machine takes longer until all of it is in force
        hung, killed = time.time() + lead, time.time() + 2 * lead
        apply(
            cluster,
            *(grant(f"ending-{how}", expiresAt=at(m)) for how, m in (("hung", hung), ("killed", killed))),
            *(grant(f"coming-{how}", notBefore=at(m)) for how, m in (("hung", hung), ("killed", killed))),
        )
        propagated(cluster, *tokens)
        if time.time() < hung - 4:
            break
    try:
        for how, moment, strike in (("hung", hung, operator.pause), ("killed", killed, operator.kill)):
            strike()
            ending, coming = tokens[f"ending-{how}"], tokens[f"coming-{how}"]
            assert (may_call(cluster, ending), may_call(cluster, coming)) == (True, False)
            assert (cluster.discover(ending), cluster.discover(coming)) == (["calculator"], [])
            assert time.time() < moment, "too late: what follows would prove nothing"
            ended = seen(lambda t=ending: cluster.discover(t), [], moment)  # type: ignore[misc]
            begun = seen(lambda t=coming: cluster.discover(t), ["calculator"], moment)  # type: ignore[misc]
            assert (may_call(cluster, ending), may_call(cluster, coming)) == (False, True)
            print(
                f"\noperator {how}: ended {ended:.3f} s after expiresAt, begun {begun:.3f} s after notBefore"
            )
    finally:
        operator.stop()


def may_call(cluster: Cluster, token: str) -> bool:
    """Whether a call gets past the decision: the tool has no backend."""
    return bool(cluster.call(token, "calculator", {}).json().get("code") != "not_permitted")


def seen(look: Callable[[], list[str]], expected: list[str], moment: float) -> float:
    """Seconds after `moment` at which `expected` is there; it is not before."""
    while (now := time.time()) < moment + 5:
        if look() == expected:
            found = time.time()
            assert found >= moment
            return found - moment
        time.sleep(0.01 if now > moment - 0.2 else 0.1)
    raise AssertionError("nothing changed")
