"""The admission policy of CallConfirmations: who may confirm a call, and that nobody signs for somebody else."""

from __future__ import annotations

from typing import Any

from toolcrib.resources.confirmations import PLURAL
from toolcrib.resources.policy_parts import WHERE, may, named, policy, rule, validation

_PAGE = "docs/guides/confirm-a-call.md"


def confirm() -> dict[str, Any]:
    """A decision, by who holds `confirm` on the Tool, in their own name, and never by the caller."""
    decides = {
        "name": "decides",
        "expression": "has(object.spec.decision) && (request.operation == 'CREATE' || !has(oldObject.spec.decision))",
    }
    name, who = "object.spec.tool", "request.userInfo.username"
    checks = [
        validation(
            may("confirm", "tools", "variables.within", name),
            f'"you may not confirm or reject calls of the Tool \'" + {name} + "\' in " + variables.place'
            ' + ": you need the rule " + '
            + rule("confirm", "tools", name)
            + f' + " in " + variables.role + " (see {_PAGE})"',
            f"you may not confirm or reject calls of this Tool: you need the verb confirm on tools (see {_PAGE})",
        ),
        validation(
            f"has(object.spec.decidedBy) && object.spec.decidedBy == {who}",
            f'"spec.decidedBy must be your own name, \'" + {who} + "\'"',
            "spec.decidedBy must be your own name",
        ),
        validation(
            f"!object.spec.names.exists(n, {named(who, 'n')})",
            "'a caller cannot confirm its own call'",
            "a caller cannot confirm its own call",
        ),
    ]
    return policy((), ["CREATE", "UPDATE"], [decides], [*WHERE], checks, plurals=(PLURAL,))
