"""The pure decisions of the operator, as tables: verdicts, statuses, and what differs."""

import base64
from dataclasses import replace
from typing import Any

import pytest

from manifests import binding, cluster_binding, tool
from operator_harness import conditions
from toolcrib import publishing
from toolcrib.lint.weaknesses import Weakness
from toolcrib.resources.conditions import ConditionReason
from toolcrib.resources.tools import Tool
from toolcrib.snapshot import Snapshot
from toolcrib.wire.publish import Credential, Publish, Revision
from toolcrib_operator import options
from toolcrib_operator.assessment import Assessor
from toolcrib_operator.kinds import statuses
from toolcrib_operator.kinds.binding import assess_binding, binding_status
from toolcrib_operator.kinds.reach import BindingReach, matched_tools
from toolcrib_operator.kinds.secret import HOSTS, LABEL, assess_credential
from toolcrib_operator.kinds.statuses import Progress
from toolcrib_operator.kinds.table import entry_of
from toolcrib_operator.kinds.tool import assess_tool, name_owner, tool_status
from toolcrib_operator.kinds.verdicts import BindingVerdict, Cause, ToolVerdict
from toolcrib_operator.objects import Entry
from toolcrib_operator.world import World

NOW = 1_800_000_000.0


def entry(manifest: dict[str, Any], **metadata: Any) -> Entry:
    """The manifest as it would come from an API server."""
    head = {"uid": f"uid-{manifest['metadata']['name']}", "generation": 1, "resourceVersion": "7"}
    return entry_of(manifest["kind"], manifest | {"metadata": manifest["metadata"] | head | metadata})


@pytest.mark.parametrize(
    ("spec", "reason", "said"),
    [
        ({}, None, ""),
        ({"state": "Disabled"}, None, ""),
        ({"state": "Deprecated", "replacedBy": "other"}, None, ""),
        ({"scopes": []}, ConditionReason.INVALID, "spec.scopes"),
        ({"scopes": ["registry:write"]}, ConditionReason.INVALID, "registry"),
        ({"backend": {}}, ConditionReason.INVALID, "backend"),
        ({"inputSchema": {"type": "array"}}, ConditionReason.SCHEMA_UNSAFE, "spec.inputSchema/type"),
        ({"inputSchema": {"$ref": "https://x/y"}}, ConditionReason.SCHEMA_UNSAFE, "spec.inputSchema"),
        (
            {"outputSchema": {"$ref": "file:///etc/passwd"}},
            ConditionReason.SCHEMA_UNSAFE,
            "spec.outputSchema",
        ),
    ],
)
def test_a_tool_is_published_exactly_when_it_is_not_refused(
    spec: dict[str, Any], reason: ConditionReason | None, said: str
) -> None:
    verdict = assess_tool(entry(tool("calculator", **spec)), owner=None, credential=None)
    assert (verdict.published is None) == (reason is not None)
    if reason is not None:
        assert verdict.refusal is not None
        assert verdict.refusal.reason is reason
        assert said in verdict.refusal.message


def test_the_oldest_tool_keeps_a_name_then_the_lower_uid_and_the_deleted_do_not_count() -> None:
    def of(name: str, created: str, uid: str, **more: Any) -> Entry:
        return entry(tool(name, name="shared"), creationTimestamp=created, uid=uid, **more)

    old, young = of("a", "2026-01-01T00:00:00Z", "z"), of("b", "2026-01-02T00:00:00Z", "a")
    twin = of("c", "2026-01-01T00:00:00Z", "y")
    leaving = of("d", "2025-01-01T00:00:00Z", "0", deletionTimestamp="2026-02-01T00:00:00Z")
    assert name_owner([young, old]) is old
    assert name_owner([old, twin, young]) is twin
    assert name_owner([leaving, young]) is young
    verdict = assess_tool(young, owner=old, credential=None)
    assert verdict.refusal is not None
    assert verdict.refusal.reason is ConditionReason.NAME_CONFLICT
    assert "heist/a" in verdict.refusal.message


