"""The admission policies: who may write what into a Tool or a binding, asked of the cluster's own RBAC.

Verbs on resources of our group that exist in RBAC alone, after `escalate` and `bind`:

* `grant` on `scopes/<scope>`: hand a scope out in a binding; in the binding's namespace, or in the whole cluster
* `gate` on `scopes/<scope>`: put a scope on a Tool or on the tools of a ToolServer, in its namespace
* `equip` on `subjects/<name>`: give tools to that subject; in its namespace (ServiceAccount, Agent), or in the whole
  cluster, where the name is `<kind>:<issuer>#<name or client id>` (User, Group, OAuthClient). A binding without
  scopes gives nobody a tool. An Agent that names a User or an OAuthClient takes it too: it can stop them; and one
  that is run (`spec.run`), on its ServiceAccount: its pods act with what that account was granted
* `approve` on `tools/<name>`: say what an approved Tool is (`spec.approvedDigest`), or that it needs no approval any more;
  or what a candidate of it is (ToolCanary); in its namespace. An approver needs no `gate`
* `confirm` on `tools/<name>`: confirm or reject single calls of that Tool; in its namespace
* `resume` on `agents/<name>`: end the suspension of an Agent, by an edit or by deleting it; in its namespace
* `release` on `bindings`: remove the revocation finalizer from a binding or an Agent; in the whole cluster. The operator's role holds it
* `import` on `scopes`: put on a Tool that a ToolServer controls the scopes that somebody else put on that ToolServer; in
  the whole cluster. The operator's role holds it

Every create and every change of a spec is checked in full. Anyone who revokes a deny, by deleting or by changing its
binding, needs `grant` on all scopes there, and `equip` on each subject that it held back.

`make generate` writes them to `crds/` and into the chart; the operator compares what the cluster has with them.
(DESIGN §3, Four verbs in RBAC. Fields: admissionregistration.k8s.io/v1; costs: one authorizer check is 350,000 of the
10,000,000 that a policy may spend and of the 1,000,000 of one expression.)
"""

from __future__ import annotations

from typing import Any

from toolcrib.resources import access_policies, agent_policies, confirmation_policies, tool_policies
from toolcrib.resources.meta import GROUP
from toolcrib.resources.policy_parts import (
    CONTROLLED_BEFORE,
    CONTROLLED_STILL,
    DOCS,
    SPEC_CHANGES,
    WHERE,
    may,
    policy,
    scope_checks,
    subject_checks,
    subjects,
    validation,
)

API_VERSION = "admissionregistration.k8s.io/v1"
POLICY = "ValidatingAdmissionPolicy"
BINDING = "ValidatingAdmissionPolicyBinding"
PLURALS = {POLICY: "validatingadmissionpolicies", BINDING: "validatingadmissionpolicybindings"}
LABEL = "app.kubernetes.io/part-of"
PART_OF = "toolcrib"

FINALIZER = "toolcrib.dev/revocation"
"""On every binding that is in use, and on every suspended Agent.

Deleting a binding returns when every replica of the registry refuses what it granted."""

OPERATOR_BY_NAME = "request.userInfo.username.matches('^system:serviceaccount:[^:]+:toolcrib-operator$')"
"""Who the operator is where nobody says more: a service account of this name, in whatever namespace."""

END_THE_GRANT = "to end the grant, remove its scopes (and tools.allow and limits) and leave the deny"
"""What is left to who may not take a deny back: it takes no right over the subjects."""

_BINDING_KINDS = ("AgentScopeBinding", "ClusterAgentScopeBinding")


def is_operator(account: str | None = None) -> str:
    """The CEL expression that finds the operator's own requests.

    `account` is its user name, `system:serviceaccount:<namespace>:<name>`; without one see `OPERATOR_BY_NAME`.
    """
    return OPERATOR_BY_NAME if account is None else f"request.userInfo.username == '{account}'"


def manifests(account: str | None = None) -> list[dict[str, Any]]:
    """Every policy, followed by its binding, as `kubectl apply` takes them; `account` as in `is_operator`."""
    found = []
    for name, (spec, action) in _specs(account).items():
        metadata = {"name": f"{name}.{GROUP}", "labels": {LABEL: PART_OF}}
        found.append({"apiVersion": API_VERSION, "kind": POLICY, "metadata": metadata, "spec": spec})
        bound = {"policyName": metadata["name"], "validationActions": [action]}
        found.append({"apiVersion": API_VERSION, "kind": BINDING, "metadata": metadata, "spec": bound})
    return found


def guarding(account: str | None = None) -> dict[tuple[str, str], dict[str, Any]]:
    """The specs that a grant rests on, by kind and name: all but those that only warn."""
    warns = {m["metadata"]["name"] for m in manifests() if m["spec"].get("validationActions") == ["Warn"]}
    return {
        (m["kind"], m["metadata"]["name"]): m["spec"]
        for m in manifests(account)
        if m["metadata"]["name"] not in warns
    }


