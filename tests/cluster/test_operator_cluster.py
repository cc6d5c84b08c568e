"""The operator as a process against a real API server, with honest replicas behind HTTP."""

import asyncio
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from manifests import binding, cluster_binding, tool
from operator_harness import HttpReplica, conditions
from operator_process import OperatorProcess, running
from realparts.apiserver import ApiServer
from realparts.processes import wait_until
from realparts.required import require_real
from toolcrib.audit import anchors as audit_anchors
from toolcrib.wire.publish import AuditHead
from toolcrib_cli import decision_logs
from toolcrib_cli.cluster import read_config_map
from toolcrib_cli.errors import CliError
from toolcrib_operator.adapters.anchors import KubeAnchors
from toolcrib_operator.adapters.kube import Kube
from toolcrib_operator.errors import Conflict

ROOT = Path(__file__).parents[2]
CRDS = ROOT / "crds"
RBAC = ROOT / "examples/cluster/rbac.yaml"
HEIST = ROOT / "examples/heist"
READY = ("True", "Ready")

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    """An API server of this module's own: the operator sees every namespace."""
    require_real("kube-apiserver", "etcd", "kubectl")
    with ApiServer() as server:
        for path in (CRDS, RBAC):
            applied = server.kubectl("apply", "-f", str(path))
            assert applied.returncode == 0, applied.stderr
        served = server.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        assert served.returncode == 0, served.stderr
        # they are served a moment after they say so
        wait_until(lambda: server.kubectl("get", "toolcrib", "-A").returncode == 0)
        server.create_namespace("heist")
        applied = server.kubectl("apply", "-f", str(HEIST / "20-service.yaml"))
        assert applied.returncode == 0, applied.stderr
        yield server


@pytest.fixture
def cluster(server: ApiServer) -> Iterator[ApiServer]:
    """The API server without any object of ours."""
    yield server
    server.purge()


@pytest.fixture
def replicas() -> Iterator[list[HttpReplica]]:
    with HttpReplica("replica-0") as first, HttpReplica("replica-1") as second:
        second.entries = first.entries  # one index behind all replicas, as with a real store
        yield [first, second]


@pytest.fixture
def start(cluster: ApiServer, replicas: list[HttpReplica], tmp_path: Path) -> Callable[..., OperatorProcess]:
    """Makes an operator process that runs with the rights of rbac.yaml and nothing else."""
    token = cluster.token_request("toolcrib-system", "toolcrib-operator")
    kubeconfig = cluster.kubeconfig_for(token)

    def make(*options: str) -> OperatorProcess:
        return OperatorProcess(kubeconfig, [r.url for r in replicas], tmp_path, *options)

    return make


def apply(cluster: ApiServer, *manifests: dict[str, Any]) -> None:
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})
    result = cluster.kubectl("apply", "-f", "-", input=body)
    assert result.returncode == 0, result.stderr


def get(cluster: ApiServer, kind: str, name: str) -> dict[str, Any]:
    return cluster.read(f"{kind}s", name, "" if kind.startswith("cluster") else "heist")


def state(cluster: ApiServer, kind: str, name: str) -> dict[str, tuple[str, str]]:
    return conditions(get(cluster, kind, name).get("status"))


def ready(cluster: ApiServer, kind: str, name: str) -> None:
    wait_until(lambda: state(cluster, kind, name).get("Ready") == READY, 60, 0.1)


def everywhere(replicas: list[HttpReplica], tool_id: str) -> None:
    """Wait until every replica has it, and all have the same: a Tool is ready once one of them does."""
    wait_until(
        lambda: (
            all(tool_id in r.snapshot.tools for r in replicas)
            and len({(r.snapshot.revision, r.snapshot.hash) for r in replicas}) == 1
        )
    )


def matched(cluster: ApiServer, name: str) -> Any:
    """How many tools the status of a binding counts; it is corrected after it became ready."""
    return get(cluster, "agentscopebinding", name)["status"].get("matchedTools")


def nothing_waits(operator: OperatorProcess) -> bool:
    return operator.report().get("waiting_for_status") == 0