@pytest.mark.parametrize(
    ("selector", "trusted", "expected"),
    [
        ({}, ("team",), None),
        ({"matchLabels": {"team": "a"}}, ("team",), ("one",)),
        ({"matchExpressions": [{"key": "team", "operator": "Exists"}]}, ("team",), ("one", "two")),
        ({"matchLabels": {"team": "c"}}, ("team",), ()),
        ({"matchLabels": {"kubernetes.io/metadata.name": "two"}}, ("kubernetes.io/metadata.name",), ("two",)),
    ],
)
def test_a_selector_is_resolved_to_the_namespaces_that_there_are(
    selector: dict[str, Any], trusted: tuple[str, ...], expected: tuple[str, ...] | None
) -> None:
    name = "kubernetes.io/metadata.name"
    namespaces = {
        "one": {"team": "a", name: "one"},
        "two": {"team": "b", name: "two"},
        "three": {name: "three"},
    }
    found = assess_binding(
        entry(cluster_binding("auditor", ["x:use"], namespaceSelector=selector)),
        namespaces=namespaces,
        trusted=trusted,
    )
    assert found.published is not None
    assert found.published.namespaces == expected


def test_one_untrusted_label_among_trusted_ones_refuses_the_selector() -> None:
    selector = {"matchLabels": {"team": "a"}, "matchExpressions": [{"key": "mine", "operator": "Exists"}]}
    manifest = cluster_binding("auditor", ["x:use"], namespaceSelector=selector)
    verdict = assess_binding(entry(manifest), namespaces={}, trusted=("team",))
    assert verdict.published is None
    assert verdict.refusal is not None
    assert (verdict.refusal.reason, "'mine'" in verdict.refusal.message) == (
        ConditionReason.UNTRUSTED_LABEL,
        True,
    )


@pytest.mark.parametrize("denies", [{"deny": ["x"]}, {"denyScopes": ["x"]}])
def test_a_refused_selector_denies_everywhere_what_the_binding_denies(denies: dict[str, Any]) -> None:
    selector = {"matchLabels": {"mine": "a"}}
    manifest = cluster_binding("auditor", ["x:use"], namespaceSelector=selector, tools=denies)
    held = assess_binding(entry(manifest), namespaces={}, trusted=()).published
    assert held is not None
    assert (held.scopes, held.namespaces, held.deny + held.deny_scopes) == ((), None, ("x",))


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ({"scopes": ["a:use"]}, 1),
        ({"scopes": ["a:use", "b:use", "off:use"]}, 2),
        ({"scopes": ["none:use"]}, 0),
        ({"scopes": ["a:use", "b:use"], "tools": {"allow": ["a"]}}, 1),
        ({"scopes": ["a:use", "b:use"], "tools": {"deny": ["a"]}}, 1),
        ({"scopes": ["b:use"], "servers": ["web"]}, 1),
        ({"scopes": ["a:use"], "servers": ["web"]}, 0),
        ({"scopes": None, "tools": {"deny": ["*"]}}, 2),
        ({"scopes": ["a:use", "b:use"], "tools": {"denyScopes": ["a:use"]}}, 1),
        ({"scopes": None, "tools": {"denyScopes": ["a:use", "off:use"]}}, 1),
    ],
)
def test_matched_tools_counts_active_tools_within_reach(spec: dict[str, Any], count: int) -> None:
    manifests = [tool("a"), tool("b", server="web"), tool("off", state="Disabled"), tool("a", "other")]
    resources = [entry(m).resource for m in manifests]
    tools = tuple(publishing.tool(r) for r in resources if isinstance(r, Tool))
    snapshot = Snapshot().apply(Publish(to=Revision(epoch=1, seq=1), tools=tools))
    manifest = binding("planner", spec.get("scopes") or [])
    manifest["spec"] |= spec
    if spec["scopes"] is None:
        del manifest["spec"]["scopes"]
    published = assess_binding(entry(manifest), namespaces={}, trusted=()).published
    assert published is not None
    assert matched_tools(published, snapshot) == count


def remote(url: str | None = "https://api.example.com/x", **more: Any) -> Tool:
    http = {"url": url} if url else {"service": {"name": "backend", "port": 80}}
    auth = {"type": "Bearer", "secretKeyRef": {"name": "key", "key": "token"}, **more}
    found = entry(tool("remote", backend={"http": http, "auth": auth})).resource
    assert isinstance(found, Tool)
    return found


