"""What a ToolCanary offers in the place of a tool: whether it may be served, and what is published of it."""

from __future__ import annotations

from collections.abc import Callable

from toolcrib import publishing
from toolcrib.lint import hidden_text
from toolcrib.lint.hidden_text import Hidden
from toolcrib.resources.conditions import ConditionReason
from toolcrib.resources.tools import Approval, Tool
from toolcrib.wire.publish import Candidate, PublishedTool
from toolcrib_operator.kinds.facts import Facts
from toolcrib_operator.kinds.quotas import TOOL
from toolcrib_operator.kinds.trials import CANARY, canary_of
from toolcrib_operator.kinds.verdicts import Cause, Tried
from toolcrib_operator.objects import Entry, Ref


def tried(
    tool: Tool, published: PublishedTool, facts: Facts, published_of: Callable[[Ref], PublishedTool | None]
) -> Tried | None:
    """The trial of a tool; None: no canary names it.

    Args:
        tool: the object.
        published: what is published of it.
        facts: of its canaries.
        published_of: what is published of another Tool; None: nothing.
    """
    namespace = published.namespace
    ref = Ref(TOOL, f"{namespace}/{tool.metadata.name}")
    canaries = [
        entry
        for other in facts.links.of(ref)
        if other.kind == CANARY and (entry := facts.objects.get(other)) is not None and entry.deleting is None
        and (canary := canary_of(entry)) is not None and canary.spec.tool == tool.metadata.name
    ]  # fmt: skip
    if not canaries:
        return None
    entry = min(canaries, key=lambda e: (e.created, e.uid, e.ref.key))
    return _judged(entry, tool, published, facts, published_of)


def _judged(
    entry: Entry,
    tool: Tool,
    published: PublishedTool,
    facts: Facts,
    published_of: Callable[[Ref], PublishedTool | None],
) -> Tried:
    canary = canary_of(entry)
    assert canary is not None
    spec, replacement = canary.spec, None
    if facts.settings.hidden_text is Hidden.REFUSE and (found := list(hidden_text.places(spec.candidate))):
        message = hidden_text.message(found).replace("spec.", "spec.candidate.")
        return Tried(entry.ref, refusal=Cause(ConditionReason.HIDDEN_TEXT, message))
    if (name := spec.candidate.replacement) is not None:
        other = Ref(TOOL, f"{published.namespace}/{name}")
        replacement = published_of(other)
        if replacement is None or not replacement.active:
            message = f"the replacement {other.key} does not exist, or agents may not use it"
            return Tried(entry.ref, refusal=Cause(ConditionReason.TOOL_MISSING, message))
    made = publishing.candidate(published, canary, replacement)
    same = (made.tool.digest, made.tool.route_digest) == (published.digest, published.route_digest)
    if same:
        return Tried(entry.ref, refusal=Cause(ConditionReason.NOTHING_TO_TRY))
    approval = None
    if tool.spec.approval is Approval.MANUAL:
        approval = Cause(ConditionReason.APPROVED)
        if spec.approved_digest != made.tool.approval_digest:
            approval = Cause(
                ConditionReason.NEVER_APPROVED,
                "Nobody has approved this candidate. To use it, set spec.approvedDigest to status.approvalDigest.",
            )
    return Tried(entry.ref, made=made, approval=approval)


def served(found: Tried | None, facts: Facts) -> Candidate | None:
    """What is published of it: nothing that is not approved, and nothing of a trial that is over."""
    if found is None or found.made is None:
        return None
    if found.approval is not None and found.approval.reason is not ConditionReason.APPROVED:
        return None
    entry = facts.objects.get(found.canary)
    return None if entry is None or facts.trials.of(entry).over else found.made