def versions(cluster: ApiServer) -> dict[str, str]:
    found: dict[str, str] = {}
    for plural in (
        "tools",
        "toolservers",
        "agentscopebindings",
        "clusteragentscopebindings",
        "agents",
        "accessrequests",
        "toolcanaries",
    ):
        listed = cluster.client.get(f"/apis/toolcrib.dev/v1alpha1/{plural}").json()
        found |= {i["metadata"]["uid"]: i["metadata"]["resourceVersion"] for i in listed["items"]}
    return found


def test_what_is_applied_is_published_and_becomes_ready(
    cluster: ApiServer, replicas: list[HttpReplica], start: Callable[..., OperatorProcess]
) -> None:
    with running(start()):
        result = cluster.kubectl("apply", "-f", str(HEIST))
        assert result.returncode == 0, result.stderr
        waited = cluster.kubectl("wait", "-n", "heist", "--for=condition=Ready", "--timeout=60s", "--all",
                                 "tools.toolcrib.dev,agentscopebindings.toolcrib.dev")  # fmt: skip
        assert waited.returncode == 0, waited.stderr
        # accounts come beside bindings, and a replica after the other
        wait_until(lambda: len({r.snapshot.hash for r in replicas}) == 1)
        for replica in replicas:
            assert "heist/file-reader" in replica.snapshot.tools
        status = get(cluster, "tool", "file-reader")["status"]
        published = replicas[0].snapshot.tools["heist/file-reader"]
        assert (status["toolId"], status["name"]) == ("heist/file-reader", "file_reader")
        assert (status["digest"], status["routeDigest"]) == (published.digest, published.route_digest)
        wait_until(lambda: matched(cluster, "hacker") == 2)
        wait_until(lambda: "file-reader" in cluster.kubectl("get", "events", "-n", "heist").stdout)


def test_a_steady_state_and_a_restart_write_nothing(
    cluster: ApiServer, replicas: list[HttpReplica], start: Callable[..., OperatorProcess]
) -> None:
    apply(cluster, tool("calculator"), binding("planner", ["calculator:use"]))
    with running(start()) as first:
        ready(cluster, "tool", "calculator")
        ready(cluster, "agentscopebinding", "planner")
        wait_until(lambda: matched(cluster, "planner") == 1 and nothing_waits(first))
        time.sleep(2.5)  # beyond the hold-back and a proof of the watches
        before = versions(cluster)
    indexed = sum(len(r.index_requests) for r in replicas)
    with running(start()) as second:
        beats = len(replicas[0].heartbeats)
        wait_until(lambda: len(replicas[0].heartbeats) > beats)
        time.sleep(2.5)
        assert versions(cluster) == before
        assert second.metric("toolcrib_operator_status_writes_total") == 0
    assert sum(len(r.index_requests) for r in replicas) == indexed


@pytest.mark.parametrize(
    "marks",
    [
        {"annotations": {"kopf.zalando.org/last-handled-configuration": "no JSON"}},
        {"annotations": {"kopf.zalando.org/last-handled-configuration": '{"metadata": 1, "spec": []}'}},
        {"finalizers": ["kopf.zalando.org/KopfFinalizerMarker"]},
    ],
)
def test_no_mark_on_an_object_keeps_its_changes_from_the_operator(
    cluster: ApiServer,
    replicas: list[HttpReplica],
    start: Callable[..., OperatorProcess],
    marks: dict[str, Any],
) -> None:
    """Whoever may annotate a grant must not be able to keep it in force. No list repairs it: only the watch tells."""

    def mark(kind: str, name: str, **more: Any) -> None:
        patch = json.dumps({"metadata": marks | more})
        done = cluster.kubectl("patch", kind, name, "-n", "heist", "--type=merge", "-p", patch)
        assert done.returncode == 0, done.stderr

    apply(cluster, tool("calculator"), tool("hammer"), binding("planner", ["calculator:use"]))
    with running(start("--prove-after", "300")) as operator:
        for kind, name in (("tool", "calculator"), ("tool", "hammer"), ("agentscopebinding", "planner")):
            ready(cluster, kind, name)
        everywhere(replicas, "heist/hammer")
        wait_until(lambda: nothing_waits(operator))
        kept = get(cluster, "agentscopebinding", "planner")["metadata"]["finalizers"]
        for i in range(3):
            mark("tool", "hammer", labels={"edit": str(i)})
        mark(
            "asb",
            "planner",
            **({"finalizers": [*kept, *marks["finalizers"]]} if "finalizers" in marks else {}),
        )
        mark("tool", "calculator")
        apply(cluster, tool("hammer", state="Disabled"))
        cluster.kubectl("delete", "tool", "calculator", "-n", "heist", "--wait=false")
        cluster.kubectl("delete", "asb", "planner", "-n", "heist", "--wait=false")

        def in_force() -> bool:
            found = [r.snapshot for r in replicas]
            gone = all("heist/calculator" not in s.tools and not s.bindings for s in found)
            return gone and not any(s.tools["heist/hammer"].active for s in found)

        wait_until(in_force, 15)


