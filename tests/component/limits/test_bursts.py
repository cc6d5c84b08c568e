"""Hundreds of calls at one moment, at the default timeout of the store of counters, which is well all the time."""

import asyncio
import contextlib
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from realparts.redis_server import Redis
from realparts.required import require_redis
from registry_harness import RunningRegistry, backend, binding, running_registry, tool
from slow_backend import slow_backend
from toolcrib.wire.publish import PublishedLimits, PublishedTool
from toolcrib_registry.adapters.counters import redis as counters_redis
from toolcrib_registry.limits.counters import Charge, CountersBusy, CountersUnavailable, Demand

READS = {"readOnlyHint": True}
Answer = tuple[int, str, str | None]
"""Status, code of the problem, Retry-After."""


@pytest.fixture(scope="module")
def redis() -> Iterator[Redis]:
    require_redis()
    with Redis() as server:
        # it is well all the time, also where many processes want the machine
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, server.process.pid, -15)
        yield server


@pytest.fixture(autouse=True)
def _patient_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    # redis-py's own deadline counts the time that this process does not run, too
    monkeypatch.setattr(counters_redis, "_PATIENCE_SECONDS", 30.0)


@pytest.fixture
def tools() -> Iterator[list[PublishedTool]]:
    with slow_backend() as quick:
        quick.answer()
        reader = tool("calculator", backend=backend(quick.port), annotations=READS)
        yield [reader, tool("other", backend=backend(quick.port), scopes=("other:use",))]


def counted(redis: Redis) -> dict[str, Any]:
    return {"kind": "redis", "url": redis.url}


