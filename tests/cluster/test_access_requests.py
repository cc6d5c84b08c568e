"""Access for a while, with all the real parts: an agent asks, a person approves by the rights of a kubeconfig."""

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from chart import render
from cluster import EXAMPLES, UNPROVEN, Cluster, counter
from manifests import binding, manifest, tool
from realparts import loaded
from realparts.processes import clean_environment, wait_until
from realparts.required import require_real
from toolcrib.resources import API_VERSION, access_requests, parse
from toolcrib.resources.access_requests import AccessRequest
from toolcrib.resources.conditions import timestamp
from toolcrib_cli.main import main
from toolcrib_cli.requesting.in_cluster import ClusterRequests

pytestmark = pytest.mark.real

GROUP = "rbac.authorization.k8s.io"
PROMISED = 1.0
"""Seconds from an approval until every replica serves it."""
TURNS = int(os.environ.get("TOOLCRIB_APPROVALS", "5"))
HEAD = {"apiVersion": API_VERSION, "kind": "AccessRequest"}
WAITS = 3.0
"""Seconds that a request waits for the operator."""
EVIL = "please\u202e\u200b <script>alert(1)</script>\n`approved`"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    require_real("kube-apiserver", "etcd", "kubectl")
    settings = {"limits": {"registration_seconds": WAITS}, "mcp": {"request_access": True}}
    flags = ["--heartbeat", "0.5", *UNPROVEN]
    with Cluster(
        replicas=2, store="embedded", embedder="none", operator_flags=flags, registry=settings
    ) as running:
        running.kubectl("apply", "-f", str(EXAMPLES / "heist"))
        running.kubectl("create", "namespace", "vault")
        running.kubectl("label", "namespace", "heist", "toolcrib.dev/requests=enabled")
        for name in ("asker", "second", "third", "fourth", "fifth", "sixth"):
            running.kubectl("create", "serviceaccount", name, "-n", "heist")
        running.wait_ready("tools")
        yield running


@pytest.fixture(scope="module")
def approver(cluster: Cluster) -> Path:
    return account(cluster, "approver", "toolcrib-admin", "toolcrib-view")


def account(cluster: Cluster, name: str, *roles: str) -> Path:
    """The kubeconfig of a service account of `heist` that holds these roles of the chart there."""
    rendered = render()
    rules = [rule for role in roles for rule in rendered.one("ClusterRole", role)["rules"]]
    within = {"name": name, "namespace": "heist"}
    subject = {"kind": "ServiceAccount", **within}
    apply(
        cluster,
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": within},
        {"apiVersion": f"{GROUP}/v1", "kind": "Role", "metadata": within, "rules": rules},
        {
            "apiVersion": f"{GROUP}/v1", "kind": "RoleBinding", "metadata": within, "subjects": [subject],
            "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": name},
        },
    )  # fmt: skip
    return cluster.api.kubeconfig_for(cluster.api.token_request("heist", name))


def apply(cluster: Cluster, *objects: dict[str, Any]) -> None:
    cluster.kubectl("apply", "-f", "-", input="\n---\n".join(map(json.dumps, objects)))


def ask(
    cluster: Cluster, name: str, tool_id: str, why: str = "to answer ticket 4711", replica: int = 0
) -> httpx.Response:
    """`POST /v1/access-requests` as a service account of `heist`."""
    return httpx.post(
        f"{cluster.replicas[replica].url}/v1/access-requests",
        json={"tool_id": tool_id, "why": why},
        headers={"Authorization": f"Bearer {cluster.token('heist', name)}"},
        trust_env=False,
        timeout=60,
    )


def asked(cluster: Cluster, name: str, tool_id: str, why: str = "to answer ticket 4711") -> str:
    """The name of the request."""
    answer = ask(cluster, name, tool_id, why)
    assert answer.status_code == 200, answer.text
    assert answer.json()["state"] == "open"
    namespace, _, found = answer.json()["request"].partition("/")
    assert namespace == tool_id.partition("/")[0]
    return str(found)