def test_edits_disabling_and_deletion_reach_every_replica_within_a_second(
    cluster: ApiServer, replicas: list[HttpReplica], start: Callable[..., OperatorProcess]
) -> None:
    apply(cluster, tool("calculator"))
    with running(start()) as operator:
        ready(cluster, "tool", "calculator")
        wait_until(lambda: nothing_waits(operator))
        before = operator.propagated()

        def seconds_until(expected: Callable[[Any], bool]) -> float:
            nonlocal before
            wait_until(
                lambda: all(expected(r.snapshot.tools.get("heist/calculator")) for r in replicas), 30, 0.01
            )
            took = operator.propagation(before)
            before = operator.propagated()
            return took

        edits, disabled, active, deletions = took = ([], [], [], [])  # type: tuple[list[float], ...]
        for text in ("Good", "Better", "Best"):
            apply(cluster, tool("calculator", description=text))
            edits.append(seconds_until(lambda t, text=text: t.description == text))  # type: ignore[misc]
        for _ in range(3):
            apply(cluster, tool("calculator", state="Active"))
            active.append(seconds_until(lambda t: t.active))
            apply(cluster, tool("calculator", state="Disabled"))
            disabled.append(seconds_until(lambda t: not t.active))
        wait_until(lambda: state(cluster, "tool", "calculator").get("Ready") == ("False", "Disabled"))
        for again in (True, True, False):
            cluster.kubectl("delete", "-n", "heist", "tools.toolcrib.dev", "calculator")
            deletions.append(seconds_until(lambda t: t is None))
            if again:
                apply(cluster, tool("calculator"))
                seconds_until(lambda t: t is not None)
        wait_until(lambda: not replicas[0].entries)
        # one moment in which this machine stands still is no news about the operator
        assert max(map(statistics.median, took)) < 1, took
        assert max(map(max, took)) < 10, took


def test_deleting_a_binding_returns_when_every_replica_has_confirmed(
    cluster: ApiServer, replicas: list[HttpReplica], start: Callable[..., OperatorProcess]
) -> None:
    apply(cluster, tool("calculator"), binding("planner", ["calculator:use"]))
    with running(start("--removal-deadline", "120")):
        ready(cluster, "agentscopebinding", "planner")
        replicas[1].down = True
        command = ("delete", "-n", "heist", "agentscopebindings.toolcrib.dev", "planner")
        waiting = cluster.kubectl(*command, "--timeout=2s")
        assert waiting.returncode != 0
        wait_until(lambda: not replicas[0].snapshot.bindings)
        assert replicas[1].snapshot.bindings
        replicas[1].down = False
        assert cluster.kubectl(*command, "--timeout=50s", "--ignore-not-found").returncode == 0
        assert not replicas[1].snapshot.bindings


