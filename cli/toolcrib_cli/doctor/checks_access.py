"""Checks of who may write what: admission policies, roles, and the rights of our own accounts. Facts in, a verdict out."""

from __future__ import annotations

from collections.abc import Iterable

from toolcrib.resources.meta import GROUP
from toolcrib_cli.doctor.facts import Facts, Unread, Verdict, failed, listed, passed
from toolcrib_cli.doctor.rights import Right, of_account, rights
from toolcrib_operator.admission.comparison import obstacle

EDIT = "rbac.authorization.k8s.io/aggregate-to-edit"
EVERYBODY = ("system:authenticated", "system:unauthenticated", "system:serviceaccounts")

OPERATOR: dict[tuple[str, str], frozenset[str]] = {
    **{(GROUP, plural): frozenset({"list", "watch"}) for plural in ("tools", "toolservers", "toolcanaries")},
    (GROUP, "agentscopebindings"): frozenset({"list", "watch", "patch"}),
    (GROUP, "clusteragentscopebindings"): frozenset({"list", "watch", "patch"}),
    (GROUP, "agents"): frozenset({"list", "watch", "patch"}),
    (GROUP, "accessrequests"): frozenset({"list", "watch", "create", "delete"}),
    (GROUP, "callconfirmations"): frozenset({"list", "create", "delete"}),
    (GROUP, "bindings"): frozenset({"release"}),
    **{
        (GROUP, f"{plural}/status"): frozenset({"patch"})
        for plural in (
            "tools",
            "toolservers",
            "agentscopebindings",
            "clusteragentscopebindings",
            "agents",
            "accessrequests",
            "toolcanaries",
        )
    },
    **{
        ("", plural): frozenset({"list", "watch"}) for plural in ("namespaces", "serviceaccounts", "services")
    },
    (GROUP, "tools"): frozenset({"list", "watch", "create", "patch", "delete"}),
    (GROUP, "scopes"): frozenset({"import"}),
    ("discovery.k8s.io", "endpointslices"): frozenset({"list", "watch"}),
    ("", "events"): frozenset({"create"}),
    ("apiextensions.k8s.io", "customresourcedefinitions"): frozenset({"list", "watch"}),
    **{
        ("admissionregistration.k8s.io", plural): frozenset({"list"})
        for plural in ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
    },
}
"""What the operator needs in the whole cluster, as `templates/operator/rbac.yaml` of the chart has it."""
OPERATOR_WITHIN: dict[tuple[str, str], frozenset[str]] = {
    ("coordination.k8s.io", "leases"): frozenset({"create", "get", "update"}),
    ("", "configmaps"): frozenset({"create", "get", "patch"}),
    ("", "secrets"): frozenset({"list"}),
    ("apps", "deployments"): frozenset({"list", "create", "patch", "delete"}),
    ("batch", "jobs"): frozenset({"list", "create", "delete"}),
    (GROUP, "tools"): frozenset({"create"}),
    (GROUP, "scopes"): frozenset({"gate"}),
}
"""What it needs in single namespaces: its own, those of credentials and of agents, that of registrations."""


def admission_policies(facts: Facts) -> Verdict:
    """The operator's own comparison, for its own account."""
    if facts.option("admission", "policy") != "policy":
        raise Unread(
            "the operator runs with --admission=external: something else checks who may write grants"
        )
    namespace, name = facts.account("operator")
    found = [*facts.of("ValidatingAdmissionPolicy"), *facts.of("ValidatingAdmissionPolicyBinding")]
    problem = obstacle(found, f"system:serviceaccount:{namespace}:{name}")
    return passed("installed, bound, unaltered, failurePolicy Fail") if problem is None else failed(problem)


def editors_gate(facts: Facts) -> Verdict:
    """By the roles that are aggregated to `edit`, and by `edit` itself."""
    found = []
    for role in facts.of("ClusterRole"):
        metadata = role["metadata"]
        if metadata["name"] != "edit" and (metadata.get("labels") or {}).get(EDIT) != "true":
            continue
        held = (Right("", "", None, rule, "") for rule in role.get("rules") or ())
        if any(right.allows("gate", GROUP, "scopes") for right in held):
            found.append(str(metadata["name"]))
    if found:
        return failed(f"the ClusterRole edit holds gate on scopes, by {listed(found)}")
    return passed("the ClusterRole edit does not hold gate")


