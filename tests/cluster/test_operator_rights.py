"""rbac.yaml is what the operator needs: it works with it, and the audit log shows every right in use."""

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifests import binding, cluster_binding, manifest, tool
from operator_harness import HttpReplica, conditions
from operator_process import OperatorProcess, running
from published import tool as published_tool
from realparts.apiserver import ApiServer
from realparts.processes import wait_until
from realparts.required import require_real
from toolcrib import names
from toolcrib.audit import anchors as audit_anchors
from toolcrib.resources.bindings import SubjectKind
from toolcrib.resources.tools import CONFIRM
from toolcrib.wire.confirmations import CallsReport, ConfirmableCall
from toolcrib.wire.imports import ListedTool, ServerList
from toolcrib.wire.outbox import AccessEntry, OutboxEntry
from toolcrib.wire.publish import AuditHead, PublishedSubject

ROOT = Path(__file__).parents[2]
RBAC = ROOT / "examples/cluster/rbac.yaml"
ACCOUNT = "system:serviceaccount:toolcrib-system:toolcrib-operator"
Right = tuple[str, str, str]

pytestmark = pytest.mark.real


@pytest.fixture
def audited(tmp_path: Path) -> Iterator[tuple[ApiServer, Path]]:
    """An API server that writes down what the operator's account does."""
    require_real("kube-apiserver", "etcd", "kubectl")
    policy, log = tmp_path / "policy.yaml", tmp_path / "audit.log"
    policy.write_text(
        json.dumps(
            {
                "apiVersion": "audit.k8s.io/v1",
                "kind": "Policy",
                "omitStages": ["RequestReceived", "ResponseStarted"],
                "rules": [{"level": "Metadata", "users": [ACCOUNT]}, {"level": "None"}],
            }
        )
    )
    extra = [f"--audit-policy-file={policy}", f"--audit-log-path={log}", "--audit-log-mode=blocking-strict"]
    with ApiServer(extra_args=extra) as server:
        for path in ("crds", "examples/cluster/rbac.yaml"):
            applied = server.kubectl("apply", "-f", str(ROOT / path))
            assert applied.returncode == 0, applied.stderr
        server.create_namespace("heist")
        labelled = server.kubectl("label", "namespace", "heist", "toolcrib.dev/requests=enabled")
        assert labelled.returncode == 0, labelled.stderr
        applied = server.kubectl("apply", "-f", str(ROOT / "examples/heist/20-service.yaml"))
        assert applied.returncode == 0, applied.stderr
        yield server, log


def used(log: Path) -> tuple[set[Right], list[str]]:
    """The rights that were used, and the requests that were forbidden."""
    rights, forbidden = set(), []
    whole = log.read_text().rpartition("\n")[0]
    for line in whole.splitlines():
        event = json.loads(line)
        ref = event.get("objectRef")
        if ref is None:
            continue
        if event.get("responseStatus", {}).get("code") == 403:
            forbidden.append(f"{event['verb']} {event['requestURI']}")
        resource = ref["resource"] + (f"/{ref['subresource']}" if ref.get("subresource") else "")
        rights.add((event["verb"], ref.get("apiGroup", ""), resource))
    return rights, forbidden


def granted() -> set[Right]:
    """Every (verb, group, resource) of the roles in rbac.yaml."""
    rights = set()
    for document in yaml.safe_load_all(RBAC.read_text()):
        for rule in document.get("rules", ()):
            rights |= {(v, g, r) for v in rule["verbs"] for g in rule["apiGroups"] for r in rule["resources"]}
    return rights


