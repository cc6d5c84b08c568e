"""Quotas per namespace: who has a place, what the others are told, and that nobody else notices a change."""

import random
import re
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests import tool
from operator_harness import conditions
from operator_stage import SETTINGS, Stage, staged
from suites import examples
from toolcrib.resources import quantities
from toolcrib.resources.quantities import Quota
from toolcrib_cli.prediction import outcome
from toolcrib_operator.kinds.quotas import Quotas
from toolcrib_operator.objects import Entry, Ref
from toolcrib_operator.options import parse
from toolcrib_operator.world import World
from waiting import until

pytestmark = pytest.mark.anyio


def entry(number: int, created: int = 0, uid: str = "") -> Entry:
    return Entry(Ref("Tool", f"heist/t{number}"), uid=uid or f"u{number:06}", created=f"{created:06}")


def accepted(entries: dict[int, tuple[Entry, int]], quota: Quota) -> set[Ref]:
    """By the words of the rule: oldest first as many as fit, and none after the first that does not."""
    found: set[Ref] = set()
    used = 0
    for e, size in sorted(entries.values(), key=lambda p: (p[0].created, p[0].uid, p[0].ref.key)):
        used += size
        if (quota.tools and len(found) == quota.tools) or (quota.size and used > quota.size):
            break
        found.add(e.ref)
    return found


change = st.tuples(st.integers(0, 12), st.booleans(), st.integers(0, 3), st.integers(1, 40), st.booleans())


@examples(300)
@given(
    st.integers(0, 6), st.integers(0, 120), st.lists(st.lists(change, min_size=1, max_size=4), max_size=12)
)
def test_after_any_changes_the_oldest_that_fit_have_a_place(
    tools: int, size: int, turns: list[list[tuple[int, bool, int, int, bool]]]
) -> None:
    quota = Quota(tools, size)
    quotas, there = Quotas(quota), dict[int, tuple[Entry, int]]()
    known: set[Ref] = set()
    for turn in turns:
        for number, gone, created, weight, anew in turn:
            if gone:
                there.pop(number, None)
                quotas.drop(entry(number).ref)
                known.discard(entry(number).ref)
            else:
                e = entry(number, created, "again" if anew else "")
                there[number] = (e, weight)
                quotas.put(e, weight)
        moved = quotas.settle()
        expected = accepted(there, quota)
        assert {e.ref for e, _ in there.values() if quotas.refusal(e.ref) is None} == expected
        # those who are told of a change are those who had, or had not, a place before
        assert not moved.regained & moved.lost
        assert moved.lost <= {e.ref for e, _ in there.values()} - expected
        assert moved.regained <= expected
        assert known & expected <= known - moved.lost
        known = set(expected)


@examples(200)
@given(
    st.integers(1, 6), st.integers(1, 100), st.lists(st.integers(1, 40), min_size=1, max_size=12), st.data()
)
def test_a_younger_tool_takes_no_place_and_a_deletion_costs_none(
    tools: int, size: int, sizes: list[int], data: st.DataObject
) -> None:
    quotas = Quotas(Quota(tools, size))
    for number, weight in enumerate(sizes):
        quotas.put(entry(number, number), weight)
    quotas.settle()
    quotas.put(entry(99, 99), data.draw(st.integers(1, 40)))
    assert quotas.settle().lost <= {entry(99).ref}
    quotas.drop(entry(data.draw(st.integers(0, len(sizes) - 1))).ref)
    assert not quotas.settle().lost


