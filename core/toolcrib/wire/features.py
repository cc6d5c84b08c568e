"""What replicas of earlier versions do not know, and what they are sent instead: never more than is meant."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from toolcrib.resources.tools import ToolState
from toolcrib.wire.backends import PublishedBackend
from toolcrib.wire.publish import Publish, PublishedBinding, PublishedServer, PublishedTool

DENY_SCOPES = "deny_scopes"
SNAPSHOT_CHUNKS = "snapshot_chunks"
MCP_BACKENDS = "mcp_backends"
SERVER_IMPORTS = "server_imports"
QUARANTINE = "quarantine"
PLACED_ARGUMENTS = "placed_arguments"
BACKEND_OAUTH = "backend_oauth"
TOKEN_SERVICES = "token_services"
CALL_CONFIRMATION = "call_confirmation"
FEATURES: tuple[str, ...] = (
    DENY_SCOPES,
    SNAPSHOT_CHUNKS,
    MCP_BACKENDS,
    QUARANTINE,
    SERVER_IMPORTS,
    PLACED_ARGUMENTS,
    BACKEND_OAUTH,
    TOKEN_SERVICES,
    CALL_CONFIRMATION,
)
"""What this version knows beyond the first one: a replica names its own, so that a rollout never fails open."""


def enforceable(step: Publish, features: Collection[str]) -> Publish:
    """The step as a replica with these `features` can enforce it: it grants no more than is meant, at times less.

    A replica that does not know `deny_scopes` would ignore it, as it ignores every unknown field. Until it is replaced,
    it denies the subjects of such a binding every tool within the binding's reach. One that does not know MCP backends
    would send them plain HTTP: it gets no backend of such tools, nor of those whose author placed arguments, if it does not
    know that: it would send an argument elsewhere. One that does not know `backend_oauth` cannot read a backend that takes
    access tokens, and gets none; nor one that does not know `token_services`, of those whose token endpoint is a Service: it
    would ask the server for another. To one that knows no quarantine, a quarantined tool is a disabled one; so is a tool whose
    calls people confirm, to one that knows no confirmations.
    """
    update: dict[str, Any] = {}
    if DENY_SCOPES not in features and any(b.deny_scopes for b in step.bindings):
        update["bindings"] = tuple(enforceable_binding(b, features) for b in step.bindings)
    tools = tuple(enforceable_tool(t, features) for t in step.tools)
    if any(now is not meant for now, meant in zip(tools, step.tools, strict=True)):
        update["tools"] = tools
    servers = tuple(enforceable_server(s, features) for s in step.servers)
    if any(now is not meant for now, meant in zip(servers, step.servers, strict=True)):
        update["servers"] = servers
    return step.model_copy(update=update) if update else step


def enforceable_binding(binding: PublishedBinding, features: Collection[str]) -> PublishedBinding:
    """The binding as a replica with these `features` can enforce it (see `enforceable`)."""
    if DENY_SCOPES in features or not binding.deny_scopes:
        return binding
    return binding.model_copy(update={"deny": ("*",), "deny_scopes": ()})


def enforceable_tool(tool: PublishedTool, features: Collection[str]) -> PublishedTool:
    """The tool as a replica with these `features` can enforce it (see `enforceable`); itself, if that is so as it is."""
    update: dict[str, Any] = {}
    backend = tool.backend
    if backend is not None and (
        (MCP_BACKENDS not in features and backend.mcp is not None)
        or (PLACED_ARGUMENTS not in features and (backend.parameters, backend.body) != (None, None))
        or (BACKEND_OAUTH not in features and takes_tokens(backend))
        or (TOKEN_SERVICES not in features and backend.token_service is not None)
    ):
        update["backend"] = None
    if (tool.quarantined and QUARANTINE not in features) or (
        tool.confirm and CALL_CONFIRMATION not in features
    ):
        update["state"] = ToolState.DISABLED
    return tool.model_copy(update=update) if update else tool


def enforceable_server(server: PublishedServer, features: Collection[str]) -> PublishedServer:
    """The server as a replica with these `features` can enforce it (see `enforceable`); itself, if that is so as it is."""
    parts = tuple(enforceable_tool(part, features) for part in server.parts)
    if all(now is meant for now, meant in zip(parts, server.parts, strict=True)):
        return server
    return server.model_copy(update={"parts": parts})


def takes_tokens(backend: PublishedBackend) -> bool:
    """Whether access tokens of an authorization server authenticate to it (`backend_oauth`)."""
    return backend.auth is not None and backend.auth.oauth is not None
