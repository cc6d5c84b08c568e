"""What would be said of an object once it is applied; and which tools of some files a search would find badly."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from toolcrib import publishing
from toolcrib.errors import Finding
from toolcrib.lint import hidden_text
from toolcrib.lint.weaknesses import SearchLint
from toolcrib.resources import AgentScopeBinding, ClusterAgentScopeBinding, Tool
from toolcrib.resources.conditions import ConditionReason
from toolcrib_cli.manifests import FileContent, Loaded


@dataclass(frozen=True, slots=True)
class Expected:
    """What would be said of one object. Where it is not `used`, this is why; else it is a warning."""

    item: Loaded
    reason: str
    finding: Finding
    used: bool = True


def hard_to_find(contents: Iterable[FileContent], others: Iterable[Tool] = ()) -> list[Expected]:
    """What the operator would say in the condition `Questionable` of the tools of files, in their order.

    Args:
        contents: files; the objects of those that are refused are left out.
        others: what is, or would be, in the cluster besides, or the same in another version.
    """
    brought = [item for content in contents if not content.refused for item in content.objects]
    lint = SearchLint()
    for tool in others:
        lint.update(tool.tool_id, tool)
    tools = {item.key: item.resource for item in brought if isinstance(item.resource, Tool)}
    for tool in tools.values():
        lint.update(tool.tool_id, tool)
    return [
        Expected(item, w.reason.value, Finding(w.field, f"{w.reason}: {w.message}", w.hint))
        for item in brought
        if isinstance(item.resource, Tool)
        for w in lint.weaknesses(item.resource)
    ]


def never_grants(contents: Iterable[FileContent], now: float) -> list[Expected]:
    """Bindings of which something grants nothing whatever the cluster holds: expired, or denied by the binding itself."""
    # the operator's parts: only who has bindings waits for them
    from toolcrib_operator.kinds.questions import questions

    certain = (
        ConditionReason.EXPIRED_AT_APPLY,
        ConditionReason.SCOPE_SHADOWED,
        ConditionReason.ALLOW_SHADOWED,
    )
    return [
        Expected(item, q.reason.value, Finding(q.field, f"{q.reason}: {q.message}"))
        for content in contents
        if not content.refused
        for item in content.objects
        if isinstance(item.resource, AgentScopeBinding | ClusterAgentScopeBinding)
        for q in questions(publishing.binding(item.resource), (), exists=None, applied=now)
        if q.reason in certain
    ]


def hidden(contents: Iterable[FileContent]) -> list[Expected]:
    """Hidden characters in the texts of tools, as warnings."""
    return [
        Expected(
            item,
            ConditionReason.HIDDEN_TEXT.value,
            Finding(where, f"{ConditionReason.HIDDEN_TEXT}: {what}", hidden_text.HINT),
        )
        for content in contents
        if not content.refused
        for item in content.objects
        if isinstance(item.resource, Tool)
        and not any(p.finding.field.startswith(_SCHEMAS) for p in content.problems)
        for where, what in (place.said for place in hidden_text.places(item.resource.spec))
    ]


_SCHEMAS = ("spec.inputSchema", "spec.outputSchema")
