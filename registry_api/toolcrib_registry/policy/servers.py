"""The servers of a caller's view as the MCP registry API lists them: server.json documents.

Pure, and made of the view alone: a server is there because one of its tools is visible, and its version names what is
visible of it. Toolcrib's own endpoints stand among them; they are the only ones that a client can connect to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from toolcrib.version import __version__
from toolcrib.view import View
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.identity import resources

SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
"""The form of the documents."""
PREFIX = "dev.toolcrib"
"""Names are reverse DNS: `dev.toolcrib.<namespace>/<server>`."""
OWN = f"{PREFIX}/toolcrib"
"""Toolcrib itself; no namespace is without a name, so no tool's server can be called like that."""
OFFICIAL = "io.modelcontextprotocol.registry/official"
ABOUT = f"{PREFIX}/server"
LATEST = "latest"
_DESCRIPTION = 100
"""Characters that the schema allows."""

Document = dict[str, Any]


def name_of(tool: PublishedTool) -> str | None:
    """The name of the tool's server; None: it has none."""
    return None if tool.server is None else f"{PREFIX}.{tool.namespace}/{tool.server}"


def of(view: View, base: str) -> Mapping[str, Document]:
    """Name → server.json, by name.

    Args:
        base: the registry's public URL.
    """
    grouped: dict[str, list[PublishedTool]] = {}
    for tool in view.tools.values():
        if (name := name_of(tool)) is not None:
            grouped.setdefault(name, []).append(tool)
    found = {name: _document(name, tools) for name, tools in grouped.items()}
    found[OWN] = _own(base)
    return dict(sorted(found.items()))


def listed(document: Document) -> Document:
    """A document as lists and answers have it. Each server has one version: what it was before is not kept."""
    return {"server": document, "_meta": {OFFICIAL: {"status": "active", "isLatest": True}}}


def _document(name: str, tools: list[PublishedTool]) -> Document:
    first = tools[0]
    content = hashlib.sha256()
    for tool in tools:  # a view is sorted by id
        content.update(f"{tool.tool_id} {tool.digest}\n".encode())
    count = f"{len(tools)} tool" + ("" if len(tools) == 1 else "s")
    return {
        "$schema": SCHEMA,
        "name": name,
        "description": f"{count} of {first.server} in {first.namespace}, served at {OWN}"[:_DESCRIPTION],
        "title": f"{first.namespace}/{first.server}"[:_DESCRIPTION],
        # the letter keeps it a semantic version: a number must not begin with 0
        "version": f"0.0.0-v{content.hexdigest()[:12]}",
        "_meta": {
            ABOUT: {"namespace": first.namespace, "server": first.server, "tools": len(tools), "via": OWN}
        },
    }


def _own(base: str) -> Document:
    return {
        "$schema": SCHEMA,
        "name": OWN,
        "description": "Your tools: /mcp finds them by meaning, /mcp/direct lists each one",
        "title": "Toolcrib",
        "version": __version__,
        "remotes": [
            {"type": "streamable-http", "url": resources.url(base, path)} for path in resources.PATHS
        ],
    }
