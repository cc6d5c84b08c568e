"""What is odd about a binding that is accepted: things that somebody most likely did not mean.

They never change what it grants. The operator writes them as the condition `Questionable`, `toolcrib validate
--against-cluster` prints them before anything is applied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from toolcrib import authorizer
from toolcrib.lint.weaknesses import Weakness
from toolcrib.names import ToolPattern, covers
from toolcrib.resources.bindings import SubjectKind
from toolcrib.resources.conditions import ConditionReason, timestamp
from toolcrib.wire.publish import PublishedBinding, PublishedTool
from toolcrib_operator.kinds.verdicts import Cause

NONE = Cause(ConditionReason.NOTHING_ODD)


@dataclass(frozen=True, slots=True)
class Question:
    """One oddity: which field, and what about it."""

    reason: ConditionReason
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def questions(
    binding: PublishedBinding,
    tools: Iterable[PublishedTool],
    *,
    exists: Callable[[str], bool] | None,
    applied: float,
) -> tuple[Question, ...]:
    """Everything odd about a binding, what weighs most first.

    Args:
        binding: as it is published.
        tools: all tools of its territory, whatever their state.
        exists: whether there is a ServiceAccount `namespace/name`; None: nobody knows.
        applied: when this generation was applied, in seconds since the epoch.
    """
    tools = list(tools)
    return (
        *_expired(binding, applied),
        *_subjects(binding, exists),
        *_shadowed(binding, tools),
        *_idle(binding, tools),
        *_wild(binding),
    )


def summary(found: Sequence[Question | Weakness]) -> tuple[bool, Cause]:
    """The condition that tells of them: the reason of the first, all of them in the message."""
    if not found:
        return False, NONE
    return True, Cause(found[0].reason, "; ".join(map(str, found)))


def _expired(binding: PublishedBinding, applied: float) -> Iterator[Question]:
    end = binding.expires_at
    if end is not None and end <= applied:
        message = (
            f"{timestamp(end)} was already past when this was applied, so it grants nothing: set a later time"
        )
        yield Question(ConditionReason.EXPIRED_AT_APPLY, "spec.expiresAt", message)


def _subjects(binding: PublishedBinding, exists: Callable[[str], bool] | None) -> Iterator[Question]:
    for i, subject in enumerate(binding.subjects):
        if exists is None or subject.kind not in (SubjectKind.SERVICE_ACCOUNT, SubjectKind.AGENT):
            continue
        key = f"{subject.namespace}/{subject.name}"
        if not exists(key):
            whose = f" of Agent {key}" if subject.kind is SubjectKind.AGENT else ""
            message = f"there is no ServiceAccount {key}{whose}: create it, or correct the subject"
            yield Question(ConditionReason.SUBJECT_NOT_FOUND, f"spec.subjects[{i}]", message)


def _shadowed(binding: PublishedBinding, tools: list[PublishedTool]) -> Iterator[Question]:
    """A scope or an allow pattern of which nothing is left: a deny covers it, or denies every tool there is that it means."""
    if not binding.denies or not binding.scopes:
        return
    for i, scope in enumerate(binding.scopes):
        if scope in binding.deny_scopes:
            message = f"{scope!r} gives no tool: the binding's own denyScopes denies it: remove it from one of the two"
            yield Question(ConditionReason.SCOPE_SHADOWED, f"spec.scopes[{i}]", message)
    patterns = [(text, ToolPattern.parse(text)) for text in binding.deny]
    denials = authorizer.denials(binding)
    for i, text in enumerate(binding.allow or ()):
        pattern = ToolPattern.parse(text)
        cover = next((d for d, p in patterns if covers(p, pattern)), None)
        if cover is None:
            meant = [tool for tool in tools if _matches(pattern, tool)]
            if not meant or not all(any(True for _ in denials(tool)) for tool in meant):
                continue
        what = (
            f"its own deny {cover!r} covers it"
            if cover
            else "its own denials match every tool that it matches"
        )
        yield Question(
            ConditionReason.ALLOW_SHADOWED, f"spec.tools.allow[{i}]", f"{text!r} allows nothing: {what}"
        )


def fired(binding: PublishedBinding, tools: Iterable[PublishedTool]) -> frozenset[authorizer.Denial]:
    """The entries of a binding's denials that match one of `tools`, all of its reach."""
    tools = list(tools)
    named = ((text, ToolPattern.parse(text)) for text in binding.deny)
    found = {authorizer.Denial("deny", text) for text, p in named if any(_matches(p, t) for t in tools)}
    carried = {scope for tool in tools for scope in tool.scopes} if binding.deny_scopes else set()
    return frozenset(
        found | {authorizer.Denial("denyScopes", s) for s in binding.deny_scopes if s in carried}
    )


def _idle(binding: PublishedBinding, tools: list[PublishedTool]) -> Iterator[Question]:
    firing = fired(binding, tools)
    for field, entries in (("deny", binding.deny), ("denyScopes", binding.deny_scopes)):
        for i, text in enumerate(entries):
            if authorizer.Denial(field, text) not in firing:
                message = f"{text!r} matches no existing tool, so it denies nothing now: check the spelling"
                yield Question(ConditionReason.DENY_NEVER_FIRES, f"spec.tools.{field}[{i}]", message)


def _wild(binding: PublishedBinding) -> Iterator[Question]:
    for i, text in enumerate(binding.allow or ()):
        if binding.scopes and ("*" in text or "?" in text):
            message = f"{text!r} also allows tools that are created later"
            yield Question(ConditionReason.WILDCARD_ALLOW, f"spec.tools.allow[{i}]", message)


def _matches(pattern: ToolPattern, tool: PublishedTool) -> bool:
    return pattern.matches(namespace=tool.namespace, server=tool.server, name=tool.name)