def address() -> str:
    """An address of this machine that an EndpointSlice may hold: not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
            found: str = probe.getsockname()[0]
        except OSError:
            found = "127.0.0.1"
    if found.startswith("127."):
        pytest.skip("this machine has no address but loopback, and EndpointSlices refuse that")
    return found


def slice_of(replica: HttpReplica, *, ready: bool) -> dict[str, Any]:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"registry-{replica.port}",
            "namespace": "toolcrib-system",
            "labels": {"kubernetes.io/service-name": "toolcrib-registry"},
        },
        "addressType": "IPv4",
        "ports": [{"name": "admin", "port": replica.port}],
        "endpoints": [{"addresses": [replica.host], "conditions": {"ready": ready}}],
    }


def server_list(*tools: str) -> ServerList:
    items = [ListedTool(name=t, input_schema={"type": "object"}) for t in tools]
    return ServerList(server="heist/outside", set_digest=f"sha256:{len(tools)}", tools=tuple(items))


def imported(replica: HttpReplica) -> set[str]:
    return {tool.name for tool in replica.snapshot.tools.values() if tool.server == "outside"}


def test_the_roles_hold_every_right_that_is_used_and_no_other(
    audited: tuple[ApiServer, Path], tmp_path: Path
) -> None:
    server, log = audited

    def apply(*manifests: dict[str, Any]) -> None:
        body = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})
        result = server.kubectl("apply", "-f", "-", input=body)
        assert result.returncode == 0, result.stderr

    def ready(kind: str, name: str) -> bool:
        found = server.read(f"{kind}s", name, "" if kind.startswith("cluster") else "heist")
        return conditions(found.get("status")).get("Ready") == ("True", "Ready")

    def anchored() -> list[int]:
        found = server.read("configmaps", "toolcrib-audit-anchors", "toolcrib-system")
        text = found.get("data", {}).get("anchors.json", "")
        return [anchor.seq for anchor in audit_anchors.read(text)]

    for role in ("toolcrib-credentials", "toolcrib-agents"):
        bound = server.kubectl("-n", "heist", "create", "rolebinding", role, "--clusterrole", role,
                               "--serviceaccount", "toolcrib-system:toolcrib-operator")  # fmt: skip
        assert bound.returncode == 0, bound.stderr
    asked_for = ("auth", "can-i", "list", "secrets", "-n", "heist", "--as", ACCOUNT)
    wait_until(lambda: server.kubectl(*asked_for).stdout.strip() == "yes")
    kubeconfig = server.kubeconfig_for(server.token_request("toolcrib-system", "toolcrib-operator"))
    token = tmp_path / "token"
    token.write_text("first")
    with HttpReplica(host=address()) as replica:
        operator = OperatorProcess(
            kubeconfig, [], tmp_path, "--registry-service", "toolcrib-system/toolcrib-registry",
            "--registry-port", str(replica.port), "--credential-namespaces", "heist", "--token-file", str(token),
            "--runtime-registration", "--audit-anchor-interval", "0.5", "--agent-namespaces", "heist",
            "--agent-image", "toolcrib:1", "--agent-registry-url", "https://registry.example",
        )  # fmt: skip
        replica.audit = AuditHead(chain="registry-0@a", seq=1, hash="0" * 64)
        apply(slice_of(replica, ready=False))
        with running(operator):
            apply(tool("calculator"), *(binding(name, ["calculator:use"]) for name in ("planner", "run")),
                  cluster_binding("auditor", ["calculator:use"], namespaces=["heist"]),
                  manifest("Agent", "stopped", "heist", suspended=True),
                  manifest("ToolCanary", "words", "heist", tool="calculator", candidate={"description": "Other words"}),
                  manifest("ToolServer", "outside", "heist", mcp={"url": "https://mcp.example/mcp"},
                           defaults={"scopes": ["outside:use"]}, **{"import": {"approval": "Automatic"}}))  # fmt: skip
            created = server.kubectl("create", "serviceaccount", "run", "-n", "heist")
            assert created.returncode == 0, created.stderr
            model = {"name": "m", "baseURL": "https://models.example/v1"}
            for run, right in (
                ({}, ("patch", "apps", "deployments")),
                ({"task": "count"}, ("delete", "apps", "deployments")),
                ({"task": "count"}, ("create", "batch", "jobs")),
                ({"task": "count more"}, ("delete", "batch", "jobs")),
            ):
                apply(manifest("Agent", "run", "heist", run=run, model=model))
                wait_until(lambda right=right: right in used(log)[0])  # type: ignore[misc]
            for listed in (("one", "two", "three"), ("one", "two")):
                replica.serve(server_list(*listed))
                wait_until(lambda listed=listed: imported(replica) == set(listed))  # type: ignore[misc]
            for kind, name in (("tool", "calculator"), ("agentscopebinding", "planner"),
                               ("clusteragentscopebinding", "auditor"), ("agent", "stopped")):  # fmt: skip
                wait_until(lambda kind=kind, name=name: ready(kind, name))  # type: ignore[misc]
            wait_until(lambda: server.read("toolcanaries", "words", "heist").get("status", {}).get("started"))
            tool_id = f"toolcrib-runtime/{names.object_name(None, 'fx')}"
            asked = published_tool(tool_id, uid="runtime:fx", name="fx", scopes=("fx:use",))
            replica.wanted.append(OutboxEntry(id="1", tool=asked, seconds=60))
            wait_until(lambda: [(a.id, a.outcome) for a in replica.acks] == [("1", "created")])
            bot = PublishedSubject(kind=SubjectKind.SERVICE_ACCOUNT, namespace="heist", name="bot")
            asking = AccessEntry(
                id="2", tool_id="heist/calculator", subject=bot, account_uid="gone", seconds=60
            )
            replica.asked.append(asking)
            wait_until(lambda: [(a.id, a.outcome) for a in replica.acks[1:]] == [("2", "created")])
            # its account is not there, so the request goes too
            wait_until(lambda: ("delete", "toolcrib.dev", "accessrequests") in used(log)[0])
            guarded = server.kubectl(
                "annotate", "tools.toolcrib.dev", "calculator", "-n", "heist", f"{CONFIRM}=always"
            )
            assert guarded.returncode == 0, guarded.stderr
            call = ConfirmableCall(
                id="0123456789ab", tool_id="heist/calculator", agent="heist/bot", issuer="https://issuer.test",
                subject="bot", names=("bot",), arguments="{}", asked_at=int(time.time()), expires_at=int(time.time()) + 300,
                seal="0" * 64,
            )  # fmt: skip
            replica.calls_report = CallsReport(waiting=(call,))
            wait_until(lambda: ("create", "toolcrib.dev", "callconfirmations") in used(log)[0])
            replica.calls_report = CallsReport(used=(call.id,))
            wait_until(lambda: ("delete", "toolcrib.dev", "callconfirmations") in used(log)[0])
            wait_until(lambda: anchored() == [1])
            replica.audit = AuditHead(chain="registry-0@a", seq=2, hash="1" * 64)
            wait_until(lambda: anchored() == [1, 2])
            token.write_text("second")
            gone = server.kubectl(
                "delete", "-n", "heist", "agentscopebindings.toolcrib.dev", "planner", "--timeout=60s"
            )
            assert gone.returncode == 0, gone.stderr
            assert not [b for b in replica.snapshot.bindings.values() if b.name == "planner"]
            wait_until(lambda: "Bearer second" in replica.tokens)
    # asked for by the admission policies, not by a request: without them no Tool could be created, and no binding go
    asked = {("gate", "scopes"), ("import", "scopes"), ("release", "bindings")}
    wanted = granted() - {(verb, "toolcrib.dev", resource) for verb, resource in asked}
    # asked for beside the patch by which a Deployment is made
    wanted -= {("create", "apps", "deployments")}
    # a watch is written down when it has ended, which the API server notices after us
    wait_until(lambda: wanted <= used(log)[0])
    rights, forbidden = used(log)
    # what every authenticated account may do is not the file's business
    rights = {r for r in rights if r[1] != "authorization.k8s.io"}
    assert forbidden == []
    assert rights == wanted
