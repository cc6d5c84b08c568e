"""Where an MCP server's tokens are given: from its 401 to its metadata (RFC 9728) to its authorization server's (RFC 8414).

The server's owner decides what these say. So each address passes the guard, the client's secret goes only where its
Secret's annotation lets it, and metadata of another resource is not used.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass

from toolcrib.version import __version__
from toolcrib_registry.calls.errors import BackendAuthFailed
from toolcrib_registry.calls.oauth.answers import document, failed, text
from toolcrib_registry.outbound import hosts
from toolcrib_registry.outbound.errors import EgressRefused
from toolcrib_registry.outbound.guard import EgressPolicy, EgressRule, Target, check_url
from toolcrib_registry.outbound.messages import OutboundResponse

Send = Callable[[Target, str, str, Mapping[str, str], bytes | None], Awaitable[OutboundResponse]]
"""Sends one request: where to, method, path, header fields, body."""
_METADATA = re.compile(r'resource_metadata="([^"\\]{1,2048})"')
_PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
_RESOURCE_PATH = "/.well-known/oauth-protected-resource"
_HEADERS = {"accept": "application/json", "user-agent": f"toolcrib/{__version__}"}
_HINT = "Set auth.oauth.tokenUrl"


@dataclass(frozen=True, slots=True)
class Found:
    """A token endpoint, and the resource that tokens are for."""

    token_url: str
    resource: str


async def found(send: Send, server: Target, resource: str | None, policy: EgressPolicy) -> Found:
    """The token endpoint of an MCP server.

    Args:
        send: sends requests.
        server: where it is.
        resource: the resource that the metadata must be of; None: the server itself.
        policy: of the guard.

    Raises:
        BackendAuthFailed: the server or its authorization server does not say.
        OutboundError: the guard says no, or there was no answer.
    """
    about = await _of_resource(send, server, policy)
    named = text(about, "resource")
    if named is None or not _is_meant(named, resource, server):
        raise BackendAuthFailed(
            f"the server's metadata is of another resource than the server. {_HINT}, or auth.oauth.resource"
        )
    issuers = about.get("authorization_servers")
    issuer = issuers[0] if type(issuers) is list and issuers else None
    if type(issuer) is not str:
        raise BackendAuthFailed(f"the server's metadata names no authorization server. {_HINT}")
    return Found(await _endpoint(send, issuer, policy), named)


async def _of_resource(send: Send, server: Target, policy: EgressPolicy) -> dict[str, object]:
    headers = {
        **_HEADERS,
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
    }
    answer = await send(server, "POST", server.path, headers, _PING)
    if answer.status != 401:
        raise BackendAuthFailed(
            f"the server answers {answer.status} without a token, so it does not say where tokens are given. {_HINT}"
        )
    named = _METADATA.search(answer.headers.get("www-authenticate", ""))
    if named is not None:
        place = check_url(named[1], policy)
        answer = await send(place, "GET", place.path, _HEADERS, None)
        if answer.status != 200:
            raise failed(answer.status, "the address of the server's metadata")
        return document(answer, "the address of the server's metadata")
    path = server.path.partition("?")[0].rstrip("/")
    for candidate in dict.fromkeys((f"{_RESOURCE_PATH}{path}", _RESOURCE_PATH)):
        answer = await send(server, "GET", candidate, _HEADERS, None)
        if answer.status == 200:
            return document(answer, "the address of the server's metadata")
    raise BackendAuthFailed(f"the server has no metadata that says where tokens are given. {_HINT}")


async def _endpoint(send: Send, issuer: str, policy: EgressPolicy) -> str:
    for url in _metadata_urls(issuer):
        place = check_url(url, policy)
        answer = await send(place, "GET", place.path, _HEADERS, None)
        if answer.status == 200:
            said = document(answer, "the authorization server's metadata")
            break
        if not 400 <= answer.status < 500:
            raise failed(answer.status, "the authorization server's metadata")
    else:
        raise BackendAuthFailed(f"the authorization server has no metadata. {_HINT}")
    # else one server could pass itself off as another (RFC 8414, 3.3)
    if (text(said, "issuer") or "").rstrip("/") != issuer.rstrip("/"):
        raise BackendAuthFailed(f"the authorization server's metadata is of another issuer. {_HINT}")
    grants = said.get("grant_types_supported")
    if type(grants) is list and "client_credentials" not in grants:
        raise BackendAuthFailed(
            "the authorization server does not support the grant client_credentials: allow it there, or use another auth.type"
        )
    endpoint = text(said, "token_endpoint")
    if endpoint is None:
        raise BackendAuthFailed(f"the authorization server's metadata names no token endpoint. {_HINT}")
    return endpoint


def _metadata_urls(issuer: str) -> Iterator[str]:
    place = hosts.split_url(issuer)
    host = f"[{place.host}]" if ":" in place.host else place.host
    origin, path = f"{place.scheme}://{host}:{place.port}", place.path.rstrip("/")
    yield f"{origin}/.well-known/oauth-authorization-server{path}"
    yield f"{origin}/.well-known/openid-configuration{path}"
    if path:
        yield f"{origin}{path}/.well-known/openid-configuration"


def _is_meant(named: str, wanted: str | None, server: Target) -> bool:
    """Whether metadata of the resource `named` is the server's (RFC 9728, 3.3): it is the one that is wanted, or the server's
    own address or one above it."""
    if wanted is not None:
        return named.rstrip("/") == wanted.rstrip("/")
    try:
        place = hosts.split_url(named)
    except EgressRefused:  # it is no address
        return False
    host = f"[{place.host}]:{place.port}" if ":" in place.host else f"{place.host}:{place.port}"
    in_cluster = server.reach in (EgressRule.SERVICE, EgressRule.MAPPED)
    if (host if in_cluster else f"{place.scheme}://{host}") not in server.names:
        return False
    above = place.path.rstrip("/")
    return server.path.rstrip("/") == above or server.path.startswith(f"{above}/")