def test_ten_thousand_arrivals_and_departures_cost_their_number_and_not_its_square() -> None:
    def cost(count: int) -> float:
        quotas, numbers = Quotas(Quota(count // 2, 0)), list(range(count))
        random.Random(7).shuffle(numbers)
        moved = 0
        began = time.thread_time()
        for number in numbers:
            quotas.put(entry(number, number), 100)
            moved += len(quotas.settle().lost)
        for number in range(count // 2):
            quotas.drop(entry(number).ref)
            moved += len(quotas.settle().regained)
        assert moved <= 3 * count
        return time.thread_time() - began

    few = min(cost(2_500) for _ in range(3))
    assert min(cost(10_000) for _ in range(3)) < 8 * few  # 4 times as many; the square would be 16


def test_the_refusal_says_the_numbers() -> None:
    quotas = Quotas(Quota(5_000, 64 << 20))
    for number in range(5_003):
        quotas.put(entry(number, number), 14_000)
    quotas.settle()
    last = quotas.refusal(entry(5_002).ref)
    assert last is not None
    assert last.message.startswith(
        "namespace heist has 5,003 tools of 66.8 MiB; 5,000 tools and 64 MiB are allowed. Older tools keep their place"
    )
    tight = Quotas(Quota(0, 1 << 20))
    tight.put(entry(1), (1 << 20) + 1)
    tight.settle()
    only = tight.refusal(entry(1).ref)
    assert only is not None
    assert "1 tools of 1.01 MiB; 1 MiB are allowed" in only.message  # never "1 MiB of 1 MiB"


def crowd(count: int, **spec: Any) -> list[dict[str, Any]]:
    """Tools t0, t1, … of one namespace, each a second younger than the one before."""
    found = []
    for number in range(count):
        manifest = tool(f"t{number}", **spec)
        manifest["metadata"] |= {
            "creationTimestamp": f"2026-01-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z",
            "uid": f"uid-{number}", "generation": 1, "resourceVersion": str(number + 1),
        }  # fmt: skip
        found.append(manifest)
    return found


def limited(tools: int, size: int = 0) -> Any:
    return replace(SETTINGS, quota=Quota(tools, size))


def status(stage: Stage, number: int) -> dict[str, tuple[str, str]]:
    return conditions(stage.world.get(Ref("Tool", f"heist/t{number}")).status)  # type: ignore[union-attr]


def message(stage: Stage, number: int, kind: str = "Accepted") -> str:
    found = stage.world.get(Ref("Tool", f"heist/t{number}"))
    assert found is not None
    return str(next(c["message"] for c in found.status["conditions"] if c["type"] == kind))


async def test_the_youngest_wait_and_the_next_oldest_follows_when_room_is_freed() -> None:
    async with staged(*crowd(6), settings=limited(3)) as stage:
        await until(lambda: status(stage, 2).get("Ready") == ("True", "Ready"))
        await until(lambda: status(stage, 5).get("Accepted") == ("False", "QuotaExceeded"))
        assert [n for n in range(6) if status(stage, n)["Accepted"][0] == "True"] == [0, 1, 2]
        assert message(stage, 4).startswith("namespace heist has 6 tools of ")
        assert "; 3 tools are allowed. Older tools keep their place" in message(stage, 4)
        assert message(stage, 4, "Ready") == message(stage, 4)
        said = stage.writer.statuses
        change = stage.world.remove("Tool", "heist/t1", "100")
        await stage.loop.published(change)
        await until(lambda: status(stage, 3)["Ready"] == ("True", "Ready"))
        assert status(stage, 4)["Accepted"] == ("False", "QuotaExceeded")
        assert set(stage.loop.assessor.published) == {Ref("Tool", f"heist/t{n}") for n in (0, 2, 3)}
        # accepted, then indexed: of t3 alone
        assert stage.writer.statuses - said <= 3


async def test_a_tool_that_grows_costs_younger_ones_their_place_and_an_edit_back_returns_it() -> None:
    size = 4_000
    async with staged(*crowd(3), settings=limited(0, size)) as stage:
        await until(lambda: status(stage, 2).get("Ready") == ("True", "Ready"))
        grown = crowd(1, description="x" * 3_000)[0]
        grown["metadata"] |= {"generation": 2, "resourceVersion": "50"}
        stage.world.upsert("Tool", grown)
        await until(lambda: status(stage, 2)["Accepted"] == ("False", "QuotaExceeded"))
        assert Ref("Tool", "heist/t0") in stage.loop.assessor.published
        shrunk = crowd(1)[0]
        shrunk["metadata"] |= {"generation": 3, "resourceVersion": "60"}
        stage.world.upsert("Tool", shrunk)
        await until(lambda: status(stage, 2)["Ready"] == ("True", "Ready"))


async def test_another_leader_comes_to_the_same_places_and_writes_no_status_again() -> None:
    async with staged(*crowd(8), settings=limited(5)) as stage:
        await until(lambda: status(stage, 4).get("Ready") == ("True", "Ready"))
        await until(lambda: status(stage, 7).get("Accepted") == ("False", "QuotaExceeded"))
        late = crowd(9)[8]
        stage.world.upsert("Tool", late)  # the numbers of the others are not written again for it
        await until(lambda: status(stage, 8).get("Accepted") == ("False", "QuotaExceeded"))
        assert "has 8 tools" in message(stage, 5)
        assert "has 9 tools" in message(stage, 8)
        world = stage.world
    world.touch([e.ref for e in world.all("Tool")])
    async with staged(settings=limited(5), world=world) as stage:
        await until(lambda: len(stage.loop.assessor.published) == 5)
        await until(lambda: not stage.loop.status_writer.backlog and not stage.loop._planner.waiting)
        assert stage.writer.statuses == 0
        assert {e.ref.name for e in world.all("Tool") if e.ref in stage.loop.assessor.published} == {
            "t0", "t1", "t2", "t3", "t4"
        }  # fmt: skip


async def test_other_limits_are_told_to_those_that_wait() -> None:
    async with staged(*crowd(4), settings=limited(2)) as stage:
        await until(lambda: status(stage, 3).get("Accepted") == ("False", "QuotaExceeded"))
        world = stage.world
    world.touch([e.ref for e in world.all("Tool")])
    async with staged(settings=limited(3), world=world) as stage:
        await until(lambda: "3 tools are allowed" in message(stage, 3))
        await until(lambda: status(stage, 2)["Ready"] == ("True", "Ready"))


async def test_what_is_refused_for_another_reason_takes_no_room_and_namespaces_have_room_of_their_own() -> (
    None
):
    tools = crowd(4)
    tools[0]["spec"]["inputSchema"] = {"$ref": "https://elsewhere/schema"}
    tools[1]["metadata"]["namespace"] = "vault"
    async with staged(*tools, settings=limited(2)) as stage:
        await until(lambda: status(stage, 3).get("Ready") == ("True", "Ready"))
        assert status(stage, 0)["Accepted"] == ("False", "SchemaUnsafe")
        assert status(stage, 2)["Ready"] == ("True", "Ready")
        assert {r.key for r in stage.loop.assessor.published} == {"vault/t1", "heist/t2", "heist/t3"}


@pytest.mark.slow
async def test_thousands_of_tools_get_their_places_with_two_statuses_each_at_most() -> None:
    async with staged(*crowd(2_000), settings=limited(1_000)) as stage:
        await until(lambda: len(stage.loop.assessor.published) == 1_000, seconds=120)
        await until(lambda: status(stage, 1_999).get("Accepted") == ("False", "QuotaExceeded"), seconds=120)
        await until(lambda: status(stage, 999).get("Ready") == ("True", "Ready"), seconds=120)
        assert stage.writer.statuses <= 4_000


def test_zero_is_no_limit() -> None:
    quotas = Quotas(Quota(0, 0))
    for number in range(100):
        quotas.put(entry(number, number), 1 << 30)
    assert not quotas.settle().lost
    assert not list(quotas.uses())


def test_the_operator_reads_its_quota_and_names_what_is_none() -> None:
    args = ["--registry-url", "https://registry"]
    assert parse(args, {}).loop.quota == Quota(5_000, 64 << 20)
    assert parse([*args, "--quota-tools", "7", "--quota-bytes", "2Gi"], {}).loop.quota == Quota(7, 2 << 30)
    assert parse(args, {"TOOLCRIB_OPERATOR_QUOTA_BYTES": "0"}).loop.quota == Quota(5_000, 0)
    for wrong in (["--quota-tools", "-1"], ["--quota-bytes", "64MiB"], ["--quota-bytes", "-5"]):
        with pytest.raises(SystemExit):
            parse([*args, *wrong], {})


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("123", 123), ("500k", 500_000), ("64Mi", 64 << 20), ("1Gi", 1 << 30), ("2G", 2 * 10**9)]
)  # fmt: skip
def test_a_size_is_read_as_kubernetes_writes_it(text: str, size: int) -> None:
    assert quantities.in_bytes(text) == size


@pytest.mark.parametrize("text", ["", "Mi", "1.5Mi", "64MB", "64 Mi", "-1", "1e6", "٣Mi", "64mi", "1" * 20])
def test_what_is_no_size_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        quantities.in_bytes(text)


def test_a_prediction_believes_what_the_cluster_says_of_room(tmp_path: Any) -> None:
    told = {
        "conditions": [
            {"type": "Accepted", "status": "False", "reason": "QuotaExceeded", "message": "no room"}
        ]
    }
    tools = crowd(2)
    tools[1]["status"] = told
    world = World(required=outcome.COUNTED)
    for kind in outcome.COUNTED:
        world.replace(kind, [t for t in tools if t["kind"] == kind])
    found = outcome.predict(world)
    assert [(n.ref, n.reason, n.message) for n in found.not_used] == [
        ("Tool heist/t1", "QuotaExceeded", "no room")
    ]
    assert set(found.after.tools) == {"heist/t0"}