def _specs(account: str | None) -> dict[str, tuple[dict[str, Any], str]]:
    return {
        "bindings-grant": (_grant(), "Deny"),
        "bindings-equip": (_equip(), "Deny"),
        "bindings-lift": (_lift(), "Deny"),
        "bindings-release": (_release(), "Deny"),
        "bindings-approve": (access_policies.approve(), "Deny"),
        "tools-gate": (tool_policies.gate(), "Deny"),
        "servers-gate": (tool_policies.gate_of_servers(), "Deny"),
        "tools-approve": (tool_policies.approve(), "Deny"),
        "canaries-approve": (tool_policies.approve_of_canaries(), "Deny"),
        "servers-approve": (tool_policies.approve_of_servers(), "Deny"),
        "agents-resume": (agent_policies.resume(), "Deny"),
        "agents-equip": (agent_policies.equip(), "Deny"),
        "agents-run": (agent_policies.run(), "Deny"),
        "calls-confirm": (confirmation_policies.confirm(), "Deny"),
        "operator": (_operator(is_operator(account)), "Deny"),
        "operator-workloads": (agent_policies.workloads(is_operator(account)), "Deny"),
        "warnings": (_warnings(), "Warn"),
        "tools-warnings": (tool_policies.warnings(), "Warn"),
    }


def _gives(who: str) -> dict[str, str]:
    """Whether a binding, `object` or `oldObject`, hands out anything: without scopes it only denies."""
    return {"name": "gives", "expression": f"has({who}.spec.scopes) && size({who}.spec.scopes) > 0"}


def _grant() -> dict[str, Any]:
    scopes = {"name": "scopes", "expression": "has(object.spec.scopes) ? object.spec.scopes : []"}
    variables = [*WHERE, scopes]
    return policy(
        _BINDING_KINDS,
        ["CREATE", "UPDATE"],
        [SPEC_CHANGES],
        variables,
        scope_checks("grant", "grant"),
    )


def _equip() -> dict[str, Any]:
    checks = subject_checks("object", "", "give tools to")
    conditions = [SPEC_CHANGES, _gives("object")]
    return policy(_BINDING_KINDS, ["CREATE", "UPDATE"], conditions, [*WHERE, *subjects("object")], checks)


def _lift() -> dict[str, Any]:
    """A deny is kept if each of its patterns and scopes, its subjects and its territory is still there.

    Where a namespace is being deleted, its tools go too: nothing is lost with a deny over them, and the namespace
    controller, which holds no right of ours, has to get on.
    """
    has_deny = {
        "name": "denied",
        "expression": "has(oldObject.spec.tools) && (has(oldObject.spec.tools.deny) || has(oldObject.spec.tools.denyScopes))",
    }
    spec_changes = {
        "name": "spec-changes",
        "expression": "request.operation == 'DELETE' || object.spec != oldObject.spec",
    }
    kept = (
        "request.operation == 'DELETE'"
        " ? namespaceObject != null && has(namespaceObject.metadata.deletionTimestamp)"
        " : has(object.spec.tools)"
        " && (!has(oldObject.spec.tools.deny) || (has(object.spec.tools.deny)"
        " && oldObject.spec.tools.deny.all(p, p in object.spec.tools.deny)))"
        " && (!has(oldObject.spec.tools.denyScopes) || (has(object.spec.tools.denyScopes)"
        " && oldObject.spec.tools.denyScopes.all(s, s in object.spec.tools.denyScopes)))"
        " && oldObject.spec.subjects.all(s, s in object.spec.subjects)"
        " && (!has(oldObject.spec.namespaces) ||"
        " (has(object.spec.namespaces) && oldObject.spec.namespaces.all(n, n in object.spec.namespaces)))"
        " && (!has(oldObject.spec.namespaceSelector) ||"
        " (has(object.spec.namespaceSelector) && object.spec.namespaceSelector == oldObject.spec.namespaceSelector))"
    )
    everything = validation(
        "variables.kept || " + may("grant", "scopes", "variables.within", "'*'"),
        '"you may not remove the deny of " + oldObject.metadata.name + " in " + variables.place'
        ' + ": you need the verb grant on all scopes, {apiGroups: [toolcrib.dev], resources: [scopes], verbs: [grant]}, in "'
        f' + variables.role + variables.instead + " (see {DOCS})"',
        f"you may not remove a deny: you need the verb grant on all scopes (see {DOCS})",
    )
    gives = _gives("oldObject")["expression"]
    instead = {"name": "instead", "expression": f"{gives} ? '; {END_THE_GRANT}' : ''"}
    variables = [*WHERE, {"name": "kept", "expression": kept}, instead, *subjects("oldObject")]
    checks = [
        everything,
        *subject_checks("oldObject", "variables.kept || ", "remove a deny from", " + variables.instead"),
    ]
    return policy(_BINDING_KINDS, ["UPDATE", "DELETE"], [has_deny, spec_changes], variables, checks)


