"""The hardening checklist, over facts alone: every item passes where all is well, and fails by itself where it is not."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.resources import admission
from toolcrib_cli import main as cli
from toolcrib_cli.doctor import table
from toolcrib_cli.doctor.checks_access import OPERATOR
from toolcrib_cli.doctor.facts import Facts, Place
from toolcrib_cli.doctor.network import door

NOW = 1_800_000_000.0
TO_EDIT = {"rbac.authorization.k8s.io/aggregate-to-edit": "true"}
SYSTEM, HOME = "toolcrib-system", "heist"
ROOT = Path(__file__).parents[3]
Objects = dict[str, Any]
Change = Callable[[Objects], object]

SETTINGS: dict[str, Any] = {
    "tls": {"cert_file": "/c", "key_file": "/k"},
    "admin_tls": {"cert_file": "/c", "key_file": "/k"},
    "metrics": {"port": 8091, "reasons": "not_permitted"},
    "discovery": {"anonymous": "none"},
    "store": {"kind": "weaviate", "tls": True},
    "issuers": [{"audience": ["toolcrib"], "cluster": True}, {"issuer": "https://idp.example.com", "audience": ["tools"]}],
    "egress": {"allow": ["api.example.com"], "cluster": ["10.96.0.0/12"]},
    "audit": {"path": "-", "key_file": "/etc/toolcrib/audit/key"},
    "assertion": {"keys": "/etc/toolcrib/assertion"},
}  # fmt: skip


def labels(component: str) -> dict[str, str]:
    return {"app.kubernetes.io/part-of": "toolcrib", "app.kubernetes.io/component": component}


def meta(name: str, namespace: str | None = None, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **({"namespace": namespace} if namespace else {}), **more}}


def workload(component: str) -> dict[str, Any]:
    arguments = [
        "--admission=policy",
        "--audit-anchors=heads",
        "--hidden-text=refuse",
        "--quota-tools=5000",
        "--quota-bytes=64Mi",
    ]
    container = {
        "name": component, "args": arguments if component == "operator" else ["serve"], "env": [],
        "securityContext": {"readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }  # fmt: skip
    volumes = [
        {"name": "config", "configMap": {"name": "settings"}},
        {"name": "audit-key", "secret": {"secretName": "ours"}},
        {"name": "assertion-keys", "secret": {"secretName": "ours-too"}},
    ]
    pod = {
        "serviceAccountName": f"toolcrib-{component}", "containers": [container], "volumes": volumes,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    }  # fmt: skip
    spec = {"replicas": 2, "template": {"metadata": {"labels": labels(component)}, "spec": pod}}
    return {
        "kind": "Deployment",
        **meta(f"toolcrib-{component}", SYSTEM, labels=labels(component)),
        "spec": spec,
    }


def bound(
    role: str, name: str, namespace: str | None = None, *, to: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A (Cluster)RoleBinding of a ClusterRole to a service account of ours, or to somebody."""
    subject = to or {"kind": "ServiceAccount", "name": name, "namespace": SYSTEM}
    return {
        **meta(f"{role}-{name}", namespace),
        "roleRef": {"kind": "ClusterRole", "name": role},
        "subjects": [subject],
    }


def role(name: str, *rules: tuple[str, str, list[str]], **more: Any) -> dict[str, Any]:
    made = [
        {"apiGroups": [group], "resources": [resource], "verbs": verbs} for group, resource, verbs in rules
    ]
    return {**meta(name, **more), "rules": made}


def policy(name: str, namespace: str, selected: dict[str, str], *rules: dict[str, Any]) -> dict[str, Any]:
    spec = {"podSelector": {"matchLabels": selected}, "policyTypes": ["Ingress"], "ingress": list(rules)}
    return {**meta(name, namespace), "spec": spec}


