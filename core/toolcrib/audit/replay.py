"""Decides again what a decision log recorded, from the log alone: with the authorizer, and the policy that it states.

One `Replay` takes the records of one replica in their order, from the beginning of any file on:

    replay = Replay()
    for line in file: for judged in replay.take(json.loads(line)): ...

Limits and the state of backends are not replayed: a call that they ended is `allowed`, with what became of it in
`outcome`, and only what the authorizer decided is compared.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from toolcrib.audit import chain as audit_chain
from toolcrib.audit import policy_records
from toolcrib.audit.callers import identity_of
from toolcrib.audit.stated_policy import StatedPolicy
from toolcrib.authorizer import DECIDER_VERSION, Action, Decision, alternatives, decide
from toolcrib.identity import Identity
from toolcrib.snapshot import Snapshot
from toolcrib.view import View, shown, view_of
from toolcrib.wire.publish import PublishedTool

VIEWS = 256
"""That are remembered."""


class Why(StrEnum):
    """Why a record is not decided again."""

    NOT_DECIDED = "not_decided"
    """It has no `who`: a sum, a request that was refused before anything was decided, a call that was cut."""
    NO_POLICY = "no_policy"
    """Its policy is not stated before it: a part is missing, or it was decided before the file began."""
    NO_IDENTITY = "no_identity"
    """No record before it explains its `who`."""
    OTHER_DECIDER = "other_decider"
    """Another version of the authorizer decided it."""
    UNREADABLE = "unreadable"
    """It is not as this version writes records."""


class Decided(NamedTuple):
    """What a decision was made of: who asked, the policy in effect, and when (seconds since the epoch)."""

    identity: Identity
    snapshot: Snapshot
    now: float


class Judged(NamedTuple):
    """One decision of a record: equal to what is decided again, different, or not decided again (`why`).

    `of` is what it was decided of, where it is decided again. `recorded` and `found` are what is compared: of one tool
    whether it is allowed, the reason, the tool's digest and the binding's UID, generation and rule; of a view its digest.
    """

    record: Mapping[str, Any]
    tool: str | None = None
    why: Why | None = None
    recorded: tuple[Any, ...] = ()
    found: tuple[Any, ...] = ()
    of: Decided | None = None

    @property
    def equal(self) -> bool:
        """Whether it was decided again with the same result."""
        return self.why is None and self.recorded == self.found

    @property
    def different(self) -> bool:
        """Whether it was decided again with another result."""
        return self.why is None and self.recorded != self.found


class Replay:
    """The replay of one replica's log, in memory that does not grow with the number of its decisions."""

    def __init__(self) -> None:
        self._policy = StatedPolicy()
        self._callers: dict[str, tuple[Mapping[str, Any], Identity]] = {}
        self._last: tuple[str, int] | None = None
        self._views: OrderedDict[tuple[Any, int], tuple[Snapshot, float, View]] = OrderedDict()

    def take(self, record: Mapping[str, Any]) -> Iterator[Judged]:
        """The next record; what comes of each decision in it. The log's own records hold none."""
        self._follow(record)
        action = str(record.get("action"))
        try:
            if action == audit_chain.IDENTITY:
                self._callers[str(record["who"])] = record, identity_of(record)
            elif action.startswith(audit_chain.POLICY):
                if action == policy_records.START:
                    self._callers.clear()
                self._policy.take(record)
            elif action == audit_chain.BEGIN or (action == audit_chain.GAP and _lost_policy(record)):
                self._forget()
            elif not action.startswith(audit_chain.OWN):
                yield from self._decisions(record)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):
            if audit_chain.is_evidence(action):
                self._forget()
            else:
                yield Judged(record, why=Why.UNREADABLE)

    @property
    def policy(self) -> Snapshot | None:
        """The policy in effect after all records so far; None: not stated."""
        return self._policy.latest

    def _follow(self, record: Mapping[str, Any]) -> None:
        """What follows a missing line is not known until the policy is stated again."""
        chain, seq = record.get("chain"), record.get("seq")
        if not isinstance(chain, str) or not isinstance(seq, int):
            return
        if self._last is not None and (chain, seq) != (self._last[0], self._last[1] + 1):
            self._forget()
        self._last = chain, seq

    def _forget(self) -> None:
        self._policy.forget()
        self._callers.clear()

    def _decisions(self, record: Mapping[str, Any]) -> Iterator[Judged]:
        who = record.get("who")
        if who is None or "repeated" in record:
            yield Judged(record, why=Why.NOT_DECIDED)
            return
        snapshot = self._policy.at(str(record["revision"])) if self._policy.stated else None
        if snapshot is None:
            yield Judged(record, why=Why.NO_POLICY)
        elif self._policy.decider != DECIDER_VERSION:
            yield Judged(record, why=Why.OTHER_DECIDER)
        elif (caller := self._callers.get(str(who))) is None:
            yield Judged(record, why=Why.NO_IDENTITY)
        else:
            fields, identity = caller
            if (dates := record.get("token")) is not None:
                identity = identity_of(fields, dates)
            of = Decided(identity, snapshot, moment_of(record))
            if "view" in record:
                yield Judged(record, recorded=(record["view"],), found=(self._view(of).digest,), of=of)
            elif "tools" in record:
                yield from _loaded(record, of)
            else:
                yield _one(record, of)

    def _view(self, of: Decided) -> View:
        """What the caller saw; made once for as long as the clock alone changes nothing in it."""
        key = of.identity.cache_key, id(of.snapshot)
        known = self._views.get(key)
        if known is not None and known[0] is of.snapshot and known[1] <= of.now < known[2].valid_until:
            self._views.move_to_end(key)
            return known[2]
        view = view_of(of.identity, of.snapshot, of.now)
        self._views[key] = of.snapshot, of.now, view
        if len(self._views) > VIEWS:
            self._views.popitem(last=False)
        return view


