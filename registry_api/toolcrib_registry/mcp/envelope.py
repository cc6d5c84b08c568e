"""Which revision a request speaks, and in the stateless era what it says of its client."""

from __future__ import annotations

from mcp_types import CLIENT_CAPABILITIES_META_KEY, PROTOCOL_VERSION_META_KEY

from toolcrib_registry.mcp import mirrors
from toolcrib_registry.mcp.messages import RpcRequest
from toolcrib_registry.mcp.mirrors import Fields
from toolcrib_registry.mcp.protocol import (
    ASSUMED,
    INVALID_PARAMS,
    SERVED,
    RpcError,
    is_stateless,
    unsupported_version,
)


def version_of(fields: Fields) -> str:
    """The revision that the header names; without one the oldest.

    Raises:
        RpcError: it is not served, or named twice.
    """
    named = mirrors.one(fields, mirrors.VERSION)
    if named is None:
        return ASSUMED
    if named not in SERVED:
        raise unsupported_version(named)
    return named


def check(request: RpcRequest, version: str, fields: Fields) -> None:
    """Hold a request against its header fields and, in the stateless era, against what its `_meta` has to say.

    Raises:
        RpcError: they do not agree, or something is missing.
    """
    meta = request.params.get("_meta")
    said = meta.get(PROTOCOL_VERSION_META_KEY) if type(meta) is dict else None
    if not is_stateless(version):
        if said is not None and is_stateless(str(said)):
            raise mirrors.mismatch(
                "The header MCP-Protocol-Version does not equal the revision in params._meta."
            )
        return
    if type(meta) is not dict:
        raise _missing(PROTOCOL_VERSION_META_KEY, CLIENT_CAPABILITIES_META_KEY)
    absent = [key for key in (PROTOCOL_VERSION_META_KEY, CLIENT_CAPABILITIES_META_KEY) if key not in meta]
    if absent:
        raise _missing(*absent)
    if said != version:
        raise mirrors.mismatch("The header MCP-Protocol-Version does not equal the revision in params._meta.")
    mirrors.check(fields, request.method, request.params)


def _missing(*keys: str) -> RpcError:
    return RpcError(INVALID_PARAMS, f"params._meta must have {' and '.join(keys)}.", refused=True)
