"""What stays is not visited by collections, and garbage in it is found all the same."""

import asyncio
import gc
import json
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from toolcrib.process import Heap
from toolcrib.process.garbage import FLOOR, GROWTH, LARGE, THRESHOLDS


class Ring:
    """Garbage that only a collection finds."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    """What the suite itself has frozen is no part of what is counted here."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.fixture
def heap() -> Iterator[Heap]:
    made = Heap()
    with made.settled():
        yield made


REPLACED = """
import gc, json
from toolcrib.process import Heap
from toolcrib.process.garbage import FLOOR, GROWTH

class Ring:
    def __init__(self):
        self.me = self

heap = Heap()
with heap.settled():
    bound, most, passes = heap.kept * (1 + GROWTH) + FLOOR, 0, 0
    for _ in range(300):
        snapshot = [Ring() for _ in range(2_000)]  # the worst: a snapshot that is all cycles
        heap.grown(len(snapshot))
        most = max(most, gc.get_freeze_count())
        if heap.due():
            heap.make_pass()
            passes += 1
            bound = max(bound, heap.kept * (1 + GROWTH) + FLOOR)
    print(json.dumps([most, bound, passes]))
"""


def visited() -> int:
    """How many objects a full collection visits."""
    return len(gc.get_objects())


@pytest.mark.slow
def test_what_was_there_at_the_start_is_not_visited_again(heap: Heap) -> None:
    assert heap.kept > 50_000
    assert visited() < heap.kept / 10
    assert gc.get_threshold() == THRESHOLDS


def test_everything_is_as_before_after_the_block() -> None:
    before, callbacks = gc.get_threshold(), list(gc.callbacks)
    with Heap().settled():
        assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == before
    assert list(gc.callbacks) == callbacks
    assert gc.get_freeze_count() == 0


def test_a_large_growth_is_frozen_at_once_and_a_small_one_is_not(heap: Heap) -> None:
    small = [[number] for number in range(20_000)]
    heap.grown(LARGE - 1)
    assert visited() >= len(small)

    heap.grown(LARGE)
    assert visited() < len(small)


@pytest.mark.slow
def test_a_growth_that_nobody_told_of_is_frozen_while_it_grows(heap: Heap) -> None:
    longest, began = 0.0, 0.0

    def note(phase: str, info: Any) -> None:
        nonlocal longest, began
        if phase == "start":
            began = time.thread_time()
        else:
            longest = max(longest, time.thread_time() - began)

    gc.callbacks.append(note)
    growth = [[[number]] for number in range(3_000_000)]
    gc.callbacks.remove(note)

    assert visited() < len(growth) / 10
    assert longest < 0.25, "of 6,000,000 objects no more than 105,000 are visited at once"


def test_nothing_is_frozen_outside_of_the_block() -> None:
    heap = Heap()
    heap.grown(10 * LARGE)
    assert gc.get_freeze_count() == 0
    assert not heap.due()


@pytest.mark.slow
def test_frozen_objects_die_without_a_collection_when_nothing_refers_to_them(heap: Heap) -> None:
    class Thing:
        pass

    thing = Thing()
    heap.grown(LARGE)
    gone = weakref.ref(thing)
    del thing
    assert gone() is None


@pytest.mark.slow
def test_a_pass_is_due_once_the_frozen_objects_have_grown_by_half_and_finds_cycles_among_them(
    heap: Heap,
) -> None:
    ring = Ring()
    heap.grown(LARGE)
    gone = weakref.ref(ring)
    del ring
    gc.collect()
    assert gone() is not None, "frozen: no ordinary collection finds it"
    assert not heap.due()

    growth = [[number] for number in range(int(heap.kept * GROWTH) + FLOOR + 1_000)]
    heap.grown(len(growth))
    assert heap.due()
    heap.make_pass()
    assert gone() is None
    assert not heap.due()
    assert heap.passes == 2


@pytest.mark.slow
def test_frozen_objects_are_counted_seldom_however_often_some_are_frozen_that_die(
    heap: Heap, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, count = [], gc.get_freeze_count
    monkeypatch.setattr(gc, "get_freeze_count", lambda: counted.append(1) or count())
    rounds, each = 300, 5_000
    for _ in range(rounds):
        growth = [[number] for number in range(each)]
        heap.grown(len(growth))
        del growth
        if heap.due():
            heap.make_pass()

    assert heap.passes == 1, "nothing of it is left"
    assert len(counted) <= rounds * each * 1.5 / (heap.kept * GROWTH + FLOOR) + 1


def test_hundreds_of_replaced_snapshots_leave_a_bounded_amount_of_garbage() -> None:
    # in a process of its own: the runner's heap decides how much may gather, and counting looks at all of it
    done = subprocess.run([sys.executable, "-c", REPLACED], capture_output=True, check=True, text=True)
    most, bound, passes = json.loads(done.stdout)

    assert most <= bound + 2 * 2_000 * 2  # and the snapshot that made it due
    assert 1 <= passes <= 20


@pytest.mark.slow
def test_a_pass_that_is_due_is_made_in_a_quiet_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.process.garbage.LOOK", 0.02)
    heap = Heap()

    async def main() -> None:
        async with heap.kept_short():
            growth = [[number] for number in range(int(heap.kept * GROWTH) + FLOOR + 1_000)]
            heap.grown(len(growth))
            async with asyncio.timeout(30):
                while heap.passes < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

    asyncio.run(main())
    assert heap.passes == 2
