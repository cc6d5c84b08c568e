"""What the assertion of a call costs: CPU time of the event loop's thread, made and verified."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jwt
import measure

from published import bot
from toolcrib_cli.example_tools import CallAssertions
from toolcrib_registry.calls.assertions.keys import AssertionKeys, make_private
from toolcrib_registry.calls.assertions.signing import Assertions

ISSUER, TOOL, TARGET = "https://toolcrib.example.com", "heist/calculator", "/tools/calculator"
CALLER = bot()
BODIES = {"20 B": b'{"expression":"6*7"}', "64 KiB": b"x" * (64 << 10), "1 MiB": b"x" * (1 << 20)}


def run(quick: bool) -> dict[str, Any]:
    """Measure and print; the figures."""
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        held = AssertionKeys(make_private(Path(folder) / "keys"), time.time, time.monotonic)
        signer = Assertions(ISSUER, held, time.time)
        for name, body in BODIES.items():
            count = (200 if quick else 2_000) // (1 if len(body) < 1 << 20 else 10)
            made: list[str] = []
            figures[name] = {
                "made_us": _cost(partial(_make, signer, body, made), count),
                "bytes": len(made[0]),
            }
            verifier = CallAssertions(ISSUER, _Known(held), [TOOL])
            figures[name]["verified_us"] = _cost(partial(_verify, verifier, body, iter(made)), count)
    measure.table(
        "Call assertions: CPU time each, on one thread",
        ["body", "made, µs", "verified, µs", "header, bytes"],
        [
            [name, f"{f['made_us']:.0f}", f"{f['verified_us']:.0f}", str(f["bytes"])]
            for name, f in figures.items()
        ],
    )
    return figures


def _make(signer: Assertions, body: bytes, made: list[str]) -> None:
    made.append(signer.made(TOOL, CALLER, "POST", TARGET, body))


def _verify(verifier: CallAssertions, body: bytes, made: Iterator[str]) -> None:
    verifier.verify(next(made), "POST", TARGET, body)


class _Known(jwt.PyJWKClient):
    """The keys without a fetch."""

    def __init__(self, held: AssertionKeys) -> None:
        super().__init__("http://127.0.0.1")
        self._held = held

    def fetch_data(self) -> Any:
        return self._held.jwks()


def _cost(work: Callable[[], object], count: int) -> float:
    """Microseconds of CPU a time: the median of five parts."""
    parts = []
    for _ in range(5):
        started = time.thread_time()
        for _ in range(count // 5):
            work()
        parts.append((time.thread_time() - started) / (count // 5) * 1e6)
    return statistics.median(parts)
