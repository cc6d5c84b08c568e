"""Requests of the Model Context Protocol as each of its revisions has them."""

from typing import Any

HANDSHAKE = (None, "2025-03-26", "2025-06-18", "2025-11-25")
"""None: no header, which is the oldest."""
STATELESS = ("2026-07-28",)
_META = "io.modelcontextprotocol/"


def request(
    version: str | None, method: str, params: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Body and header fields of one request, without a handshake before it."""
    fields = {} if version is None else {"mcp_protocol_version": version}
    if version in STATELESS:
        meta = {f"{_META}protocolVersion": version, f"{_META}clientCapabilities": {}}
        params = {**params, "_meta": meta}
        fields["mcp_method"] = method
        if "name" in params:
            fields["mcp_name"] = params["name"]
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}, fields