def moment_of(record: Mapping[str, Any]) -> float:
    """When a record's decision was made, in seconds since the epoch: `after` milliseconds before `ts`."""
    written = datetime.fromisoformat(record["ts"])
    return (round(written.timestamp() * 1000) - int(record.get("after", 0))) / 1000


def _loaded(record: Mapping[str, Any], of: Decided) -> Iterator[Judged]:
    identity, snapshot, now = of
    for entry in record["tools"]:
        tool = snapshot.tools.get(entry["tool"])
        decision = decide(identity, tool, Action.LOAD, snapshot.policy, now)
        tool = _shown(of, tool, decision)
        binding = record["bindings"][entry["binding"]] if "binding" in entry else None
        recorded = _told(entry["allowed"], record["reason"], entry["digest"], binding)
        yield Judged(record, entry["tool"], recorded=recorded, found=_found(decision, tool), of=of)


def _one(record: Mapping[str, Any], of: Decided) -> Judged:
    identity, snapshot, now = of
    name, digest = record["tool"], record["digest"]
    cut = digest is None and name is not None and len(name) >= policy_records.LONGEST_NAME
    tool = None if cut or name is None else snapshot.governed(name)
    decision = decide(identity, tool, Action(record["action"]), snapshot.policy, now)
    binding = record["binding"]
    if record.get("charged") and tool is not None and binding is not None:
        # which of those that grant it had room is not replayed, but that this is one of them
        may = alternatives(identity, tool, snapshot.policy, now)
        decision = decision._replace(
            binding=next((b for group in may for b in group if b.uid == binding["uid"]), None)
        )
    tool = _shown(of, tool, decision)
    recorded = _told(record["allowed"], record["reason"], digest, binding)
    return Judged(record, name, recorded=recorded, found=_found(decision, tool), of=of)


def _shown(of: Decided, tool: PublishedTool | None, decision: Decision) -> PublishedTool | None:
    """What the caller was given: the record has its digest."""
    return shown(of.identity, tool, of.snapshot, of.now) if tool is not None and decision.allowed else tool


def _told(
    allowed: bool, reason: str, digest: str | None, binding: Mapping[str, Any] | None
) -> tuple[Any, ...]:
    by = () if binding is None else (binding["uid"], binding["generation"], binding.get("rule"))
    return allowed, reason, digest, *by


def _found(decision: Decision, tool: PublishedTool | None) -> tuple[Any, ...]:
    b = decision.binding
    rule = None if decision.denial is None else str(decision.denial)
    by = () if b is None else (b.uid, b.generation, rule)
    return decision.allowed, decision.reason.value, None if tool is None else tool.digest, *by


def _lost_policy(record: Mapping[str, Any]) -> bool:
    return any(entry["action"] == audit_chain.LOST_POLICY for entry in record["lost"])
