"""Calls that people confirm, the operator's side: it carries, and a decision that no policy judged is not carried."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from manifests import tool
from policy_stage import Shelf, Stage
from toolcrib import confirmations
from toolcrib.wire.confirmations import CallDecision, CallsReport, CallsTold, ConfirmableCall
from toolcrib_operator.errors import Conflict, ReplicaUnavailable
from toolcrib_operator.replicas.confirmations import CallConfirmations
from waiting import until

pytestmark = pytest.mark.anyio
CONFIRMED = {"toolcrib.dev/confirm": "always"}


def call(ident: str = "a", lives: float = 300.0) -> ConfirmableCall:
    now = int(time.time())
    return ConfirmableCall(
        id=ident * 12, tool_id="heist/pay", agent="heist/payer", issuer="https://issuer", subject="payer",
        names=("payer",), arguments="{}", asked_at=now, expires_at=int(now + lives), seal="0" * 64,
    )  # fmt: skip


class Objects:
    """The API server's CallConfirmations, in memory."""

    def __init__(self) -> None:
        self.bodies: dict[str, dict[str, Any]] = {}
        self.created = 0

    async def calls(self) -> list[Mapping[str, Any]]:
        return list(self.bodies.values())

    async def create_call(self, wanted: ConfirmableCall) -> str:
        if wanted.id in self.bodies:
            raise Conflict("it is there")
        self.created += 1
        body = confirmations.manifest_of(wanted)
        body["metadata"]["uid"] = f"uid-{self.created}"
        self.bodies[wanted.id] = body
        return f"uid-{self.created}"

    async def delete_call(self, gone: ConfirmableCall) -> None:
        self.bodies.pop(gone.id, None)

    def decide(self, ident: str, decision: str = "Confirmed") -> None:
        self.bodies[ident]["spec"] |= {"decision": decision, "decidedBy": "alice"}


class Channel:
    """One replica's calls."""

    def __init__(self) -> None:
        self.waiting: list[ConfirmableCall] = []
        self.used: list[str] = []
        self.told: list[CallsTold] = []
        self.down = False

    async def calls(self, told: CallsTold) -> CallsReport:
        if self.down:
            raise ReplicaUnavailable("it is down")
        self.told.append(told)
        return CallsReport(waiting=tuple(self.waiting), used=tuple(self.used))

    def heard(self, ident: str) -> CallDecision | None:
        """What it was told last that was decided about a call."""
        return next((c.decision for c in self.told[-1].calls if c.id == ident), None) if self.told else None


class Parts:
    def __init__(self, stage: Stage, shelf: Shelf) -> None:
        self.stage, self.shelf = stage, shelf
        self.objects, self.channel = Objects(), Channel()

    async def rounds(self, more: int = 2) -> None:
        """Return after so many further rounds."""
        wanted = len(self.channel.told) + more
        await until(lambda: len(self.channel.told) >= wanted)

    @asynccontextmanager
    async def operator(self) -> AsyncIterator[None]:
        """An operator's part that carries, from its start to its end."""
        carrier = CallConfirmations(
            self.stage.publisher, lambda name: self.channel, self.objects, self.stage.policies, every=0.02
        )
        stop = asyncio.Event()
        task = asyncio.create_task(carrier.run(stop))
        try:
            yield
        finally:
            stop.set()
            await task


@asynccontextmanager
async def ready() -> AsyncIterator[Parts]:
    shelf = Shelf()
    pay = tool("pay")
    pay["metadata"]["annotations"] = CONFIRMED
    async with Stage(shelf).running(pay) as stage:
        await until(lambda: stage.policies.known)
        await until(lambda: any(each.confirm for each in stage.publisher.snapshot.tools.values()))
        yield Parts(stage, shelf)


async def test_what_waits_becomes_an_object_and_what_was_decided_reaches_the_replica_until_it_is_used() -> (
    None
):
    async with ready() as parts, parts.operator():
        asked = call()
        parts.channel.waiting = [asked, asked]
        await until(lambda: asked.id in parts.objects.bodies)
        await parts.rounds()
        parts.channel.waiting = []
        parts.objects.decide(asked.id)
        await until(lambda: parts.channel.heard(asked.id) is CallDecision.CONFIRMED)
        parts.channel.used = [asked.id]
        await until(lambda: asked.id not in parts.objects.bodies)
        assert parts.objects.created == 1


async def test_while_the_policies_cannot_be_read_a_decision_is_none_yet() -> None:
    async with ready() as parts, parts.operator():
        asked = call()
        parts.channel.waiting = [asked]
        await until(lambda: asked.id in parts.objects.bodies)
        await parts.rounds()
        parts.channel.waiting = []
        parts.shelf.answers.clear()
        # what would be read is that the policy is gone
        parts.shelf.manifests = parts.shelf.without("calls-confirm")
        parts.objects.decide(asked.id)
        await parts.rounds(1)
        assert parts.channel.heard(asked.id) is None
        assert asked.id in parts.objects.bodies
        parts.shelf.answers.set()
        await until(lambda: asked.id not in parts.objects.bodies)
        assert all(c.decision is None for told in parts.channel.told for c in told.calls)


async def test_a_decision_of_which_this_leader_did_not_see_the_call_undecided_does_not_count() -> None:
    async with ready() as parts:
        asked = call()
        await parts.objects.create_call(asked)
        parts.objects.decide(asked.id)
        async with parts.operator():
            await until(lambda: asked.id not in parts.objects.bodies)
            await parts.rounds()
        assert all(c.decision is None for told in parts.channel.told for c in told.calls)


async def test_calls_that_expired_go_and_a_replica_that_is_down_holds_nobody_up() -> None:
    async with ready() as parts, parts.operator():
        await parts.objects.create_call(call("b", lives=-1))
        await until(lambda: not parts.objects.bodies)
        parts.channel.waiting = [call("c", lives=-1), call("d")]
        await until(lambda: "d" * 12 in parts.objects.bodies)
        assert "c" * 12 not in parts.objects.bodies
        parts.channel.down = True
        parts.objects.bodies["e" * 12] = {"metadata": {"name": "e" * 12, "uid": "e"}, "spec": {}}
        await parts.objects.create_call(call("f", lives=-1))
        await until(lambda: "f" * 12 not in parts.objects.bodies)
