"""The admission policies of Tools and ToolServers: who may put a scope on a tool, and who approves one."""

from __future__ import annotations

from typing import Any

from toolcrib.resources.policy_parts import (
    CONTROLLED,
    CONTROLLED_STILL,
    DOCS,
    SPEC_CHANGES,
    WHERE,
    may,
    policy,
    rule,
    scope_checks,
    validation,
)
from toolcrib.resources.tools import ALWAYS, CONFIRM, ToolSpec

NO_INPUT_SCHEMA = "missing, so models have to guess the arguments: describe them in a JSON schema"
FEW_WORDS = "has fewer than 3 words that say something"
"""What a warning at apply says of a Tool; the second in the words of `toolcrib validate` and the condition Questionable."""

_APPROVALS = "docs/guides/approve-a-change.md"
_APPROVED = "approvedDigest"
_IMPORTED = {
    "name": "imported",
    "expression": f"(request.operation == 'CREATE' ? {CONTROLLED} : {CONTROLLED_STILL})"
    " && " + may("import", "scopes", "''", "''"),
}
"""Whether a ToolServer's tool is written by who may import: the ToolServer's author was asked for its scopes and approval.

By RBAC and not by the operator's name, as for `release`. A right over all verbs of scopes holds `gate` anyway."""


def _confirm(who: str) -> str:
    """The value of the annotation that has people confirm each call; empty: there is none. CEL."""
    there = f"has({who}.metadata.annotations) && '{CONFIRM}' in {who}.metadata.annotations"
    return f"({there} ? {who}.metadata.annotations['{CONFIRM}'] : '')"


_CONFIRM_CHANGES = f"{_confirm('object')} != {_confirm('oldObject')}"


def gate() -> dict[str, Any]:
    """Each scope of a Tool, at every change of its spec but one of the approved digest, and of whether people confirm its calls.

    Not of a ToolServer's tool that is imported.
    """
    variables = [*WHERE, {"name": "scopes", "expression": "object.spec.scopes"}, _IMPORTED]
    checks = scope_checks("gate", "put", " on a Tool", unless="variables.imported || ")
    said = f"the annotation {CONFIRM} has one value: {ALWAYS}"
    checks.append(validation(f"{_confirm('object')} in ['', '{ALWAYS}']", f"'{said}'", said))
    changes = {
        "name": "spec-changes",
        "expression": f"request.operation == 'CREATE' || {_CONFIRM_CHANGES} || !({_same_but(_APPROVED)})",
    }
    return policy(("Tool",), ["CREATE", "UPDATE"], [changes], variables, checks)


def _same_but(left_out: str) -> str:
    """Whether an update leaves every field of a Tool's spec as it is but one. CEL."""
    names = sorted((field.alias or name) for name, field in ToolSpec.model_fields.items())
    each = (
        f"has(object.spec.{n}) == has(oldObject.spec.{n}) && (!has(object.spec.{n}) || object.spec.{n} == oldObject.spec.{n})"
        for n in names
        if n != left_out
    )
    return " && ".join(f"({one})" for one in each)


def approve() -> dict[str, Any]:
    """Setting or changing the approved digest, and giving up that approval is needed. Taking an approval back is free.

    An import gives it up where its ToolServer does; it sets no digest.
    """
    digest = (
        "has(object.spec.approvedDigest) && (request.operation == 'CREATE' || !has(oldObject.spec.approvedDigest)"
        " || object.spec.approvedDigest != oldObject.spec.approvedDigest)"
    )
    changes = {
        "name": "approval-changes",
        "expression": f"request.operation == 'CREATE' ? has(object.spec.approvedDigest) : ({digest})"
        " || (has(oldObject.spec.approval) && oldObject.spec.approval == 'Manual'"
        " && !(has(object.spec.approval) && object.spec.approval == 'Manual'))",
    }
    name = "object.metadata.name"
    check = validation(
        "(variables.imported && !variables.digest) || " + may("approve", "tools", "variables.within", name),
        f'"you may not approve the Tool \'" + {name} + "\' in " + variables.place + ": you need the rule " + '
        + rule("approve", "tools", name)
        + f' + " in " + variables.role + " (see {_APPROVALS})"',
        f"you may not approve this Tool: you need the verb approve on tools (see {_APPROVALS})",
    )
    variables = [*WHERE, _IMPORTED, {"name": "digest", "expression": digest}]
    return policy(("Tool",), ["CREATE", "UPDATE"], [changes], variables, [check])