def test_deleting_a_binding_ends_at_the_deadline_if_a_replica_stays_away(
    cluster: ApiServer, replicas: list[HttpReplica], start: Callable[..., OperatorProcess]
) -> None:
    apply(
        cluster,
        binding("planner", ["calculator:use"]),
        cluster_binding("auditor", ["x:use"], namespaces=["heist"]),
    )
    with running(start("--removal-deadline", "3")):
        ready(cluster, "agentscopebinding", "planner")
        ready(cluster, "clusteragentscopebinding", "auditor")
        replicas[1].stop()
        began = time.monotonic()
        both = ("agentscopebindings.toolcrib.dev/planner", "clusteragentscopebindings.toolcrib.dev/auditor")
        result = cluster.kubectl("delete", "-n", "heist", *both, "--timeout=30s")
        assert result.returncode == 0, result.stderr
        assert time.monotonic() - began > 2
        replicas[1].start()


def test_a_restarted_replica_gets_a_full_snapshot_and_its_heartbeats(
    cluster: ApiServer, replicas: list[HttpReplica], start: Callable[..., OperatorProcess]
) -> None:
    apply(cluster, tool("calculator"))
    with running(start()):
        ready(cluster, "tool", "calculator")
        replicas[1].stop()
        replicas[1].restart()
        replicas[1].heartbeats.clear()
        replicas[1].start()
        wait_until(lambda: replicas[1].snapshot.hash == replicas[0].snapshot.hash)
        wait_until(lambda: bool(replicas[1].heartbeats))


def test_another_operator_takes_over_and_a_woken_one_changes_nothing(
    cluster: ApiServer, replicas: list[HttpReplica], start: Callable[..., OperatorProcess]
) -> None:
    apply(cluster, tool("calculator"))
    first, second = start(*OperatorProcess.FAST), start(*OperatorProcess.FAST)
    with running(first, second):
        ready(cluster, "tool", "calculator")
        everywhere(replicas, "heist/calculator")
        assert second.report()["role"] == "standby"
        epoch = replicas[0].snapshot.revision
        first.pause()
        began = time.monotonic()
        second.wait_ready(second.leads, 20)
        assert time.monotonic() - began < 20
        apply(cluster, tool("reader"))
        ready(cluster, "tool", "reader")
        everywhere(replicas, "heist/reader")
        wait_until(lambda: nothing_waits(second))
        before, published = versions(cluster), len(replicas[0].publishes)
        first.resume()
        assert first.wait(60) == 1
        time.sleep(1)
        assert versions(cluster) == before
        assert len(replicas[0].publishes) == published
        after = replicas[0].snapshot.revision
        assert epoch is not None
        assert after is not None
        assert after.epoch > epoch.epoch


def test_an_orderly_end_hands_over_at_once(
    cluster: ApiServer, replicas: list[HttpReplica], start: Callable[..., OperatorProcess]
) -> None:
    first, second = start(), start()
    with running(first, second):
        # its Lease would run for 30 s from its last renewal
        began = time.monotonic()
        assert first.stop(grace=60) == 0, first.tail()
        second.wait_ready(second.leads, 60)
        assert time.monotonic() - began < 25


def test_an_api_server_that_was_away_is_found_again(
    cluster: ApiServer, replicas: list[HttpReplica], start: Callable[..., OperatorProcess]
) -> None:
    apply(cluster, tool("calculator"))
    with running(start("--lease-duration", "100", "--lease-renew", "90")) as operator:
        ready(cluster, "tool", "calculator")
        cluster.kill()
        wait_until(lambda: bool(operator.report().get("problems")))
        cluster.start()
        apply(cluster, tool("reader"))
        ready(cluster, "tool", "reader")
        assert operator.running
        wait_until(operator.leads, 60)


def test_a_wiped_index_is_rebuilt_and_orphans_vanish(
    cluster: ApiServer, replicas: list[HttpReplica], start: Callable[..., OperatorProcess]
) -> None:
    apply(cluster, tool("calculator"), tool("reader"))
    with running(start()):
        ready(cluster, "tool", "calculator")
        ready(cluster, "tool", "reader")
        holder = replicas[0]
        whole = dict(holder.entries)
        holder.entries.clear()
        holder.entries |= {"heist/orphan": "sha256:0", "toolcrib-runtime/spared": "sha256:1"}
        wait_until(lambda: holder.entries == whole | {"toolcrib-runtime/spared": "sha256:1"})