def secret(hosts: str = "api.example.com", label: str = "true", **data: str) -> Entry:
    metadata = {"name": "key", "namespace": "heist", "labels": {LABEL: label}, "annotations": {HOSTS: hosts}}
    encoded = {k: base64.b64encode(v.encode()).decode() for k, v in data.items()}
    return entry_of("Secret", {"metadata": metadata, "data": encoded})


@pytest.mark.parametrize(
    ("tool", "secret", "allowed", "reason"),
    [
        (remote(), secret(token="v"), ("heist",), None),
        (remote(), secret("other.com, API.example.com", token="v"), None, None),
        (remote(None), secret("backend.heist.svc", token="v"), None, None),
        (remote(None), secret("backend:80", token="v"), None, None),
        (remote(None), secret("backend:81", token="v"), None, ConditionReason.CREDENTIAL_NOT_ALLOWED),
        (remote(), secret("https://api.example.com/", token="v"), None, None),
        (remote("http://api.example.com/x"), secret(token="v"), None, ConditionReason.CREDENTIAL_NOT_ALLOWED),
        (remote("http://api.example.com/x"), secret("http://api.example.com", token="v"), None, None),
        (
            remote("https://api.example.com:8443/x"),
            secret(token="v"),
            None,
            ConditionReason.CREDENTIAL_NOT_ALLOWED,
        ),
        (remote("https://api.example.com:8443/x"), secret("api.example.com:8443", token="v"), None, None),
        (remote(), secret(token="v"), ("other",), ConditionReason.CREDENTIAL_MISSING),
        (remote(), None, None, ConditionReason.CREDENTIAL_MISSING),
        (remote(), secret(other="v"), None, ConditionReason.CREDENTIAL_MISSING),
        (remote(), secret(label="false", token="v"), None, ConditionReason.CREDENTIAL_NOT_ALLOWED),
        (remote(), secret("", token="v"), None, ConditionReason.CREDENTIAL_NOT_ALLOWED),
        (remote(), secret("*.example.com", token="v"), None, ConditionReason.CREDENTIAL_NOT_ALLOWED),
        (remote(), secret("example.com", token="v"), None, ConditionReason.CREDENTIAL_NOT_ALLOWED),
    ],
)
def test_a_secret_goes_only_where_its_label_and_hosts_say(
    tool: Tool, secret: Entry | None, allowed: tuple[str, ...] | None, reason: ConditionReason | None
) -> None:
    credentials, problem = assess_credential(tool, secret, allowed=allowed, domain="cluster.local")
    assert (not credentials) == (reason is not None)
    assert (problem.reason if problem else None) is reason
    assert [credential.value for credential in credentials] == ([] if reason else ["v"])


@pytest.mark.parametrize(
    ("hosts", "values", "says"),
    [
        ("api.example.com idp.example.com", {"token": "v", "client-id": "c"}, None),
        ("api.example.com", {"token": "v", "client-id": "c"}, "does not list 'idp.example.com'"),
        ("idp.example.com", {"token": "v", "client-id": "c"}, "does not list 'api.example.com'"),
        ("api.example.com idp.example.com", {"token": "v"}, "has no key 'client-id'"),
        ("api.example.com idp.example.com", {"client-id": "c"}, "has no key 'token'"),
    ],
)
def test_the_secret_of_an_oauth_client_lists_its_token_endpoint_and_its_backend(
    hosts: str, values: dict[str, str], says: str | None
) -> None:
    tool = remote(type="ClientCredentials", oauth={"tokenUrl": "https://idp.example.com/token"})

    found, problem = assess_credential(
        tool,
        secret(hosts, **values),
        allowed=None,
        domain="cluster.local",
    )

    assert [(c.key, c.value) for c in found] == ([] if says else [("token", "v"), ("client-id", "c")])
    assert (says is None) == (problem is None)
    assert says is None or (problem is not None and says in problem.message)


