"""The condition Drifted of a ToolServer: which of its tools are quarantined, and how the first of them differs."""

from __future__ import annotations

from collections.abc import Iterable

from toolcrib.resources.conditions import MAX_MESSAGE, ConditionReason
from toolcrib.text import truncate
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


def _waiting(server: Ref, facts: Facts) -> Iterable[tuple[Ref, Cause]]:
    for ref in facts.links.of(server):
        record = facts.records.get(ref)
        verdict = None if record is None else record.verdict
        if not isinstance(verdict, ToolVerdict) or verdict.published is None or verdict.approval is None:
            continue
        if verdict.approval.reason is not ConditionReason.APPROVED:
            yield ref, verdict.approval