def good() -> Objects:
    """A hardened cluster."""
    http = {"service": {"name": "files", "port": 80}}
    credential = {"type": "Bearer", "secretKeyRef": {"name": "key", "key": "token"}}
    from_system = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": SYSTEM}}}
    scrape = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    metrics = {"from": [scrape], "ports": [{"port": "metrics"}]}
    admin = {"from": [{"podSelector": {"matchLabels": labels("operator")}}], "ports": [{"port": "admin"}]}
    found: Objects = {
        "Tool": [
            {**meta("read", HOME), "spec": {"scopes": ["f:use"], "backend": {"http": http, "auth": credential}}},
            {**meta("web", HOME), "spec": {"scopes": ["w:use"], "backend": {"http": {"url": "https://api.example.com"}}}},
        ],
        "AgentScopeBinding": [{**meta("bot", HOME), "spec": {"subjects": [], "scopes": ["f:use"]}}],
        "ClusterAgentScopeBinding": [
            {**meta("all"), "spec": {"subjects": [], "scopes": ["f:use"], "namespaces": [HOME]}},
            {**meta("deny"), "spec": {"subjects": [], "namespaceSelector": {}, "tools": {"deny": ["x"]}}},
            {**meta("power"), "spec": {"subjects": [], "scopes": ["registry:admin"], "namespaces": [SYSTEM], "expiresAt": "2090-01-01T00:00:00Z"}},
        ],
        "Workload": [workload("operator"), workload("registry")],
        "ConfigMap": [{**meta("settings", SYSTEM), "data": {"registry.yaml": yaml.safe_dump(SETTINGS)}}],
        "ClusterRole": [
            role("operator", *((g, r, sorted(verbs)) for (g, r), verbs in OPERATOR.items())),
            role("cluster-admin", ("*", "*", ["*"])),
            role("edit", ("", "pods", ["*"])),
            role("toolcrib-edit", ("toolcrib.dev", "tools", ["create"]), labels=TO_EDIT),
            role("author", ("toolcrib.dev", "scopes", ["gate"])),
            role("reader", ("", "secrets", ["get"])),
        ],
        "ClusterRoleBinding": [
            bound("operator", "toolcrib-operator"),
            bound("cluster-admin", "x", to={"kind": "User", "name": "root"}),
        ],
        "Role": [],
        "RoleBinding": [bound("reader", "people", HOME, to={"kind": "User", "name": "jane"})],
        "ValidatingAdmissionPolicy": [m for m in admission.manifests() if m["kind"] == admission.POLICY],
        "ValidatingAdmissionPolicyBinding": [m for m in admission.manifests() if m["kind"] == admission.BINDING],
        "Service": [
            {**meta("files", HOME), "spec": {"selector": {"app": "files"}, "ports": [{"port": 80, "targetPort": 8080}]}},
            {**meta("toolcrib-registry", SYSTEM), "spec": {"ports": [{"name": "https", "port": 443, "targetPort": "agents"}]}},
            {**meta("toolcrib-registry-admin", SYSTEM), "spec": {"ports": [{"name": "admin", "port": 8081, "targetPort": "admin"}]}},
        ],
        "Pod": [meta("files-1", HOME, labels={"app": "files", "v": "1"})],
        "NetworkPolicy": [
            policy("files", HOME, {"app": "files"}, {"from": [from_system], "ports": [{"port": 8080}]}),
            policy("registry", SYSTEM, labels("registry"), metrics, admin, {"from": [{"namespaceSelector": {}}], "ports": [{"port": "agents"}]}),
            policy("operator", SYSTEM, labels("operator"), metrics),
        ],
        "PodDisruptionBudget": [
            {**meta(c, SYSTEM), "spec": {"selector": {"matchLabels": labels(c)}}} for c in ("operator", "registry")
        ],
        "Ingress": [{**meta("agents", SYSTEM), "spec": _to("toolcrib-registry", number=443)}],
    }  # fmt: skip
    return copy.deepcopy(found)


def _to(service: str, **port: Any) -> dict[str, Any]:
    return {"rules": [{"http": {"paths": [{"backend": {"service": {"name": service, "port": port}}}]}}]}