async def call(r: RunningRegistry, name: str = "calculator", account: str = "bot") -> Answer:
    at = urlsplit(r.url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    lines = [
        f"POST /tools/{name} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: {r.auth('team', account)['Authorization']}",
        "Content-Type: application/json", "Content-Length: 2", "Connection: close", "", "{}",
    ]  # fmt: skip
    writer.write("\r\n".join(lines).encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    headers = dict(line.lower().split(": ", 1) for line in head.decode().split("\r\n")[1:])
    status = int(head.split(b" ", 2)[1])
    return status, "" if status == 200 else json.loads(body)["code"], headers.get("retry-after")


async def burst_of(r: RunningRegistry, calls: int) -> list[Answer]:
    return await asyncio.gather(*(call(r) for _ in range(calls)))


def waited(redis: Redis) -> float:
    """Seconds that Redis was ready and got no processor, since its start; 0 where the kernel does not say."""
    with contextlib.suppress(OSError):
        threads = Path(f"/proc/{redis.process.pid}/task").glob("*/schedstat")
        return sum(int(each.read_text().split()[1]) for each in threads) / 1e9
    return 0.0


def while_it_is_well(redis: Redis, attempt: Callable[[int], object], expected: object) -> object:
    """What an attempt comes to. Another one, six in all, where Redis waited for a processor: its silence is the machine's then."""
    for number in range(6):
        before = waited(redis)
        came_to = attempt(number)
        if came_to == expected or waited(redis) - before < counters_redis.RedisPlace(redis.url).timeout / 2:
            break
    return came_to


def store_errors(r: RunningRegistry) -> float:
    lines = r.metrics().splitlines()
    (line,) = [m for m in lines if m.startswith("toolcrib_counter_store_errors_total ")]
    return float(line.split()[1])


@pytest.mark.real
def test_a_burst_switches_no_limit_off(redis: Redis, tools: list[PublishedTool]) -> None:
    limits = PublishedLimits(per_minute=5, per_day=1000, concurrent=300)

    def burst(number: int) -> tuple[Counter[tuple[int, str]], float]:
        grant = binding("bot", name=f"burst-{number}", limits=limits)
        with running_registry(tools, [grant], counters=counted(redis)) as r:
            answers = asyncio.run(burst_of(r, 200))
            return Counter((status, code) for status, code, _ in answers), store_errors(r)

    expected = (Counter({(200, ""): 5, (429, "limit_exceeded"): 195}), 0.0)
    assert while_it_is_well(redis, burst, expected) == expected


async def during_a_burst(r: RunningRegistry) -> list[Answer]:
    """What another agent hears, whose calls come one after the other."""
    burst = asyncio.create_task(burst_of(r, 150))
    answers = []
    while not burst.done():
        answers.append(await call(r, "other", "victim"))
    await burst
    return answers


@pytest.mark.real
def test_a_burst_of_one_agent_refuses_nothing_to_another(redis: Redis, tools: list[PublishedTool]) -> None:
    few, many = PublishedLimits(per_minute=5, per_day=1000), PublishedLimits(per_minute=1000, concurrent=2)

    def burst(number: int) -> tuple[set[int], float]:
        grants = [
            binding("bot", name=f"greedy-{number}", limits=few),
            binding("victim", ["other:use"], name=f"modest-{number}", limits=many),
        ]
        with running_registry(tools, grants, counters=counted(redis)) as r:
            return {status for status, _, _ in asyncio.run(during_a_burst(r))}, store_errors(r)

    assert while_it_is_well(redis, burst, ({200}, 0.0)) == ({200}, 0.0)


@pytest.mark.real
def test_what_cannot_be_counted_for_want_of_time_is_refused_even_where_it_only_reads(
    redis: Redis, tools: list[PublishedTool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters_redis, "_AT_ONCE", 1)
    monkeypatch.setattr(counters_redis, "_WAITING_EACH", 0)
    limits = PublishedLimits(per_minute=5)
    with running_registry(tools, [binding("bot", name="busy", limits=limits)], counters=counted(redis)) as r:
        answers = asyncio.run(burst_of(r, 100))
        errors = store_errors(r)
        ready = r.http.get(f"{r.admin_url}/readyz").json()["parts"]["limits"]["ready"]
    found = Counter(answers)
    assert found[503, "limits_unavailable", "1"] > 0
    assert sum(n for (status, _, _), n in found.items() if status == 200) <= 5
    assert {status for status, _, _ in answers} <= {200, 429, 503}
    assert (errors, ready) == (0, True)


def test_silence_of_one_question_is_no_outage_while_others_are_answered() -> None:
    async def nothing() -> None:
        return None

    async def asked() -> None:
        guard = counters_redis._Guard(0.05, time.monotonic)
        never = asyncio.Event()
        silent = asyncio.create_task(guard(never.wait(), "one"))
        while not silent.done():
            await guard(nothing(), "other")
            await asyncio.sleep(0.01)
        assert isinstance(silent.exception(), CountersBusy)
        await guard(nothing(), "other")

        with pytest.raises(CountersUnavailable) as alone:
            await guard(never.wait(), "one")
        assert not isinstance(alone.value, CountersBusy)
        with pytest.raises(CountersUnavailable):
            await guard(nothing(), "other")
        never.set()
        await guard.aclose()

    asyncio.run(asyncio.wait_for(asked(), 30))


@pytest.mark.real
def test_a_process_that_stands_still_takes_no_answer_for_silence(redis: Redis) -> None:
    demand = Demand("uid-still/who", PublishedLimits(per_minute=9, per_day=9, concurrent=9))

    async def charged() -> object:
        counters = counters_redis.RedisCounters(counters_redis.RedisPlace(redis.url))
        asked = asyncio.create_task(counters.charge([[demand]], lease=5))
        stop = threading.Event()
        while not asked.done():
            await asyncio.sleep(0)
            stop.wait(0.03)
        await counters.aclose()
        return asked.result()

    assert isinstance(asyncio.run(charged()), Charge)


@pytest.mark.parametrize("error", [AttributeError("reader"), asyncio.CancelledError()], ids=repr)
def test_whatever_the_client_of_the_store_raises_the_store_does_not_answer(error: BaseException) -> None:
    async def broken() -> None:
        raise error

    async def asked() -> None:
        guard = counters_redis._Guard(5.0, time.monotonic)
        with pytest.raises(CountersUnavailable, match=rf"^{type(error).__name__} at test_bursts.py:\d+$"):
            await guard(broken(), "one")
        await guard.aclose()

    asyncio.run(asked())
