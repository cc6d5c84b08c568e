"""The decision log as the registry's other parts see it: what is recorded of what is asked.

A list or a search is one record (counts, revision, digest of the view); describe and call are one record a tool
named, and a load is one with all tools that it gives out. What is refused, and what one caller does again and again, is
folded (`folding`). In the mode `strict` a call's record stands on the disk before the call is made.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from enum import StrEnum
from functools import partial
from typing import Any, Literal

from toolcrib.audit import chain as audit_chain
from toolcrib.audit import redaction
from toolcrib.audit.chain import NO_KEY, AuditKey
from toolcrib.audit.policy_records import LONGEST_NAME
from toolcrib.authorizer import Action, Decision, Reason
from toolcrib.identity import Identity
from toolcrib.snapshot import Snapshot
from toolcrib.telemetry import logs
from toolcrib.telemetry.batch import Batch
from toolcrib.wire.publish import AuditHead, PublishedTool
from toolcrib_registry.audit import loads
from toolcrib_registry.audit.basis import Basis, evidence, evidence_of_view
from toolcrib_registry.audit.folding import Folding, Key, Record
from toolcrib_registry.audit.request import LONGEST, TOKEN, known, stamped
from toolcrib_registry.audit.writer import Durable, Writer
from toolcrib_registry.clock import Clock, whole_milliseconds
from toolcrib_registry.policy.state import CallerView

log = logging.getLogger(__name__)

PLAIN_BYTES = 4 * 1024
"""Arguments larger than this are recorded as their hash and size even where they are recorded plain."""
READS = 600
"""Lists, searches and the like of one caller and kind that are written one by one in a minute; the rest is counted."""


class OtherAction(StrEnum):
    """What callers do besides `Action`: the authorizer decides nothing about it, and the log has a word for it."""

    REGISTER = "register"
    ACCESS_REVIEW = "access-review"
    ACCESS_REQUEST = "access-request"
    MCP = "mcp"  # a message that was refused before its method was read
    ADMIN = "admin"


class AuditUnavailable(Exception):
    """The record of a call could not be made durable in time: the call must not be made."""


class DecisionLog:
    """What is recorded. Without a writer it does nothing.

    Args:
        clock: gives `ts`.
        writer: chains and writes; None: no log.
        key: hashes arguments.
        arguments: how a call's arguments are recorded.
        strict: calls wait for their record.
        strict_seconds: how long.
        refusals, reads: fold what repeats.
    """

    def __init__(
        self,
        clock: Clock,
        writer: Writer | None = None,
        *,
        key: AuditKey = NO_KEY,
        arguments: Literal["hash", "omit", "plain"] = "hash",
        strict: bool = False,
        strict_seconds: float = 2.0,
        refusals: Folding | None = None,
        reads: Folding | None = None,
    ) -> None:
        self._clock, self._writer = clock, writer
        self._key, self._arguments = key, arguments
        self._strict, self._strict_seconds = strict, strict_seconds
        self._refusals = refusals or Folding()
        self._reads = reads or Folding(keys=20_000, fold=False)
        self._later = Batch(_call_all)
        self._trouble = logs.Trouble(log)

    @property
    def enabled(self) -> bool:
        """Whether records go anywhere."""
        return self._writer is not None

    @property
    def strict(self) -> bool:
        """Whether a call waits for its record (`begun`)."""
        return self._strict and self._writer is not None

    @property
    def head(self) -> AuditHead | None:
        """The last record on the disk: what the operator keeps where the registry cannot write."""
        head = self._writer.head if self._writer is not None else None
        return None if head is None else AuditHead(chain=head.chain, seq=head.seq, hash=head.hash)

    def later(self, record: Callable[[], None]) -> None:
        """Call `record` in a moment, in this context: it records what is over.

        What is recorded otherwise, and a change of policy, comes after it. If it fails, that is logged and counted as a loss.
        """
        if self._writer is not None:
            self._later.add(partial(copy_context().run, self._attempt, record))

    def listed(
        self, action: Action, caller_view: CallerView, *, found: int | None = None, mode: str | None = None
    ) -> None:
        """A list or search was answered."""
        if self._writer is None:
            return
        identity = caller_view.identity
        if identity is None:
            seen = bool(caller_view.view.tools)
            asker, reason = known(None, (Reason.ANONYMOUS_LIST if seen else Reason.NO_IDENTITY).value)
            self._folded(self._common(action, asker) | {"allowed": seen, "reason": reason}, asker, {})
            return
        common = self._common(action, identity)
        fields = {
            "count": len(caller_view.view.tools) if found is None else found,
            "view": caller_view.view.digest,
            "revision": str(caller_view.snapshot.revision or ""),
            **({"mode": mode} if mode else {}),
            **evidence_of_view(caller_view, common["ts"]),
        }
        self._read(common, identity, fields)

    def decided(
        self,
        action: Action | OtherAction,
        identity: Identity | None,
        name: str,
        tool: PublishedTool | None,
        decision: Decision,
        revision: str,
        *,
        outcome: str | None = None,
        question: str | None = None,
        arguments: dict[str, Any] | None = None,
        seconds: float | None = None,
        at: float | None = None,
        basis: Basis | None = None,
        fallback_for: str | None = None,
        confirmation: Mapping[str, str] | None = None,
    ) -> None:
        """One tool was named: what was decided and, for a call, how it ended, how long it took and whose confirmation it had.

        `question` is the kind of an access review that was answered; `at` when it was decided or, for a call, when it ended, if not now. `basis` is
        what the authorizer decided by; None: it cannot be decided again. `fallback_for` is the id of the tool that was named.
        """
        if self._writer is None:
            return
        named = self._named(identity, name, tool, decision, revision)
        moment = whole_milliseconds(self._clock.now() if at is None else at)
        named |= evidence(basis, moment)
        if identity is None or (not decision.allowed and outcome is None):
            asker, named["reason"] = known(identity, named["reason"])
            common = self._common(action, asker, moment)
            record = common | {k: named.pop(k) for k in ("tool", "allowed", "reason")}
            # by the name that was asked for: how many records there are does not tell two names of a hidden tool
            self._folded(record, asker, named, identity and name[:LONGEST_NAME])
            return
        common = self._common(action, identity, moment)
        fields = named | ({"fallback_for": fallback_for} if fallback_for else {})
        if outcome:
            fields["outcome"] = outcome
        if question is not None:
            fields["question"] = question
        if seconds is not None:
            fields["ms"] = round(seconds * 1000, 3)
        if arguments is not None:
            fields |= self._shown(arguments, tool)
        fields |= confirmation or {}
        if action is Action.CALL:
            if self._strict:
                fields["phase"] = "end"
            if outcome == "ok":
                self._put(common | fields)
            else:
                self._read(common | {"outcome": outcome}, identity, fields)
        else:
            self._read(common, identity, fields)

    def loaded(
        self,
        caller_view: CallerView,
        found: Sequence[tuple[PublishedTool, Decision]],
        at: float | None = None,
    ) -> None:
        """Definitions of these tools, all granted, were given out: one record, or as many as `loads.BYTES` make of it.

        `at` is when all of them were decided, by the snapshot of `caller_view`.
        """
        if self._writer is None or not found:
            return
        identity, (_, first) = caller_view.identity, found[0]
        common = self._common(Action.LOAD, identity)
        if identity is None:
            self._folded(common | {"allowed": True, "reason": first.reason.value}, None, {})
            return
        revision = str(caller_view.snapshot.revision or "")
        basis = None if at is None else Basis(caller_view, at)
        for tools, bindings in loads.shares(found):
            fields = {
                "allowed": True,
                "reason": first.reason.value,
                "tools": tools,
                "bindings": bindings,
                "revision": revision,
                "outcome": "ok",
                **evidence(basis, common["ts"]),
            }
            self._read(common, identity, fields)

    def refused(
        self,
        action: Action | OtherAction,
        reason: str,
        identity: Identity | None = None,
        name: str | None = None,
    ) -> None:
        """A request was refused before anything was decided: nobody valid asked, or the name meant several tools."""
        if self._writer is None:
            return
        identity, reason = known(identity, reason)
        record = self._common(action, identity) | {
            "tool": name and name[:LONGEST_NAME],
            "allowed": False,
            "reason": reason,
        }
        self._folded(record, identity, {})

    async def begun(
        self,
        identity: Identity,
        tool: PublishedTool,
        decision: Decision,
        revision: str,
        arguments: dict[str, Any],
        basis: Basis | None = None,
        fallback_for: str | None = None,
    ) -> None:
        """In the mode `strict`: return once the record of a call that is about to be made is on the disk.

        Raises:
            AuditUnavailable: it is not, in time; the call must not be made.
        """
        if self._writer is None or not self._strict:
            return
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def durable() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(_set, done)

        record = self._common(Action.CALL, identity)
        record |= self._named(identity, "", tool, decision, revision) | evidence(basis, record["ts"])
        record |= self._shown(arguments, tool) | {"phase": "begin"}
        record |= {"fallback_for": fallback_for} if fallback_for else {}
        try:
            if self._writer.stuck(self._strict_seconds) or not self._put(record, durable):
                raise AuditUnavailable
            async with asyncio.timeout(self._strict_seconds):
                await done
        except (AuditUnavailable, TimeoutError):
            self._trouble.failed(
                "refusing calls: their decision records cannot be written", level=logging.ERROR
            )
            raise AuditUnavailable from None
        self._trouble.over("decision records can be written again: calls are allowed")

    def policy_changed(self, snapshot: Snapshot) -> None:
        """What follows is decided by `snapshot`."""
        if self._writer is not None:
            self._later.flush()
            self._writer.state(snapshot)

    def due(self, everything: bool = False) -> list[Record]:
        """Sums of what was folded, for the writer."""
        now = self._clock.elapsed()
        return [*self._refusals.due(now, everything=everything), *self._reads.due(now, everything=everything)]

    def attach(self, writer: Writer) -> None:
        """Write to it from now on; it asks for `due`."""
        self._writer = writer

    def close(self) -> None:
        """Write what waits and the end of the chain."""
        if self._writer is not None:
            self._later.flush()
            writer, self._writer = self._writer, None
            writer.close()

    def _common(
        self, action: Action | OtherAction, identity: Identity | None, at: float | None = None
    ) -> Record:
        assert self._writer is not None
        record = {
            "ts": whole_milliseconds(self._clock.now()) if at is None else at,
            "replica": self._writer.replica,
            "action": action.value,
        }
        if identity is None:
            return record | {"issuer": None, "subject": None}
        record["issuer"], record["subject"] = identity.issuer[:LONGEST], identity.subject[:LONGEST]
        if identity.client:
            record["client"] = identity.client[:LONGEST]
        return record

    def _named(
        self,
        identity: Identity | None,
        name: str,
        tool: PublishedTool | None,
        decision: Decision,
        revision: str,
    ) -> Record:
        binding = decision.binding
        if identity is None:  # anybody could try any name: none is told apart
            name, tool = "", None
        rule = {} if decision.denial is None else {"rule": str(decision.denial)}
        return {
            "tool": tool.tool_id if tool else name[:LONGEST_NAME] or None,
            "allowed": decision.allowed,
            "reason": decision.reason.value,
            "digest": tool.digest if tool else None,
            "binding": {"ref": binding.ref, "uid": binding.uid, "generation": binding.generation, **rule}
            if binding
            else None,
            "revision": revision,
        }

    def _shown(self, arguments: dict[str, Any], tool: PublishedTool | None) -> Record:
        if self._arguments == "omit":
            return {}
        text = audit_chain.canonical(arguments)
        if self._arguments == "plain" and len(text) <= PLAIN_BYTES:
            return {"arguments": redaction.redacted(arguments, tool and tool.input_schema)}
        made = self._key.arguments(text)
        shown: Record = {} if made is None else {"arguments_hash": made}
        return shown | ({"arguments_bytes": len(text)} if self._arguments == "plain" else {})

    def _folded(
        self, record: Record, identity: Identity | None, details: Record, asked: object = None
    ) -> None:
        """The first one of a token at once with its details, the rest as a sum."""
        if token := TOKEN.get():
            record["jti"] = token[:LONGEST]
        key: Key = (record["action"], asked or record.get("tool"), record["reason"], token)
        if self._refusals.admit(key, _caller(identity), record | details, self._clock.elapsed()):
            self._put(record | details)

    def _read(self, record: Record, identity: Identity | None, details: Record) -> None:
        """One by one up to a number, the rest as a sum."""
        key: Key = (record["action"], record.get("outcome"))
        if self._reads.admit(key, _caller(identity), record, self._clock.elapsed(), least=READS):
            self._put(record | details)

    def _attempt(self, record: Callable[[], None]) -> None:
        try:
            record()
        except Exception:  # the others' turn comes all the same
            log.exception("a call could not be recorded")
            if self._writer is not None:
                lost = {"ts": self._clock.now(), "action": Action.CALL.value}
                self._writer.lose(lost, "not_recorded")

    def _put(self, record: Record, durable: Durable | None = None) -> bool:
        assert self._writer is not None
        self._later.flush()
        return self._writer.put(stamped(record), durable)


def _call_all(records: list[Callable[[], None]]) -> None:
    for record in records:
        record()


def _caller(identity: Identity | None) -> Key:
    if identity is None:
        return ()
    return identity.issuer, identity.subject, identity.client


def _set(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
