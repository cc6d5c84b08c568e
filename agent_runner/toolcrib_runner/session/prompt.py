"""What a model is told about the tools: one line each. Pure.

Descriptions are other people's text and are read by a model, so a line stays a line: control, bidirectional and
zero-width characters are shown escaped and lengths are bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from toolcrib import text
from toolcrib_runner.discovery import DiscoveredTool

NO_TOOLS = "No tools available."
MAX_DESCRIPTION = 512
MAX_PARAMETER_NAME = 64
MAX_PARAMETERS = 32


def tool_context(
    tools: Iterable[DiscoveredTool], called: Callable[[str], str] = lambda listed: listed
) -> str:
    """`Available tools:` and a line `- name(parameter, …): description` for each; without tools `NO_TOOLS`.

    `called` gives the name by which the reader calls a tool, from its listed name.
    """
    lines = [line(tool, called(tool.name)) for tool in tools]
    return "\n".join(["Available tools:", *lines]) if lines else NO_TOOLS


def line(tool: DiscoveredTool, name: str) -> str:
    """One tool, called `name`, in one line."""
    names = [text.truncate(text.escape(p.name), MAX_PARAMETER_NAME) for p in tool.parameters[:MAX_PARAMETERS]]
    if len(tool.parameters) > MAX_PARAMETERS:
        names.append("…")
    described = text.truncate(text.escape(tool.description.strip()), MAX_DESCRIPTION)
    return f"- {name}({', '.join(names)}): {described}".rstrip()
