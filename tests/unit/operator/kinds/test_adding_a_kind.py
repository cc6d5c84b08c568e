"""A kind that the operator does not ship: one object, and every part of the operator works with it."""

import asyncio
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import kopf
import pytest
from pydantic import BaseModel

from operator_harness import MemoryReplica, conditions
from operator_stage import ACCOUNT, SETTINGS, Stage, staged
from toolcrib.resources.bindings import SubjectKind
from toolcrib.resources.conditions import ConditionReason
from toolcrib.resources.meta import ObjectMeta
from toolcrib.wire.publish import PublishedBinding, PublishedSubject
from toolcrib_operator.adapters.cluster import Cluster
from toolcrib_operator.kinds import statuses
from toolcrib_operator.kinds.admission import Admitted
from toolcrib_operator.kinds.facts import BINDINGS, Facts
from toolcrib_operator.kinds.kind import Change, Governed, Situation
from toolcrib_operator.kinds.records import Record
from toolcrib_operator.kinds.statuses import Desired
from toolcrib_operator.kinds.table import KINDS
from toolcrib_operator.kinds.verdicts import Cause, Verdict
from toolcrib_operator.objects import Entry, Ref
from toolcrib_operator.watches.recorder import Memo, register
from toolcrib_operator.watches.resync import Resync
from toolcrib_operator.world import World
from waiting import until

pytestmark = pytest.mark.anyio

MARK = "example.dev/suspension"


class Spec(BaseModel):
    account: str


class Suspension(BaseModel):
    metadata: ObjectMeta
    spec: Spec


class SuspensionKind(Governed):
    """Denies a ServiceAccount of its namespace every tool, as long as there is such an account."""

    name = "Suspension"
    group = "example.dev"
    version = "v1"
    plural = "suspensions"
    slot = BINDINGS
    finalizer = MARK

    def parse(self, manifest: dict[str, Any]) -> Any:
        return Suspension.model_validate(manifest)

    def keys(self, entry: Entry) -> Sequence[Hashable]:
        return () if entry.kept is None else (whom(entry),)

    def assess(self, entry: Entry, record: Record, facts: Facts) -> Verdict:
        if entry.kept is None:
            return Verdict(None, Cause(ConditionReason.INVALID, "; ".join(map(str, entry.findings))))
        who = whom(entry)
        if who.name == "poison":
            raise KeyError("nobody foresaw it")
        if facts.objects.get(who) is None:
            return Verdict(None, Cause(ConditionReason.SUBJECT_NOT_FOUND, f"there is no {who}"))
        subject = PublishedSubject(kind=SubjectKind.SERVICE_ACCOUNT, namespace=who.namespace, name=who.name)
        return Verdict(
            PublishedBinding(
                uid=entry.uid, kind=self.name, namespace=entry.ref.namespace, name=entry.ref.name,
                generation=entry.generation, subjects=(subject,), scopes=(), namespaces=None, deny=("*",),
            )
        )  # fmt: skip

    def status(self, entry: Entry, record: Record, situation: Situation, now: float) -> Desired:
        assert record.verdict is not None
        refusal, done = record.verdict.refusal, situation.progress(record).propagated
        cause = refusal or Cause(ConditionReason.READY if done else ConditionReason.NOT_PROPAGATED)
        rows = [
            ("Ready", refusal is None and done, cause),
            ("Accepted", refusal is None, refusal or Cause(ConditionReason.ACCEPTED)),
        ]
        return Desired(statuses.status(entry, rows, now), provisional=refusal is None and not done)


KIND = SuspensionKind()
REF = Ref("Suspension", "heist/stop")


def whom(entry: Entry) -> Ref:
    kept: Any = entry.kept
    return Ref("ServiceAccount", f"{entry.ref.namespace}/{kept.spec.account}")


def suspension(version: int, account: str = "planner", **metadata: Any) -> dict[str, Any]:
    named = {
        "name": "stop",
        "namespace": "heist",
        "uid": "s1",
        "generation": 1,
        "resourceVersion": str(version),
    }
    return {"kind": "Suspension", "metadata": named | metadata, "spec": {"account": account}}


def account(version: int) -> dict[str, Any]:
    return ACCOUNT | {"metadata": {**ACCOUNT["metadata"], "resourceVersion": str(version)}}  # type: ignore[dict-item]


class Watches:
    """kopf's handlers, as the operator registers them; told of events by the plural, as kopf does."""

    def __init__(self, world: World) -> None:
        registry = kopf.OperatorRegistry()
        register(registry, world.kinds.values())
        self.handlers = {h.selector.any_name: h for h in registry._watching.get_all_handlers()}
        self.memo = Memo(world, Resync(world, None))  # type: ignore[arg-type]

    async def tell(self, plural: str, type: str, manifest: dict[str, Any]) -> None:
        handler: Any = self.handlers[plural]
        await handler.fn(event={"type": type, "object": manifest}, memo=self.memo)


