"""Which era a server is of: asked by `server/discover`, which only the stateless era knows.

Only an answer decides. A refusal of the asker (401, 403), a failure (5xx), too many requests and silence say nothing of the era.
"""

from __future__ import annotations

from toolcrib_registry.upstream import messages, sessions
from toolcrib_registry.upstream.errors import AnswerBroken, RefusedByRpc, RefusedByStatus
from toolcrib_registry.upstream.exchanges import Exchanges
from toolcrib_registry.upstream.header_fields import METHOD, VERSION
from toolcrib_registry.upstream.protocol import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO,
    CLIENT_INFO_META_KEY,
    HEADER_MISMATCH,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
    STATELESS,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from toolcrib_registry.upstream.servers import Asking, Link, Server
from toolcrib_registry.upstream.sessions import Ids

_INTERNAL_ERROR = -32603
_DISCOVER = "server/discover"
_UNKNOWN_THERE = (400, 404, 405, 406, 415, 422)
"""How a server of the handshake era refuses what it does not know."""
_OTHER_ERA = (UNSUPPORTED_PROTOCOL_VERSION, INVALID_REQUEST, METHOD_NOT_FOUND)


async def link(exchanges: Exchanges, server: Server, asking: Asking, ids: Ids) -> Link:
    """How to speak to a server of which nothing is known.

    Raises:
        McpFailure, OutboundError: it did not say; nothing should be concluded.
    """
    found = await discovered(exchanges, server, asking, ids)
    return await sessions.begin(exchanges, server, asking, ids()) if found is None else found


async def discovered(exchanges: Exchanges, server: Server, asking: Asking, ids: Ids) -> Link | None:
    """How to speak to a server of the stateless era; None: it is of the other.

    A server that refuses the revision, and names the same one among those that it supports, is asked once more.

    Raises:
        McpFailure, OutboundError: it did not say.
    """
    for last in (False, True):
        try:
            return await _discovered(exchanges, server, asking, ids())
        except RefusedByRpc as refused:
            if refused.code in (_INTERNAL_ERROR, HEADER_MISMATCH):
                raise
            if last or not _supports(refused):
                break
    return None


def _supports(refused: RefusedByRpc) -> bool:
    """Whether the refusal says that the server knows the revision that we speak."""
    if refused.code != UNSUPPORTED_PROTOCOL_VERSION or type(refused.data) is not dict:
        return False
    supported = refused.data.get("supported")
    return type(supported) is list and STATELESS in supported


async def _discovered(exchanges: Exchanges, server: Server, asking: Asking, id_: int) -> Link | None:
    meta = {
        PROTOCOL_VERSION_META_KEY: STATELESS,
        CLIENT_INFO_META_KEY: CLIENT_INFO,
        CLIENT_CAPABILITIES_META_KEY: {},
    }
    body = messages.request(id_, _DISCOVER, {"_meta": meta})
    fields = {VERSION: STATELESS, METHOD: _DISCOVER}
    try:
        answered = await exchanges.ask(server, asking, body, id_, fields, sessions.ignore)
    except RefusedByStatus as refused:
        if refused.status in _UNKNOWN_THERE:
            return None
        raise
    said = answered.fields
    if "supportedVersions" not in said:
        # some servers answer any method with an empty result
        return None
    versions, told = said["supportedVersions"], said.get("_meta")
    if type(versions) is not list:
        raise AnswerBroken("supportedVersions in the server's answer to server/discover is not a list")
    if STATELESS not in versions:
        return None
    info = told.get(SERVER_INFO_META_KEY) if type(told) is dict else None
    return Link(sessions.facts_of(STATELESS, said, info))


def is_of_another(refused: RefusedByRpc | RefusedByStatus, link: Link) -> bool:
    """Whether a refusal says that the server is not, or no longer, of the link's era: nothing was executed."""
    if isinstance(refused, RefusedByStatus):
        return refused.status in (404, 405)
    if refused.code == UNSUPPORTED_PROTOCOL_VERSION:
        return True
    if not 400 <= refused.status < 500:
        return False
    return refused.code in _OTHER_ERA or (not link.stateless and refused.code == HEADER_MISMATCH)


def lost_session(refused: RefusedByRpc | RefusedByStatus, link: Link) -> bool:
    """Whether a refusal says that the server no longer knows the session: nothing was executed."""
    return link.session is not None and refused.status == 404
