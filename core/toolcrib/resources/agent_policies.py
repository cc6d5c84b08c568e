"""The admission policies of Agents: who may end a suspension, whose identity an Agent may name, who may have one run.

And what the operator may run for them.
"""

from __future__ import annotations

from typing import Any

from toolcrib.resources.agents import RUN_FIELDS
from toolcrib.resources.meta import GROUP
from toolcrib.resources.policy_parts import WHERE, may, policy, rule, subject_checks, subjects, validation

_STOP = "docs/guides/stop-an-agent.md"
_RUN = "docs/guides/agents.md"


def resume() -> dict[str, Any]:
    """The authors of edits and deletions that end a suspension. Suspending is free to all who may write Agents.

    Asked also of an edit that leaves `suspended` false while the status says that the agent still is: the operator holds a
    resumption that no policy checked, until the spec is written again.

    A namespace that is being deleted takes the service account with it, so nothing is resumed; clients and users stay.
    """
    was = (
        "has(oldObject.spec.suspended) && oldObject.spec.suspended"
        " || has(oldObject.status) && has(oldObject.status.conditions)"
        " && oldObject.status.conditions.exists(c, c.type == 'Suspended' && c.status == 'True')"
    )
    ends = (
        "request.operation == 'DELETE' || object.spec != oldObject.spec"
        " && !(has(object.spec.suspended) && object.spec.suspended)"
    )
    gone = (
        "request.operation == 'DELETE' && !has(oldObject.spec.subjects)"
        " && namespaceObject != null && has(namespaceObject.metadata.deletionTimestamp)"
    )
    name = "oldObject.metadata.name"
    check = validation(
        "variables.gone || " + may("resume", "agents", "variables.within", name),
        f'"you may not resume the agent \'" + {name} + "\' in " + variables.place'
        ' + ": you need the rule " + '
        + rule("resume", "agents", name)
        + f' + " in " + variables.role + " (see {_STOP})"',
        f"you may not resume this agent: you need the verb resume on agents (see {_STOP})",
    )
    conditions = [{"name": "suspended", "expression": was}, {"name": "ends", "expression": ends}]
    return policy(
        ("Agent",), ["UPDATE", "DELETE"], conditions, [*WHERE, {"name": "gone", "expression": gone}], [check]
    )


def equip() -> dict[str, Any]:
    """Clients and users are of the whole cluster: an author who could name any of them could stop any of them. They never change."""
    named = {"name": "names-subjects", "expression": "has(object.spec.subjects)"}
    checks = subject_checks("object", "", "name in an Agent")
    return policy(("Agent",), ["CREATE"], [named], [*WHERE, *subjects("object")], checks)


def run() -> dict[str, Any]:
    """Who has an agent run acts as its account: the author of what is run needs `equip` on that ServiceAccount.

    Any other edit, a suspension above all, takes no such right.
    """
    same = " && ".join(
        f"has(object.spec.{f}) == has(oldObject.spec.{f})"
        f" && (!has(object.spec.{f}) || object.spec.{f} == oldObject.spec.{f})"
        for f in RUN_FIELDS
    )
    runs = {"name": "runs", "expression": "has(object.spec.run)"}
    changes = {"name": "run-changes", "expression": f"request.operation == 'CREATE' || !({same})"}
    account = {
        "name": "account",
        "expression": "has(object.spec.serviceAccountName) ? object.spec.serviceAccountName : object.metadata.name",
    }
    check = validation(
        may("equip", "subjects", "variables.within", "variables.account"),
        '"you may not run an agent as the ServiceAccount \'" + variables.account + "\' in " + variables.place'
        ' + ": you need the rule " + '
        + rule("equip", "subjects", "variables.account")
        + f' + " in " + variables.role + " (see {_RUN})"',
        f"you may not run an agent as this ServiceAccount: you need the verb equip on subjects (see {_RUN})",
    )
    return policy(("Agent",), ["CREATE", "UPDATE"], [runs, changes], [*WHERE, account], [check])


def workloads(is_operator: str) -> dict[str, Any]:
    """Defence in depth: the operator may write Deployments and Jobs where its roles say so, and of those an Agent's alone.

    The image is not among what is checked: a policy that names it would be another one with every upgrade, and new grants
    wait while policies change.
    """
    controls = (
        "has({0}.metadata.ownerReferences) && {0}.metadata.ownerReferences.exists(o, has(o.controller) && o.controller"
        f" && o.kind == 'Agent' && o.apiVersion.startsWith('{GROUP}/'){{1}})"
    )
    still = " && has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(p, p.uid == o.uid)"
    owned = validation(
        f"request.operation == 'CREATE' ? {controls.format('object', '')} :"
        f" request.operation == 'DELETE' ? {controls.format('oldObject', '')} : {controls.format('oldObject', still)}",
        '"the operator may not " + request.operation + " " + request.resource.resource + " that no Agent controls"',
        "the operator may not write workloads that no Agent controls",
    )
    pod = "object.spec.template.spec"
    hosts = " && ".join(f"!(has({pod}.{f}) && {pod}.{f})" for f in ("hostNetwork", "hostPID", "hostIPC"))
    unprivileged = (
        f"{pod}.{{0}}.all(c, !(has(c.securityContext) && has(c.securityContext.privileged)"
        " && c.securityContext.privileged))"
    )
    confined = validation(
        f"request.operation == 'DELETE' || {hosts}"
        f" && has({pod}.automountServiceAccountToken) && !{pod}.automountServiceAccountToken"
        f" && has({pod}.securityContext) && has({pod}.securityContext.runAsNonRoot) && {pod}.securityContext.runAsNonRoot"
        f" && (!has({pod}.volumes) || {pod}.volumes.all(v, !has(v.hostPath)))"
        f" && {unprivileged.format('containers')}"
        f" && (!has({pod}.initContainers) || {unprivileged.format('initContainers')})",
        "'the operator may not run pods that share namespaces, folders or rights with their node'",
        "the operator may not run pods that share namespaces, folders or rights with their node",
    )
    conditions = [{"name": "operator", "expression": is_operator}]
    made = policy((), ["CREATE", "UPDATE", "DELETE"], conditions, [], [owned, confined])
    (blank,) = made["matchConstraints"]["resourceRules"]
    made["matchConstraints"]["resourceRules"] = [
        blank | {"apiGroups": [group], "resources": [plural]}
        for group, plural in (("apps", "deployments"), ("batch", "jobs"))
    ]
    return made
