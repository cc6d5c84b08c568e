"""What a call is told, and whom it is charged to, by what the store of counters answers."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from published import binding, bot, tool
from toolcrib.authorizer import Policy
from toolcrib.resources.tools import ScopeMatch
from toolcrib.wire.publish import PublishedBinding, PublishedLimits
from toolcrib_registry.clock import SystemClock
from toolcrib_registry.failures import Failure
from toolcrib_registry.limits.charge import Charged, Charging
from toolcrib_registry.limits.counters import (
    Charge,
    CountersBusy,
    CountersUnavailable,
    Demand,
    Groups,
    Limit,
    Shortage,
)
from toolcrib_registry.metrics.recorder import Metrics

pytestmark = pytest.mark.anyio
AWAY, BUSY = CountersUnavailable("away"), CountersBusy("busy")
READS = {"readOnlyHint": True}


class Store:
    """Answers as it is told; `asked` and `released` say what came."""

    def __init__(self, answer: Charge | Shortage | CountersUnavailable) -> None:
        self.answer = answer
        self.asked: list[Groups] = []
        self.released: list[Charge] = []

    async def charge(self, groups: Sequence[Sequence[Demand]], *, lease: float) -> Charge | Shortage:
        self.asked.append(groups)
        if isinstance(self.answer, CountersUnavailable):
            raise self.answer
        return self.answer

    async def release(self, charge: Charge) -> None:
        self.released.append(charge)

    async def healthy(self) -> None: ...

    async def aclose(self) -> None: ...


def granted(name: str, scope: str = "use", **limits: int) -> PublishedBinding:
    return binding(name, scopes=(scope,), limits=PublishedLimits(**limits) if limits else None)


async def charged(store: Store, *bindings: PublishedBinding, **fields: Any) -> tuple[Charged, Metrics]:
    """A call that `bindings` grant, until its slots are free again."""
    metrics = Metrics(CollectorRegistry())
    charging = Charging(store, metrics, SystemClock())
    async with AsyncExitStack() as call:
        return await call.enter_async_context(
            charging.charged(bot(), tool(**fields), Policy.compile(bindings), bindings[0])
        ), metrics


BOTH: dict[str, Any] = {"scopes": ("a", "b"), "scope_match": ScopeMatch.ALL}


async def test_bindings_without_limits_that_come_first_are_not_asked_about() -> None:
    store = Store(AWAY)
    one, two = granted("one", "a"), granted("two", "b")
    found, _ = await charged(store, one, two, **BOTH)
    assert (found.binding, found.uids, store.asked) == (one, {one.uid, two.uid}, [])


async def test_all_groups_go_to_the_store_in_one_question_and_what_it_charged_is_released() -> None:
    taken = Charge((0, 1), ("account",), "slot")
    store = Store(taken)
    one, two, three = (
        granted("one", "a", concurrent=1),
        granted("three", "b", per_minute=1),
        granted("two", "b"),
    )
    found, _ = await charged(store, one, two, three, **BOTH)
    assert len(store.asked) == 1
    assert [[d.limits for d in group] for group in store.asked[0]] == [[one.limits], [two.limits, None]]
    assert (found.binding, found.uids) == (one, {one.uid, three.uid})
    assert store.released == [taken]


async def test_while_the_store_is_away_those_without_limits_are_charged_wherever_they_stand() -> None:
    one, two, free = (
        granted("one", "a", per_minute=1),
        granted("a-two", "b", per_minute=1),
        granted("two", "b"),
    )
    store = Store(AWAY)
    found, metrics = await charged(store, one, granted("zone", "a"), two, free, **BOTH)
    assert found.uids == {"uid:team-a/zone", free.uid}
    assert found.binding is not None
    assert found.binding.name == "two"
    assert "toolcrib_counter_store_errors_total 1.0" in metrics.exposition().decode()


async def test_while_the_store_is_away_reads_go_uncounted_and_all_else_is_refused() -> None:
    free, limited = granted("free", "a"), granted("limited", "b", per_minute=1)
    found, _ = await charged(Store(AWAY), free, limited, annotations=READS, **BOTH)
    assert (found.binding, found.uids) == (limited, {free.uid, limited.uid})
    with pytest.raises(Failure) as refused:
        await charged(Store(AWAY), free, limited, **BOTH)
    assert (refused.value.code, refused.value.retry_after) == ("limits_unavailable", 2)


async def test_while_the_store_has_too_much_to_do_reads_are_refused_too_and_nothing_counts_as_an_error() -> (
    None
):
    with pytest.raises(Failure) as refused:
        await charged(Store(BUSY), granted("limited", per_minute=1), annotations=READS)
    assert (refused.value.code, refused.value.retry_after) == ("limits_unavailable", 1)
    found, metrics = await charged(Store(BUSY), granted("limited", per_minute=1), granted("zone"))
    assert found.uids == {"uid:team-a/zone"}
    assert "toolcrib_counter_store_errors_total 0.0" in metrics.exposition().decode()


async def test_a_refusal_names_the_limit_of_the_binding_that_has_room_first() -> None:
    store = Store(Shortage(Limit.PER_DAY, 77, group=0, place=1))
    with pytest.raises(Failure, match=r"7 calls in 24 hours is used up. Retry in 77 s") as refused:
        await charged(store, granted("a", per_day=5), granted("b", per_day=7))
    assert (refused.value.code, refused.value.retry_after) == ("limit_exceeded", 77)
    assert refused.value.extra == {"limit": "per_day"}
    assert store.released == []
