"""The rights that the chart asks a cluster for: few, and the same as the manifests for installing by hand."""

from typing import Any

import pytest
import yaml

from chart import ROOT, Object, Rendered, named, render
from chart_values import MATRIX

pytestmark = pytest.mark.real

_READING = {"get", "list", "watch"}
_OPERATORS = ("toolcrib-operator", "toolcrib-registrations", "toolcrib-credentials")
Rule = dict[str, Any]


def _rules(rendered: Rendered, *kinds: str) -> list[tuple[str, Rule]]:
    return [(named(item), rule) for item in rendered.of(*kinds) for rule in item.get("rules") or []]


def _facts(rules: list[Rule]) -> set[tuple[str, str, str, str]]:
    """Each right by itself: group, resource, verb, name."""
    return {
        (group, resource, verb, name)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }


@pytest.mark.parametrize("name", MATRIX)
def test_no_right_is_a_wildcard_or_leads_to_more_rights(name: str) -> None:
    for where, rule in _rules(render(MATRIX[name]), "ClusterRole", "Role"):
        words = {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
        assert "*" not in words, where
        assert not words & {"escalate", "bind", "impersonate"}, where
        assert not words & {"pods/exec", "serviceaccounts/token", "nodes/proxy", "pods/attach"}, where
        assert "nonResourceURLs" not in rule, where


@pytest.mark.parametrize("name", MATRIX)
def test_nobody_reads_secrets_but_in_namespaces_that_were_named(name: str) -> None:
    rendered = render(MATRIX[name])
    reading = {
        item["metadata"]["name"]
        for item in rendered.of("ClusterRole", "Role")
        if any("secrets" in rule["resources"] for rule in item.get("rules") or [])
    }
    everywhere = [item for item in rendered.of("ClusterRoleBinding") if item["roleRef"]["name"] in reading]
    assert not everywhere
    bound = [item for item in rendered.of("RoleBinding") if item["roleRef"]["name"] in reading]
    named_ones = [*MATRIX[name].get("credentials", {}).get("namespaces", [])]
    if agents := MATRIX[name].get("agents", {}):
        # the names of the keys of model keys' Secrets
        named_ones += agents.get("namespaces", [])
    hooks = [item for item in bound if "helm.sh/hook" in item["metadata"].get("annotations", {})]
    assert {item["metadata"].get("namespace") for item in bound if item not in hooks} == set(named_ones)
    assert all(
        set(rule["verbs"]) <= _READING for where, rule in _rules(rendered) if "secrets" in rule["resources"]
    )


def test_the_operator_writes_nothing_of_ours_but_status_finalizers_and_imported_tools() -> None:
    """It patches bindings for their finalizer, which it may release. Which Tools it may write, the admission policies say."""
    rules = render().one("ClusterRole", "toolcrib-operator")["rules"]
    writes = {(resource, verb) for group, resource, verb, _ in _facts(rules) if verb not in _READING}
    assert writes == {
        ("agentscopebindings", "patch"),
        ("clusteragentscopebindings", "patch"),
        ("agents", "patch"),
        ("bindings", "release"),
        ("tools", "create"),
        ("tools", "patch"),
        ("tools", "delete"),
        ("scopes", "import"),
        ("tools/status", "patch"),
        ("toolservers/status", "patch"),
        ("agentscopebindings/status", "patch"),
        ("clusteragentscopebindings/status", "patch"),
        ("agents/status", "patch"),
        ("accessrequests", "create"),
        ("accessrequests", "delete"),
        ("accessrequests/status", "patch"),
        ("toolcanaries/status", "patch"),
        ("callconfirmations", "create"),
        ("callconfirmations", "delete"),
        ("events", "create"),
    }


def test_the_registry_weaviate_and_agents_have_no_rights() -> None:
    rendered = render(MATRIX["agents"])
    holders = {
        subject["name"]
        for item in rendered.of("ClusterRoleBinding", "RoleBinding")
        if "helm.sh/hook" not in item["metadata"].get("annotations", {})
        for subject in item["subjects"]
    }
    assert holders == {"toolcrib-operator"}


def test_the_manifests_for_installing_by_hand_give_the_same_rights() -> None:
    """examples/cluster/rbac.yaml is what tests compare with the API server's audit log."""
    text = (ROOT / "examples" / "cluster" / "rbac.yaml").read_text(encoding="utf-8")
    example = [item for item in yaml.safe_load_all(text) if item["kind"] in ("ClusterRole", "Role")]
    rendered = render({"runtimeRegistration": {"enabled": True}, "credentials": {"namespaces": ["team-a"]},
                       "agents": {"namespaces": ["team-a"]}})  # fmt: skip
    for item in example:
        ours = _counterpart(rendered, item)
        assert _facts(ours["rules"]) == _facts(item["rules"]), named(item)


def _counterpart(rendered: Rendered, example: Object) -> Object:
    facts = _facts(example["rules"])
    found = [item for item in rendered.of(example["kind"], "Role") if _facts(item["rules"]) == facts]
    assert found, f"the chart has no role like {named(example)}"
    return found[0]


def test_rights_can_be_left_to_others() -> None:
    assert not render(MATRIX["bare"]).of("ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding")


def test_our_kinds_join_the_roles_of_the_cluster() -> None:
    roles = {
        label.removeprefix("rbac.authorization.k8s.io/aggregate-to-"): item
        for item in render().of("ClusterRole")
        for label in item["metadata"]["labels"]
        if label.startswith("rbac.authorization.k8s.io/aggregate-to-")
    }
    assert set(roles) == {"view", "edit", "admin"}


@pytest.mark.parametrize(
    ("role", "may", "may_not"),
    [
        ("view", {("tools", "get"), ("agentscopebindings", "list")}, {("tools", "create")}),
        ("edit", {("tools", "create"), ("agents", "update")}, {("agentscopebindings", "create")}),
        (
            "admin",
            {("tools", "create"), ("agentscopebindings", "create")},
            {("clusteragentscopebindings", "create")},
        ),
    ],
)
def test_who_may_edit_may_change_tools_and_who_administrates_may_grant(
    role: str, may: set[tuple[str, str]], may_not: set[tuple[str, str]]
) -> None:
    """As with Deployments and RoleBindings; cluster-wide grants stay with cluster admins; status with the operator."""
    label = f"rbac.authorization.k8s.io/aggregate-to-{role}"
    rules = [
        rule
        for item in render().of("ClusterRole")
        if label in item["metadata"]["labels"]
        for rule in item["rules"]
    ]
    held = {(resource, verb) for _, resource, verb, _ in _facts(rules)}
    assert may <= held
    assert not may_not & held
    assert not any(resource.endswith("/status") for resource, _ in held)
    alone = ("approve", "resume", "*")
    assert not any(verb in alone for _, verb in held), (
        "who writes a tool or stops an agent does not approve or resume it"
    )


def test_an_approver_writes_nothing_but_approvals_and_is_bound_to_nobody() -> None:
    """A patch of anything else takes `gate`, which it lacks (tests/cluster/test_admission_approvals.py)."""
    rendered = render()
    rules = rendered.one("ClusterRole", "toolcrib-tool-approver")["rules"]
    assert {(resource, verb) for _, resource, verb, _ in _facts(rules) if verb not in _READING} == {
        ("tools", "patch"), ("tools", "approve"), ("toolcanaries", "patch"),
    }  # fmt: skip
    bound = {item["roleRef"]["name"] for item in rendered.of("ClusterRoleBinding", "RoleBinding")}
    assert "toolcrib-tool-approver" not in bound


def test_those_who_resume_agents_have_a_role_of_their_own_that_is_bound_to_nobody() -> None:
    rendered = render()
    role = rendered.one("ClusterRole", "toolcrib-agent-keeper")
    assert not [label for label in role["metadata"]["labels"] if "aggregate" in label]
    assert {resource for _, resource, _, _ in _facts(role["rules"])} == {"agents"}
    assert ("agents", "resume") in {(resource, verb) for _, resource, verb, _ in _facts(role["rules"])}
    bound = {item["roleRef"]["name"] for item in rendered.of("ClusterRoleBinding", "RoleBinding")}
    assert "toolcrib-agent-keeper" not in bound


def test_those_who_confirm_calls_have_a_role_of_their_own_and_nobody_else_reads_arguments() -> None:
    rendered = render()
    role = rendered.one("ClusterRole", "toolcrib-call-confirmer")
    assert not [label for label in role["metadata"]["labels"] if "aggregate" in label]
    writes = {(resource, verb) for _, resource, verb, _ in _facts(role["rules"]) if verb not in _READING}
    assert writes == {("callconfirmations", "patch"), ("tools", "confirm")}
    bound = {item["roleRef"]["name"] for item in rendered.of("ClusterRoleBinding", "RoleBinding")}
    assert "toolcrib-call-confirmer" not in bound
    for other in ("view", "edit", "admin", "tool-author", "tool-approver"):
        rules = rendered.one("ClusterRole", f"toolcrib-{other}")["rules"]
        assert not [f for f in _facts(rules) if f[1] == "callconfirmations" or f[2] == "confirm"], other


def test_the_clusters_roles_hold_the_verbs_of_admission_and_editors_gate_only_where_told_so() -> None:
    def verbs(role: str, **rbac: Any) -> set[tuple[str, str]]:
        rules = render({"rbac": rbac}).one("ClusterRole", f"toolcrib-{role}")["rules"]
        found = {(resource, verb) for _, resource, verb, name in _facts(rules)}
        return {
            (resource, verb) for resource, verb in found if resource in ("scopes", "subjects", "bindings")
        }

    assert verbs("view") == set()
    assert verbs("edit") == set()
    assert verbs("edit", editorsGate=True) == {("scopes", "gate")}
    assert verbs("admin") == {("scopes", "grant"), ("scopes", "gate"), ("subjects", "equip")}
    assert verbs("tool-author") == {("scopes", "gate")}
    assert verbs("operator") == {("bindings", "release"), ("scopes", "import")}


@pytest.mark.parametrize("rbac", [{}, {"aggregate": False}, {"editorsGate": True}])
def test_tool_authors_have_a_role_that_is_bound_to_nobody_and_joins_no_other(rbac: Rule) -> None:
    rendered = render({"rbac": rbac})
    role = rendered.one("ClusterRole", "toolcrib-tool-author")
    assert not [label for label in role["metadata"]["labels"] if "aggregate" in label]
    bound = {b["roleRef"]["name"] for b in rendered.of("ClusterRoleBinding", "RoleBinding")}
    assert "toolcrib-tool-author" not in bound
    held = {(resource, verb) for _, resource, verb, _ in _facts(role["rules"])}
    assert {resource for resource, _ in held} == {"tools", "toolservers", "toolcanaries", "scopes"}
    assert ("tools", "create") in held
