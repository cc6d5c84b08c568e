"""What charging a call to limits costs in a Redis that replicas share: round trips, time, processor time of both, memory."""

from __future__ import annotations

import asyncio
import os
import secrets
import statistics
import time
from typing import Any

from redis.asyncio import Redis as Client
from redis.asyncio.connection import AbstractConnection

from toolcrib.wire.publish import PublishedLimits
from toolcrib_registry.adapters.counters.redis import RedisCounters, RedisPlace
from toolcrib_registry.limits.counters import Charge, Demand

ACCOUNTS, DAY = 100, 5_000
ROOMY = {
    "callsPerMinute": PublishedLimits(per_minute=10**6),
    "all three": PublishedLimits(per_minute=10**6, per_day=10**6, concurrent=10**3),
}
COLUMNS = {"round trips": 1, "ms": 2, "registry CPU µs": 0, "server CPU µs": 0}


def run(quick: bool) -> dict[str, Any]:
    """Measure and print; the figures."""
    from realparts.redis_server import Redis

    with Redis() as server:
        figures = asyncio.run(_measured(server.url, server.process.pid, 3 if quick else 9, 2_000))
    print(f"\n{'limits':16}" + "".join(f"{name:>17}" for name in COLUMNS))
    for name, one in figures["calls"].items():
        print(f"{name:16}" + "".join(f"{one[c]:17.{digits}f}" for c, digits in COLUMNS.items()))
    print(
        f"\nA call that is in a window takes {figures['bytes']:.0f} bytes in Redis (of {DAY:,} in one window)."
    )
    return figures


async def _measured(url: str, server: int, rounds: int, calls: int) -> dict[str, Any]:
    sent, counters = _sent(), RedisCounters(RedisPlace(url, timeout=5.0))
    accounts = [f"{secrets.token_hex(16)}/{secrets.token_hex(16)}" for _ in range(ACCOUNTS)]
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in ROOMY}
    for _ in range(rounds):
        for name, limits in ROOMY.items():
            before = (len(sent), time.perf_counter(), time.process_time(), _processor_seconds(server))
            for number in range(calls):
                charge = await counters.charge([[Demand(accounts[number % ACCOUNTS], limits)]], lease=10)
                assert isinstance(charge, Charge)
                await counters.release(charge)
            after = (len(sent), time.perf_counter(), time.process_time(), _processor_seconds(server))
            took = [(b - a) / calls for a, b in zip(before, after, strict=True)]
            found[name].append((took[0], took[1] * 1e3, took[2] * 1e6, took[3] * 1e6))
    for _ in range(DAY):
        await counters.charge([[Demand("full", PublishedLimits(per_day=DAY))]], lease=10)
    await counters.aclose()
    async with Client.from_url(url) as client:
        (key,) = [key async for key in client.scan_iter("*full*")]
        size = await client.memory_usage(key, samples=0)
    medians = {n: map(statistics.median, zip(*rows, strict=True)) for n, rows in found.items()}
    return {
        "calls": {name: dict(zip(COLUMNS, row, strict=True)) for name, row in medians.items()},
        "bytes": size / DAY,
    }


def _sent() -> list[None]:
    """Grows by one with each command that goes out."""
    sent: list[None] = []
    send = AbstractConnection.send_packed_command

    async def noted(connection: AbstractConnection, command: Any, **how: Any) -> None:
        sent.append(None)
        await send(connection, command, **how)

    AbstractConnection.send_packed_command = noted  # type: ignore[method-assign]
    return sent


def _processor_seconds(process: int) -> float:
    with open(f"/proc/{process}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
