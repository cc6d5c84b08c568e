"""A tool that needs approval, or a candidate of one, as somebody sees it who decides about it. Pure.

The digest is reckoned from what is shown, not read from the status: an approval covers what its approver saw.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolcrib import approvals, names, publishing
from toolcrib.errors import InvalidManifest
from toolcrib.lint.scanner import Scanner, WordScanner
from toolcrib.lint.weaknesses import Weakness
from toolcrib.resources import API_VERSION, Tool, ToolCanary, ToolServer, parse
from toolcrib.resources.conditions import ConditionReason
from toolcrib.resources.tools import REJECTED_DIGEST, REJECTED_REASON, Approval
from toolcrib.wire.publish import PublishedTool

REJECTED = "Rejected"


@dataclass(frozen=True, slots=True)
class Shown:
    """One Tool with approval Manual, or a candidate of one: what it is, what its status says, and a rejection."""

    key: str
    """namespace/name; of a candidate `namespace/name~candidate`, by its ToolCanary: a Tool may have the same name."""
    tool: PublishedTool
    approved_digest: str | None
    status: Mapping[str, Any]
    annotations: Mapping[str, str]
    uid: str
    warnings: tuple[Weakness, ...] = ()
    """What a scanner says of it."""
    server: Mapping[str, Any] = field(default_factory=dict)
    """Status of the ToolServer that it comes from."""
    stable: PublishedTool | None = None
    """Of a candidate: the tool that it would stand for, as everyone else has it."""

    @property
    def kind(self) -> str:
        """Of the object that holds the approval."""
        return "Tool" if self.stable is None else "ToolCanary"

    @property
    def object(self) -> str:
        """namespace/name of that."""
        return names.of_candidate(self.key)

    @property
    def digest(self) -> str:
        """The digest of what is shown."""
        return self.tool.approval_digest

    @property
    def assessed(self) -> bool:
        """Whether the status is of what is shown."""
        return self.status.get("approvalDigest") == self.digest

    @property
    def before(self) -> dict[str, Any] | None:
        """What was approved last, as far as it is kept; of a candidate, the tool's own definition."""
        if self.stable is not None:
            return approvals.parts(self.stable)
        return approvals.recalled(self.status.get("approvedDefinition"))

    @property
    def rejection(self) -> str | None:
        """Why what is shown was rejected; None where it was not."""
        if self.annotations.get(REJECTED_DIGEST) != self.digest:
            return None
        return self.annotations.get(REJECTED_REASON, "")

    @property
    def reason(self) -> str:
        """Approved, NeverApproved, Drifted or Rejected; Pending while the status is of something else."""
        condition = self._condition
        if not self.assessed or condition is None:
            return str(ConditionReason.PENDING)
        if condition["status"] != "True" and self.rejection is not None:
            return REJECTED
        return str(condition["reason"])

    @property
    def quarantined(self) -> bool:
        """Whether it is kept from agents, or will be once the status follows."""
        return self.reason != ConditionReason.APPROVED

    @property
    def since(self) -> str:
        """When the condition turned; empty where it says nothing of this."""
        condition = self._condition
        return str(condition.get("lastTransitionTime", "")) if condition and self.assessed else ""

    @property
    def message(self) -> str:
        """What there is to know in a line."""
        told = self._message
        return f"{told} Warnings: {', '.join(w.reason for w in self.warnings)}." if self.warnings else told

    @property
    def _message(self) -> str:
        if (why := self.rejection) is not None and self.quarantined:
            return why
        condition = self._condition
        if condition is None or not self.assessed:
            return _refusal(self.status) or "The operator has not assessed the latest change yet."
        return str(condition.get("message", ""))

    @property
    def changes(self) -> list[str]:
        """What differs from what was approved, a line a value; everything where nothing is known of that."""
        return [*approvals.changes(self.before, self.tool), *self._instructions()]

    def _instructions(self) -> list[str]:
        """The server's instructions as they were approved and as they are, where they differ and are known."""
        said = (self.before or {}).get("sourceDigests")
        old = said.get("instructions") if isinstance(said, dict) else None
        new = self.tool.source_digests.get("instructions")
        if old == new:
            return []
        was, now = (
            self.server.get(text) if wanted is not None and self.server.get(of) == wanted else None
            for wanted, text, of in (
                (old, "approvedInstructions", "approvedInstructionsDigest"),
                (new, "instructions", "instructionsDigest"),
            )
        )
        return approvals.texts("instructions of the server", was, now)

    @property
    def approval(self) -> dict[str, Any]:
        """The partial manifest that approves what is shown."""
        namespace, _, name = self.object.partition("/")
        return {
            "apiVersion": API_VERSION,
            "kind": self.kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"approvedDigest": self.digest},
        }

    @property
    def data(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "tool": self.key,
            "kind": self.kind,
            "candidateOf": None if self.stable is None else self.stable.tool_id,
            "reason": self.reason,
            "since": self.since or None,
            "message": self.message,
            "approvalDigest": self.digest,
            "approvedDigest": self.approved_digest,
            "warnings": [
                {"reason": w.reason.value, "field": w.field, "message": w.message} for w in self.warnings
            ],
        }

    @property
    def _condition(self) -> Mapping[str, Any] | None:
        found = (c for c in self.status.get("conditions") or () if c.get("type") == "Approved")
        return next(found, None)


