"""The kinds in one table, and the one way from a manifest to a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from toolcrib.errors import Finding, InvalidManifest
from toolcrib.resources import metadata
from toolcrib.resources.bindings import AgentScopeBinding, ClusterAgentScopeBinding
from toolcrib.resources.meta import API_VERSION, GROUP, ObjectMeta
from toolcrib.resources.tools import Tool

Resource = Tool | AgentScopeBinding | ClusterAgentScopeBinding


@dataclass(frozen=True, slots=True)
class Kind:
    """One custom resource: how it is named in Kubernetes and which model reads it."""

    kind: str
    plural: str
    singular: str
    short: str
    namespaced: bool
    model: type[Tool] | type[AgentScopeBinding] | type[ClusterAgentScopeBinding]


KINDS: dict[str, Kind] = {
    k.kind: k
    for k in (
        Kind("Tool", "tools", "tool", "tl", True, Tool),
        Kind("AgentScopeBinding", "agentscopebindings", "agentscopebinding", "asb", True, AgentScopeBinding),
        Kind(
            "ClusterAgentScopeBinding",
            "clusteragentscopebindings",
            "clusteragentscopebinding",
            "casb",
            False,
            ClusterAgentScopeBinding,
        ),
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
        raise InvalidManifest((Finding("", "a manifest is a mapping"),))
    kind = manifest.get("kind")
    known = KINDS.get(kind) if isinstance(kind, str) else None
    if known is None:
        hint = f"known kinds: {', '.join(KINDS)}"
        raise InvalidManifest((Finding("kind", f"unknown kind {kind!r}", hint),))
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
        errors = error.errors(include_url=False, include_input=False)
        refused = {
            e["loc"][:-1] for e in errors
        }  # of a list whose entries are all refused none is left: not empty
        findings.extend(_finding(e) for e in errors if not (e["type"] == "too_short" and e["loc"] in refused))
        raise InvalidManifest(tuple(findings)) from None
    if findings:
        raise InvalidManifest(tuple(findings))
    return parsed


def _finding(error: Any) -> Finding:
    path = ""
    for part in error["loc"]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    kind, context = error["type"], error.get("ctx") or {}
    if kind == "extra_forbidden":
        return Finding(path, "unknown field", f"known by {GROUP}: see `kubectl explain` or docs/reference")
    if kind == "missing":
        return Finding(path, "required, but missing")
    if kind == "tuple_type":
        return Finding(path, "must be a list")
    if kind == "string_pattern_mismatch":
        return Finding(path, f"does not match {context.get('pattern')}")
    if kind == "too_short" and context.get("actual_length") == 0:
        what = "an empty mapping" if context.get("field_type") == "Dictionary" else "an empty list"
        return Finding(
            path,
            f'{what} is refused: it could be read as "everything"',
            "name at least one entry, or leave the field out where it is optional",
        )
    return Finding(path, str(error["msg"]))
