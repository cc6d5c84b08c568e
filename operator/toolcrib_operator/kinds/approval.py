"""The condition Approved: whether a tool is what somebody approved, and how it differs."""

from __future__ import annotations

from toolcrib import approvals
from toolcrib.resources.conditions import MAX_MESSAGE, ConditionReason
from toolcrib.resources.tools import Approval, Tool
from toolcrib.wire.publish import PublishedTool
from toolcrib_operator.kinds.statuses import Status
from toolcrib_operator.kinds.verdicts import Cause

APPROVED = "Approved"


def remedy(tool_id: str) -> str:
    """What to do about a quarantined tool: the end of the condition's message."""
    return (
        f" Review it: toolcrib approvals diff {tool_id}. To use it as it is: toolcrib approvals approve {tool_id}, or set"
        " spec.approvedDigest to status.approvalDigest."
    )


def approval(tool: Tool, published: PublishedTool, status: Status) -> Cause | None:
    """Whether a tool is as it was approved; None where it needs no approval.

    Args:
        tool: the object.
        published: what is published of it.
        status: as it is written: it remembers what was approved last.
    """
    if tool.spec.approval is not Approval.MANUAL:
        return None
    if not published.quarantined:
        return Cause(ConditionReason.APPROVED)
    end = remedy(published.tool_id)
    before = approvals.recalled(status.get("approvedDefinition"))
    if before is None:
        return Cause(ConditionReason.NEVER_APPROVED, f"Nobody has approved this tool.{end}")
    lines = approvals.differences(before, published)
    what = approvals.summary(lines, MAX_MESSAGE - len(end) - 32) or "the approval was withdrawn"
    return Cause(ConditionReason.DRIFTED, f"Changed since approval: {what}.{end}")


def fields(published: PublishedTool, approval: Cause | None, status: Status) -> dict[str, str | None]:
    """The fields of the status that go with it."""
    if approval is None:
        return {"approvalDigest": None, "approvedDefinition": None}
    good = approval.reason is ConditionReason.APPROVED
    kept = approvals.remembered(published) if good else status.get("approvedDefinition")
    return {"approvalDigest": published.approval_digest, "approvedDefinition": kept}
