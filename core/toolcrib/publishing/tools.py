"""Tools, candidates and servers as replicas know them, with their digests; and the manifest of a registration."""

from __future__ import annotations

from typing import Any

from toolcrib import digest, names
from toolcrib.publishing.backends import backend_at_server, tool_backend
from toolcrib.resources.canaries import ToolCanary
from toolcrib.resources.meta import API_VERSION
from toolcrib.resources.servers import ToolServer
from toolcrib.resources.tools import Approval, Tool, ToolState
from toolcrib.wire.backends import (
    ADDRESSES,
    PublishedBackend,
)
from toolcrib.wire.publish import (
    Candidate,
    PublishedServer,
    PublishedTool,
)


def with_digests(**fields: Any) -> PublishedTool:
    """A published tool from its fields (those of `PublishedTool` but for the two digests)."""
    return _digested(PublishedTool(**fields, digest="", route_digest=""))


def _digested(draft: PublishedTool) -> PublishedTool:
    return draft.model_copy(
        update={
            "digest": digest.definition_digest(
                name=draft.name,
                title=draft.title,
                description=draft.description,
                input_schema=draft.input_schema,
                output_schema=draft.output_schema,
                returns=draft.returns,
                annotations=draft.annotations,
                server=draft.server,
                tags=draft.tags,
                examples=draft.examples,
                replaced_by=draft.replaced_by,
                message=draft.message,
                source_digests=draft.source_digests,
            ),
            "route_digest": digest.route_digest(
                backend=None if draft.backend is None else _route(draft.backend),
                scopes=draft.scopes,
                scope_match=draft.scope_match.value,
                fallback=draft.fallback,
            ),
        }
    )


def _route(backend: PublishedBackend) -> dict[str, Any]:
    """What the route digest covers; a backend without what came later keeps the digest it always had.

    A Service counts by its name: its address is another in every cluster, and in each that recreates it.
    """
    later = {
        "assertion": backend.assertion,
        "mcp": backend.mcp,
        "parameters": backend.parameters,
        "body": backend.body,
        "program": backend.program,
    }
    left_out: dict[str, Any] = ADDRESSES | {name: True for name, value in later.items() if value is None}
    if backend.auth is not None and backend.token_service is None:
        left_out["auth"] = {"oauth"} if backend.auth.oauth is None else {"oauth": {"token_service"}}
    return backend.model_dump(mode="json", exclude=left_out)


def tool(
    resource: Tool,
    *,
    cluster_ip: str | None = None,
    token_ip: str | None = None,
    server: ToolServer | None = None,
) -> PublishedTool:
    """What a Tool object publishes.

    Args:
        resource: the object.
        cluster_ip: the address of the Service that its backend or its server names, where the operator has read it.
        token_ip: the same of the Service that gives access tokens for it.
        server: the ToolServer that its backend names; the tools of a disabled one are disabled.

    With approval Manual it is quarantined unless `approvedDigest` is that of what it is now.

    Raises:
        ValueError: a schema holds numbers or text that JSON cannot carry.
    """
    spec, meta = resource.spec, resource.metadata
    namespace = meta.namespace or "default"
    hints = {} if spec.annotations is None else spec.annotations.model_dump(by_alias=True, exclude_none=True)
    said = {} if spec.source_digests is None else spec.source_digests.model_dump(exclude_none=True)
    made = with_digests(
        tool_id=resource.tool_id,
        uid=meta.uid or f"manifest:{resource.tool_id}",
        generation=meta.generation,
        namespace=namespace,
        name=resource.name,
        server=spec.server,
        title=spec.title,
        description=spec.description,
        scopes=spec.scopes,
        scope_match=spec.scope_match,
        tags=spec.tags,
        examples=spec.examples,
        input_schema=spec.input_schema,
        output_schema=spec.output_schema,
        returns=spec.returns,
        annotations=hints,
        source_digests=said,
        state=ToolState.DISABLED if server is not None and server.disabled else spec.state,
        replaced_by=spec.replaced_by,
        message=spec.message,
        backend=tool_backend(spec.backend, namespace, cluster_ip, token_ip, server),
        fallback=tuple(names.tool_id(namespace, each) for each in dict.fromkeys(spec.fallback)),
        confirm=resource.confirm,
        source=meta.labels.get("toolcrib.dev/source", "manifest"),
    )
    if spec.approval is not Approval.MANUAL or spec.approved_digest == made.approval_digest:
        return made
    return made.model_copy(update={"quarantined": True})