def test_bad_tools_say_what_is_wrong_and_are_not_published(
    cluster: ApiServer, replicas: list[HttpReplica], start: Callable[..., OperatorProcess]
) -> None:
    apply(cluster, tool("first", name="shared"))
    time.sleep(1.1)  # creationTimestamp has whole seconds
    apply(cluster, tool("second", name="shared"))
    apply(cluster, tool("mute", description=""))
    apply(cluster, tool("unsafe", inputSchema={"type": "object", "$ref": "http://example.com/schema"}))
    with running(start()):
        ready(cluster, "tool", "first")
        wait_until(lambda: state(cluster, "tool", "second").get("Accepted") == ("False", "NameConflict"))
        wait_until(lambda: state(cluster, "tool", "unsafe").get("Accepted") == ("False", "SchemaUnsafe"))
        # what makes it hard to find is told, and changes nothing else
        ready(cluster, "tool", "mute")
        assert state(cluster, "tool", "mute")["Questionable"] == ("True", "NoDescription")
        assert state(cluster, "tool", "first")["Questionable"] == ("False", "NothingOdd")
        assert state(cluster, "tool", "second")["Questionable"] == ("False", "NotAccepted")
        everywhere(replicas, "heist/mute")
        assert [list(r.snapshot.tools) for r in replicas] == [["heist/first", "heist/mute"]] * 2
        cluster.kubectl("delete", "-n", "heist", "tools.toolcrib.dev", "first")
        ready(cluster, "tool", "second")


def test_labelled_secrets_of_chosen_namespaces_are_pushed_and_no_others(
    cluster: ApiServer, replicas: list[HttpReplica], start: Callable[..., OperatorProcess]
) -> None:
    bound = cluster.kubectl("-n", "heist", "create", "rolebinding", "toolcrib-credentials", "--clusterrole",
                            "toolcrib-credentials", "--serviceaccount", "toolcrib-system:toolcrib-operator")  # fmt: skip
    assert bound.returncode == 0, bound.stderr
    secret = {
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "key", "namespace": "heist", "labels": {"toolcrib.dev/backend-credential": "true"},
                     "annotations": {"toolcrib.dev/hosts": "api.example.com"}},
        "stringData": {"token": "s3cret-value"},
    }  # fmt: skip
    auth = {"type": "Bearer", "secretKeyRef": {"name": "key", "key": "token"}}
    apply(
        cluster, secret, tool("remote", backend={"http": {"url": "https://api.example.com/x"}, "auth": auth})
    )
    with start("--credential-namespaces", "heist,default") as operator:
        ready(cluster, "tool", "remote")
        # no role binding there: said, and no reason to stop
        wait_until(lambda: "namespace default: Secret cannot be listed" in str(operator.report()))
        for replica in replicas:
            wait_until(lambda replica=replica: bool(replica.pushed and replica.pushed.credentials))  # type: ignore[misc]
            assert replica.pushed is not None
            assert [c.value for c in replica.pushed.credentials] == ["s3cret-value"]
        assert "s3cret-value" not in operator.log.read_text()
        assert "s3cret-value" not in operator.get("/readyz").text + operator.get("/metrics").text


def test_anchors_are_written_only_over_the_version_that_was_read(server: ApiServer) -> None:
    async def check() -> None:
        kube = Kube(Path(server.admin_kubeconfig))
        one, other = (KubeAnchors(kube, "default", "anchors") for _ in range(2))
        try:
            assert await one.read() is None
            await one.write("1", "")
            with pytest.raises(Conflict):
                await other.write("2", "")
            read = await one.read()
            assert read is not None
            await other.write("3", read.resource_version)
            with pytest.raises(Conflict):
                await one.write("4", read.resource_version)
            found = await one.read()
            assert found is not None
            assert found.text == "3"
            await kube.request("DELETE", "/api/v1/namespaces/default/configmaps/anchors")
            with pytest.raises(Conflict):
                await one.write("5", found.resource_version)
        finally:
            kube.close()

    asyncio.run(check())