@pytest.mark.parametrize("domain", ["cluster.local", "corp.internal"])
@pytest.mark.parametrize("listed", ["cluster.local", "corp.internal"])
def test_a_services_whole_name_in_hosts_ends_in_the_clusters_own_domain(domain: str, listed: str) -> None:
    arguments = ["--registry-url", "http://registry", "--credential-namespaces", "heist"]
    settings = options.parse([*arguments, "--cluster-domain", f"{domain.upper()}."], {}).loop
    world = World()
    http = {"service": {"name": "backend", "port": 80}}
    auth = {"type": "Bearer", "secretKeyRef": {"name": "key", "key": "token"}}
    world.upsert("Tool", tool("remote", backend={"http": http, "auth": auth}))
    labels = {LABEL: "true"}
    annotations = {HOSTS: f"backend.heist.svc.{listed}"}
    metadata = {"name": "key", "namespace": "heist", "labels": labels, "annotations": annotations}
    world.upsert("Secret", {"metadata": metadata, "data": {"token": base64.b64encode(b"v").decode()}})
    assessor = Assessor(world, replace(settings, services=False))

    assessor.judge(assessor.expand(world.take()[0]))

    assert [c.value for c in assessor.credentials] == (["v"] if domain == listed else [])


def test_credentials_are_put_together_again_only_where_a_tool_needs_another() -> None:
    world = World()
    auth = {"type": "Bearer", "secretKeyRef": {"name": "key", "key": "token"}}
    needing = tool("remote", backend={"http": {"url": "https://api.example.com/"}, "auth": auth})
    metadata = {
        "name": "key",
        "namespace": "heist",
        "labels": {LABEL: "true"},
        "annotations": {HOSTS: "api.example.com"},
    }

    def told(value: bytes) -> None:
        world.upsert("Secret", {"metadata": metadata, "data": {"token": base64.b64encode(value).decode()}})

    settings = replace(
        options.parse(["--registry-url", "http://registry", "--credential-namespaces", "heist"], {}).loop,
        services=False,
    )
    assessor = Assessor(world, settings)

    def credentials() -> tuple[Credential, ...]:
        assessor.judge(assessor.expand(world.take()[0]))
        return assessor.credentials

    world.upsert("Tool", needing)
    told(b"first")
    first = credentials()
    assert [c.value for c in first] == ["first"]

    world.upsert("Tool", tool("another"))
    assert credentials() is first, "no other tool's change matters"

    world.upsert(
        "Tool",
        {
            **needing,
            "metadata": {**needing["metadata"], "name": "twin"},
            "spec": {**needing["spec"], "name": "twin"},
        },
    )
    assert credentials() == first, "two tools need one"
    told(b"second")
    assert [c.value for c in credentials()] == ["second"]
    world.remove("Tool", "heist/remote")
    assert [c.value for c in credentials()] == ["second"]
    world.remove("Tool", "heist/twin")
    assert credentials() == ()


DONE = Progress(published=True, propagated=True, replicas=1, indexed=True)


@pytest.mark.parametrize(
    ("progress", "ready", "indexed", "provisional"),
    [
        (DONE, ("True", "Ready"), ("True", "Indexed"), False),
        (Progress(), ("False", "NoReplicas"), ("False", "NotIndexed"), True),
        (Progress(replicas=1), ("False", "NotPublished"), ("False", "NotIndexed"), True),
        (Progress(True, True, 1, False), ("False", "NotIndexed"), ("False", "NotIndexed"), True),
        (
            Progress(True, True, 1, False, Cause(ConditionReason.INDEX_UNAVAILABLE)),
            ("False", "IndexUnavailable"),
            ("False", "IndexUnavailable"),
            False,
        ),
    ],
)
def test_a_tools_conditions_follow_its_progress(
    progress: Progress, ready: tuple[str, str], indexed: tuple[str, str], provisional: bool
) -> None:
    found = entry(tool("calculator"))
    verdict = assess_tool(found, owner=None, credential=None)
    desired = tool_status(found, verdict, progress, NOW)
    assert conditions(desired.status) == {
        "Ready": ready,
        "Accepted": ("True", "Accepted"),
        "Indexed": indexed,
        "Questionable": ("False", "NothingOdd"),
    }
    assert desired.provisional is provisional


def test_what_was_confirmed_for_a_generation_stays_while_nothing_is_known() -> None:
    fresh = entry(tool("calculator"))
    verdict = assess_tool(fresh, owner=None, credential=None)
    written = tool_status(fresh, verdict, DONE, NOW).status
    again = entry(tool("calculator") | {"status": dict(written)})
    assert statuses.difference(written, tool_status(again, verdict, Progress(), NOW + 99).status) == {}
    edited = entry(tool("calculator") | {"status": dict(written)}, generation=2)
    assert tool_status(edited, verdict, Progress(replicas=1), NOW).provisional


