"""The kinds in one table, and the one way from a manifest to a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from toolcrib.errors import Finding, InvalidManifest
from toolcrib.resources import metadata, mistakes
from toolcrib.resources.access_requests import AccessRequest
from toolcrib.resources.agents import Agent
from toolcrib.resources.bindings import AgentScopeBinding, ClusterAgentScopeBinding
from toolcrib.resources.canaries import ToolCanary
from toolcrib.resources.meta import API_VERSION, ObjectMeta
from toolcrib.resources.servers import ToolServer
from toolcrib.resources.tools import Tool

Resource = (
    Tool | ToolServer | AgentScopeBinding | ClusterAgentScopeBinding | Agent | AccessRequest | ToolCanary
)


@dataclass(frozen=True, slots=True)
class Kind:
    """One custom resource: how it is named in Kubernetes and which model reads it."""

    kind: str
    plural: str
    singular: str
    short: str
    namespaced: bool
    model: type[Resource]


KINDS: dict[str, Kind] = {
    k.kind: k
    for k in (
        Kind("Tool", "tools", "tool", "tl", True, Tool),
        Kind("ToolServer", "toolservers", "toolserver", "ts", True, ToolServer),
        Kind("AgentScopeBinding", "agentscopebindings", "agentscopebinding", "asb", True, AgentScopeBinding),
        Kind(
            "ClusterAgentScopeBinding",
            "clusteragentscopebindings",
            "clusteragentscopebinding",
            "casb",
            False,
            ClusterAgentScopeBinding,
        ),
        Kind("Agent", "agents", "agent", "ag", True, Agent),
        Kind("AccessRequest", "accessrequests", "accessrequest", "areq", True, AccessRequest),
        Kind("ToolCanary", "toolcanaries", "toolcanary", "tcan", True, ToolCanary),
    )
}

_READ = frozenset(f.alias or name for name, f in ObjectMeta.model_fields.items())


def parse(manifest: Any, *, strict: bool = False) -> Resource:
    """Read one of our kinds.

    Args:
        manifest: the decoded object.
        strict: forbid unknown fields, as `kubectl` and `validate` do; reading from the cluster ignores them.

    Raises:
        InvalidManifest: with one finding a field, in the manifest's own (camelCase) spelling.
    """
    if not isinstance(manifest, dict):
        raise InvalidManifest((Finding("", "a manifest must be a mapping"),))
    kind = manifest.get("kind")
    known = KINDS.get(kind) if isinstance(kind, str) else None
    if known is None:
        raise InvalidManifest((Finding("kind", f"unknown kind {kind!r}", mistakes.close(str(kind), KINDS)),))
    if manifest.get("apiVersion") != API_VERSION:
        found = manifest.get("apiVersion")
        raise InvalidManifest((Finding("apiVersion", f"expected {API_VERSION}, found {found!r}"),))
    if "spec" not in manifest:
        raise InvalidManifest((Finding("spec", "required, but missing"),))
    body = {k: manifest[k] for k in ("apiVersion", "kind", "metadata", "spec") if k in manifest}
    findings: list[Finding] = []
    if strict:
        body |= {k: v for k, v in manifest.items() if k not in body and k != "status"}
    elif isinstance(manifest.get("status"), dict):
        body["status"] = manifest["status"]
    try:
        raw = body.get("metadata")
        if isinstance(raw, dict):
            kept = metadata.plain(raw, namespaced=known.namespaced)
            if strict:
                findings.extend(metadata.findings(kept))
            # metadata belongs to Kubernetes: the model reads some of it and forbids nothing
            body["metadata"] = {k: v for k, v in kept.items() if k in _READ}
        parsed = known.model.model_validate(
            body, extra="forbid" if strict else None, by_alias=True, by_name=False
        )
    except ValidationError as error:
        findings.extend(mistakes.findings(error.errors(include_url=False, include_input=False), known.model))
        raise InvalidManifest(tuple(findings)) from None
    if findings:
        raise InvalidManifest(tuple(findings))
    return parsed