def test_anchors_of_decision_logs_outlive_a_leader_and_a_log_that_went_back_meanwhile_is_noticed(
    cluster: ApiServer, replicas: list[HttpReplica], start: Callable[..., OperatorProcess]
) -> None:
    system, name = "toolcrib-system", "toolcrib-audit-anchors"

    def anchored() -> list[tuple[str, int]]:
        text = cluster.read("configmaps", name, system).get("data", {}).get("anchors.json", "")
        return [(anchor.chain, anchor.seq) for anchor in audit_anchors.read(text)]

    def head(seq: int, chain: str = "registry-0@a") -> AuditHead:
        return AuditHead(chain=chain, seq=seq, hash=f"{seq:064x}")

    often = ("--audit-anchor-interval", "0.3")
    try:
        replicas[0].audit, replicas[1].audit = head(4), head(7, "registry-1@b")
        with running(start(*often)):
            wait_until(lambda: anchored() == [("registry-0@a", 4), ("registry-1@b", 7)])
        replicas[0].audit = head(3)
        with running(start(*often)) as second:
            wait_until(lambda: second.metric("toolcrib_audit_regressions_total") == 1)
            replicas[0].audit = head(9)
            wait_until(lambda: ("registry-0@a", 9) in anchored())
            # told once the API server has answered, which is after it has written
            told = 'toolcrib_audit_anchor_timestamp_seconds{replica="registry-0"}'
            wait_until(lambda: told in second.get("/metrics").text)
        held = read_config_map(system, name, kubeconfig=str(cluster.admin_kubeconfig))
        assert [a.seq for a in decision_logs.anchors(held["anchors.json"], "it")] == [4, 9, 7]
        with pytest.raises(CliError, match="there is no ConfigMap"):
            read_config_map(system, "other", kubeconfig=str(cluster.admin_kubeconfig))
        assert ("registry-0@a", 4) in anchored()
        assert ("registry-0@a", 3) not in anchored()
        account = f"system:serviceaccount:{system}:toolcrib-registry"
        for verb in ("get", "create", "update", "patch", "delete"):
            asked = cluster.kubectl(
                "auth", "can-i", verb, f"configmaps/{name}", "-n", system, "--as", account
            )
            assert asked.stdout.strip() == "no"
    finally:
        cluster.kubectl("delete", "-n", system, "configmap", name, "--ignore-not-found")


def test_a_tool_that_leaves_a_deny_by_scope_is_told_in_the_status_and_by_an_event(
    cluster: ApiServer, start: Callable[..., OperatorProcess], replicas: list[HttpReplica]
) -> None:
    def weakened() -> tuple[str, str] | None:
        return state(cluster, "agentscopebinding", "planner").get("DenyWeakened")

    denied = binding("planner", ["use"], tools={"denyScopes": ["vault:use"]})
    with running(start()):
        apply(cluster, tool("safe", scopes=["vault:use"]), tool("other", scopes=["vault:use"]), denied)
        wait_until(lambda: weakened() == ("False", "DenyHolds"), 60, 0.1)
        ready(cluster, "agentscopebinding", "planner")
        assert [b.deny_scopes for r in replicas for b in r.snapshot.bindings.values()] == [("vault:use",)] * 2
        apply(cluster, tool("safe", scopes=["use"]))
        wait_until(lambda: weakened() == ("True", "DenyStoppedMatching"), 60, 0.1)
        said = get(cluster, "agentscopebinding", "planner")["status"]
        assert (said["escapedTools"], said["firedDenials"]) == (["heist/safe"], ["denyScopes/vault:use"])

        def told() -> list[str]:
            events = cluster.read("events", namespace="heist")["items"]
            return [e["message"] for e in events if e["reason"] == "DenyStoppedMatching"]

        wait_until(lambda: told() == ["heist/safe was denied and no longer is"], 60, 0.1)