def test_a_transition_time_changes_with_the_status_alone() -> None:
    fresh = entry(tool("calculator"))
    verdict = assess_tool(fresh, owner=None, credential=None)
    first = tool_status(fresh, verdict, Progress(replicas=1), NOW).status
    second = tool_status(entry(tool("calculator") | {"status": dict(first)}), verdict, DONE, NOW + 60).status
    times = {c["type"]: c["lastTransitionTime"] for c in second["conditions"]}
    assert times["Accepted"] < times["Ready"] == times["Indexed"]
    assert {c["type"] for c in statuses.transitions(first, second)} == {"Ready", "Indexed"}


def test_a_refusal_takes_the_digests_out_of_the_status() -> None:
    found = entry(tool("calculator") | {"status": {"digest": "sha256:1", "toolId": "heist/calculator"}})
    desired = tool_status(found, ToolVerdict(None, Cause(ConditionReason.INVALID, "spec: bad")), DONE, NOW)
    patch = statuses.difference(found.status, desired.status)
    assert patch["digest"] is None
    assert patch["toolId"] is None
    assert conditions(desired.status)["Ready"] == ("False", "NotAccepted")


@pytest.mark.parametrize(
    ("dates", "ready", "expired"),
    [
        ({}, ("True", "Ready"), ("False", "InForce")),
        ({"expiresAt": "2020-01-01T00:00:00Z"}, ("False", "Expired"), ("True", "Expired")),
        ({"notBefore": "2099-01-01T00:00:00Z"}, ("False", "NotYetValid"), ("False", "NotYetValid")),
    ],
)
def test_a_bindings_dates_are_judged_by_the_clock(
    dates: dict[str, str], ready: tuple[str, str], expired: tuple[str, str]
) -> None:
    found = entry(binding("planner", ["calculator:use"], **dates))
    verdict = assess_binding(found, namespaces={}, trusted=())
    desired = binding_status(found, verdict, DONE, BindingReach(1, Cause(ConditionReason.MATCHES)), NOW)
    assert conditions(desired.status)["Ready"] == ready
    assert conditions(desired.status)["Expired"] == expired


def test_a_tool_that_a_search_finds_badly_is_used_and_says_so() -> None:
    found = entry(tool("calculator"))
    weakness = Weakness(ConditionReason.NO_DESCRIPTION, "spec.description", "there is none", "write one")
    verdict = replace(assess_tool(found, owner=None, credential=None), weaknesses=(weakness,))
    status = tool_status(found, verdict, DONE, NOW).status
    said = {c["type"]: (c["status"], c["reason"], c["message"]) for c in status["conditions"]}
    assert said["Questionable"] == ("True", "NoDescription", "spec.description: there is none")
    assert said["Ready"][0] == "True"
    assert [c["type"] for c in statuses.announced({}, status)] == ["Ready", "Questionable"]
    assert [c["type"] for c in statuses.announced({}, status, questions=False)] == ["Ready"]


def test_what_waited_and_is_then_refused_is_told_twice_and_each_once() -> None:
    def refused(reason: ConditionReason, message: str, before: dict[str, Any]) -> dict[str, Any]:
        found = entry(binding("planner", ["calculator:use"]) | {"status": before})
        verdict = BindingVerdict(None, Cause(reason, message))
        return binding_status(
            found, verdict, DONE, BindingReach(0, Cause(ConditionReason.MATCHES_NOTHING)), NOW
        ).status

    waits = refused(ConditionReason.ADMISSION_POLICY_UNREAD, "It waits.", {})
    missing = refused(ConditionReason.ADMISSION_POLICY_MISSING, "Nobody checked.", waits)
    again = refused(ConditionReason.ADMISSION_POLICY_MISSING, "Nobody checked.", missing)
    told = [statuses.announced(*each) for each in (({}, waits), (waits, missing), (missing, again))]
    assert [[(c["type"], c["message"]) for c in each] for each in told] == [
        [("Ready", "It waits.")],
        [("Ready", "Nobody checked.")],
        [],
    ]
