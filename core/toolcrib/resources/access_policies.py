"""The admission policy of bindings that approve an AccessRequest: nobody approves a request of their own."""

from __future__ import annotations

from typing import Any

from toolcrib.resources.meta import GROUP
from toolcrib.resources.policy_parts import WHERE, named, policy, validation

_DOCS = "docs/guides/access-for-a-while.md"


def approve() -> dict[str, Any]:
    """Nobody approves an AccessRequest of their own: subjects cannot author its binding. `grant` and `equip` still apply."""
    owned = (
        "has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o, o.kind == 'AccessRequest'"
        f" && o.apiVersion.startsWith('{GROUP}/'))"
    )
    who = "request.userInfo.username"
    account = "'system:serviceaccount:' + (has(s.namespace) ? s.namespace : variables.within) + ':' + s.name"
    itself = (
        f"!object.spec.subjects.exists(s, s.kind == 'ServiceAccount' ? {who} == {account}"
        f" : s.kind == 'OAuthClient' ? ({named(who, 's.clientId')}) : ({named(who, 's.name')}))"
    )
    check = validation(
        itself,
        f'"you may not approve a request of your own: " + {who} + " asks for it (see {_DOCS})"',
        f"you may not approve a request of your own (see {_DOCS})",
    )
    conditions = [{"name": "owned", "expression": owned}]
    return policy(("AgentScopeBinding",), ["CREATE", "UPDATE"], conditions, WHERE, [check])