def scanner_of(bodies: Iterable[Mapping[str, Any]]) -> Scanner:
    """A scanner that knows these Tools, each as an API server has it."""
    scanner = WordScanner()
    for body in bodies:
        with contextlib.suppress(InvalidManifest, ValueError):
            found = parse({k: v for k, v in body.items() if k != "status"})
            if isinstance(found, Tool):
                scanner.update(found.tool_id, found)
    return scanner


def shown(
    body: Mapping[str, Any], servers: Mapping[str, Mapping[str, Any]], scanner: Scanner | None = None
) -> Shown | None:
    """An object as an API server has it; None where it needs no approval, or is no valid Tool.

    Args:
        body: the Tool.
        servers: ToolServers by namespace/name.
        scanner: what warns of it; it knows its neighbours.
    """
    read = _published(body, servers)
    if read is None or read[0].spec.approval is not Approval.MANUAL:
        return None
    found, published = read
    metadata = body["metadata"]
    return Shown(
        key=found.tool_id,
        tool=published,
        approved_digest=found.spec.approved_digest,
        status=body.get("status") or {},
        annotations=metadata.get("annotations") or {},
        uid=str(metadata.get("uid", "")),
        warnings=() if scanner is None else scanner.weaknesses(found),
        server=_status(found, servers),
    )


def candidates(
    canaries: Iterable[Mapping[str, Any]],
    bodies: Iterable[Mapping[str, Any]],
    servers: Mapping[str, Mapping[str, Any]],
) -> list[Shown]:
    """The candidates of ToolCanaries whose trial is not over, where the Tool needs approval.

    Args:
        canaries: objects as an API server has them.
        bodies: Tools, at least those that the canaries name.
        servers: ToolServers by namespace/name.
    """
    tools = {f"{b['metadata']['namespace']}/{b['metadata']['name']}": b for b in bodies}
    found = (_candidate(body, tools, servers) for body in canaries)
    return [each for each in found if each is not None]


def _candidate(
    body: Mapping[str, Any], tools: Mapping[str, Mapping[str, Any]], servers: Mapping[str, Mapping[str, Any]]
) -> Shown | None:
    status, metadata = body.get("status") or {}, body["metadata"]
    try:
        canary = parse({k: v for k, v in body.items() if k != "status"})
    except (InvalidManifest, ValueError):
        return None
    if not isinstance(canary, ToolCanary) or status.get("result") is not None:
        return None
    spec, home = canary.spec, metadata["namespace"]
    named = [
        _published(tools[key], servers) if (key := f"{home}/{name}") in tools else None
        for name in (spec.tool, spec.candidate.replacement)
        if name is not None
    ]
    if None in named or (of := named[0]) is None or of[0].spec.approval is not Approval.MANUAL:
        return None
    other = named[1][1] if len(named) > 1 and named[1] is not None else None
    return Shown(
        key=names.candidate_id(f"{home}/{metadata['name']}"),
        tool=publishing.candidate(of[1], canary, other).tool,
        approved_digest=spec.approved_digest,
        status=status,
        annotations=metadata.get("annotations") or {},
        uid=str(metadata.get("uid", "")),
        stable=of[1],
    )


def _published(
    body: Mapping[str, Any], servers: Mapping[str, Mapping[str, Any]]
) -> tuple[Tool, PublishedTool] | None:
    """A Tool and what the operator publishes of it; None where it is not valid."""
    try:
        found = parse({k: v for k, v in body.items() if k != "status"})
        return (
            (found, publishing.tool(found, server=_server(found, servers)))
            if isinstance(found, Tool)
            else None
        )
    except (InvalidManifest, ValueError):
        return None


def _status(tool: Tool, servers: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    body = servers.get(f"{tool.metadata.namespace or 'default'}/{tool.spec.server}")
    status = None if body is None else body.get("status")
    return status if isinstance(status, dict) else {}


def _server(tool: Tool, servers: Mapping[str, Mapping[str, Any]]) -> ToolServer | None:
    if tool.spec.backend.mcp is None:
        return None
    body = servers.get(f"{tool.metadata.namespace or 'default'}/{tool.spec.backend.mcp.server_ref.name}")
    found = None if body is None else parse({k: v for k, v in body.items() if k != "status"})
    return found if isinstance(found, ToolServer) else None


def _refusal(status: Mapping[str, Any]) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Accepted" and condition.get("status") == "False":
            return f"{condition['reason']}: {condition.get('message', '')}"
    return ""