def approve_of_canaries() -> dict[str, Any]:
    """Who says that a candidate is approved: as of the tool itself."""
    changes = {
        "name": "approval-changes",
        "expression": "has(object.spec.approvedDigest) && (request.operation == 'CREATE'"
        " || !has(oldObject.spec.approvedDigest) || object.spec.approvedDigest != oldObject.spec.approvedDigest)",
    }
    name = "object.spec.tool"
    check = validation(
        may("approve", "tools", "variables.within", name),
        f'"you may not approve a candidate of the Tool \'" + {name} + "\' in " + variables.place + ": you need the rule " + '
        + rule("approve", "tools", name)
        + f' + " in " + variables.role + " (see {_APPROVALS})"',
        f"you may not approve a candidate of this Tool: you need the verb approve on tools (see {_APPROVALS})",
    )
    return policy(("ToolCanary",), ["CREATE", "UPDATE"], [changes], WHERE, [check])


def approve_of_servers() -> dict[str, Any]:
    """Anyone who ends the approval of a server's tools approves whatever it sends from then on."""
    # a policy sees maps, and `import` is a word of CEL
    approval = (
        "('import' in {0}.spec && has({0}.spec['import'].approval) ? {0}.spec['import'].approval :"
        " has({0}.spec.mcp.service) ? 'Automatic' : 'Manual')"
    )
    ends = {
        "name": "approval-ends",
        "expression": approval.format("oldObject")
        + " == 'Manual' && "
        + approval.format("object")
        + " != 'Manual'",
    }
    check = validation(
        may("approve", "tools", "variables.within", "'*'"),
        "\"you may not end the approval of this server's tools: you need the verb approve on all tools,"
        ' {apiGroups: [toolcrib.dev], resources: [tools], verbs: [approve]}, in " + variables.role'
        f' + " (see {_APPROVALS})"',
        f"you may not end the approval of this server's tools: you need the verb approve on all tools (see {_APPROVALS})",
    )
    return policy(("ToolServer",), ["UPDATE"], [ends], WHERE, [check])


def gate_of_servers() -> dict[str, Any]:
    """The scopes of the defaults one by one. For those that an override brings in there is no room: it takes all."""
    variables = [
        *WHERE,
        {"name": "scopes", "expression": "object.spec.defaults.scopes"},
        {
            "name": "known",
            "expression": "!has(object.spec.overrides) || object.spec.overrides.all(o, !has(o.scopes)"
            " || o.scopes.all(s, s in object.spec.defaults.scopes))",
        },
    ]
    rest = validation(
        "variables.known || " + may("gate", "scopes", "variables.within", "'*'"),
        '"an override puts a scope on a tool that spec.defaults.scopes does not have: you need the verb gate on all scopes,'
        ' {apiGroups: [toolcrib.dev], resources: [scopes], verbs: [gate]}, in " + variables.role'
        f' + " (see {DOCS})"',
        f"an override puts a further scope on a tool: you need the verb gate on all scopes (see {DOCS})",
    )
    checks = [*scope_checks("gate", "put", " on a ToolServer's tools"), rest]
    return policy(("ToolServer",), ["CREATE", "UPDATE"], [SPEC_CHANGES], variables, checks)


def warnings() -> dict[str, Any]:
    """What makes a Tool hard to find and to call, as far as a moment tells it; the condition Questionable says the rest."""
    short = f'"spec.description: \'" + variables.description + "\' {FEW_WORDS}"'
    checks = [
        {
            "expression": "has(object.spec.inputSchema)",
            "messageExpression": f'"spec.inputSchema: {NO_INPUT_SCHEMA}"',
            "message": f"spec.inputSchema: {NO_INPUT_SCHEMA}",
        },
        {
            # one word that the operator does not read as several, as it does camelCase and text without spaces
            "expression": "!variables.description.matches('^([A-Z]?[a-z]+|[A-Z]+)[.!]?$')",
            "messageExpression": short,
            "message": f"spec.description: it {FEW_WORDS}",
        },
    ]
    said = "has(object.spec.description) ? object.spec.description.trim() : ''"
    variables = [{"name": "description", "expression": said}]
    return policy(("Tool",), ["CREATE", "UPDATE"], [SPEC_CHANGES], variables, checks)
