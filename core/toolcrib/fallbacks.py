"""Which tools are called in the place of one whose backend is down. Pure; the operator and the registry ask the same.

A fallback is another tool: the caller's own grants decide about it. It needs the same scopes, so that who may call the
one may call the other as far as scopes say so, and nobody is led to a tool of another kind. Its own fallbacks are not
followed.
"""

from __future__ import annotations

from collections.abc import Mapping

from toolcrib.wire.publish import PublishedTool


def problem(tool: PublishedTool, fallback: str, tools: Mapping[str, PublishedTool]) -> str | None:
    """Why the tool with the id `fallback` is not called in the place of `tool`; None: it is.

    Args:
        tool: names the fallback.
        fallback: its id.
        tools: all that are published, by id.
    """
    other = tools.get(fallback)
    if other is None or not other.active:
        return f"{fallback} does not exist or is not in use"
    if set(other.scopes) != set(tool.scopes) or other.scope_match is not tool.scope_match:
        return f"{fallback} does not have the same scopes and scopeMatch"
    if not other.repeatable:
        return f"{fallback} is not idempotent: it has neither idempotentHint nor readOnlyHint"
    if _leads_to(tool.tool_id, other, tools):
        return f"{fallback} leads back to {tool.tool_id}"
    return None


def _leads_to(tool_id: str, start: PublishedTool, tools: Mapping[str, PublishedTool]) -> bool:
    seen, due = {start.tool_id}, [start]
    while due:
        for each in due.pop().fallback:
            if each == tool_id:
                return True
            if each not in seen and (found := tools.get(each)) is not None:
                seen.add(each)
                due.append(found)
    return start.tool_id == tool_id
