"""An access request as the person sees it who decides about it, and the binding that approves it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from toolcrib import publishing
from toolcrib.authorizer.bindings import granting
from toolcrib.errors import InvalidManifest
from toolcrib.resources import AgentScopeBinding, SubjectKind, Tool, ToolServer, parse
from toolcrib.resources.access_requests import REJECTED, AccessRequest, binding
from toolcrib.resources.conditions import ConditionReason
from toolcrib.text import escape
from toolcrib.wire.confirmations import is_caller
from toolcrib.wire.publish import PublishedTool
from toolcrib_cli.errors import CliError

Body = Mapping[str, Any]
STATES = {
    ConditionReason.ACCESS_APPROVED.value: "approved",
    ConditionReason.ACCESS_REJECTED.value: "rejected",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """One AccessRequest, and the tool that it is about as it is now; None where there is none."""

    request: AccessRequest
    said: str
    tool: PublishedTool | None

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.request.metadata.namespace}/{self.request.metadata.name}"

    @property
    def state(self) -> str:
        """open, approved or rejected."""
        if self.said == "approved" or self.request.rejection is None:
            return self.said
        return "rejected"

    @property
    def changed(self) -> bool:
        """Whether the tool is another than was asked for."""
        return self.tool is None or self.tool.approval_digest != self.request.spec.digest

    @property
    def who(self) -> str:
        """The subject in a word."""
        subject = self.request.spec.subject
        if subject.kind is SubjectKind.SERVICE_ACCOUNT:
            return f"{subject.namespace}/{subject.name}"
        return escape(f"{subject.kind} {subject.client_id or subject.name} of {subject.issuer}")

    @property
    def why(self) -> str:
        """The agent's words, as such."""
        return f'"{escape(self.request.spec.why)}"'

    @property
    def data(self) -> dict[str, Any]:
        """All of it, for JSON."""
        spec = self.request.spec.model_dump(by_alias=True, mode="json", exclude_none=True)
        return {
            "request": self.key,
            "state": self.state,
            "tool": self.request.tool_id,
            "changed": self.changed,
            "scopes": [] if self.tool is None else list(self.tool.scopes),
            "subject": spec["subject"],
            "agentSays": spec["why"],
            "asked": self.request.metadata.creation_timestamp,
            "rejected": self.request.rejection,
        }

    def is_asked_by(self, username: str) -> bool:
        """Return True if the API server's user of this name may be the subject: it puts a prefix before an issuer's names."""
        subject = self.request.spec.subject
        if subject.kind is SubjectKind.SERVICE_ACCOUNT:
            return username == f"system:serviceaccount:{subject.namespace}:{subject.name}"
        return is_caller(username, (subject.client_id or subject.name or "",))


def all_asked(bodies: Iterable[Body]) -> list[Asked]:
    """The requests among objects, the oldest first, each with its tool; what is no valid object is left out."""
    requests: list[tuple[AccessRequest, Body]] = []
    tools: dict[str, Tool] = {}
    servers: dict[str, ToolServer] = {}
    for body in bodies:
        try:
            found = parse({k: v for k, v in body.items() if k != "status"})
        except (InvalidManifest, ValueError):
            continue
        if isinstance(found, AccessRequest):
            requests.append((found, body))
        elif isinstance(found, Tool):
            tools[found.tool_id] = found
        elif isinstance(found, ToolServer):
            servers[found.server_id] = found
    made = [Asked(r, _said(body), _published(tools.get(r.tool_id), servers)) for r, body in requests]
    return sorted(made, key=lambda each: (each.request.metadata.creation_timestamp or "", each.key))


def approval(asked: Asked, tools: Iterable[PublishedTool], until: float) -> dict[str, Any]:
    """The binding that approves what is asked for.

    Raises:
        CliError: it is not open, the tool is another by now, or the binding would reach a further tool.
    """
    check_open(asked)
    tool = asked.tool
    if tool is None:
        raise CliError(
            f"there is no Tool {asked.request.tool_id} any more",
            hint=f"reject the request: toolcrib access reject {asked.key} --reason gone",
        )
    if asked.changed:
        raise CliError(
            f"{tool.tool_id} has changed since {asked.who} asked for it",
            hint=f"reject the request, and let the agent ask again: toolcrib access reject {asked.key} --reason changed",
        )
    moment = datetime.fromtimestamp(int(until), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    made = binding(asked.request, tool.name, tool.server, tool.scopes, moment)
    parsed = parse(made, strict=True)
    assert isinstance(parsed, AgentScopeBinding)
    grants = granting(publishing.binding(parsed))
    further = [t.tool_id for t in tools if t.tool_id != tool.tool_id and grants(t)]
    if further:
        raise CliError(
            f"{', '.join(sorted(further))} has the same name and scope: a binding for {tool.tool_id} would grant it too",
            hint="rename one of the tools, or give it a server of its own",
        )
    return made


def check_open(asked: Asked) -> None:
    """Raises CliError where somebody has decided already."""
    if asked.state != "open":
        why = asked.request.rejection
        raise CliError(
            f"{asked.key} is {asked.state}{'' if why is None else f': {escape(why)}'}",
            hint="`toolcrib access requests` lists those that are open",
        )


def published(bodies: Sequence[Body]) -> list[PublishedTool]:
    """The tools among objects."""
    tools: list[Tool] = []
    servers: dict[str, ToolServer] = {}
    for body in bodies:
        try:
            found = parse({k: v for k, v in body.items() if k != "status"})
        except (InvalidManifest, ValueError):
            continue
        if isinstance(found, Tool):
            tools.append(found)
        elif isinstance(found, ToolServer):
            servers[found.server_id] = found
    return [made for each in tools if (made := _published(each, servers)) is not None]


def rejecting(reason: str) -> dict[str, str]:
    """The annotation that rejects a request."""
    return {REJECTED: reason}


def _said(body: Body) -> str:
    conditions = (body.get("status") or {}).get("conditions") or ()
    reason = next((c.get("reason") for c in conditions if c.get("type") == "Decided"), None)
    return STATES.get(str(reason), "open")


def _published(tool: Tool | None, servers: Mapping[str, ToolServer]) -> PublishedTool | None:
    if tool is None:
        return None
    mcp = tool.spec.backend.mcp
    server = (
        None if mcp is None else servers.get(f"{tool.metadata.namespace or 'default'}/{mcp.server_ref.name}")
    )
    try:
        return publishing.tool(tool, server=server)
    except ValueError:
        return None
