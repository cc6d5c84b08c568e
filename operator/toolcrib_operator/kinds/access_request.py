"""AccessRequests: what an agent asks for, what became of it, and when one is over. Pure; nothing of one is published.

A binding of the same name that gives the subject the tool approves it. Whether its author may write that is for the
admission policies to say, as of every grant.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from toolcrib.resources import durations
from toolcrib.resources.access_requests import (
    ENABLED,
    KEPT_SECONDS,
    LONGEST_SECONDS,
    MOST_REASON,
    OPEN_ALL,
    OPEN_EACH,
    OPEN_TENANT,
    REJECTED,
    AccessRequest,
)
from toolcrib.resources.bindings import AgentScopeBinding, Subject
from toolcrib.resources.conditions import ConditionReason
from toolcrib.resources.tools import ToolState
from toolcrib.text import escape
from toolcrib.wire.publish import PublishedTool
from toolcrib_operator.kinds import statuses
from toolcrib_operator.kinds.accounts import SERVICE_ACCOUNT
from toolcrib_operator.kinds.facts import BINDINGS, Facts
from toolcrib_operator.kinds.kind import Governed, Situation
from toolcrib_operator.kinds.namespace import NAMESPACE
from toolcrib_operator.kinds.records import Record
from toolcrib_operator.kinds.statuses import Desired, Status, status
from toolcrib_operator.kinds.verdicts import Cause, Verdict, invalid
from toolcrib_operator.objects import Entry, Objects, Ref

ACCESS_REQUEST = "AccessRequest"
DECIDED = "Decided"
_BINDING = "AgentScopeBinding"


class AccessRequestKind(Governed):
    """AccessRequests. Their status says what was decided."""

    name = ACCESS_REQUEST
    plural = "accessrequests"
    slot = BINDINGS

    def read(self, manifest: Mapping[str, Any], *, condense: bool = True) -> Entry:
        """With the annotation that rejects it."""
        why = ((manifest.get("metadata") or {}).get("annotations") or {}).get(REJECTED)
        entry = super().read(manifest, condense=condense)
        return entry if why is None else replace(entry, body={REJECTED: str(why)})

    def keys(self, entry: Entry) -> Sequence[Hashable]:
        """The binding that would approve it."""
        return (Ref(_BINDING, entry.ref.key),)

    def assess(self, entry: Entry, record: Record, facts: Facts) -> Verdict:
        """It publishes nothing."""
        return Verdict(None, None if entry.resource is not None else invalid(entry.findings))

    def status(self, entry: Entry, record: Record, situation: Situation, now: float) -> Desired:
        """Decided: by whom is for the API server's audit log to say."""
        assert isinstance(record.verdict, Verdict)
        cause = record.verdict.refusal or decision(entry, situation.facts.objects)
        decided = cause.reason in (ConditionReason.ACCESS_APPROVED, ConditionReason.ACCESS_REJECTED)
        return Desired(status(entry, [(DECIDED, decided, cause)], now))

    def announced(self, before: Status, after: Status) -> list[dict[str, Any]]:
        """That it waits, and what was decided."""
        return statuses.transitions(before, after)


def decision(entry: Entry, objects: Objects) -> Cause:
    """What became of a request. An approval stays one after its end."""
    request = entry.resource
    assert isinstance(request, AccessRequest)
    bound = objects.get(Ref(_BINDING, entry.ref.key))
    if (bound is not None and _answers(bound, request)) or _was(entry, ConditionReason.ACCESS_APPROVED):
        return Cause(ConditionReason.ACCESS_APPROVED)
    if (why := entry.body.get(REJECTED)) is not None:
        return Cause(ConditionReason.ACCESS_REJECTED, escape(why[:MOST_REASON]))
    return Cause(ConditionReason.ACCESS_REQUESTED)


def is_open(entry: Entry, objects: Objects) -> bool:
    """Whether somebody has still to decide."""
    if entry.deleting is not None or not isinstance(entry.resource, AccessRequest):
        return False
    return decision(entry, objects).reason is ConditionReason.ACCESS_REQUESTED