def results(objects: Objects) -> dict[str, tuple[str, str]]:
    facts = Facts(Place.CLUSTER, objects, NOW)
    return {r.item.name: (str(r.verdict.outcome), r.verdict.found) for r in table.examine(facts)}


def setting(path: str, value: Any) -> Change:
    def change(objects: Objects) -> None:
        data = copy.deepcopy(SETTINGS)
        inner = data
        *outer, last = path.split(".")
        for part in outer:
            inner = inner.setdefault(part, {})
        inner[last] = value
        objects["ConfigMap"][0]["data"]["registry.yaml"] = yaml.safe_dump(data)

    return change


def option(*given: str) -> Change:
    return lambda o: o["Workload"][0]["spec"]["template"]["spec"]["containers"][0]["args"].extend(given)


def variable(name: str, value: str) -> Change:
    return lambda o: o["Workload"][1]["spec"]["template"]["spec"]["containers"][0]["env"].append(
        {"name": name, "value": value}
    )


def add(kind: str, *items: dict[str, Any]) -> Change:
    return lambda o: o[kind].extend(items)


def grants(name: str, rule: tuple[str, str, list[str]], *bindings: tuple[str, dict[str, Any]]) -> Change:
    def change(objects: Objects) -> None:
        objects["ClusterRole"].append(role(name, rule))
        for kind, binding in bindings:
            objects[kind].append(binding)

    return change


def container(component: int, **fields: Any) -> Change:
    def change(objects: Objects) -> None:
        found = objects["Workload"][component]["spec"]["template"]["spec"]["containers"][0]
        found["securityContext"] = found["securityContext"] | fields

    return change


def secret(volume: str, name: str) -> Change:
    def change(objects: Objects) -> None:
        volumes = objects["Workload"][1]["spec"]["template"]["spec"]["volumes"]
        next(v for v in volumes if v["name"] == volume)["secret"]["secretName"] = name

    return change


def issuers(*found: dict[str, Any]) -> Change:
    return setting("issuers", list(found))


def tool(name: str, **spec: Any) -> Change:
    status = spec.pop("status", {})
    return add("Tool", {**meta(name, HOME), "spec": {"scopes": ["x"], **spec}, "status": status})


def cluster_grant(**spec: Any) -> Change:
    return add("ClusterAgentScopeBinding", {**meta("wide"), "spec": {"subjects": [], **spec}})


def drop(kind: str, name: str) -> Change:
    def change(objects: Objects) -> None:
        objects[kind] = [o for o in objects[kind] if o["metadata"]["name"] != name]

    return change


def policy_spec(name: str, **spec: Any) -> Change:
    def change(objects: Objects) -> None:
        found = next(p for p in objects["NetworkPolicy"] if p["metadata"]["name"] == name)
        found["spec"].update(spec)

    return change


MALLORY = {"kind": "User", "name": "mallory"}
ROBOT = {"kind": "ServiceAccount", "name": "robot", "namespace": "team"}
SERVICE = {"http": {"service": {"name": "files", "port": 80}}}
OPEN_RULE = {"ports": [{"port": 8080}]}

ANY_NAMESPACE = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "Exists"}]}

ALL_BUT_SOME = {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}
HALVES = [{"ipBlock": {"cidr": cidr}} for cidr in ("0.0.0.0/1", "128.0.0.0/1")]


def named_port(target: int | str, opened: int | str) -> Change:
    """A policy opens to everybody, by number or by name, the port of a pod that its Service calls otherwise."""

    def change(objects: Objects) -> None:
        port = {"name": "web", "containerPort": 9000}
        for service in objects["Service"]:
            service["spec"]["ports"] = [{"port": 80, "targetPort": target}]
        for pod in objects["Pod"]:
            pod["spec"] = {"containers": [{"ports": [port]}]}
        add("NetworkPolicy", policy("wide", HOME, {}, {"ports": [{"port": opened}]}))(objects)

    return change


