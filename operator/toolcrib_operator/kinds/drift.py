"""The condition Drifted of a ToolServer: which of its tools are quarantined, and how the first of them differs."""

from __future__ import annotations

from collections.abc import Iterable

from toolcrib.resources.conditions import MAX_MESSAGE, ConditionReason
from toolcrib.text import truncate
from toolcrib.wire.publish import PublishedTool
from toolcrib_operator.kinds.approval import remedy
from toolcrib_operator.kinds.facts import Facts
from toolcrib_operator.kinds.verdicts import Cause, ToolVerdict
from toolcrib_operator.objects import Ref

DRIFTED = "Drifted"


def drifted(server: Ref, facts: Facts) -> tuple[bool, Cause]:
    """Whether tools of a server wait for approval: those that changed, and those that are new or came back.

    A tool that comes back is a new object, so it counts as new. Takes time in proportion to the server's tools.
    """
    changed, new = list[tuple[Ref, Cause]](), list[tuple[Ref, Cause]]()
    for ref, cause in _waiting(server, facts):
        (changed if cause.reason is ConditionReason.DRIFTED else new).append((ref, cause))
    if not changed and not new:
        return False, Cause(ConditionReason.NOTHING_DRIFTED)
    first, cause = min(changed or new, key=lambda each: each[0].key)
    counts = [f"{len(changed)} changed"] if changed else []
    counts += [f"{len(new)} new or back"] if new else []
    head = f"{len(changed) + len(new)} tools are quarantined ({', '.join(counts)}). The first is {first.key}"
    tail = f" Review: toolcrib approvals list -n {first.namespace}; toolcrib approvals diff {first.key}"
    shown = cause.message.removesuffix(remedy(first.key))
    message = truncate(f"{head}. {shown}", MAX_MESSAGE - len(tail)) + tail
    return True, Cause(ConditionReason.TOOLS_CHANGED if changed else ConditionReason.TOOLS_NEW, message)


def approved_with(server: Ref, facts: Facts, instructions: str | None) -> bool:
    """Whether a server has tools, and all are approved with instructions of this digest."""
    found = list(_approvals(server, facts))
    return bool(found) and all(
        cause.reason is ConditionReason.APPROVED and tool.source_digests.get("instructions") == instructions
        for _, tool, cause in found
    )


def _waiting(server: Ref, facts: Facts) -> Iterable[tuple[Ref, Cause]]:
    for ref, _, cause in _approvals(server, facts):
        if cause.reason is not ConditionReason.APPROVED:
            yield ref, cause


def _approvals(server: Ref, facts: Facts) -> Iterable[tuple[Ref, PublishedTool, Cause]]:
    for ref in facts.links.of(server):
        record = facts.records.get(ref)
        verdict = None if record is None else record.verdict
        if (
            isinstance(verdict, ToolVerdict)
            and verdict.published is not None
            and verdict.approval is not None
        ):
            yield ref, verdict.published, verdict.approval