def tool_asked(tool_id: str, tools: Any, objects: Objects) -> PublishedTool | None:
    """The tool, if it is used and its namespace lets it be asked for; None where nothing may be told of it.

    Args:
        tool_id: what was asked for.
        tools: those that are published, by id.
        objects: the namespaces.
    """
    found: PublishedTool | None = tools.get(tool_id)
    if found is None or found.quarantined or found.state is ToolState.DISABLED:
        return None
    label, value = ENABLED
    namespace = objects.get(Ref(NAMESPACE, found.namespace))
    if namespace is None or namespace.deleting is not None or namespace.labels.get(label) != value:
        return None
    return found


def same(tool: str, subject: Subject, namespace: str, objects: Objects) -> Entry | None:
    """The open request of this subject for this tool, if there is one."""
    wanted = tool, subject
    mine = (e for e in _in(namespace, objects) if (_request(e).spec.tool, _request(e).spec.subject) == wanted)
    return next((e for e in mine if is_open(e, objects)), None)


def refusal(subject: Subject, namespace: str, objects: Objects) -> str | None:
    """Say why one more request would be too many; None: it is not.

    The subject's count in all namespaces, all others in this one. A tenant has at most as many as are still free.
    """
    mine = sum(is_open(e, objects) for e in _valid(objects) if _request(e).spec.subject == subject)
    if mine >= OPEN_EACH:
        return (
            f"You have {mine} open access requests, as many as one agent may. Ask again once one is decided."
        )
    tenants = [_request(e).spec.subject.tenant for e in _in(namespace, objects) if is_open(e, objects)]
    free = OPEN_ALL - len(tenants)
    if free <= 0:
        return f"{namespace} has {OPEN_ALL} open access requests. Ask again once people have decided some."
    if tenants.count(subject.tenant) >= min(OPEN_TENANT, free):
        whose = f"issuer {subject.issuer}" if subject.namespace is None else f"namespace {subject.namespace}"
        return (
            f"Agents of your {whose} have as many open access requests in {namespace} as they may. Ask again once "
            "people have decided some."
        )
    return None


def is_over(entry: Entry, objects: Objects, now: float) -> bool:
    """Whether it is to be deleted: after its time, unless its approval still runs, or because its account is gone."""
    if entry.deleting is not None:
        return False
    request = entry.resource
    age = now - durations.instant(entry.created) if entry.created else 0.0
    if not isinstance(request, AccessRequest) or age > KEPT_SECONDS + LONGEST_SECONDS:
        return age > KEPT_SECONDS
    if _is_gone(request, objects):
        return True
    bound = objects.get(Ref(_BINDING, entry.ref.key))
    return age > KEPT_SECONDS and (bound is None or not _runs(bound, now))


def _is_gone(request: AccessRequest, objects: Objects) -> bool:
    """Whether the ServiceAccount that asked was deleted, or is another one by now."""
    uid, subject = request.spec.account_uid, request.spec.subject
    if uid is None:
        return False
    account = objects.get(Ref(SERVICE_ACCOUNT, f"{subject.namespace}/{subject.name}"))
    return account is None or account.uid != uid


def _answers(bound: Entry, request: AccessRequest) -> bool:
    binding = bound.resource
    if bound.deleting is not None or not isinstance(binding, AgentScopeBinding):
        return False
    return binding.spec.subjects == (request.spec.subject,) and binding.spec.scopes is not None


def _runs(bound: Entry, now: float) -> bool:
    binding = bound.resource
    if not isinstance(binding, AgentScopeBinding) or binding.spec.expires_at is None:
        return False
    return durations.instant(binding.spec.expires_at) > now


def _was(entry: Entry, reason: ConditionReason) -> bool:
    said = statuses.condition(entry.status, DECIDED)
    return said is not None and said.get("reason") == reason


def _valid(objects: Objects) -> Iterable[Entry]:
    found = (e for e in objects.all(ACCESS_REQUEST) if e.deleting is None)
    return (e for e in found if isinstance(e.resource, AccessRequest))


def _in(namespace: str, objects: Objects) -> Iterable[Entry]:
    return (e for e in _valid(objects) if e.ref.namespace == namespace)


def _request(entry: Entry) -> AccessRequest:
    assert isinstance(entry.resource, AccessRequest)
    return entry.resource


ACCESS_REQUEST_KIND = AccessRequestKind()
