"""What models read of the meta-tools: short, since each request pays for it, and the same for every caller.

`make mcp-tokens` prints what it takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_READS = {"readOnlyHint": True, "openWorldHint": False}
Definition = Mapping[str, Any]


def _tool(
    name: str, description: str, required: list[str], *, reads: bool = False, **properties: Any
) -> Definition:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    made: dict[str, Any] = {"name": name, "description": description, "inputSchema": schema}
    if reads:
        made["annotations"] = _READS
    return made


def _call(name: str, description: str, *, reads: bool = False) -> Definition:
    return _tool(name, description, ["tool_id"], reads=reads, tool_id=_TEXT, args={"type": "object"})


SEARCH = _tool(
    "search_tools",
    "Find tools by what they do. Search first, then describe_tool, then call the tool.",
    ["query"],
    reads=True,
    query={**_TEXT, "description": "The task in words"},
    tags=_TEXTS,
    allow_servers=_TEXTS,
    max_results={"type": "integer", "default": 5},
    min_score={"type": "number", "description": "Least confidence, 0 to 1"},
    schemas={"type": "boolean", "description": "Add input schemas"},
)
DESCRIBE = _tool(
    "describe_tool", "Read a tool's input schema and examples.", ["tool_id"], reads=True, tool_id=_TEXT
)
LOAD = _tool(
    "load_tools", "Read the definitions of several tools.", ["tool_ids"], reads=True, tool_ids=_TEXTS
)
CALL = _call("call_tool", "Call a tool. args must fit its input schema.")
CALL_READ = _call("call_read_tool", "Call a tool that only reads.", reads=True)
CALL_WRITE = _call("call_write_tool", "Call a tool that may change something.")
REQUEST = _tool(
    "request_access",
    "Ask people for a tool that you may not call. Nothing changes until somebody approves.",
    ["tool_id", "why"],
    tool_id=_TEXT,
    why={**_TEXT, "description": "What it is for, at most 280 characters"},
)
FINDER = _tool(
    "intelligent_tool_finder",
    "Find tools by what they do.",
    [],
    reads=True,
    natural_language_query=_TEXT,
    tags=_TEXTS,
    top_k_services={"type": "integer"},
    top_n_tools={"type": "integer"},
)
REGISTRY = _tool(
    "search_registry",
    "Find tools and servers by what they do.",
    ["query"],
    reads=True,
    query=_TEXT,
    max_results={"type": "integer"},
)
INVOKE = _tool(
    "invoke_mcp_tool",
    "Call a tool that was found.",
    ["tool_name"],
    server_name=_TEXT,
    tool_name=_TEXT,
    arguments={"type": "object"},
)


def offered(
    *, split_calls: bool = False, compatible_names: bool = False, request_access: bool = False
) -> tuple[Definition, ...]:
    """The tools that are listed.

    Args:
        split_calls: two tools call, one for tools that only read.
        compatible_names: the names of the MCP Gateway & Registry project, too.
        request_access: one tool asks people for access, too.
    """
    calls = (CALL_READ, CALL_WRITE) if split_calls else (CALL,)
    others = ((REQUEST,) if request_access else ()) + ((FINDER, REGISTRY, INVOKE) if compatible_names else ())
    return (SEARCH, DESCRIBE, *calls, LOAD, *others)
