"""Keeps a process answering in time: a watchdog for held event loops, and garbage collections that stay short.

The services put `looked_after()` around what they serve, and show `series()` among their metrics.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

from toolcrib.process.garbage import Heap, heap
from toolcrib.process.watchdog import HeldLoops, held_loops, watching

__all__ = ["Heap", "HeldLoops", "Series", "heap", "held_loops", "looked_after", "series", "watching"]


@asynccontextmanager
async def looked_after() -> AsyncIterator[None]:
    """Keep collections short and watch the running loop until the block ends; one block a process.

    Enter it once everything is made and before anybody is answered: entering takes a full collection.
    """
    async with heap.kept_short():
        with watching():
            yield


@dataclass(frozen=True, slots=True)
class Series:
    """One metric of the process: label values → value. Counters' names lack `_total`."""

    name: str
    kind: Literal["counter", "gauge"]
    text: str
    labels: tuple[str, ...]
    values: dict[tuple[str, ...], float]


def series(held: HeldLoops = held_loops, of: Heap = heap) -> Iterator[Series]:
    """What `/metrics` of every service tells of its process."""
    places = held.places()
    yield Series(
        "toolcrib_loop_held",
        "counter",
        "Times an event loop was held: a timer over 100 ms late, and at least 80 ms of processor time used meanwhile.",
        ("place",),
        {(place,): float(h.count) for place, h in places.items()},
    )
    yield Series(
        "toolcrib_loop_held_seconds",
        "counter",
        "Seconds for which event loops were held; nobody was answered meanwhile.",
        ("place",),
        {(place,): h.seconds for place, h in places.items()},
    )
    yield Series(
        "toolcrib_gc_passes",
        "counter",
        "Garbage collections over everything that the process holds: at the start, and after it has grown by half.",
        (),
        {(): float(of.passes)},
    )
    yield Series(
        "toolcrib_gc_pass_seconds",
        "counter",
        "Seconds that these collections took; the process stands still meanwhile.",
        (),
        {(): of.pass_seconds},
    )
    yield Series(
        "toolcrib_gc_frozen_objects",
        "gauge",
        "Objects that were left after the last of these collections; other collections do not visit them.",
        (),
        {(): float(of.kept)},
    )
