"""Access requests, the operator's side: nothing the registry says is believed, nothing is told of what may not be asked for."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from manifests import binding, manifest, tool
from operator_harness import MemoryReplica
from toolcrib.resources.access_requests import (
    KEPT_SECONDS,
    LONGEST_SECONDS,
    OPEN_ALL,
    OPEN_TENANT,
    REJECTED,
    words,
)
from toolcrib.resources.bindings import SubjectKind
from toolcrib.resources.conditions import timestamp
from toolcrib.wire.outbox import AccessEntry
from toolcrib.wire.publish import PublishedSubject
from toolcrib_operator.adapters.memory import FixedReplicas, MemoryApplier, MemoryWriter
from toolcrib_operator.errors import ClusterUnavailable, Conflict, Gone, Invalid
from toolcrib_operator.kinds.access_request import ACCESS_REQUEST, is_over
from toolcrib_operator.kinds.table import WATCHED
from toolcrib_operator.loop import Loop
from toolcrib_operator.objects import Ref
from toolcrib_operator.replicas.access import AccessRequests
from toolcrib_operator.replicas.index import IndexSync
from toolcrib_operator.replicas.publisher import Publisher
from toolcrib_operator.world import World
from waiting import until

pytestmark = pytest.mark.anyio
NOW = 1_800_000_000.0
HACKER = PublishedSubject(kind=SubjectKind.SERVICE_ACCOUNT, namespace="heist", name="hacker")
OTHER = HACKER.model_copy(update={"name": "planner"})


def namespace(name: str = "heist", labelled: bool = True, **metadata: Any) -> dict[str, Any]:
    labels = {"toolcrib.dev/requests": "enabled"} if labelled else {}
    return {"kind": "Namespace", "metadata": {"name": name, "uid": name, "labels": labels, **metadata}}


def account(name: str, uid: str) -> dict[str, Any]:
    return {"kind": "ServiceAccount", "metadata": {"name": name, "namespace": "heist", "uid": uid}}


class Objects:
    """Creates in memory, or fails as it is told."""

    def __init__(self) -> None:
        self.made: list[Mapping[str, Any]] = []
        self.error: Exception | None = None

    async def create(self, kind: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        self.made.append(manifest)
        kept = {"uid": f"u{len(self.made)}", "generation": 1, "creationTimestamp": timestamp(NOW)}
        return {**manifest, "metadata": {**manifest["metadata"], **kept}}


class Parts:
    """An operator in memory."""

    def __init__(self) -> None:
        self.world, self.objects, self.now = World(), Objects(), NOW
        self.leads = True
        self.publisher = Publisher(3, FixedReplicas(MemoryReplica("a")), may_act=lambda: self.leads)
        self.writer = MemoryWriter(self.world)
        self.loop = Loop(
            self.world,
            self.publisher,
            IndexSync(self.publisher),
            self.writer,
            clock=lambda: self.now,
        )
        self.seen: list[tuple[str, float]] = []
        self.desk = AccessRequests(
            self.world, self.publisher, self.objects, MemoryApplier(self.world),
            decided=lambda outcome, seconds: self.seen.append((outcome, seconds)), clock=lambda: self.now,
        )  # fmt: skip
        self.asked = 0

    async def ask(
        self,
        tool_id: str = "heist/calculator",
        subject: PublishedSubject = HACKER,
        *,
        entry_id: str = "",
        late: bool = False,
        **fields: Any,
    ) -> tuple[str, str]:
        """The outcome and detail of one request."""
        self.asked += 1
        entry = AccessEntry(
            id=entry_id or f"e{self.asked}", tool_id=tool_id, subject=subject, seconds=9, **fields
        )
        ack = await self.desk.settle(entry, float("-inf") if late else float("inf"))
        return ack.outcome, ack.detail

    def requests(self) -> list[str]:
        return sorted(e.ref.name for e in self.world.all(ACCESS_REQUEST))

    def said(self, name: str) -> tuple[str, str]:
        entry = self.world.get(Ref(ACCESS_REQUEST, f"heist/{name}"))
        conditions = () if entry is None else entry.status.get("conditions") or ()
        return next(((c["status"], c["reason"]) for c in conditions if c["type"] == "Decided"), ("", ""))


@asynccontextmanager
async def running() -> AsyncIterator[Parts]:
    parts, stop = Parts(), asyncio.Event()
    for kind in WATCHED:
        parts.world.replace(kind, [])
    parts.world.upsert("Namespace", namespace())
    parts.world.upsert("Namespace", namespace("vault", labelled=False))
    for name in ("calculator", "files", "one", "two", "three"):
        parts.world.upsert("Tool", tool(name, backend={"none": {}}))
    parts.world.upsert("Tool", tool("secret", "vault", backend={"none": {}}))
    parts.world.upsert("Tool", tool("held", backend={"none": {}}, approval="Manual"))
    parts.world.upsert("Tool", tool("off", backend={"none": {}}, state="Disabled"))
    tasks = [asyncio.create_task(parts.loop.run(stop)), asyncio.create_task(parts.desk.run(stop))]
    try:
        await until(lambda: "vault/secret" in parts.publisher.snapshot.tools)
        yield parts
    finally:
        stop.set()
        await asyncio.gather(*tasks)


async def test_what_may_not_be_asked_for_is_absent_whatever_it_is() -> None:
    async with running() as parts:
        for tool_id in (
            "heist/none",
            "vault/secret",
            "vault/none",
            "heist/held",
            "heist/off",
            "x",
            "",
            "../heist/calculator",
        ):
            assert await parts.ask(tool_id) == ("absent", "")
        parts.world.upsert("Namespace", namespace(deletionTimestamp=timestamp(NOW)))
        assert await parts.ask() == ("absent", "")
        assert parts.objects.made == []


async def test_a_request_holds_the_tools_digest_the_subject_and_escaped_words_and_is_made_once() -> None:
    async with running() as parts:
        why = "\u202ehidden\u200b <b>bold</b> & `code`\n"
        outcome, name = await parts.ask(why=why, account_uid="uid-1")
        (made,) = parts.objects.made
        assert (outcome, name) == ("created", f"heist/{made['metadata']['name']}")
        assert made["spec"] == {
            "tool": "calculator",
            "digest": parts.publisher.snapshot.tools["heist/calculator"].approval_digest,
            "subject": {"kind": "ServiceAccount", "namespace": "heist", "name": "hacker"},
            "accountUID": "uid-1",
            "why": words(why),
        }
        assert words(why).isprintable()
        assert not set(words(why)) & set("<>&`\u202e\u200b")
        assert await parts.ask(account_uid="uid-1") == ("exists", name)
        assert (await parts.ask(subject=OTHER))[0] == "created"
        assert len(parts.objects.made) == 2


async def test_a_caller_that_no_binding_can_name_is_refused() -> None:
    async with running() as parts:
        for subject in (
            PublishedSubject(kind=SubjectKind.GROUP, issuer="https://a", name="ops"),
            PublishedSubject(kind=SubjectKind.USER, name="ada"),
            PublishedSubject(kind=SubjectKind.OAUTH_CLIENT, issuer="https://a", client_id="x" * 300),
        ):
            assert (await parts.ask(subject=subject))[0] == "refused"
        assert parts.objects.made == []


async def test_three_of_a_subject_are_open_even_when_asked_at_one_time() -> None:
    async with running() as parts:
        names = ("calculator", "files", "one", "two", "three")
        found = await asyncio.gather(*(parts.ask(f"heist/{name}") for name in names))
        assert sorted(outcome for outcome, _ in found) == ["created"] * 3 + ["full"] * 2
        assert {words.partition(",")[0] for outcome, words in found if outcome == "full"} == {
            "You have 3 open access requests"
        }


@pytest.mark.parametrize(
    "tenant",
    [
        {"kind": SubjectKind.SERVICE_ACCOUNT, "namespace": "flood"},
        {"kind": SubjectKind.USER, "issuer": "https://login.example"},
        {"kind": SubjectKind.OAUTH_CLIENT, "issuer": "https://login.example"},
    ],
)
async def test_many_accounts_of_one_tenant_leave_half_of_a_namespaces_requests_to_others(
    tenant: dict[str, Any],
) -> None:
    name = "client_id" if tenant["kind"] is SubjectKind.OAUTH_CLIENT else "name"
    async with running() as parts:
        found = []
        for number in range(40):
            subject = PublishedSubject(**tenant, **{name: f"n{number}"})
            found += [await parts.ask(f"heist/{tool}", subject) for tool in ("calculator", "files", "one")]
        outcomes = [outcome for outcome, _ in found]
        assert outcomes == ["created"] * OPEN_TENANT + ["full"] * (len(found) - OPEN_TENANT)
        assert found[-1][1].startswith("Agents of your ")
        assert f"{tenant.get('namespace') or tenant['issuer']} have as many" in found[-1][1]
        assert (await parts.ask())[0] == "created"
        assert (await parts.ask(subject=OTHER))[0] == "created"


async def test_a_hundred_requests_of_a_namespace_are_open_and_each_next_tenant_finds_fewer_places() -> None:
    async with running() as parts:
        counts = []
        for tenant in range(9):
            each = (
                PublishedSubject(kind=SubjectKind.SERVICE_ACCOUNT, namespace=f"t{tenant}", name=f"n{n}")
                for n in range(OPEN_ALL)
            )
            found = [(await parts.ask(subject=subject))[0] for subject in each]
            counts.append(found.count("created"))
        assert counts == [50, 25, 13, 6, 3, 2, 1, 0, 0]
        assert sum(counts) == OPEN_ALL
        outcome, words = await parts.ask()
        assert (outcome, words.partition(".")[0]) == ("full", "heist has 100 open access requests")


async def test_an_agent_has_three_open_requests_over_all_namespaces() -> None:
    async with running() as parts:
        parts.world.upsert("Namespace", namespace("vault"))
        for name in ("calculator", "files", "one"):
            assert (await parts.ask(f"heist/{name}"))[0] == "created"
        assert (await parts.ask("vault/secret"))[0] == "full"
        assert (await parts.ask("vault/secret", OTHER))[0] == "created"


async def test_requests_that_are_decided_keep_nobody_from_asking() -> None:
    async with running() as parts:
        for number in range(OPEN_ALL + 1):
            asks = OTHER.model_copy(update={"name": f"n{number}"})
            assert (await parts.ask(subject=asks))[0] == "created"
            made = parts.objects.made[-1]
            held = {
                "uid": f"u{number + 1}",
                "creationTimestamp": timestamp(NOW),
                "annotations": {REJECTED: "no"},
            }
            parts.world.upsert(ACCESS_REQUEST, {**made, "metadata": {**made["metadata"], **held}})


async def test_a_lost_answer_makes_no_second_request_and_failures_say_so() -> None:
    async with running() as parts:
        parts.objects.error = Conflict("there")
        outcome, name = await parts.ask(entry_id="same")
        assert outcome == "exists"
        parts.objects.error = ClusterUnavailable("away")
        assert (await parts.ask(entry_id="same"))[0] == "failed"
        parts.objects.error = None
        assert await parts.ask(entry_id="same") == ("created", name)
        for error, expected in ((Gone("no namespace"), "absent"), (Invalid("no"), "refused")):
            parts.objects.error = error
            assert (await parts.ask("heist/files"))[0] == expected
        parts.objects.error = None
        assert (await parts.ask("heist/files", late=True))[0] == "failed"
        parts.leads = False
        assert (await parts.ask("heist/files"))[0] == "failed"
        assert parts.desk.outcomes["failed"] == 3


async def test_its_status_and_events_say_what_was_decided_and_the_time_is_counted() -> None:
    async with running() as parts:
        _, one = await parts.ask()
        _, two = await parts.ask("heist/files")
        first, second = (each.partition("/")[2] for each in (one, two))
        await until(lambda: parts.said(first) == parts.said(second) == ("False", "AccessRequested"))
        parts.now = NOW + 90
        parts.world.upsert(
            "AgentScopeBinding", binding(first, ["calculator:use"], subjects=[_subject("planner")])
        )
        rejected = {**parts.objects.made[1]}
        annotations = {"toolcrib.dev/rejected": "not\u202e now"}
        held = {"uid": "u2", "creationTimestamp": timestamp(NOW), "annotations": annotations}
        parts.world.upsert(ACCESS_REQUEST, {**rejected, "metadata": {**rejected["metadata"], **held}})
        await until(lambda: parts.said(second) == ("True", "AccessRejected"))
        assert parts.said(first) == ("False", "AccessRequested"), "the binding is for another subject"
        parts.world.upsert(
            "AgentScopeBinding", binding(first, ["calculator:use"], subjects=[_subject("hacker")])
        )
        await until(lambda: parts.said(first) == ("True", "AccessApproved"))
        await until(lambda: len(parts.seen) == 2)
        assert sorted(parts.seen) == [("approved", 90.0), ("rejected", 90.0)]
        events = parts.writer.events_of(Ref(ACCESS_REQUEST, two))
        assert [(e.reason, "\u202e" in e.message) for e in events] == [
            ("AccessRequested", False), ("AccessRejected", False),
        ]  # fmt: skip
        assert (await parts.ask())[0] == "created", "what is decided is not open"


def _subject(name: str) -> dict[str, str]:
    return {"kind": "ServiceAccount", "namespace": "heist", "name": name}


async def test_one_is_deleted_after_a_week_or_with_its_account_and_not_while_its_approval_runs() -> None:
    async with running() as parts:
        parts.world.upsert("ServiceAccount", account("hacker", "uid-1"))
        _, one = await parts.ask(account_uid="uid-1")
        name = one.partition("/")[2]
        entry = parts.world.get(Ref(ACCESS_REQUEST, one))
        assert entry is not None
        late = NOW + KEPT_SECONDS + 1
        assert not is_over(entry, parts.world, NOW + KEPT_SECONDS - 1)
        assert is_over(entry, parts.world, late)
        runs = binding(
            name, ["calculator:use"], subjects=[_subject("hacker")], expiresAt=timestamp(late + 60)
        )
        parts.world.upsert("AgentScopeBinding", runs)
        assert not is_over(entry, parts.world, late)
        assert is_over(entry, parts.world, NOW + KEPT_SECONDS + LONGEST_SECONDS + 1)
        parts.world.upsert("ServiceAccount", account("hacker", "uid-2"))
        assert is_over(entry, parts.world, NOW)
        assert not is_over(dataclasses.replace(entry, deleting=timestamp(NOW)), parts.world, late)
        await until(lambda: parts.requests() == [])
        await parts.ask("heist/files")
        parts.now = late
        await until(lambda: parts.requests() == [])
        assert [outcome for outcome, _ in parts.seen][-1] == "expired"


async def test_what_is_no_valid_request_is_nobody_s_and_goes_in_the_end() -> None:
    async with running() as parts:
        odd = manifest(ACCESS_REQUEST, "odd", "heist", tool="calculator")
        odd["metadata"] |= {"uid": "odd", "creationTimestamp": timestamp(NOW)}
        parts.world.upsert(ACCESS_REQUEST, odd)
        await until(lambda: parts.said("odd") == ("False", "Invalid"))
        assert (await parts.ask())[0] == "created"
        parts.now = NOW + KEPT_SECONDS + 1
        await until(lambda: parts.requests() == [])
