"""The admission policies of Agents: who may end a suspension, and whose identity an Agent may name."""

from __future__ import annotations

from typing import Any

from toolcrib.resources.policy_parts import WHERE, may, policy, rule, subject_checks, subjects, validation

_STOP = "docs/guides/stop-an-agent.md"


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
