"""Whether a binding's author was asked for his rights: the admission policies are in place, or were when it was written.

Nobody can ask afterwards who wrote a spec. So a grant that is first seen while the policies are missing or altered is
refused, and stays so until its spec is written anew; one that was in force before stays in force. What the policies are
like is known from looks at them that began after the grant was seen: until one has an answer the grant waits, and gives
nothing that was not in force before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from toolcrib.resources import admission
from toolcrib.resources.conditions import ConditionReason
from toolcrib.wire.publish import PublishedBinding
from toolcrib_operator.kinds import statuses
from toolcrib_operator.kinds.verdicts import BindingVerdict, Cause
from toolcrib_operator.world import Entry, Ref

Found = Iterable[Mapping[str, Any]]
UNKNOWN = "the admission policies have not been read yet"


class _Waiting(NamedTuple):
    """A generation of a binding that waits for a look at the policies."""

    uid: str
    generation: int
    begun: int
    """The last look that had begun when it was noticed."""
    seen: str | None
    """The policies as they had been seen then."""


class Admitted:
    """Which bindings were written under the eyes of the policies. `problem` says what is wrong with these now.

    With `external` something else checks who may write grants, and every binding counts as checked. Otherwise looks at
    the policies are counted: `begun` so far, and `answered` the last of them that told what `problem` says. `seen` names
    the policies as the last one found them, but those that were just put back only once they are in force; None: they
    were not read yet.
    """

    def __init__(self, *, external: bool = True) -> None:
        self.external = external
        self.problem: str | None = None if external else UNKNOWN
        self.begun = self.answered = 0
        self.seen: str | None = None
        self._waiting: dict[Ref, _Waiting] = {}
        self._admitted: dict[Ref, tuple[str, int]] = {}
        self._refused: dict[Ref, tuple[str, int, Cause]] = {}

    def decided(self, entry: Entry) -> bool:
        """Whether what the policies are like now makes no difference to this generation of a binding."""
        at = (entry.uid, entry.generation)
        if self.external or self._admitted.get(entry.ref) == at or self._refused.get(entry.ref, ())[:2] == at:
            return True
        return (
            statuses.holds(entry.status, "Accepted", generation=entry.generation)
            or _refusal(entry) is not None
        )

    def notice(self, entry: Entry) -> None:
        """A binding that is not decided is there: only a look that begins from now on can decide it."""
        if self._waiting.get(entry.ref, ())[:2] != (entry.uid, entry.generation):
            self._waiting[entry.ref] = _Waiting(entry.uid, entry.generation, self.begun, self.seen)

    def ripe(self) -> set[Ref]:
        """Those that waited and can be decided now."""
        return {ref for ref, waiting in self._waiting.items() if self.answered > waiting.begun}

    def judge(
        self, entry: Entry, verdict: BindingVerdict, before: PublishedBinding | None = None
    ) -> BindingVerdict:
        """The verdict, or the refusal of a grant that nobody checked, or not yet: what it denies stays denied.

        Args:
            entry: the binding.
            verdict: what is to become of it if its author was asked for his rights.
            before: as it is in force; an edit that waits takes away at once what it takes away.
        """
        problem = self._refuses(entry)
        if problem is None:
            return verdict
        published = verdict.published
        if published is not None:
            unread = problem.reason is ConditionReason.ADMISSION_POLICY_UNREAD
            same = before is not None and before.uid == published.uid
            published = _meanwhile(before, published) if unread and before and same else _denials(published)
        return BindingVerdict(published, problem)

    def forget(self, ref: Ref) -> None:
        """The object is gone."""
        self._admitted.pop(ref, None)
        self._refused.pop(ref, None)
        self._waiting.pop(ref, None)

    def _refuses(self, entry: Entry) -> Cause | None:
        if self.external:
            return None
        at = (entry.uid, entry.generation)
        if self._admitted.get(entry.ref) == at:
            return None
        before = self._refused.get(entry.ref)
        if before is not None and before[:2] == at:
            return before[2]
        problem = None
        if not statuses.holds(entry.status, "Accepted", generation=entry.generation):
            problem = _refusal(entry) or self._waits(entry)
            if problem is not None and problem.reason is ConditionReason.ADMISSION_POLICY_UNREAD:
                return problem
            if problem is None and self.problem is not None:
                problem = Cause(ConditionReason.ADMISSION_POLICY_MISSING, _message(self.problem))
        self.forget(entry.ref)
        if problem is None:
            self._admitted[entry.ref] = at
        else:
            self._refused[entry.ref] = (*at, problem)
        return problem

    def _waits(self, entry: Entry) -> Cause | None:
        """That it waits for a look; or that the policies were others when it began to wait, maybe under another leader."""
        seen = _seen(entry)
        if seen is not None and seen != self.seen:
            if self.seen is None:
                self._waiting[entry.ref] = _Waiting(entry.uid, entry.generation, self.begun, None)
                return _waiting(seen)
            changed = "the admission policies could not be read, and were others when they could"
            return Cause(ConditionReason.ADMISSION_POLICY_MISSING, _message(changed))
        self.notice(entry)
        waiting = self._waiting[entry.ref]
        if self.answered <= waiting.begun:
            return _waiting(waiting.seen or "")
        if self.problem is None and waiting.seen is not None and waiting.seen != self.seen:
            early = "the admission policies had just been put back or changed, and were not in force yet"
            return Cause(ConditionReason.ADMISSION_POLICY_MISSING, _message(early))
        return None


def _denials(item: PublishedBinding) -> PublishedBinding | None:
    """What it denies, and no grant."""
    return item.model_copy(update={"scopes": (), "allow": None}) if item.denies else None


def _meanwhile(before: PublishedBinding, after: PublishedBinding) -> PublishedBinding | None:
    """What holds of an edit that waits: what it takes away, and all denials of before and of now, for whom either is.

    Its scopes are those that both grant where nothing but scopes and denials differs; else none.
    """
    old = {
        "generation": before.generation,
        "scopes": before.scopes,
        "deny": before.deny,
        "deny_scopes": before.deny_scopes,
    }
    same = after.model_copy(update=old) == before
    both = {
        "subjects": _union(before.subjects, after.subjects),
        "namespaces": None
        if before.namespaces is None or after.namespaces is None
        else _union(before.namespaces, after.namespaces),
        "scopes": tuple(scope for scope in after.scopes if same and scope in before.scopes),
        "deny": _union(before.deny, after.deny),
        "deny_scopes": _union(before.deny_scopes, after.deny_scopes),
    }
    held = after.model_copy(update=both)
    return held if held.scopes else _denials(held)


_T = TypeVar("_T")


def _union(one: Iterable[_T], other: Iterable[_T]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys((*one, *other)))


def obstacle(found: Found, account: str | None) -> str | None:
    """What is wrong with the policies and their bindings as the cluster has them; None if nothing is.

    Args:
        found: those that are labelled as ours, whatever their names.
        account: the operator's user name; the policies of `crds/`, which know its name alone, will do as well.
    """
    have = {(m["kind"], m["metadata"]["name"]): m.get("spec") or {} for m in found}
    accounts = [None] if account is None else [account, None]
    wanted = [admission.guarding(each) for each in accounts]
    for kind, name in wanted[0]:
        if (kind, name) not in have:
            return f"{kind} {name} is missing"
        at = [differs(specs[kind, name], have[kind, name]) for specs in wanted]
        if None not in at:
            return f"{kind} {name} was altered: {at[0]}"
    return None


_KNOWN = frozenset({
    "apiGroups", "apiVersions", "auditAnnotations", "excludeResourceRules", "expression", "failurePolicy", "matchConditions",
    "matchConstraints", "matchPolicy", "matchResources", "message", "messageExpression", "name", "namespaceSelector",
    "objectSelector", "operations", "paramKind", "paramRef", "policyName", "reason", "resourceNames", "resourceRules",
    "resources", "scope", "validationActions", "validations", "variables",
})  # fmt: skip


def differs(wanted: Any, found: Any, path: str = "spec") -> str | None:
    """Where a spec of the cluster says something else than ours, or None.

    Empty values are absent ones. A field that no API server of today knows is a default of a later one; each that we
    know has to be as we wrote it.
    """
    if wanted and isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for key in sorted({*wanted, *(k for k in found if k in _KNOWN)}):
            at = differs(wanted.get(key), found.get(key), f"{path}.{key}")
            if at is not None:
                return at
        return None
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        pairs = (differs(w, f, f"{path}[{i}]") for i, (w, f) in enumerate(zip(wanted, found, strict=True)))
        return next((at for at in pairs if at is not None), None)
    return None if (wanted or None) == (found or None) else path


def _refusal(entry: Entry) -> Cause | None:
    """That this generation was refused for want of the policies, by its status."""
    refused = ("Accepted", "False", ConditionReason.ADMISSION_POLICY_MISSING.value, entry.generation)
    for c in entry.status.get("conditions") or ():
        if (c.get("type"), c.get("status"), c.get("reason"), c.get("observedGeneration")) == refused:
            return Cause(ConditionReason.ADMISSION_POLICY_MISSING, c.get("message") or "")
    return None


def _waiting(seen: str) -> Cause:
    """It names the policies that were seen last: a leader who takes over knows whether they are still the same."""
    return Cause(
        ConditionReason.ADMISSION_POLICY_UNREAD,
        f"It waits: since it was written the admission policies (last seen: {seen or 'never'}) could not be read. It is"
        " used, or refused, once they are; nothing needs to be done unless this lasts.",
    )


def _seen(entry: Entry) -> str | None:
    """The policies that were seen last when this generation began to wait, by its status; None: it does not wait."""
    waits = ("Accepted", "False", ConditionReason.ADMISSION_POLICY_UNREAD.value, entry.generation)
    for c in entry.status.get("conditions") or ():
        if (c.get("type"), c.get("status"), c.get("reason"), c.get("observedGeneration")) == waits:
            named = re.search(r"last seen: ([0-9a-f]+)\)", c.get("message") or "")
            return named[1] if named else ""
    return None


def _message(problem: str) -> str:
    return (
        f"Nobody checked whether its author may grant this. When it was written: {problem}."
        " With the policies in place (kubectl apply -f crds/, or helm upgrade), write it anew:"
        " change its spec, or delete it and apply it again."
    )
