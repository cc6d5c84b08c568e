"""What the decision log recorded is decided again from any one of its files, and comes out the same."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import decision_logs
from decision_logs import replayed, told
from replay_worlds import ISSUERS, START, ReplayWorld
from suites import size
from toolcrib.audit.replay import Why
from toolcrib.authorizer import Action, Reason
from toolcrib.authorizer.bindings import CompiledBinding
from toolcrib.identity import Identity
from toolcrib.snapshot import Snapshot
from toolcrib.view import AmbiguousName
from toolcrib.wire.publish import Revision
from toolcrib_registry.audit import setup, writer
from toolcrib_registry.audit.files import RotatingFile
from toolcrib_registry.audit.log import DecisionLog
from toolcrib_registry.audit.refusal_reasons import RefusalReasons
from toolcrib_registry.calls import definitions, lookup
from toolcrib_registry.calls.canaries import CanaryCounter
from toolcrib_registry.policy.state import PolicyState
from toolcrib_registry.settings_sections import Audit
from waiting import until

pytestmark = pytest.mark.guarantee

DECISIONS = size(quick=4_000, whole=10_000)


class Clock:
    """Set by hand, to any time."""

    def __init__(self) -> None:
        self.time, self.passed = float(START), 0.0

    def now(self) -> float:
        return self.time

    def elapsed(self) -> float:
        return self.passed

    async def sleep_until(self, moment: float) -> None:
        raise NotImplementedError


class Counts:
    """Nobody counts."""

    full = False

    def written(self, records: int, seq: int) -> None: ...

    def lost(self, records: int) -> None: ...

    def failed(self) -> None: ...

    def decided(self, action: str, decision: object, identity: object) -> None: ...

    def refused(self, action: str, identity: object) -> None: ...


class Desk:
    """What a registry asks of its state and writes down, without HTTP and backends."""

    def __init__(self, path: Path, world: ReplayWorld, **settings: Any) -> None:
        self.world, self.clock, self.counts = world, Clock(), Counts()
        given = {
            "path": str(path),
            "key_file": decision_logs.key_file(path.parent),
            "fold_seconds": 1.0,
            "queue": 1_000_000,
            **settings,
        }
        self.decisions: DecisionLog = setup.opened(
            Audit(**given), "registry-0", self.clock, self.counts, ISSUERS
        )
        self.state = PolicyState(self.clock, on_swap=self.decisions.policy_changed)
        self.metrics: Any = self.counts
        self.refusals = RefusalReasons(self.metrics, self.decisions, self.clock)
        self.canaries = CanaryCounter()
        self.parts: Any = self

    async def one(self, who: Identity) -> None:
        """Somebody asks for something."""
        draw, asker = self.world.draw, SimpleNamespace(identity=who, problem=None)
        kind = draw.number(10)
        self.clock.time, self.clock.passed = self.world.moment(), self.clock.passed + 5.0
        if kind < 3:
            seen = await self.state.caller_view(who)
            if draw.chance(0.2):
                await self.change()
            self.decisions.listed(draw.one((Action.LIST, Action.SEARCH, Action.WATCH)), seen)
        elif kind == 3:
            names = [self.world.name() for _ in range(4)]
            within = await self.state.caller_view(who)
            loaded = await definitions.load(self.parts, asker, names, within)  # type: ignore[arg-type]
            loaded.record(self.parts)
        else:
            action = Action.CALL if kind < 8 else Action.DESCRIBE
            try:
                named = await lookup.find(self.parts, asker, self.world.name(), action)  # type: ignore[arg-type]
            except AmbiguousName:
                return
            if named is not None:
                if draw.chance(0.1):
                    await self.change()
                self.clock.time += draw.one((0.0, 0.0004, 0.01, 2.5))
                lookup.note(self.parts, action, named, draw.one(("ok", "limit_exceeded")), seconds=0.01)
        self.refusals.settle()

    async def room(self) -> None:
        """Wait until the log has stated the policy and written what was decided by it."""
        writer = self.decisions._writer
        assert writer is not None
        await until(lambda: not writer._queue and not writer._policies and writer._late is None)

    async def change(self) -> None:
        """The policy changes."""
        await self.state.publish(self.world.change())


def run(path: Path, rounds: int, seed: int = 1, *, room_at: int | None = None, **settings: Any) -> None:
    """Write a log of so many requests under a policy that changes; before request `room_at` all before it is written."""
    world = ReplayWorld(seed)

    async def asking() -> None:
        desk = Desk(path, world, **settings)
        await desk.state.publish(world.publish())
        people = [world.identity() for _ in range(40)]
        for number in range(rounds):
            if number == room_at:
                await desk.room()
            if number % 20 == 0:
                await desk.change()
                people[world.draw.number(len(people))] = world.identity()
            await desk.one(world.draw.one(people))
        desk.decisions.close()

    asyncio.run(asking())


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of more than `DECISIONS`, in several files."""
    path = tmp_path_factory.mktemp("log") / "decisions.jsonl"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "POLICIES", 1_000_000)  # here they change faster than they are written
        run(path, DECISIONS * 14 // 10, max_bytes=DECISIONS * 150, keep=1000)
    return path


@pytest.fixture(scope="module")
def records(written: Path) -> list[dict[str, Any]]:
    return decision_logs.all_records(written)


@pytest.mark.property
def test_random_decisions_under_a_changing_policy_are_decided_alike(
    written: Path, records: list[dict[str, Any]]
) -> None:
    judged = replayed(records)
    found = told(judged)
    assert found["different"] == 0, next(j for j in judged if j.different)
    assert found["equal"] >= DECISIONS, found
    assert found.keys() <= {"equal", Why.NOT_DECIDED, Why.NO_POLICY}
    assert found[Why.NO_POLICY] == 0
    assert decision_logs.verify(written).findings == ()
    # much was asked and much was decided
    decided = [j.record for j in judged if j.equal]
    assert {r["action"] for r in decided} == {"list", "search", "watch", "load", "call", "describe"}
    reasons = {r.get("reason") for r in decided}
    unasked = {
        "no_identity",
        "anonymous_list",
        "identity_expired",
    }  # these callers are nobody to the registry
    assert reasons >= {r.value for r in Reason} - unasked
    assert sum("after" in r for r in decided) > DECISIONS // 20
    kinds = {r["action"] for r in records if r["action"].startswith("policy.")}
    assert kinds >= {"policy.start", "policy.issuers", "policy.tool", "policy.binding", "policy.namespace"}


def test_any_file_alone_is_enough(written: Path) -> None:
    files = decision_logs.files_of(written)
    assert len(files) > 3
    for file in files:
        found = told(replayed(json.loads(line) for line in file.read_bytes().splitlines()))
        assert found["different"] == 0
        assert found["equal"] > 20 * found[Why.NO_POLICY]  # decided before the file began
        assert found.keys() <= {"equal", Why.NOT_DECIDED, Why.NO_POLICY}


def test_who_decides_otherwise_is_found(
    records: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = CompiledBinding.valid
    monkeypatch.setattr(CompiledBinding, "valid", lambda binding, now: real(binding, now + 0.001))
    assert told(replayed(records[:6000]))["different"] > 0


@pytest.mark.parametrize(
    ("of", "other"),
    [
        (lambda r: r["allowed"], {"allowed": False}),
        (lambda r: r["reason"] == "no_binding", {"reason": "denied"}),
        (lambda r: r["binding"] and r["allowed"], {"binding": {"uid": "uid-other", "generation": 1}}),
        (lambda r: r["digest"], {"digest": "sha256:0"}),
    ],
)
def test_a_record_that_says_something_else_is_found(
    of: Callable[[dict[str, Any]], Any], other: dict[str, Any], records: list[dict[str, Any]]
) -> None:
    some = records[:3000]
    at = next(n for n, r in enumerate(some) if n > 100 and "who" in r and "digest" in r and of(r))
    (judged,) = [j for j in replayed([*some[:at], some[at] | other, *some[at + 1 :]]) if j.different]
    assert judged.record["seq"] == some[at]["seq"]


def test_without_a_line_nothing_is_decided_again_until_the_policy_is_stated_again(
    records: list[dict[str, Any]],
) -> None:
    after = next(n for n, r in enumerate(records) if r["action"] == "policy.start" and n > 100)
    at = next(n for n, r in enumerate(records) if r["action"] == "policy.binding" and n > after - 1000)
    judged = replayed([*records[at - 50 : at], *records[at + 1 : after + 2000]])
    assert set(told(j for j in judged if j.record["seq"] <= after)) == {Why.NO_POLICY, Why.NOT_DECIDED}
    found = told(j for j in judged if j.record["seq"] > after)
    assert (found["different"], found["equal"] > 1000) == (0, True)


def test_a_policy_that_could_not_wait_is_a_gap_and_stated_whole_as_soon_as_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "POLICIES", 1)
    path = tmp_path / "decisions.jsonl"
    run(path, 600, room_at=581)
    found = decision_logs.all_records(path)
    gaps = [n for n, r in enumerate(found) if r["action"] == "audit.gap"]
    assert {entry["action"] for n in gaps for entry in found[n]["lost"]} == {"policy"}
    assert all(found[n + 1]["action"] == "policy.start" for n in gaps)
    judged = told(replayed(found))
    assert (judged["different"], judged[Why.NO_POLICY] > 0, judged["equal"] > 0) == (0, True, True)
    assert decision_logs.verify(path).findings == ()


def test_while_a_disk_refuses_few_snapshots_are_kept_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = threading.Event()

    def refuse(self: RotatingFile, data: bytes) -> None:
        refused.set()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RotatingFile, "append", refuse)
    monkeypatch.setattr(writer, "TICK", 0.01)
    settings = Audit(path=str(tmp_path / "decisions.jsonl"), key_file=decision_logs.key_file(tmp_path))
    log = setup.opened(settings, "registry-0", Clock(), Counts(), ISSUERS)
    assert log._writer is not None
    try:
        for seq in range(300):
            log.policy_changed(Snapshot(revision=Revision(epoch=1, seq=seq)))
            refused.clear()
            assert refused.wait(60), "what waits is tried again, with what came since"
        kept = [item for item in (*log._writer._queue, *log._writer._held) if item.policy is not None]
        assert len(kept) <= writer.POLICIES
    finally:
        monkeypatch.undo()
        log.close()


def test_what_another_version_decided_is_left_alone(records: list[dict[str, Any]]) -> None:
    some = [r | {"decider": 0} if "decider" in r else r for r in records[:2000]]
    assert set(told(replayed(some))) <= {Why.OTHER_DECIDER, Why.NOT_DECIDED, Why.NO_POLICY}
