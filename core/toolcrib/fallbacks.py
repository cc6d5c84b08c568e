"""Which tools are called in the place of one whose backend is down. Pure; the operator and the registry ask the same.

A fallback is another tool: the caller's own grants decide about it. It needs the same scopes, so that who may call the
one may call the other as far as scopes say so, and nobody is led to a tool of another kind. It promises at least what
the tool promises about its effects, since callers and `call_read_tool` chose the tool by its hints. Its own fallbacks are
not followed.
"""

from __future__ import annotations

from collections.abc import Mapping

from toolcrib.wire.publish import PublishedTool


def problem(
    tool: PublishedTool, fallback: str, tools: Mapping[str, PublishedTool], shown: PublishedTool | None = None
) -> str | None:
    """Why the tool with the id `fallback` is not called in the place of `tool`; None: it is.

    Args:
        tool: names the fallback.
        fallback: its id.
        tools: all that are published, by id.
        shown: the fallback as a caller gets it, which may be the candidate of a trial; default: its own definition.
    """
    other = shown or tools.get(fallback)
    if other is None or not other.active:
        return f"{fallback} does not exist or is not in use"
    if set(other.scopes) != set(tool.scopes) or other.scope_match is not tool.scope_match:
        return f"{fallback} does not have the same scopes and scopeMatch"
    if not other.repeatable:
        return f"{fallback} is not idempotent: it has neither idempotentHint nor readOnlyHint"
    if lacking := [each for each in _promises(tool) if each not in _promises(other)]:
        return f"{fallback} may have wider effects than {tool.tool_id}: it does not have {', '.join(lacking)}"
    if _leads_to(tool.tool_id, other, tools):
        return f"{fallback} leads back to {tool.tool_id}"
    return None


def _promises(tool: PublishedTool) -> list[str]:
    """Bounds on the tool's effects, each as the hint that sets it. An absent hint sets none: MCP takes it for the worst.

    MCP gives `destructiveHint` a meaning only where the tool writes, so a tool that only reads destroys nothing, unless it
    contradicts itself.
    """
    hints = tool.annotations
    reads, destroys = hints.get("readOnlyHint") is True, hints.get("destructiveHint")
    bounds = {
        "readOnlyHint: true": reads,
        "destructiveHint: false": destroys is False or (reads and destroys is None),
        "openWorldHint: false": hints.get("openWorldHint") is False,
    }
    return [hint for hint, is_set in bounds.items() if is_set]


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
