"""Where a tool is called and how it is authenticated, as replicas know it: namespaces and addresses filled in."""

from __future__ import annotations

from toolcrib.resources import durations
from toolcrib.resources.backends import Auth, Backend, HttpBackend, OAuthClient
from toolcrib.resources.servers import DEFAULT_PATH, ToolServer
from toolcrib.wire.backends import (
    PublishedAuth,
    PublishedBackend,
    PublishedMcp,
    PublishedOAuth,
    PublishedParameter,
    PublishedProgram,
    PublishedTokenService,
    SecretReference,
)


def tool_backend(
    backend: Backend, namespace: str, cluster_ip: str | None, token_ip: str | None, server: ToolServer | None
) -> PublishedBackend | None:
    """Where a tool is called; `server` is the one that it names, and None where there is none."""
    http = backend.http
    if backend.mcp is not None:
        if server is None:
            return None
        return backend_at_server(server, backend.mcp.tool, cluster_ip, token_ip)
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


def backend_at_server(
    server: ToolServer, tool: str, cluster_ip: str | None, token_ip: str | None
) -> PublishedBackend:
    """The same for one of its tools; `tool` is empty where it is asked for something else."""
    target = PublishedMcp(server=server.server_id, tool=tool, transport=server.spec.mcp.transport)
    return server_backend(server, cluster_ip, token_ip).model_copy(update={"mcp": target})


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
