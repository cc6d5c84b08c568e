"""What agents of another registry call a service: a tool's server, or its namespace where it has none."""

from __future__ import annotations

from toolcrib.wire.publish import PublishedTool


def service_name(tool: PublishedTool) -> str:
    """The name of the tool's service."""
    return tool.server or tool.namespace


def service_path(tool: PublishedTool) -> str:
    """Its path. It helps to tell services apart; the tool's own name is enough to call it."""
    return f"/{service_name(tool)}"
