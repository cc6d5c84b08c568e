"""Calls that people confirm one by one: carried between replicas and the API server, where people decide.

While a published tool asks for it, every replica is asked once a second which calls wait, and told what was decided. Each
waiting call becomes a CallConfirmation; one that was used or has expired is deleted. Replicas hold what decides: this carries.

A decision counts where the admission policies judged it, as a grant does: this leader has seen the call undecided, the policies
were in place then, and are the same ones now. Any other decision is deleted, and the agent has to ask again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from toolcrib import confirmations
from toolcrib.errors import EpochFenced
from toolcrib.telemetry import logs
from toolcrib.wire.confirmations import MOST_CALLS, CallsReport, CallsTold, ConfirmableCall
from toolcrib_operator.admission.policies import Policies
from toolcrib_operator.errors import ClusterUnavailable, Conflict, Gone, OperatorError, ReplicaUnavailable
from toolcrib_operator.ports import CallChannel, CallObjects
from toolcrib_operator.replicas.publisher import Publisher
from toolcrib_operator.timers import wait

log = logging.getLogger(__name__)

_EVERY = 1.0
_LOOK_SECONDS = 2.0


class CallConfirmations:
    """Carries until stopped."""

    def __init__(
        self,
        publisher: Publisher,
        channel: Callable[[str], CallChannel],
        objects: CallObjects,
        policies: Policies,
        *,
        every: float = _EVERY,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """
        Args:
            publisher: knows the replicas, what is published, and whether this operator may act.
            channel: of a replica, by its name.
            objects: reads and writes CallConfirmations.
            policies: tell whether who decided was asked for the right to it.
            every: seconds between two rounds.
            clock: seconds since the epoch.
        """
        self._publisher, self._channel, self._objects = publisher, channel, objects
        self._policies, self._every, self._clock = policies, every, clock
        self._undecided: dict[str, str | None] = {}
        """By uid: the policies that were in place when a call was seen undecided; None: they were not."""
        self._admitted: set[str] = set()
        """The uids of decisions that count."""
        self._left = True
        """There may be calls of before, though no tool asks for confirmations any more."""
        self._trouble = logs.Trouble(log)
        self._asked = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop`. Never ends otherwise: granting and revoking do not depend on it."""
        while not stop.is_set():
            try:
                if self._publisher.may_act() and (self._wanted() or self._left):
                    self._left = False
                    await self._round()
            except EpochFenced as error:
                self._publisher.fenced(error)
                return
            except OperatorError as error:
                self._trouble.failed("calls cannot be confirmed: %s", error)
            except Exception as error:
                self._trouble.failed(
                    "calls cannot be confirmed: %s: %s", type(error).__name__, error, level=logging.ERROR
                )
            await wait(stop, self._every)

    def _wanted(self) -> bool:
        return any(tool.confirm for tool in self._publisher.snapshot.tools.values())

    async def _round(self) -> None:
        self._asked += 1
        logs.request_id.set(f"op-{self._publisher.epoch}-calls-{self._asked}")
        bodies = await self._objects.calls()
        self._left = bool(bodies)
        known = await self._judged(bodies)
        links = [link.replica.name for link in self._publisher.links]
        # what people decided is told also where more wait than can be told
        calls = sorted(known.values(), key=lambda call: call.decision is None)[:MOST_CALLS]
        told = CallsTold(epoch=self._publisher.epoch, replicas=len(links), calls=tuple(calls))
        answers = await asyncio.gather(*(self._tell(name, told) for name in links))
        reports = [each for each in answers if each is not None]
        used = {call for report in reports for call in report.used}
        await self._delete(known.values(), used)
        await self._create(call for report in reports for call in report.waiting if call.id not in known)
        self._trouble.over("calls can be confirmed again")

    async def _tell(self, name: str, told: CallsTold) -> CallsReport | None:
        try:
            return await self._channel(name).calls(told)
        except ReplicaUnavailable as error:
            log.debug("a replica was not told of confirmations: %s", error, extra=logs.about(replica=name))
            return None

    async def _judged(self, bodies: Iterable[Mapping[str, Any]]) -> dict[str, ConfirmableCall]:
        """The calls by id, each with a decision that counts or none."""
        found: dict[str, ConfirmableCall] = {}
        there: set[str] = set()
        for body in bodies:
            try:
                call = confirmations.call_of(body)
            except ValueError as error:
                log.debug("not a call: %s", error)
                continue
            uid = str(body["metadata"].get("uid"))
            there.add(uid)
            if call.decision is None:
                self._undecided[uid] = self._in_place()
            elif uid not in self._admitted:
                counts = await self._counts(uid)
                if counts is None:  # until it is known, nobody has decided
                    found[call.id] = call.model_copy(update={"decision": None, "decided_by": ""})
                    continue
                if not counts:
                    log.warning(
                        "the decision about the call %s does not count: no admission policy judged it", call.key,
                        extra=logs.about_object("Tool", call.tool_id),
                    )  # fmt: skip
                    await self._objects.delete_call(call)
                    continue
                self._admitted.add(uid)
                log.info(
                    "%s: %s by %s", call.key, call.decision.value, call.decided_by,
                    extra=logs.about_object("Tool", call.tool_id),
                )  # fmt: skip
            found[call.id] = call
        self._undecided = {uid: seen for uid, seen in self._undecided.items() if uid in there}
        self._admitted &= there
        return found

    async def _counts(self, uid: str) -> bool | None:
        """Whether the policies judged the decision; None: they could not be read since."""
        admitted = self._policies.admitted
        if admitted.external:
            return True
        before = self._undecided.get(uid)
        if before is None:
            return False
        # a look from now on: policies that went meanwhile are missing in it, and ones that came back are others
        begun = admitted.begun
        await self._policies.asked(_LOOK_SECONDS)
        return None if admitted.answered <= begun else before == self._in_place()

    def _in_place(self) -> str | None:
        admitted = self._policies.admitted
        return "" if admitted.external else None if admitted.problem is not None else admitted.seen

    async def _delete(self, calls: Iterable[ConfirmableCall], used: set[str]) -> None:
        now = self._clock()
        for call in calls:
            if (call.id in used or call.expires_at <= now) and self._publisher.still_leads():
                await self._objects.delete_call(call)

    async def _create(self, calls: Iterable[ConfirmableCall]) -> None:
        for call in calls:
            if call.expires_at <= self._clock() or not self._publisher.still_leads():
                continue
            in_place = self._in_place()
            try:
                self._undecided[await self._objects.create_call(call)] = in_place
            except Conflict:
                continue  # another replica has asked for it, or it is there already
            except (Gone, ClusterUnavailable) as error:
                self._trouble.failed("a call that waits cannot be shown: %s", error)