FAILS: dict[str, list[tuple[Change, str]]] = {
    "admission-policies": [
        (drop("ValidatingAdmissionPolicy", "bindings-lift.toolcrib.dev"), "missing"),
        (drop("ValidatingAdmissionPolicyBinding", "tools-gate.toolcrib.dev"), "missing"),
        (lambda o: o["ValidatingAdmissionPolicy"][0]["spec"].update(failurePolicy="Ignore"), "failurePolicy"),
        (lambda o: o["ValidatingAdmissionPolicyBinding"][0]["spec"].update(validationActions=["Audit"]), "validationActions"),
    ],
    "editors-gate": [
        (add("ClusterRole", role("more", ("toolcrib.dev", "scopes", ["gate"]), labels=TO_EDIT)), "more"),
        (add("ClusterRole", role("edit", ("*", "*", ["*"]))), "edit"),
    ],
    "release-verb": [
        (grants("r", ("toolcrib.dev", "bindings", ["release"]), ("ClusterRoleBinding", bound("r", "m", to=MALLORY))), "User mallory"),
        (grants("r", ("*", "*", ["*"]), ("ClusterRoleBinding", bound("r", "m", to=ROBOT))), "team/robot"),
    ],
    "operator-rights": [
        (grants("s", ("", "secrets", ["get"]), ("ClusterRoleBinding", bound("s", "toolcrib-operator"))), "get secrets"),
        (grants("s", ("", "secrets", ["list"]), ("RoleBinding", bound("s", "toolcrib-operator", "team"))), "list secrets in team"),
        (grants("s", ("toolcrib.dev", "tools", ["update"]), ("ClusterRoleBinding", bound("s", "toolcrib-operator"))), "update tools"),
        (grants("s", ("*", "*", ["*"]), ("RoleBinding", bound("s", "toolcrib-operator", "team"))), "team"),
    ],
    "registry-rights": [
        (add("RoleBinding", bound("reader", "toolcrib-registry", SYSTEM)), "reader"),
        (add("ClusterRoleBinding", bound("edit", "toolcrib-registry")), "edit"),
    ],
    "secret-readers": [
        (add("RoleBinding", bound("reader", "robot", HOME, to=ROBOT)), "team/robot"),
        (add("ClusterRoleBinding", bound("reader", "g", to={"kind": "Group", "name": "system:serviceaccounts"})), "system:serviceaccounts"),
        (add("RoleBinding", bound("reader", "g", HOME, to={"kind": "Group", "name": "system:authenticated"})), "authenticated"),
    ],
    "tool-services": [
        (drop("NetworkPolicy", "files"), "heist/files"),
        (add("NetworkPolicy", policy("wide", HOME, {"app": "files"}, OPEN_RULE)), "everybody"),
        (add("NetworkPolicy", policy("wide", HOME, {}, {"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]})), "everybody"),
        (add("NetworkPolicy", policy("wide", HOME, {}, {"from": [{"namespaceSelector": {}}]})), "everybody"),
        (add("NetworkPolicy", policy("wide", HOME, {}, {"from": HALVES})), "everybody"),
        (add("NetworkPolicy", policy("wide", HOME, {}, {"from": [{"namespaceSelector": ANY_NAMESPACE}]})), "everybody"),
        (add("NetworkPolicy", policy("wide", HOME, {}, {"from": [{"namespaceSelector": {}, "podSelector": ALL_BUT_SOME}]})), "everybody"),
        (named_port("web", 9000), "everybody"),
        (named_port(9000, "web"), "everybody"),
        (policy_spec("files", policyTypes=["Egress"]), "heist/files"),
        (policy_spec("files", podSelector={"matchLabels": {"app": "files", "v": "2"}}), "heist/files"),
    ],
    "assertion": [
        (setting("assertion", {}), "no keys"),
        (tool("bare", backend=SERVICE | {"assertion": False}), "heist/bare"),
    ],
    "metrics-from": [
        (drop("NetworkPolicy", "registry"), "registry"),
        (drop("NetworkPolicy", "operator"), "operator"),
        (add("NetworkPolicy", policy("wide", SYSTEM, {}, {"ports": [{"port": 8085, "endPort": 8095}]})), "registry"),
    ],
    "metrics-reasons": [(setting("metrics.reasons", "full"), "full"), (variable("TOOLCRIB_METRICS__REASONS", "full"), "full")],
    "admin-port": [
        (drop("NetworkPolicy", "registry"), "everybody"),
        (add("NetworkPolicy", policy("x", SYSTEM, {}, {"from": [{"podSelector": {"matchLabels": {"app": "x"}}}]})), "app=x"),
        (add("NetworkPolicy", policy("x", SYSTEM, {}, {"from": [{"podSelector": {}}], "ports": [{"port": 8081}]})), "others"),
    ],
    "not-exposed": [
        (add("Ingress", {**meta("bad", SYSTEM), "spec": _to("toolcrib-registry-admin", name="admin")}), "bad"),
        (add("Ingress", {**meta("bad", SYSTEM), "spec": _to("toolcrib-registry-admin", number=8081)}), "bad"),
    ],
    "tls": [(setting("tls", {}), "agents"), (setting("admin_tls", {}), "admin"), (setting("store.tls", False), "Weaviate")],
    "egress": [*((setting("egress.allow", [wide]), "every host") for wide in ("*", "?*")), (setting("egress.cluster", []), "egress.cluster")],
    "plain-http": [(tool("old", backend={"http": {"url": "http://tools.example.com"}}), "heist/old")],
    "anonymous": [(setting("discovery.anonymous", "list"), "list"), (variable("TOOLCRIB_DISCOVERY__ANONYMOUS", "list"), "list")],
    "issuers": [
        (issuers({"issuer": "http://idp.example.com", "audience": ["a"]}), "plain HTTP"),
        (issuers({"issuer": "https://idp.example.com", "jwks_uri": "http://idp/keys", "audience": ["a"]}), "plain HTTP"),
        (issuers({"cluster": True, "audience": ["https://kubernetes.default.svc"]}), "API server"),
        (issuers({"cluster": True, "issuer": "https://oidc.example.com/c", "audience": ["https://oidc.example.com/c"]}), "API server"),
        (issuers({"issuer": "https://idp.example.com"}), "no audience"),
        (issuers({"issuer": "https://idp.example.com", "audience": ["a"], "scopes": "token"}), "local mode"),
        (setting("allow_dev_issuer", True), "allow_dev_issuer"),
    ],
    "everywhere": [
        (cluster_grant(scopes=["f:use"], namespaceSelector=selector, expiresAt="2090-01-01T00:00:00Z"), "wide")
        for selector in ({}, ANY_NAMESPACE, {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["x"]}]})
    ],
    "expiring": [
        (cluster_grant(scopes=["registry:admin"], namespaces=[SYSTEM]), "wide"),
        (add("AgentScopeBinding", {**meta("old", HOME), "spec": {"scopes": ["x"], "expiresAt": "2020-01-01T00:00:00Z"}}), "heist/old"),
    ],
    "hidden-text": [
        (option("--hidden-text=warn"), "warn"),
        (tool("odd", backend={"none": {}}, status={"conditions": [{"type": "Questionable", "status": "True", "reason": "HiddenText"}]}), "heist/odd"),
    ],
    "quotas": [(option("--quota-tools=0"), "tools"), (option("--quota-bytes=0Mi"), "bytes"), (option("--quota-tools", "0"), "tools")],
    "audit": [(setting("audit", {}), "off"), (setting("audit.key_file", None), "no key"), (option("--audit-anchors="), "anchored")],
    "audit-key": [(secret("audit-key", "toolcrib-audit-key"), "the chart made"), (setting("audit", {}), "off")],
    "assertion-keys": [(secret("assertion-keys", "toolcrib-assertion-keys"), "the chart made")],
    "restricted": [
        (container(0, readOnlyRootFilesystem=False), "operator/operator: readOnlyRootFilesystem"),
        (container(1, runAsNonRoot=False), "registry/registry: runAsNonRoot"),
        (container(1, privileged=True), "privileged"),
        (container(1, capabilities={"add": ["NET_ADMIN"]}), "capabilities"),
    ],
    "several": [
        (lambda o: o["Workload"][1]["spec"].update(replicas=1), "registry"),
        (drop("PodDisruptionBudget", "operator"), "operator: no PodDisruptionBudget"),
    ],
}  # fmt: skip

CASES = [(name, i) for name, cases in FAILS.items() for i in range(len(cases))]


def test_a_hardened_cluster_passes_every_item() -> None:
    assert {name: found for name, found in results(good()).items() if found[0] != "pass"} == {}


def test_every_item_of_a_cluster_has_cases_that_fail() -> None:
    assert set(FAILS) == {i.name for i in table.items() if Place.CLUSTER in i.places}


@pytest.mark.parametrize(("name", "case"), CASES)
def test_an_item_fails_where_it_does_not_hold_and_says_what_was_found(name: str, case: int) -> None:
    objects = good()
    change, said = FAILS[name][case]
    change(objects)
    outcome, found = results(objects)[name]
    assert (outcome, said in found) == ("fail", True), found


@given(st.sampled_from(sorted(good())))
def test_a_kind_that_may_not_be_read_makes_items_unknown_and_lets_none_pass_that_needs_it(kind: str) -> None:
    objects = good()
    objects[kind] = "you may not list them"
    changed = {n: found for n, found in results(objects).items() if found[0] != "pass"}
    assert changed
    assert {outcome for outcome, _ in changed.values()} == {"unknown"}
    assert all("you may not list them" in why or kind in why for _, why in changed.values())


def test_where_nothing_can_be_read_nothing_passes() -> None:
    assert {o for o, _ in results(dict.fromkeys(good(), "no")).values()} == {"unknown"}


@pytest.mark.parametrize(
    "junk",
    [None, {}, {"metadata": {"name": "x"}}, {"metadata": {"name": "x", "namespace": "heist"}, "spec": None}],
)
def test_an_object_of_an_unforeseen_shape_is_no_crash_and_no_pass(junk: Any) -> None:
    for kind in good():
        objects = good()
        objects[kind].append(junk)
        results(objects)


def test_a_service_without_pods_is_judged_by_what_it_selects() -> None:
    objects = good()
    objects["Pod"] = []
    assert results(objects)["tool-services"][0] == "pass"
    drop("NetworkPolicy", "files")(objects)
    assert results(objects)["tool-services"][0] == "fail"


def test_a_tool_whose_service_is_missing_is_unknown() -> None:
    objects = good()
    drop("Service", "files")(objects)
    assert results(objects)["tool-services"][0] == "unknown"


def test_secrets_in_namespaces_of_credentials_may_be_listed_by_the_operator_alone() -> None:
    objects = good()
    option("--credential-namespaces=heist")(objects)
    grants("s", ("", "secrets", ["list"]), ("RoleBinding", bound("s", "toolcrib-operator", HOME)))(objects)
    found = results(objects)
    assert (found["operator-rights"][0], found["secret-readers"][0]) == ("pass", "pass")


def test_people_who_may_read_secrets_are_named_and_fail_nothing() -> None:
    outcome, found = results(good())["secret-readers"]
    assert (outcome, "User jane" in found) == ("pass", True)


def test_policies_add_up_and_a_rule_for_another_port_opens_nothing() -> None:
    closed = policy("a", HOME, {"app": "x"})
    other = policy("b", HOME, {"app": "x"}, {"ports": [{"port": 9}]})
    udp = policy("c", HOME, {"app": "x"}, {"ports": [{"protocol": "UDP", "port": 80}]})
    found = door([closed, other, udp], HOME, {"app": "x"}, {80})
    assert (found.selected, found.everybody, found.peers) == (True, False, ())
    assert not door([closed], "elsewhere", {"app": "x"}, {80}).selected
    wide = policy("d", HOME, {}, {"from": [{"namespaceSelector": {}}]})
    assert door([closed, wide], HOME, {"app": "x"}, {80}).everybody


@pytest.mark.parametrize(
    ("rule", "labels_", "selects"),
    [
        ({"key": "app", "operator": "In", "values": ["a", "b"]}, {"app": "a"}, True),
        ({"key": "app", "operator": "In", "values": ["b"]}, {"app": "a"}, False),
        ({"key": "app", "operator": "NotIn", "values": ["b"]}, {}, True),
        ({"key": "app", "operator": "Exists"}, {}, False),
        ({"key": "app", "operator": "DoesNotExist"}, {}, True),
    ],
)
def test_selectors_are_read_as_the_api_server_reads_them(
    rule: Any, labels_: dict[str, str], selects: bool
) -> None:
    made = policy("a", HOME, {})
    made["spec"]["podSelector"] = {"matchExpressions": [rule]}
    assert door([made], HOME, labels_, {80}).selected == selects


def test_the_reference_holds_every_item_with_its_remedy() -> None:
    guide = (ROOT / "docs" / "reference" / "hardening.md").read_text()
    for item in table.items():
        assert f"| `{item.name}` | {item.wanted} | {item.remedy} |" in guide


def test_without_a_local_mode_the_command_ends_with_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for more in ([], ["--url", "http://127.0.0.1:1"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(["doctor", "--data", str(tmp_path), *more])
        assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err


def local(**local_facts: Any) -> dict[str, tuple[str, str]]:
    given = {
        "url": "http://127.0.0.1:8765", "anonymous": 0, "hidden_text": "refuse", "open_files": [],
        "settings": {key: SETTINGS[key] for key in ("metrics", "discovery", "audit", "egress", "assertion")},
    }  # fmt: skip
    kinds = ("Tool", "AgentScopeBinding", "ClusterAgentScopeBinding")
    objects = {kind: good()[kind] for kind in kinds} | json.loads(json.dumps(local_facts.pop("objects", {})))
    facts = Facts(Place.LOCAL, objects, NOW, {**given, **local_facts})
    return {r.item.name: (str(r.verdict.outcome), r.verdict.found) for r in table.examine(facts)}


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("private-files", {"open_files": ["audit.key"]}),
        ("tls", {"url": "http://192.0.2.1:8765"}),
        ("anonymous", {"anonymous": 3}),
        ("hidden-text", {"hidden_text": "warn"}),
        ("audit", {"settings": {"audit": {}}}),
        ("assertion", {"settings": {}}),
        ("metrics-reasons", {"settings": {"metrics": {"reasons": "full"}}}),
        ("egress", {"settings": {"egress": {"allow": ["*"]}}}),
        ("plain-http", {"objects": {"Tool": [{**meta("a", HOME), "spec": {"backend": {"http": {"url": "http://example.com/"}}}}]}}),
        ("everywhere", {"objects": {"ClusterAgentScopeBinding": [{**meta("a"), "spec": {"scopes": ["x"], "namespaceSelector": {}}}]}}),
        ("expiring", {"objects": {"AgentScopeBinding": [{**meta("a", HOME), "spec": {"scopes": ["registry:write"]}}]}}),
    ],
)  # fmt: skip
def test_each_item_of_the_local_mode_passes_and_fails(name: str, bad: dict[str, Any]) -> None:
    assert local()[name][0] == "pass"
    assert local(**bad)[name][0] == "fail"


def test_every_item_of_the_local_mode_is_tried_above() -> None:
    assert set(local()) == {i.name for i in table.items() if Place.LOCAL in i.places}
    assert len(local()) == 11
