"""Held event loops are found, named and counted; a machine that stands still is no finding."""

import asyncio
import gc
import importlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from toolcrib.process import HeldLoops, heap, series, watching
from toolcrib.process.watchdog import BEAT, BUSY, GC, LAG, OTHER, PASS, PLACES

SOURCE = """
def compute(seconds, secret):
    import time
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(1000))

def handle(seconds, secret):
    compute(seconds, secret)
"""


def ours() -> dict[str, Any]:
    """Functions of a module of ours that computes."""
    space: dict[str, Any] = {"__name__": "toolcrib_example"}
    exec(SOURCE, space)
    return space


def run(work: Callable[[], object]) -> HeldLoops:
    """A loop that beats, does `work` in one callback, and beats again."""
    counts = HeldLoops()

    async def main() -> None:
        with watching(counts=counts):
            await asyncio.sleep(3 * BEAT)
            work()
            await asyncio.sleep(3 * BEAT)

    asyncio.run(main())
    return counts


def test_a_callback_that_computes_is_counted_by_the_innermost_function_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    handle = ours()["handle"]

    places = run(lambda: handle(0.3, "s3cret")).places()

    assert set(places) == {"toolcrib_example.compute"}
    held = places["toolcrib_example.compute"]
    assert held.count == 1
    assert held.seconds >= 0.25
    line = next(r for r in caplog.records if "was held for" in r.getMessage())
    fields = vars(line)["fields"]
    assert line.levelno == logging.WARNING
    assert "by toolcrib_example.compute" in line.getMessage()
    assert fields["stack"][:2] == ["toolcrib_example.compute", "toolcrib_example.handle"]
    assert fields["cpu_ms"] >= BUSY * 1000
    assert fields["held_ms"] == round(held.seconds * 1000)
    assert "s3cret" not in str(vars(line))


def test_a_loop_that_waits_while_the_machine_stands_still_is_no_finding() -> None:
    assert run(lambda: time.sleep(0.4)).places() == {}


def test_another_thread_that_keeps_the_interpreter_to_itself_is_no_finding() -> None:
    late: list[float] = []

    def work() -> None:
        # one operation on a big number does not let other threads in
        other = threading.Thread(target=lambda: 7**700_000 % 5)
        began = time.monotonic()
        other.start()
        other.join()
        late.append(time.monotonic() - began)

    assert run(work).places() == {}
    assert late


def test_short_callbacks_are_no_finding_however_many() -> None:
    counts = HeldLoops()
    compute = ours()["compute"]

    async def main() -> None:
        with watching(counts=counts):
            for _ in range(40):
                compute(0.005, "")
                await asyncio.sleep(0)

    asyncio.run(main())
    assert counts.places() == {}


@pytest.mark.slow
def test_a_garbage_collection_is_named_as_one() -> None:
    kept = [[number] for number in range(1_500_000)]

    def work() -> None:
        end = time.thread_time() + 2 * LAG
        while time.thread_time() < end:
            gc.collect()

    assert set(run(work).places()) == {GC}
    assert kept


@pytest.mark.slow
def test_a_pass_over_everything_is_told_from_an_automatic_collection() -> None:
    kept = [[number] for number in range(1_500_000)]
    module, _, name = PASS.rpartition(".Heap.")
    assert getattr(importlib.import_module(module).Heap, name)

    def work() -> None:
        end = time.thread_time() + 2 * LAG
        while time.thread_time() < end:
            heap.make_pass()
        gc.unfreeze()

    assert set(run(work).places()) == {PASS}
    assert kept
    del kept
    gc.freeze()  # as the suite had it


def test_a_loop_that_is_still_held_is_logged_before_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    compute = ours()["compute"]
    run(lambda: compute(1.4, ""))

    said = [r.getMessage() for r in caplog.records]
    still = next(i for i, text in enumerate(said) if "and still is" in text)
    ended = next(i for i, text in enumerate(said) if "was held for" in text)
    assert still < ended
    assert vars(caplog.records[still])["fields"]["stack"][0] == "toolcrib_example.compute"


def test_nothing_is_left_after_the_block() -> None:
    callbacks, threads = list(gc.callbacks), threading.enumerate()
    run(lambda: None)
    assert list(gc.callbacks) == callbacks
    assert threading.enumerate() == threads


def test_places_beyond_the_bound_are_counted_as_other() -> None:
    counts = HeldLoops()
    for number in range(PLACES + 5):
        counts.count(f"place_{number}", 1.0)
    counts.count("place_0", 1.0)

    places = counts.places()
    assert len(places) == PLACES + 1
    assert places[OTHER].count == 5
    assert places["place_0"].seconds == 2.0
    held = next(s for s in series(counts) if s.name == "toolcrib_loop_held")
    assert sum(held.values.values()) == PLACES + 6
