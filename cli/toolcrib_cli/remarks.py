"""What the operator's conditions say of objects of files that is not as it should be, each with its field."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from toolcrib.errors import Finding
from toolcrib.lint.weaknesses import Weakness
from toolcrib.resources.conditions import ConditionReason
from toolcrib_cli.manifests import Loaded, ManifestProblem
from toolcrib_cli.places import Places
from toolcrib_operator.kinds.kind import Told
from toolcrib_operator.kinds.statuses import BAD

UNREAD = (ConditionReason.NOT_YET_IMPORTED, ConditionReason.IMPORTING)
"""A ToolServer's list is on its way."""
_PENDING = frozenset({
    ConditionReason.PENDING, ConditionReason.NOT_PUBLISHED, ConditionReason.NOT_INDEXED, ConditionReason.NOT_PROPAGATED,
    ConditionReason.NO_REPLICAS, ConditionReason.INDEX_UNAVAILABLE, *UNREAD,
})  # fmt: skip
"""Not ready yet, whatever the object says."""
_INTENDED = frozenset({ConditionReason.DISABLED, ConditionReason.NOT_YET_VALID})
"""Not ready, because the object asks for it."""
_FIELDS = {
    ConditionReason.NAME_CONFLICT: "spec.name",
    ConditionReason.QUOTA_EXCEEDED: "metadata.namespace",
    ConditionReason.UNTRUSTED_LABEL: "spec.namespaceSelector",
    ConditionReason.CREDENTIAL_MISSING: "spec.backend.auth.secretKeyRef",
    ConditionReason.CREDENTIAL_NOT_ALLOWED: "spec.backend.auth.secretKeyRef",
    ConditionReason.SERVICE_MISSING: "spec.backend.http.service",
    ConditionReason.SERVICE_UNSUPPORTED: "spec.backend.http.service",
    ConditionReason.STDIO_NOT_ALLOWED: "spec.mcp.command",
    ConditionReason.EXPIRED: "spec.expiresAt",
    ConditionReason.FALLBACK_REFUSED: "spec.fallback",
    ConditionReason.MATCHES_NOTHING: "spec",
}
"""What a reason is about, where its message does not begin with a field."""
_CREDENTIALS = frozenset({ConditionReason.CREDENTIAL_MISSING, ConditionReason.CREDENTIAL_NOT_ALLOWED})
_SERVICES = frozenset({ConditionReason.SERVICE_MISSING, ConditionReason.SERVICE_UNSUPPORTED})
_FIELD = re.compile(r"(spec(?:\.\w+|\[\d+\])+): ")


@dataclass(frozen=True, slots=True)
class Remark:
    """What is said of one object.

    Where it is not `used` it has no effect, and this is why; where it is not `ready` it is used, and this keeps it from its
    effect; else this looks like a mistake.
    """

    item: Loaded
    reason: str
    finding: Finding
    used: bool = True
    ready: bool = True

    def problem(self, places: Places) -> ManifestProblem:
        """The same as a problem of a file."""
        return ManifestProblem(
            self.item.file, places.line(self.item, self.finding.field), self.finding, refused=False
        )


def remarks(item: Loaded, told: Told) -> Iterator[Remark]:
    """Everything that is not as it should be, what weighs most first; nothing about what is only not confirmed yet."""
    conditions = {c["type"]: c for c in told.status.get("conditions") or ()}
    accepted: Mapping[str, Any] = conditions.get("Accepted", {})
    if accepted.get("status") == "False":
        yield Remark(item, accepted["reason"], _finding(item, accepted, "Accepted=False/"), used=False)
        return
    ready: Mapping[str, Any] = conditions.get("Ready", {})
    if ready.get("status") == "False" and ready["reason"] not in _PENDING | _INTENDED:
        yield Remark(item, ready["reason"], _finding(item, ready, "Ready=False/"), ready=False)
    for kind, condition in conditions.items():
        if condition["reason"] == ConditionReason.TOOLS_LEFT_OUT:
            yield Remark(item, condition["reason"], _finding(item, condition, ""))
        if kind in _TOLD or condition["status"] != ("True" if kind in BAD else "False"):
            continue
        prefix = "" if kind == condition["reason"] else f"{kind}={condition['status']}/"
        yield Remark(item, condition["reason"], _finding(item, condition, prefix))
    for odd in told.oddities:
        hint = odd.hint if isinstance(odd, Weakness) else ""
        yield Remark(item, odd.reason.value, Finding(odd.field, f"{odd.reason}: {odd.message}", hint))


_TOLD = frozenset(
    {
        "Ready",
        "Accepted",
        "Approved",
        "Indexed",
        "Propagated",
        "Expired",
        "Questionable",
        "Verified",
        "Imported",
    }
)
"""Conditions that Ready sums up, and the one that oddities tell apart."""


def waits(told: Told) -> str:
    """Why an object that is as it should be has no effect now: it is disabled, not valid yet, or its list is not read.
    Empty: it has."""
    ready: Mapping[str, Any] = next(
        (c for c in told.status.get("conditions") or () if c["type"] == "Ready"), {}
    )
    intended = ready.get("status") == "False" and ready.get("reason") in (*_INTENDED, *UNREAD)
    return f"{ready['reason']}: {ready['message']}" if intended else ""


def _finding(item: Loaded, condition: Mapping[str, Any], prefix: str) -> Finding:
    reason, message = condition["reason"], condition["message"]
    hint = (
        f"review it: toolcrib approvals diff {item.namespace}/{item.name}"
        if reason == ConditionReason.QUARANTINED
        else ""
    )
    if (named := _FIELD.match(message)) is not None:
        return Finding(named[1], f"{prefix}{reason}: {message[named.end() :]}", hint)
    return Finding(_about(item, reason), f"{prefix}{reason}: {message}", hint)


def _about(item: Loaded, reason: ConditionReason) -> str:
    if item.kind != "ToolServer":
        return _FIELDS.get(reason, "")
    if reason in _CREDENTIALS:
        mcp = item.body.get("spec", {}).get("mcp", {})
        return "spec.mcp.auth.secretKeyRef" if "auth" in mcp else "spec.mcp.env"
    return "spec.mcp.service" if reason in _SERVICES else _FIELDS.get(reason, "")