def toolcrib(kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return loaded.run(
        [sys.executable, "-m", "toolcrib_cli", "access", *arguments, "-n", "heist", "--kubeconfig", str(kubeconfig)],
        env=clean_environment({"HOME": os.environ.get("HOME", "/")}),
        timeout=90,
    )  # fmt: skip


def request(cluster: Cluster, name: str) -> dict[str, Any] | None:
    found = [
        r
        for r in cluster.api.read("accessrequests", namespace="heist")["items"]
        if r["metadata"]["name"] == name
    ]
    return found[0] if found else None  # fmt: skip


def decided(cluster: Cluster, name: str) -> str:
    found = request(cluster, name)
    conditions = (found or {}).get("status", {}).get("conditions", ())
    return next((c["reason"] for c in conditions if c["type"] == "Decided"), "")


def bindings(cluster: Cluster) -> dict[str, dict[str, Any]]:
    items = cluster.api.read("agentscopebindings", namespace="heist")["items"]
    return {item["metadata"]["name"]: item for item in items}


def operator_metrics(cluster: Cluster) -> str:
    return httpx.get(f"{cluster.operators[0].url}/metrics", trust_env=False, timeout=60).text  # type: ignore[attr-defined]


def test_an_agent_asks_a_person_approves_it_is_used_everywhere_and_the_clock_ends_it(
    cluster: Cluster, approver: Path
) -> None:
    name = asked(cluster, "asker", "heist/database-query")
    assert ask(cluster, "asker", "heist/database-query", replica=1).json()["request"] == f"heist/{name}"
    wait_until(lambda: decided(cluster, name) == "AccessRequested")
    listed = json.loads(toolcrib(approver, "requests", "-o", "json").stdout)
    assert [(r["request"], r["tool"], r["agentSays"], r["changed"]) for r in listed] == [
        (f"heist/{name}", "heist/database-query", "to answer ticket 4711", False)
    ]

    token = cluster.token("heist", "asker")
    assert cluster.discover(token) == cluster.discover(token, 1) == []
    done = toolcrib(approver, "approve", name, "--for", "15s", "--yes")
    assert done.returncode == 0, done.stderr
    assert 'the agent says: "to answer ticket 4711"' in done.stdout
    wait_until(
        lambda: all(cluster.discover(token, each) == ["database_query"] for each in (0, 1)), timeout=30
    )
    assert cluster.call(token, "database_query", {"query": "select 1"}, 1).status_code == 200

    made, held = bindings(cluster)[name], request(cluster, name)
    assert held is not None
    subject = {"kind": "ServiceAccount", "namespace": "heist", "name": "asker"}
    until = made["spec"]["expiresAt"]
    assert made["spec"] == {
        "subjects": [subject], "scopes": ["database:read"], "tools": {"allow": ["database_query"]}, "expiresAt": until,
    }  # fmt: skip
    assert [(o["kind"], o["uid"]) for o in made["metadata"]["ownerReferences"]] == [
        ("AccessRequest", held["metadata"]["uid"])
    ]
    wait_until(lambda: decided(cluster, name) == "AccessApproved")
    wait_until(lambda: cluster.discover(token) == cluster.discover(token, 1) == [], timeout=60)
    assert bindings(cluster)[name]["metadata"]["generation"] == 1, "nothing but the clock ended it"
    wait_until(
        lambda: counter(operator_metrics(cluster), "toolcrib_access_decision_seconds_count", outcome="approved") == 1
    )  # fmt: skip


def test_a_tool_that_may_not_be_asked_for_is_answered_as_one_that_does_not_exist(cluster: Cluster) -> None:
    def answers() -> list[tuple[int, bytes, list[str]]]:
        found = [ask(cluster, "second", each) for each in ("vault/secret", "heist/held")]
        return [(a.status_code, a.content, sorted(set(a.headers) - {"date"})) for a in found]

    cluster.kubectl("create", "serviceaccount", "somebody", "-n", "vault")
    before = answers()
    assert [status for status, *_ in before] == [404, 404]
    apply(
        cluster,
        tool("secret", "vault", backend={"none": {}}),
        tool("held", "heist", backend={"none": {}}, approval="Manual"),
        binding("somebody", ["secret:use"], "vault"),
    )
    snapshot = f"{cluster.url}/v1/tools/vault/secret"
    bearer = {"Authorization": f"Bearer {cluster.token('vault', 'somebody')}"}
    wait_until(lambda: httpx.get(snapshot, headers=bearer, trust_env=False).status_code == 200)
    assert answers() == before
    cluster.kubectl("label", "namespace", "vault", "toolcrib.dev/requests=enabled")
    wait_until(lambda: ask(cluster, "second", "vault/secret").status_code == 200)
    cluster.kubectl("label", "namespace", "vault", "toolcrib.dev/requests-")
    cluster.kubectl("delete", "accessrequests", "--all", "-n", "vault")
    wait_until(lambda: ask(cluster, "second", "vault/secret").content == before[0][1])


def test_words_that_hide_and_mark_up_are_escaped_and_one_that_has_it_already_is_told_so(
    cluster: Cluster, approver: Path
) -> None:
    name = asked(cluster, "third", "heist/database-query", EVIL)
    found = request(cluster, name)
    assert found is not None
    why = found["spec"]["why"]
    assert why.isprintable()
    assert not set("<>`\u202e\u200b\n") & set(why)
    shown = toolcrib(approver, "requests")
    assert "\u202e" not in shown.stdout
    assert "<script>" not in shown.stdout
    assert ask(cluster, "third", "heist/calculator", "x" * 281).status_code == 400
    safe = ask(cluster, "safecracker", "heist/calculator")
    assert (safe.status_code, safe.json()["code"]) == (409, "already_granted")


def test_three_are_open_at_most_and_a_flood_makes_no_more(cluster: Cluster) -> None:
    tools = [f"t{number}" for number in range(4)]
    apply(cluster, *(tool(each, "heist", backend={"none": {}}) for each in tools))
    wait_until(lambda: ask(cluster, "fourth", "heist/t0").status_code == 200)
    answers = [ask(cluster, "fourth", f"heist/{each}") for each in tools for _ in range(3)]
    codes = [a.status_code for a in answers]
    assert codes == [200] * 9 + [429] * 3
    mine = [
        r
        for r in cluster.api.read("accessrequests", namespace="heist")["items"]
        if r["spec"]["subject"]["name"] == "fourth"
    ]
    assert len(mine) == 3
    assert ask(cluster, "fourth", "heist/absent").status_code == 404


def test_admission_judges_the_approver_and_never_lets_the_subject_approve(
    cluster: Cluster, approver: Path
) -> None:
    name = asked(cluster, "fifth", "heist/database-query")
    viewer = account(cluster, "viewer", "toolcrib-view")
    refused = toolcrib(viewer, "approve", name, "--for", "1h", "--yes")
    assert refused.returncode == 4, refused.stderr
    writer = account(cluster, "writer", "toolcrib-view")
    rules = [{"apiGroups": ["toolcrib.dev"], "resources": ["agentscopebindings"], "verbs": ["create"]}]
    more = {"name": "writer-writes", "namespace": "heist"}
    apply(
        cluster,
        {"apiVersion": f"{GROUP}/v1", "kind": "Role", "metadata": more, "rules": rules},
        {
            "apiVersion": f"{GROUP}/v1", "kind": "RoleBinding", "metadata": more,
            "subjects": [{"kind": "ServiceAccount", "name": "writer", "namespace": "heist"}],
            "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "writer-writes"},
        },
    )  # fmt: skip
    judged = toolcrib(writer, "approve", name, "--for", "1h", "--yes")
    assert judged.returncode == 4, judged.stderr
    # the API server names one of the two that refuse
    assert (
        "'bindings-grant.toolcrib.dev'" in judged.stderr or "'bindings-equip.toolcrib.dev'" in judged.stderr
    )

    itself = account(cluster, "fifth", "toolcrib-admin", "toolcrib-view")
    own = toolcrib(itself, "approve", name, "--for", "1h", "--yes")
    assert (own.returncode, "you may not approve a request of your own" in own.stderr) == (4, True)
    made = json.loads(toolcrib(approver, "approve", name, "--for", "1h", "-o", "json").stdout)
    written = cluster.api.kubectl("create", "-f", "-", "--kubeconfig", str(itself), input=json.dumps(made))
    assert written.returncode != 0
    assert "you may not approve a request of your own: system:serviceaccount:heist:fifth" in written.stderr
    assert name not in bindings(cluster)
    assert toolcrib(approver, "approve", name, "--for", "25h", "--yes").returncode == 2

    edited = cluster.kubectl(
        "patch", "accessrequest", name, "-n", "heist", "--type=merge", "-p", '{"spec":{"tool":"calculator"}}', check=False
    )  # fmt: skip
    assert "the spec of an AccessRequest cannot be changed" in edited
    forged = manifest("AccessRequest", "forged", "heist", **(request(cluster, name) or {})["spec"])
    created = cluster.api.kubectl(
        "create", "-f", "-", "--kubeconfig", str(approver), input=json.dumps(forged)
    )
    assert "cannot create resource" in created.stderr


def test_admission_knows_the_subject_by_the_names_that_the_api_server_prefixes(cluster: Cluster) -> None:
    issuer = "https://login.example"
    spec = {"tool": "calculator", "digest": f"sha256:{'0' * 64}", "why": "to add"}
    subject = {"kind": "User", "issuer": issuer, "name": "ada"}
    apply(cluster, manifest("AccessRequest", "of-ada", "heist", subject=subject, **spec))
    held = parse({k: v for k, v in (request(cluster, "of-ada") or {}).items() if k != "status"} | HEAD)
    assert isinstance(held, AccessRequest)
    until = timestamp(time.time() + 600)
    made = access_requests.binding(held, "calculator", None, ("calculator:use",), until)
    for name in ("ada", "oidc:ada", f"{issuer}#ada", "corp-ada", "corpada", "oidc:bob"):
        written = cluster.api.kubectl(
            "create", "-f", "-", "--dry-run=server", "--as", name, "--as-group", "system:masters",
            input=json.dumps(made),
        )  # fmt: skip
        own = f"you may not approve a request of your own: {name}" in written.stderr
        assert (written.returncode == 0, own) == ((name == "oidc:bob"), (name != "oidc:bob")), written.stderr
    cluster.kubectl("delete", "accessrequest", "of-ada", "-n", "heist")


def test_a_tool_that_changed_is_not_approved_and_a_rejection_says_why(
    cluster: Cluster, approver: Path
) -> None:
    apply(cluster, tool("moving", "heist", backend={"none": {}}))
    wait_until(lambda: ask(cluster, "sixth", "heist/moving").status_code == 200)
    name = asked(cluster, "sixth", "heist/moving")
    apply(cluster, tool("moving", "heist", backend={"none": {}}, scopes=["moving:use", "all:use"]))
    refused = toolcrib(approver, "approve", name, "--for", "1h", "--yes")
    assert (refused.returncode, "has changed since heist/sixth asked for it" in refused.stderr) == (1, True)
    assert name not in bindings(cluster)
    rejected = toolcrib(approver, "reject", name, "--reason", "it changed")
    assert (rejected.returncode, rejected.stdout) == (0, f"heist/{name} rejected\n"), rejected.stderr
    wait_until(lambda: decided(cluster, name) == "AccessRejected")
    late = toolcrib(approver, "approve", name, "--for", "1h", "--yes")
    assert (late.returncode, "is rejected: it changed" in late.stderr) == (1, True)
    wait_until(
        lambda: (
            {"AccessRequested", "AccessRejected"}
            <= {
                e["reason"]
                for e in json.loads(cluster.kubectl("get", "events", "-n", "heist", "-o", "json"))["items"]
                if e["involvedObject"]["name"] == name
            }
        )
    )


def test_an_approval_during_which_the_tool_changes_is_taken_back(
    cluster: Cluster, approver: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.kubectl("create", "serviceaccount", "racer", "-n", "heist")
    apply(cluster, tool("racing", "heist", backend={"none": {}}))
    wait_until(lambda: ask(cluster, "racer", "heist/racing").status_code == 200)
    name = asked(cluster, "racer", "heist/racing")
    grant, written = ClusterRequests.grant, []

    def after_an_edit(source: ClusterRequests, made: Mapping[str, Any]) -> None:
        apply(cluster, tool("racing", "heist", backend={"none": {}}, scopes=["racing:use", "all:use"]))
        grant(source, made)
        written.append(name in bindings(cluster))

    monkeypatch.setattr(ClusterRequests, "grant", after_an_edit)
    with pytest.raises(SystemExit) as ended:
        main(
            ["access", "approve", name, "--for", "1h", "--yes", "-n", "heist", "--kubeconfig", str(approver)]
        )
    assert (ended.value.code, written) == (1, [True])
    assert "is not approved: the request or its tool changed meanwhile" in capsys.readouterr().err
    # its finalizer goes once every replica has lost it
    wait_until(lambda: name not in bindings(cluster))


def test_the_request_of_an_account_that_is_deleted_goes_with_it(cluster: Cluster) -> None:
    cluster.kubectl("create", "serviceaccount", "leaver", "-n", "heist")
    name = asked(cluster, "leaver", "heist/database-query")
    wait_until(lambda: request(cluster, name) is not None)
    cluster.kubectl("delete", "serviceaccount", "leaver", "-n", "heist")
    wait_until(lambda: request(cluster, name) is None)


def test_a_model_asks_by_the_meta_tool(cluster: Cluster) -> None:
    cluster.kubectl("create", "serviceaccount", "modelled", "-n", "heist")
    answer = mcp(cluster, "modelled", {"tool_id": "heist/database-query", "why": "to look"})
    assert answer["result"]["structuredContent"]["state"] == "open"
    absent, hidden = (
        mcp(cluster, "modelled", {"tool_id": each, "why": "to look"}) for each in ("heist/none", "vault/secret")
    )  # fmt: skip
    assert absent == hidden
    assert absent["error"]["message"] == "Unknown tool"


def mcp(cluster: Cluster, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "request_access", "arguments": arguments},
    }
    answer = httpx.post(
        f"{cluster.url}/mcp",
        json=body,
        headers={
            "Authorization": f"Bearer {cluster.token('heist', name)}",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2025-06-18",
        },
        trust_env=False,
        timeout=60,
    )
    found: dict[str, Any] = answer.json()
    return found


def test_without_an_operator_a_request_waits_and_ends_with_503(cluster: Cluster) -> None:
    cluster.operators[0].pause()
    try:
        began = time.monotonic()
        answer = ask(cluster, "asker", "heist/database-query")
        took = time.monotonic() - began
    finally:
        cluster.operators[0].resume()
    assert (answer.status_code, answer.json()["code"]) == (503, "requests_unavailable")
    assert WAITS <= took < 10
    assert answer.headers["retry-after"] == "5"


def test_what_is_approved_is_usable_on_every_replica_within_a_second(cluster: Cluster) -> None:
    taken = []
    for turn in range(TURNS):
        cluster.kubectl("create", "serviceaccount", f"turn-{turn}", "-n", "heist")
        name = asked(cluster, f"turn-{turn}", "heist/database-query")
        found = parse({k: v for k, v in (request(cluster, name) or {}).items() if k != "status"} | HEAD)
        assert isinstance(found, AccessRequest)
        until = timestamp(time.time() + 600)
        made = access_requests.binding(found, "database_query", None, ("database:read",), until)
        token = cluster.token("heist", f"turn-{turn}")
        began = time.monotonic()
        answer = cluster.api.client.post(
            "/apis/toolcrib.dev/v1alpha1/namespaces/heist/agentscopebindings", json=made
        )
        assert answer.status_code == 201, answer.text
        wait_until(
            lambda token=token: all(cluster.discover(token, each) for each in (0, 1)),  # type: ignore[misc]
            interval=0.005,
        )
        taken.append(time.monotonic() - began)
        cluster.kubectl("delete", "accessrequest", name, "-n", "heist")
    taken.sort()
    print(f"approved until usable: median {taken[len(taken) // 2]:.3f} s, worst {taken[-1]:.3f} s of {TURNS}")
    assert taken[math.ceil(len(taken) * 0.99) - 1] <= PROMISED
