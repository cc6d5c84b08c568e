"""Loaded tools in the shapes that model providers take. Pure.

The names are those of `/mcp/direct`: letters, digits, `_` and `-`, at most 48.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toolcrib_client.results import LoadedTool


def openai(tools: Iterable[LoadedTool]) -> list[dict[str, Any]]:
    """Entries of `tools` in chat completions."""
    return [
        {
            "type": "function",
            "function": {
                "name": t.model_name,
                "description": t.description,
                "parameters": dict(t.input_schema),
            },
        }
        for t in tools
    ]


def anthropic(tools: Iterable[LoadedTool]) -> list[dict[str, Any]]:
    """Entries of `tools` in Anthropic's messages."""
    return [
        {"name": t.model_name, "description": t.description, "input_schema": dict(t.input_schema)}
        for t in tools
    ]