def release_holders(facts: Facts) -> Verdict:
    """Only the operator may remove the revocation finalizer."""
    operator = "/".join(facts.account("operator"))
    held = [r for r in rights(facts) if r.namespace is None and r.allows("release", GROUP, "bindings")]
    others = _who(r for r in held if (r.kind, r.subject) != ("ServiceAccount", operator))
    if others:
        return failed(f"release on bindings is held by {listed(others)}")
    return passed(
        f"release on bindings is held by ServiceAccount {operator} alone, besides cluster administrators"
    )


def operator_rights(facts: Facts) -> Verdict:
    """No more than the chart gives it; Secrets and workloads only in namespaces of credentials and of agents."""
    agents = facts.option("agent-namespaces", "").replace(",", " ").split()
    namespaces = list(
        dict.fromkeys([*facts.option("credential-namespaces", "").replace(",", " ").split(), *agents])
    )
    more = []
    for right in of_account(facts, *facts.account("operator")):
        allowed = OPERATOR if right.namespace is None else OPERATOR_WITHIN
        for group in right.rule.get("apiGroups") or ():
            for resource in right.rule["resources"]:
                verbs = set(right.rule.get("verbs") or ()) - allowed.get((group, resource), frozenset())
                if (group, resource) == ("", "secrets") and right.namespace not in namespaces:
                    verbs = set(right.rule.get("verbs") or ())
                if group in ("apps", "batch") and right.namespace not in agents:
                    verbs = set(right.rule.get("verbs") or ())
                if verbs:
                    where = f" in {right.namespace}" if right.namespace else ""
                    kind = f"{resource}.{group}" if group else resource
                    more.append(f"{'/'.join(sorted(verbs))} {kind}{where}")
    if more:
        return failed(f"the operator also holds {listed(list(dict.fromkeys(more)))}")
    where = f"Secrets are listed in {listed(namespaces)} alone" if namespaces else "no right to read Secrets"
    return passed(f"the rights that the operator needs; {where}")


def registry_rights(facts: Facts) -> Verdict:
    """None at all."""
    namespace, name = facts.account("registry")
    held = list(dict.fromkeys(r.via for r in of_account(facts, namespace, name)))
    if held:
        return failed(f"ServiceAccount {namespace}/{name} holds {listed(held)}")
    return passed(f"ServiceAccount {namespace}/{name} holds no right in the cluster")


def secret_readers(facts: Facts) -> Verdict:
    """Workloads other than the operator that may read the Secrets that Tools name. People are named and judged by nobody."""
    backends = ((t["metadata"]["namespace"], t["spec"].get("backend") or {}) for t in facts.of("Tool"))
    used = {
        (namespace, ref["name"])
        for namespace, backend in backends
        if (ref := (backend.get("auth") or {}).get("secretKeyRef"))
    }
    if not used:
        return passed("no Tool names a Secret")
    namespaces = {namespace for namespace, _ in used}
    operator = "/".join(facts.account("operator"))
    held = [
        r
        for r in rights(facts)
        if (r.namespace is None or r.namespace in namespaces)
        and any(r.allows(verb, "", "secrets") for verb in ("get", "list", "watch"))
        and _about(r, used)
        and (r.kind, r.subject) != ("ServiceAccount", operator)
    ]
    machines = _who(
        r
        for r in held
        if (r.kind == "ServiceAccount" and not r.subject.startswith("kube-system/"))
        or (r.kind == "Group" and (r.subject in EVERYBODY or r.subject.startswith("system:serviceaccounts:")))
    )
    people = _who(r for r in held if r.kind in ("User", "Group") and not r.subject.startswith("system:"))
    also = f"; people who may: {listed(people)}" if people else ""
    if machines:
        return failed(f"Secrets of backends can be read by {listed(machines)}{also}")
    return passed(
        f"Secrets of backends in {listed(sorted(namespaces))}: no workload but the operator may read them{also}"
    )


def _about(right: Right, used: set[tuple[str, str]]) -> bool:
    names = right.rule.get("resourceNames")
    if not names:
        return True
    return any(name in names for namespace, name in used if right.namespace in (None, namespace))


def _who(held: Iterable[Right]) -> list[str]:
    return list(dict.fromkeys(r.who for r in held))
