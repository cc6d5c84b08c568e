"""Calls that people confirm, the operator's part: what it shows, tells replicas and deletes, and which decisions count."""

import asyncio
import copy
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from manifests import tool
from policy_stage import Shelf, Stage
from toolcrib import confirmations
from toolcrib.wire.confirmations import MOST_CALLS, CallDecision, CallsReport, CallsTold, ConfirmableCall
from toolcrib_operator.errors import ClusterUnavailable, Conflict
from toolcrib_operator.replicas.confirmations import CallConfirmations
from waiting import until

pytestmark = pytest.mark.anyio
NOW = 1_800_000_000
PAYER = "system:serviceaccount:heist:payer"
CALL = ConfirmableCall(
    id="0123456789ab", tool_id="heist/pay", agent="heist/payer", issuer="https://cluster.example", subject=PAYER,
    names=(PAYER,), arguments='{"amount": 5}', asked_at=NOW, expires_at=NOW + 300, seal="0" * 64,
)  # fmt: skip


class Objects:
    """CallConfirmations of a server in memory."""

    def __init__(self) -> None:
        self.held: dict[str, dict[str, Any]] = {}

    async def calls(self) -> Sequence[Mapping[str, Any]]:
        return copy.deepcopy(list(self.held.values()))

    async def create_call(self, call: ConfirmableCall) -> str:
        if call.key in self.held:
            raise Conflict(call.key)
        self.held[call.key] = confirmations.manifest_of(call)
        self.held[call.key]["metadata"]["uid"] = "uid-1"
        return "uid-1"

    async def delete_call(self, call: ConfirmableCall) -> None:
        self.held.pop(call.key, None)

    def decide(self) -> None:
        self.held[CALL.key]["spec"] |= {"decision": "Confirmed", "decidedBy": "alice"}


class Parts:
    """A replica that asks for `CALL`, what it was told, and the cluster around it."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.objects, self.now = stage, Objects(), float(NOW)
        self.report = CallsReport(waiting=(CALL,))
        self.told: list[CallsTold] = []

    async def calls(self, told: CallsTold) -> CallsReport:
        self.told.append(told)
        return self.report

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        """An operator that has just begun."""
        stop = asyncio.Event()
        carrying = CallConfirmations(
            self.stage.publisher, lambda name: self, self.objects, self.stage.policies,
            every=0.01, clock=lambda: self.now,
        )  # fmt: skip
        task = asyncio.create_task(carrying.run(stop))
        try:
            yield
        finally:
            stop.set()
            await task

    async def shown(self) -> None:
        """Return when people see the call, and replicas were told so."""
        await until(lambda: self.told and [c.id for c in self.told[-1].calls] == [CALL.id])

    def confirmed(self, since: int = 0) -> bool:
        return any(c.decision is CallDecision.CONFIRMED for told in self.told[since:] for c in told.calls)


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    stage = Stage(Shelf())
    pay = tool("pay", backend={"none": {}})
    pay["metadata"]["annotations"] = {"toolcrib.dev/confirm": "always"}
    async with stage.running(pay):
        await until(lambda: "heist/pay" in stage.publisher.snapshot.tools and stage.publisher.links)
        await until(lambda: stage.policies.admitted.problem is None)
        yield Parts(stage)


async def test_a_call_is_shown_its_decision_is_told_and_it_goes_once_it_was_used(parts: Parts) -> None:
    async with parts.leading():
        await parts.shown()
        assert (parts.told[-1].replicas, parts.told[-1].epoch) == (1, parts.stage.publisher.epoch)
        assert not parts.confirmed()
        parts.objects.decide()
        await until(parts.confirmed)
        assert parts.told[-1].calls[0].decided_by == "alice"
        parts.report = CallsReport(used=(CALL.id,))
        await until(lambda: parts.objects.held == {})


async def test_how_much_is_hidden_and_how_much_a_person_accepted_are_carried(parts: Parts) -> None:
    parts.report = CallsReport(waiting=(CALL.model_copy(update={"hidden": 24}),))
    async with parts.leading():
        await parts.shown()
        assert parts.objects.held[CALL.key]["spec"]["hiddenCharacters"] == 24
        parts.objects.decide()
        parts.objects.held[CALL.key]["spec"]["acceptedHiddenCharacters"] = 24
        await until(parts.confirmed)
        assert (parts.told[-1].calls[0].hidden, parts.told[-1].calls[0].accepted_hidden) == (24, 24)


async def test_a_flood_of_calls_that_wait_hides_no_decision(parts: Parts) -> None:
    async with parts.leading():
        await parts.shown()
        flood = Objects()
        for number in range(MOST_CALLS):
            await flood.create_call(CALL.model_copy(update={"id": f"{number:012x}"}))
        for body in flood.held.values():
            body["metadata"]["uid"] = f"uid-of-{body['metadata']['name']}"
        parts.objects.held = flood.held | parts.objects.held
        parts.objects.decide()
        await until(parts.confirmed)
        assert len(parts.told[-1].calls) == MOST_CALLS


async def test_what_has_expired_is_deleted_and_not_shown_again(parts: Parts) -> None:
    async with parts.leading():
        await parts.shown()
        parts.now = NOW + 300.0
        await until(lambda: parts.objects.held == {})
        rounds = len(parts.told)
        await until(lambda: len(parts.told) > rounds + 2)
        assert parts.objects.held == {}


async def test_the_next_leader_counts_no_decision_of_a_call_that_it_has_not_seen_undecided(
    parts: Parts,
) -> None:
    async with parts.leading():
        await parts.shown()
    parts.report = CallsReport()
    parts.objects.decide()
    async with parts.leading():
        await until(lambda: parts.objects.held == {})
    assert not parts.confirmed()


async def test_a_decision_that_no_policy_judged_is_deleted(parts: Parts) -> None:
    async with parts.leading():
        await parts.shown()
        parts.report = CallsReport()
        shelf = parts.stage.shelf
        shelf.manifests = shelf.without("calls-confirm")
        parts.objects.decide()
        await until(lambda: parts.objects.held == {})
    assert not parts.confirmed()


async def test_while_the_policies_cannot_be_read_a_decision_waits(parts: Parts) -> None:
    async with parts.leading():
        await parts.shown()
        parts.stage.shelf.error = ClusterUnavailable("away")
        parts.objects.decide()
        rounds = len(parts.told)
        await until(lambda: len(parts.told) > rounds + 3)
        assert not parts.confirmed()
        assert CALL.key in parts.objects.held
        assert [c.id for c in parts.told[-1].calls] == [CALL.id], "the replica keeps it"
        parts.stage.shelf.error = None
        await until(parts.confirmed)