def _release() -> dict[str, Any]:
    """Anyone who removes the finalizer has `kubectl delete` return before the replicas refuse.

    It is asked of a binding that nobody deletes, too: the deletion could follow before the operator puts it back. By RBAC
    and not by the operator's name: anybody may call a service account of his namespace like it.
    """
    has = f"has({{0}}.metadata.finalizers) && '{FINALIZER}' in {{0}}.metadata.finalizers"
    removed = {
        "name": "released",
        "expression": f"({has.format('oldObject')}) && !({has.format('object')})",
    }
    rule = "{apiGroups: [toolcrib.dev], resources: [bindings], verbs: [release]}"
    check = validation(
        may("release", "bindings", "''", "''"),
        f'"you may not remove the finalizer {FINALIZER} from " + oldObject.metadata.name + " in " + variables.place'
        ' + ": the operator removes it from a deleted object once every registry replica has confirmed what follows.'
        " To keep it, use kubectl apply or edit instead of replace. Where no operator will run again, you need the rule"
        f' {rule} in a ClusterRole bound by a ClusterRoleBinding (see {DOCS})"',
        f"you may not remove the finalizer {FINALIZER}: you need the verb release on bindings (see {DOCS})",
    )
    return policy((*_BINDING_KINDS, "Agent"), ["UPDATE"], [removed], WHERE, [check])


def _operator(is_operator_: str) -> dict[str, Any]:
    """Defence in depth: it holds none of the verbs over what others write, so that these requests would be refused anyway.

    It may create Tools (where it may `gate` or `import` them): runtime registrations, and the tools of ToolServers. Those
    that a ToolServer controls, before and after, it may change and delete: nobody else's, and none becomes one.
    """
    check = validation(
        "request.operation == 'UPDATE' ? object.spec == oldObject.spec && variables.owners == variables.before"
        f" || request.resource.resource == 'tools' && {CONTROLLED_STILL}"
        f" : request.resource.resource == 'tools' && (request.operation == 'CREATE' || {CONTROLLED_BEFORE})",
        '"the operator may not " + request.operation + " a spec of " + request.resource.resource'
        ' + ": specs are for people and pipelines to write, but for those of Tools that a ToolServer controls"',
        "the operator may not write specs: they are for people and pipelines to write",
    )
    conditions = [{"name": "operator", "expression": is_operator_}]
    has = "has({0}.metadata.ownerReferences) ? {0}.metadata.ownerReferences : []"
    variables = [
        {"name": "owners", "expression": has.format("object")},
        {"name": "before", "expression": has.format("oldObject")},
    ]
    return policy(
        ("Tool", "ToolServer", *_BINDING_KINDS, "Agent", "ToolCanary"),
        ["CREATE", "UPDATE", "DELETE"],
        conditions,
        variables,
        [check],
    )


def _warnings() -> dict[str, Any]:
    """What is allowed and may surprise; the operator says the rest in conditions."""
    none = "!has(object.spec.tools) || !has(object.spec.tools.{0}) ? [] : object.spec.tools.{0}"
    variables = [
        {
            "name": "wild",
            "expression": f"({none.format('allow')}).filter(p, p.contains('*') || p.contains('?'))",
        },
        {
            "name": "denied",
            "expression": f"({none.format('deny')}).map(p, p.lowerAscii())",
        },
        {
            "name": "shadowed",
            "expression": f"({none.format('allow')}).filter(p, '*' in variables.denied || p.lowerAscii() in variables.denied)",
        },
    ]
    checks = [
        {
            "expression": "size(variables.wild) == 0",
            "messageExpression": '"spec.tools.allow: \'" + variables.wild[0] + "\'" +'
            ' (size(variables.wild) > 1 ? " and other wildcards" : "") +'
            ' " also allows tools that are created later, by anyone who may create them there"',
            "message": "spec.tools.allow: a wildcard also allows tools that are created later",
        },
        {
            "expression": "size(variables.shadowed) == 0",
            "messageExpression": '"spec.tools.allow: \'" + variables.shadowed[0] + "\'" +'
            ' (size(variables.shadowed) > 1 ? " and others allow" : " allows") +'
            ' " nothing: spec.tools.deny matches the same, and a deny wins"',
            "message": "spec.tools.allow: a pattern is denied too, and a deny wins",
        },
    ]
    return policy(_BINDING_KINDS, ["CREATE", "UPDATE"], [SPEC_CHANGES], variables, checks)