def held(replica: MemoryReplica) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    return ((b.kind, b.uid, b.deny) for b in replica.snapshot.bindings.values())


def said(stage: Stage) -> dict[str, tuple[str, str]]:
    return stage.said(REF.key, KIND.name)


async def test_an_object_of_a_new_kind_comes_from_its_watch_to_the_replicas_and_gets_its_status() -> None:
    world, replica = World(kinds=(*KINDS, KIND)), MemoryReplica()
    watches = Watches(world)
    assert watches.handlers["suspensions"].selector.group == "example.dev"  # type: ignore[union-attr]
    async with staged(settings=replace(SETTINGS, finalizers=True), world=world, replica=replica) as stage:
        for kind in world.watched:
            if kind != KIND.name:
                world.replace(kind, [])
        assert world.unlisted == (KIND.name,), "nothing is published before it is listed, too"
        world.replace(KIND.name, [])
        await watches.tell("serviceaccounts", "ADDED", account(1))
        await watches.tell("suspensions", "ADDED", suspension(1))
        await until(lambda: said(stage).get("Ready") == ("True", "Ready"))
        assert list(held(replica)) == [("Suspension", "s1", ("*",))]
        entry = world.get(REF)
        assert entry is not None
        assert entry.finalizers == (MARK,)
        await until(lambda: ("Normal", "Ready") in stage.told(REF.key))

        # what it names goes and comes back
        await watches.tell("serviceaccounts", "DELETED", account(2))
        await until(lambda: said(stage).get("Accepted") == ("False", "SubjectNotFound"))
        await until(lambda: not list(held(replica)))
        await watches.tell("serviceaccounts", "ADDED", account(3))
        await until(lambda: said(stage).get("Ready") == ("True", "Ready"))

        # an edit that nobody foresaw
        await watches.tell("suspensions", "MODIFIED", suspension(4, "poison", generation=2))
        await until(lambda: said(stage).get("Accepted") == ("False", "Invalid"))
        await until(lambda: not list(held(replica)))
        await watches.tell("suspensions", "MODIFIED", suspension(5, generation=3))
        await until(lambda: said(stage).get("Ready") == ("True", "Ready"))

        # its deletion waits for the replicas, and leaves nothing
        going = {"finalizers": [MARK], "deletionTimestamp": "2026-01-01T00:00:00Z", "generation": 4}
        await watches.tell("suspensions", "MODIFIED", suspension(6, **going))
        await until(lambda: (found := world.get(REF)) is not None and not found.finalizers)
        assert not list(held(replica))
        await watches.tell("suspensions", "DELETED", suspension(7))
        await until(lambda: stage.loop.assessor.facts.records.get(REF) is None)
        records = stage.loop.assessor.facts.records
        await until(lambda: not records.of(KIND.name))
        assert not stage.loop.assessor.facts.links.of(Ref("ServiceAccount", "heist/planner"))


def test_a_change_concerns_the_object_and_those_that_name_it() -> None:
    facts = Facts(World(kinds=(*KINDS, KIND)), SETTINGS, Admitted())
    other = Ref(KIND.name, "heist/other")
    facts.links.put(other, (), (REF,))
    assert KIND.touched(Change(REF, None, (), ()), facts) == {REF, other}
    facts.links.put(other, (REF,), ())
    assert KIND.touched(Change(REF, None, (), ()), facts) == {REF}


class Server:
    """The requests that an API server gets; lists have one object."""

    def __init__(self) -> None:
        self.paths: list[tuple[str, str]] = []

    async def request(self, method: str, path: str, **_: Any) -> Any:
        self.paths.append((method, path))
        metadata = {"resourceVersion": "9"}
        return {"metadata": metadata, "items": [suspension(1)]} if method == "GET" else {"metadata": metadata}


async def test_a_new_kind_is_listed_and_written_where_it_says() -> None:
    server = Server()
    cluster = Cluster(server, kinds=(*KINDS, KIND))  # type: ignore[arg-type]
    world = World(kinds=(*KINDS, KIND))
    reader = Resync(world, cluster, kinds=[KIND.name])
    assert await reader.list_all(asyncio.Event())
    entry = world.get(REF)
    assert entry is not None
    assert conditions(entry.status) == {}
    await cluster.write_status(REF, resource_version="1", status={})
    await cluster.write_finalizers(REF, resource_version="1", finalizers=[])
    assert server.paths == [
        ("GET", "/apis/example.dev/v1/suspensions"),
        ("PATCH", "/apis/example.dev/v1/namespaces/heist/suspensions/stop/status"),
        ("PATCH", "/apis/example.dev/v1/namespaces/heist/suspensions/stop"),
    ]
