"""The handshake era: a session begins with `initialize`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from toolcrib_registry.upstream import messages
from toolcrib_registry.upstream.errors import (
    AnswerBroken,
    RefusedByRpc,
    RefusedByStatus,
    TransportUnsupported,
)
from toolcrib_registry.upstream.exchanges import Exchanges
from toolcrib_registry.upstream.header_fields import SESSION, VERSION
from toolcrib_registry.upstream.messages import Notification, ServerRequest
from toolcrib_registry.upstream.protocol import CLIENT_INFO, HANDSHAKE, LATEST_HANDSHAKE, text_of
from toolcrib_registry.upstream.servers import Asking, Facts, Link, Server

_ID = re.compile(r"[!-~]{1,1024}")
_OTHER_TRANSPORT = (400, 404, 405)
"""What a server of HTTP+SSE answers to a POST (2025-11-25, Transports, Backwards Compatibility)."""
_MOST_INSTRUCTIONS = 64 << 10


async def begin(exchanges: Exchanges, server: Server, asking: Asking, id_: int) -> Link:
    """A new session.

    Raises:
        TransportUnsupported: the server speaks HTTP+SSE alone.
        McpFailure, OutboundError: there is none to be had.
    """
    params = {"protocolVersion": LATEST_HANDSHAKE, "capabilities": {}, "clientInfo": CLIENT_INFO}
    body = messages.request(id_, "initialize", params)
    try:
        answered = await exchanges.ask(server, asking, body, id_, {}, ignore)
    except (RefusedByStatus, RefusedByRpc) as refused:
        if refused.status in _OTHER_TRANSPORT and await exchanges.first_event(server, asking) == "endpoint":
            raise TransportUnsupported from refused
        raise
    said = answered.fields
    version = said.get("protocolVersion")
    if version not in HANDSHAKE:
        raise AnswerBroken(f"the server answers initialize with the revision {text_of(version)}")
    session = answered.headers.get(SESSION)
    if session is not None and _ID.fullmatch(session) is None:
        raise AnswerBroken("the server's session id is not what a header can carry")
    link = Link(facts_of(version, said, said.get("serverInfo")), session)
    await exchanges.tell(server, asking, messages.notification("notifications/initialized"), fields_of(link))
    return link


def fields_of(link: Link) -> dict[str, str]:
    """The header fields of every request within a session."""
    fields = {VERSION: link.facts.version}
    if link.session is not None:
        fields[SESSION] = link.session
    return fields


def facts_of(version: str, said: Mapping[str, Any], info: Any) -> Facts:
    """What a server says of itself, as far as it is of the right type."""
    capabilities, instructions, ttl = said.get("capabilities"), said.get("instructions"), said.get("ttlMs")
    return Facts(
        version,
        info if type(info) is dict else {},
        capabilities if type(capabilities) is dict else {},
        instructions[:_MOST_INSTRUCTIONS] if isinstance(instructions, str) else "",
        ttl if type(ttl) is int and ttl >= 0 else None,
    )


async def ignore(heard: Notification | ServerRequest) -> None:
    """What comes before the answer to a question of ours that nobody waits for."""


Ids = Callable[[], int]
"""Gives the next id of a request."""