def candidate(of: PublishedTool, canary: ToolCanary, replacement: PublishedTool | None = None) -> Candidate:
    """What a ToolCanary offers in the place of a tool: under its id, its name and its scopes.

    Args:
        of: the tool as it is published.
        canary: names it.
        replacement: the tool that the canary names as such, as it is published.
    """
    spec, uid = canary.spec, canary.metadata.uid
    update: dict[str, Any] = {"trial": uid, "candidate": None, "quarantined": False}
    if replacement is None:
        told = {name: getattr(spec.candidate, name) for name in _TEXTS}
        update |= {name: text for name, text in told.items() if text is not None}
    else:
        update |= {name: getattr(replacement, name) for name in (*_TEXTS, *_REPLACED)}
        update["confirm"] = of.confirm or replacement.confirm
    return Candidate(
        canary=uid,
        share=spec.share,
        replacement=None if replacement is None else replacement.tool_id,
        tool=_digested(of.model_copy(update=update)),
    )


_TEXTS = ("title", "description", "examples")
_REPLACED = ("packed_input", "packed_output", "returns", "annotations", "backend", "source_digests")


def server(
    resource: ToolServer, cluster_ip: str | None, token_ip: str | None = None
) -> PublishedServer | None:
    """What a ToolServer publishes besides its tools: what stands for its resources and its prompts; None: it offers neither."""
    offered = [
        name
        for name, on in ((names.RESOURCES, resource.spec.resources), (names.PROMPTS, resource.spec.prompts))
        if on
    ]
    if not offered or resource.disabled:
        return None
    meta, backend = resource.metadata, backend_at_server(resource, "", cluster_ip, token_ip)
    parts = tuple(
        with_digests(
            tool_id=names.part_id(resource.server_id, name),
            uid=meta.uid or f"manifest:{resource.server_id}",
            generation=meta.generation,
            namespace=meta.namespace or "default",
            name=name,
            server=meta.name,
            scopes=resource.spec.defaults.scopes,
            backend=backend,
            source="mcp",
        )
        for name in offered
    )
    return PublishedServer(server_id=resource.server_id, parts=parts)


def manifest(registered: PublishedTool) -> dict[str, Any]:
    """The Tool manifest of a runtime registration: what makes it last, in a folder or in a cluster."""
    namespace, object_name = registered.tool_id.split("/", 1)
    spec: dict[str, Any] = {
        "name": registered.name,
        "server": registered.server,
        "title": registered.title,
        "description": registered.description or None,
        "scopes": list(registered.scopes),
        "scopeMatch": registered.scope_match.value,
        "tags": list(registered.tags) or None,
        "examples": list(registered.examples) or None,
        "inputSchema": registered.input_schema,
        "outputSchema": registered.output_schema,
        "returns": registered.returns,
        "annotations": dict(registered.annotations) or None,
        "backend": {"none": {}},
    }
    if registered.backend is not None:
        spec["backend"] = {"http": {"url": registered.backend.url, "method": registered.backend.method.value}}
    return {
        "apiVersion": API_VERSION,
        "kind": "Tool",
        "metadata": {
            "name": object_name,
            "namespace": namespace,
            "labels": {"toolcrib.dev/source": "runtime"},
        },
        "spec": {k: v for k, v in spec.items() if v is not None},
    }
