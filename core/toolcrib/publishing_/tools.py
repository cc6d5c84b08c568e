"""From a resource to what is published: names filled in, digests computed, dates as numbers.

Used by the operator for manifests and by the registry for runtime registrations, so that both give one tool one
digest.
"""

from __future__ import annotations

from typing import Any

from toolcrib import digest, names
from toolcrib.resources import durations
from toolcrib.resources.agents import Agent
from toolcrib.resources.backends import Auth, Backend, HttpBackend, OAuthClient
from toolcrib.resources.bindings import AgentScopeBinding, ClusterAgentScopeBinding, Subject, SubjectKind
from toolcrib.resources.canaries import ToolCanary
from toolcrib.resources.meta import API_VERSION
from toolcrib.resources.servers import DEFAULT_PATH, ToolServer
from toolcrib.resources.tools import Approval, Tool, ToolState
from toolcrib.wire.backends import (
    ADDRESSES,
    PublishedAuth,
    PublishedBackend,
    PublishedMcp,
    PublishedOAuth,
    PublishedParameter,
    PublishedProgram,
    PublishedTokenService,
    SecretReference,
)
from toolcrib.wire.publish import (
    Candidate,
    PublishedBinding,
    PublishedLimits,
    PublishedServer,
    PublishedSubject,
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
        backend=_backend(spec.backend, namespace, cluster_ip, token_ip, server),
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


def _backend(
    backend: Backend, namespace: str, cluster_ip: str | None, token_ip: str | None, server: ToolServer | None
) -> PublishedBackend | None:
    http = backend.http
    if backend.mcp is not None:
        if server is None:
            return None
        return _tool_backend(server, backend.mcp.tool, cluster_ip, token_ip)
    if http is None:
        return None
    return PublishedBackend(
        service_namespace=namespace if http.service else None,
        service_name=http.service.name if http.service else None,
        service_port=http.service.port if http.service else None,
        cluster_ip=cluster_ip if http.service else None,
        url=http.url,
        path=http.path or "/",
        method=http.method,
        timeout=durations.seconds(http.timeout),
        auth=_auth(backend.auth, namespace, token_ip),
        assertion=backend.assertion,
        parameters=_parameters(http),
        body=http.body,
    )


def _parameters(http: HttpBackend) -> tuple[PublishedParameter, ...] | None:
    """In the order of their arguments: the API server merges the list by them, and any order means the same."""
    if http.parameters is None:
        return None
    inorder = sorted(http.parameters, key=lambda p: p.argument)
    return tuple(PublishedParameter(argument=p.argument, place=p.place, name=p.sent_as) for p in inorder)


def server_backend(
    server: ToolServer, cluster_ip: str | None, token_ip: str | None = None
) -> PublishedBackend:
    """Where a server is and how it is asked; `mcp` is absent: that belongs to a tool."""
    mcp, namespace = server.spec.mcp, server.metadata.namespace or "default"
    return PublishedBackend(
        service_namespace=namespace if mcp.service else None,
        service_name=mcp.service.name if mcp.service else None,
        service_port=mcp.service.port if mcp.service else None,
        cluster_ip=cluster_ip if mcp.service else None,
        url=mcp.url,
        path=mcp.path or DEFAULT_PATH,
        timeout=durations.seconds(mcp.timeout),
        auth=_auth(mcp.auth, namespace, token_ip),
        assertion=mcp.assertion,
        program=_program(server),
    )


def _tool_backend(
    server: ToolServer, tool: str, cluster_ip: str | None, token_ip: str | None
) -> PublishedBackend:
    """The same for one of its tools; `tool` is empty where it is asked for something else."""
    target = PublishedMcp(server=server.server_id, tool=tool, transport=server.spec.mcp.transport)
    return server_backend(server, cluster_ip, token_ip).model_copy(update={"mcp": target})


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
    meta, backend = resource.metadata, _tool_backend(resource, "", cluster_ip, token_ip)
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


def _program(server: ToolServer) -> PublishedProgram | None:
    mcp, namespace = server.spec.mcp, server.metadata.namespace or "default"
    if mcp.command is None:
        return None
    refs = {e.name: e.secret_key_ref for e in mcp.env if e.secret_key_ref is not None}
    return PublishedProgram(
        server=server.server_id,
        command=mcp.command,
        values={e.name: e.value for e in mcp.env if e.value is not None},
        secrets={n: SecretReference(namespace=namespace, name=r.name, key=r.key) for n, r in refs.items()},
    )


def _auth(auth: Auth | None, namespace: str, token_ip: str | None) -> PublishedAuth | None:
    if auth is None:
        return None
    ref = auth.secret_key_ref
    secret = SecretReference(namespace=namespace, name=ref.name, key=ref.key)
    oauth = _oauth(auth.oauth, secret, token_ip)
    return PublishedAuth(type=auth.type, header=auth.header, secret=secret, oauth=oauth)


def _oauth(
    client: OAuthClient | None, secret: SecretReference, token_ip: str | None
) -> PublishedOAuth | None:
    if client is None:
        return None
    at = client.token_service
    tokens = (
        None
        if at is None
        else PublishedTokenService(
            namespace=secret.namespace, name=at.name, port=at.port, path=at.path, cluster_ip=token_ip
        )
    )
    return PublishedOAuth(
        client_id=secret.model_copy(update={"key": client.client_id_key}),
        token_url=client.token_url,
        token_service=tokens,
        client_authentication=client.client_authentication,
        scope=client.scope,
        resource=client.resource,
        audience=client.audience,
    )


def binding(
    resource: AgentScopeBinding | ClusterAgentScopeBinding, *, namespaces: tuple[str, ...] | None = None
) -> PublishedBinding:
    """What a binding publishes.

    Args:
        resource: the object.
        namespaces: the territory of a cluster binding, its selector resolved; None means every namespace.
            A namespaced binding's territory is its own namespace, whatever is passed.
    """
    spec, meta = resource.spec, resource.metadata
    home, lists = None, False
    if isinstance(resource, AgentScopeBinding):
        home = meta.namespace or "default"
        namespaces = (home,)
    else:
        lists = resource.spec.namespaces is not None
    return PublishedBinding(
        uid=meta.uid or f"manifest:{resource.kind}:{home or ''}/{meta.name}",
        generation=meta.generation,
        kind=resource.kind,
        namespace=home,
        name=meta.name,
        subjects=tuple(_subject(s, home) for s in spec.subjects),
        namespaces=namespaces,
        lists_namespaces=lists,
        scopes=spec.scopes or (),
        allow=None if spec.tools is None else spec.tools.allow,
        deny=() if spec.tools is None else spec.tools.deny or (),
        deny_scopes=() if spec.tools is None else spec.tools.deny_scopes or (),
        servers=spec.servers,
        not_before=None if spec.not_before is None else durations.instant(spec.not_before),
        expires_at=None if spec.expires_at is None else durations.instant(spec.expires_at),
        limits=None
        if spec.limits is None
        else PublishedLimits(
            per_minute=spec.limits.calls_per_minute,
            per_day=spec.limits.calls_per_day,
            concurrent=spec.limits.max_concurrent,
        ),
    )


def suspension(agent: Agent) -> PublishedBinding:
    """What a suspended Agent publishes: that its identities get nothing, in the form of a deny of everything."""
    meta = agent.metadata
    home = meta.namespace or "default"
    account = PublishedSubject(kind=SubjectKind.SERVICE_ACCOUNT, namespace=home, name=agent.service_account)
    return PublishedBinding(
        uid=meta.uid or f"manifest:Agent:{home}/{meta.name}",
        generation=meta.generation,
        kind="Agent",
        namespace=home,
        name=meta.name,
        subjects=(account, *(_subject(s, home) for s in agent.spec.subjects or ())),
        namespaces=None,
        deny=("*",),
        suspends=True,
    )


def _subject(subject: Subject, home: str | None) -> PublishedSubject:
    """An Agent is the service account that its pods run as: the one of its own name."""
    in_cluster = subject.kind in (SubjectKind.SERVICE_ACCOUNT, SubjectKind.AGENT)
    return PublishedSubject(
        kind=subject.kind,
        namespace=subject.namespace or home if in_cluster else None,
        name=subject.name,
        issuer=subject.issuer,
        client_id=subject.client_id,
    )


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
