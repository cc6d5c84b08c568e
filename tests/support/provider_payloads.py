"""What requests to model providers look like, as far as this project makes any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TEXT = {"type": "string"}


def closed(required: list[str], **properties: Any) -> Mapping[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


ANTHROPIC = closed(
    # fields of anthropic 2.12: MessageCreateParams, BetaMCPToolsetParam, BetaRequestMCPServerURLDefinitionParam,
    # BetaToolSearchToolBm25_20251119Param, BetaToolParam, BetaToolReferenceBlockParam
    ["model", "max_tokens", "messages", "tools"],
    model=TEXT,
    max_tokens={"type": "integer"},
    mcp_servers={
        "type": "array",
        "items": closed(["name", "type", "url"], name=TEXT, type={"const": "url"}, url=TEXT),
    },
    tools={
        "type": "array",
        "items": {
            "oneOf": [
                closed(
                    ["mcp_server_name", "type"],
                    type={"const": "mcp_toolset"},
                    mcp_server_name=TEXT,
                    default_config=closed([], defer_loading={"type": "boolean"}, enabled={"type": "boolean"}),
                    configs={"type": "object"},
                ),
                closed(
                    ["name", "type"],
                    type={"const": "tool_search_tool_bm25_20251119"},
                    name={"const": "tool_search_tool_bm25"},
                ),
                closed(
                    ["name", "input_schema"],
                    name={"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$"},
                    description=TEXT,
                    input_schema={"type": "object", "required": ["type"]},
                    defer_loading={"type": "boolean"},
                ),
            ]
        },
    },
    messages={
        "type": "array",
        "items": closed(
            ["role", "content"],
            role={"enum": ["user", "assistant"]},
            content={
                "oneOf": [
                    TEXT,
                    {
                        "type": "array",
                        "items": {
                            "oneOf": [
                                closed(["type", "id", "name", "input"], type={"const": "tool_use"}, id=TEXT, name=TEXT, input={}),
                                closed(
                                    ["type", "tool_use_id"],
                                    type={"const": "tool_result"},
                                    tool_use_id=TEXT,
                                    content={
                                        "type": "array",
                                        "items": closed(["type", "tool_name"], type={"const": "tool_reference"}, tool_name=TEXT),
                                    },
                                ),
                            ]
                        },
                    },
                ]
            },
        ),
    },
)  # fmt: skip
"""A request to the Messages API, closed."""
