"""Access requests: what agents ask for becomes AccessRequests, and one that is over is deleted. Nothing is granted here."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import Counter
from collections.abc import Callable

from toolcrib import names
from toolcrib.resources import access_requests, durations
from toolcrib.resources.bindings import Subject, SubjectKind
from toolcrib.resources.conditions import ConditionReason
from toolcrib.telemetry import logs
from toolcrib.wire.outbox import AccessEntry, OutboxAck
from toolcrib_operator.errors import ClusterUnavailable, Conflict, Gone, Invalid, OperatorError
from toolcrib_operator.kinds import statuses
from toolcrib_operator.kinds.access_request import (
    ACCESS_REQUEST,
    DECIDED,
    is_open,
    is_over,
    refusal,
    same,
    tool_asked,
)
from toolcrib_operator.objects import Entry, Ref
from toolcrib_operator.ports import Creator, Deleter
from toolcrib_operator.replicas.publisher import Publisher
from toolcrib_operator.timers import wait
from toolcrib_operator.world import World

log = logging.getLogger(__name__)

SWEEP = 1.0
"""Seconds between two looks at what is decided or over."""
LATE = "The operator received the request too late. Nothing changed; try again."
AWAY = "The API server did not confirm that the request was created. Try again."
OUTCOMES = {
    ConditionReason.ACCESS_APPROVED.value: "approved",
    ConditionReason.ACCESS_REJECTED.value: "rejected",
}


class AccessRequests:
    """Takes what agents ask for, and tidies up. The registry is not believed: tool, namespace and limits are looked up here."""

    def __init__(
        self,
        world: World,
        publisher: Publisher,
        creator: Creator,
        deleter: Deleter,
        *,
        decided: Callable[[str, float], None] = lambda outcome, seconds: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """
        Args:
            world: namespaces, and the requests there are; is told of each that was created.
            publisher: the tools that are published, and whether this operator may act.
            creator, deleter: of AccessRequests.
            decided: told the outcome of each request, and the seconds that it took.
            clock: seconds since the epoch.
        """
        self._world, self._publisher, self._creator, self._deleter = world, publisher, creator, deleter
        self._decided, self._clock = decided, clock
        self.outcomes: Counter[str] = Counter()
        self.open = 0
        """Requests that wait for people, as of the last look."""
        self._one_at_a_time = asyncio.Lock()
        self._seen: set[str] = set()

    async def settle(self, asked: AccessEntry, deadline: float) -> OutboxAck:
        """One request's answer; nothing is begun after `deadline` (monotonic seconds)."""
        async with self._one_at_a_time:  # or two of one agent would each find the last place
            outcome, detail = await self._create(asked, deadline)
        self.outcomes[outcome] += 1
        return OutboxAck.model_validate({"id": asked.id, "outcome": outcome, "detail": detail[:500]})

    async def run(self, stop: asyncio.Event) -> None:
        """Delete what is over and count what was decided, until `stop`."""
        began = int(self._clock())  # a status says whole seconds
        while not await wait(stop, SWEEP):
            if self._world.unlisted or not self._publisher.may_act():
                continue
            entries = self._world.all(ACCESS_REQUEST)
            self._count(entries, began)
            self.open = sum(is_open(entry, self._world) for entry in entries)
            for entry in entries:
                if is_over(entry, self._world, self._clock()):
                    await self._delete(entry)

    async def _create(self, asked: AccessEntry, deadline: float) -> tuple[str, str]:
        tool = tool_asked(asked.tool_id, self._publisher.snapshot.tools, self._world)
        if tool is None:
            return "absent", ""
        about = logs.about_object("Tool", tool.tool_id)
        object_name = names.named_by(tool.tool_id)
        # of its id, so that an answer that was lost makes no second one
        mark = hashlib.sha256(asked.id.encode()).hexdigest()[:8]
        name = f"{names.slug(object_name, 48)}-{mark}"
        try:
            told = asked.subject
            subject = Subject(
                kind=told.kind, namespace=told.namespace, name=told.name, issuer=told.issuer, client_id=told.client_id
            )  # fmt: skip
            uid = asked.account_uid if subject.kind is SubjectKind.SERVICE_ACCOUNT else None
            manifest = access_requests.manifest(
                name, tool.tool_id, tool.approval_digest, subject, uid, asked.why
            )
        except ValueError:
            return "refused", "No binding can name this caller, so it cannot ask for access."
        if (there := same(object_name, subject, tool.namespace, self._world)) is not None:
            return "exists", there.ref.key
        if (full := refusal(subject, tool.namespace, self._world)) is not None:
            return "full", full
        if not self._publisher.may_act() or time.monotonic() >= deadline:
            return "failed", LATE
        try:
            created = await self._creator.create(ACCESS_REQUEST, manifest)
        except Conflict:
            return "exists", f"{tool.namespace}/{name}"
        except Gone:
            return "absent", ""
        except Invalid as error:
            log.warning("an access request was refused: %s", error, extra=about)
            return "refused", "The API server refused the request."
        except ClusterUnavailable as error:
            log.warning("an access request failed: %s", error, extra=about)
            return "failed", AWAY
        self._world.upsert(ACCESS_REQUEST, created)
        log.info(
            "an agent asks for access", extra=logs.about_object(ACCESS_REQUEST, f"{tool.namespace}/{name}")
        )
        return "created", f"{tool.namespace}/{name}"

    async def _delete(self, entry: Entry) -> None:
        ref: Ref = entry.ref
        said = statuses.condition(entry.status, DECIDED) or {}
        try:
            await self._deleter.delete(ref, uid=entry.uid)
        except OperatorError as error:
            log.debug(
                "an access request is still there: %s", error, extra=logs.about_object(ref.kind, ref.key)
            )
            return
        if said.get("reason") not in OUTCOMES:
            self._observe("expired", entry, self._clock())
        self._world.remove(ref.kind, ref.key)

    def _count(self, entries: list[Entry], began: float) -> None:
        """Those that were decided since the last look; earlier leaders have counted what was decided before."""
        decided = {e.uid: e for e in entries if statuses.holds(e.status, DECIDED)}
        for uid in decided.keys() - self._seen:
            said = statuses.condition(decided[uid].status, DECIDED) or {}
            at = durations.instant(str(said.get("lastTransitionTime", "")))
            if at >= began:
                self._observe(OUTCOMES.get(str(said.get("reason")), "expired"), decided[uid], at)
        self._seen = set(decided)

    def _observe(self, outcome: str, entry: Entry, at: float) -> None:
        asked = durations.instant(entry.created) if entry.created else at
        self._decided(outcome, max(0.0, at - asked))
