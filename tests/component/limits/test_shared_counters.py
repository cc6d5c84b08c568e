"""Limits that several replicas count together in a real Redis: shared, lost, away, locked, and slots of the dead."""

import contextlib
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from realparts import pki
from realparts.processes import wait_until
from realparts.redis_server import Redis
from realparts.required import require_redis
from registry_harness import RunningRegistry, backend, binding, mint, running_registry, tool
from registry_process import configuration, process
from slow_backend import SlowBackend, slow_backend
from toolcrib.wire.publish import PublishedBinding, PublishedLimits, PublishedTool
from toolcrib_registry.adapters.counters import redis as counters_redis
from toolcrib_registry.limits.charge import GRACE

READS = {"readOnlyHint": True}


@pytest.fixture
def slow() -> Iterator[SlowBackend]:
    with slow_backend() as running:
        yield running


@pytest.fixture(scope="module")
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(50) as pool:
        yield pool


@pytest.fixture
def redis() -> Iterator[Redis]:
    """A server of its own, since these tests break it."""
    require_redis()
    with Redis() as server:
        yield server


def limited(name: str = "bot", **limits: int) -> PublishedBinding:
    return binding("bot", name=name, limits=PublishedLimits(**limits))


def calculator(at: SlowBackend, name: str = "calculator", **fields: Any) -> PublishedTool:
    return tool(name, **{"backend": backend(at.port), "scopes": ("calculator:use",), **fields})


@contextlib.contextmanager
def replica(
    redis: Redis, tools: list[PublishedTool], bindings: list[PublishedBinding], **counters: Any
) -> Iterator[RunningRegistry]:
    settings = {"kind": "redis", "url": redis.url, "timeout": 2.0, **counters}
    with running_registry(tools, bindings, counters=settings) as r:
        yield r


def call(r: RunningRegistry, name: str = "calculator") -> httpx.Response:
    return r.http.post(f"{r.url}/tools/{name}", headers=r.auth("team", "bot"), json={})


def part(r: RunningRegistry) -> dict[str, Any]:
    found: dict[str, Any] = r.http.get(f"{r.admin_url}/readyz").json()["parts"]["limits"]
    return found


@pytest.mark.real
def test_two_replicas_admit_together_what_one_would(
    redis: Redis, slow: SlowBackend, threads: ThreadPoolExecutor
) -> None:
    slow.answer()
    grants = [limited(per_minute=20, per_day=1000)]
    with replica(redis, [calculator(slow)], grants) as a, replica(redis, [calculator(slow)], grants) as b:
        futures = [threads.submit(call, (a, b)[i % 2]) for i in range(50)]
        answers = [f.result(30) for f in futures]
        assert sorted(x.status_code for x in answers) == [200] * 20 + [429] * 30

        # an edit counts at once, on the replica that knows of it, with what both have counted
        a.publish(bindings=[limited(per_minute=22, per_day=1000)])
        assert [call(a).status_code for _ in range(3)] == [200, 200, 429]
        assert call(b).status_code == 429


@pytest.mark.real
def test_slots_are_shared_and_given_back_across_replicas(
    redis: Redis, slow: SlowBackend, threads: ThreadPoolExecutor
) -> None:
    grants = [limited(concurrent=5)]
    with replica(redis, [calculator(slow)], grants) as a, replica(redis, [calculator(slow)], grants) as b:
        futures = [threads.submit(call, (a, b)[i % 2]) for i in range(40)]
        for _ in range(5):
            slow.began.get(timeout=30)
        wait_until(lambda: sum(f.done() for f in futures) == 35)
        slow.answer()
        answers = [f.result(30) for f in futures]
        assert sorted(x.status_code for x in answers) == [200] * 5 + [429] * 35
        assert slow.began.empty(), "who is refused reaches no tool"
        assert [call((a, b)[i % 2]).status_code for i in range(20)] == [200] * 20


@pytest.mark.real
def test_without_the_store_reads_go_on_writes_are_refused_and_all_is_well_again_by_itself(
    redis: Redis, slow: SlowBackend, caplog: pytest.LogCaptureFixture
) -> None:
    slow.answer()
    caplog.set_level("INFO", logger="toolcrib_registry.adapters.counters.redis")
    tools = [
        calculator(slow),
        calculator(slow, "reader", annotations=READS),
        calculator(slow, "free", scopes=("f:u",)),
    ]
    grants = [limited(per_minute=1000, concurrent=50), binding("bot", ["f:u"], name="unlimited")]
    # a server that was killed refuses connections: nothing here takes the two seconds of the timeout
    with replica(redis, tools, grants) as r:
        assert [call(r, t.name).status_code for t in tools] == [200] * 3
        assert part(r) == {"ready": True, "detail": ""}

        redis.kill()
        refused, read, free = (call(r, t.name) for t in tools)
        assert (refused.status_code, refused.json()["code"]) == (503, "limits_unavailable")
        assert int(refused.headers["retry-after"]) >= 1
        assert (read.status_code, free.status_code) == (200, 200)
        ready = r.http.get(f"{r.admin_url}/readyz")
        assert ready.status_code == 200
        assert part(r)["detail"].startswith("limits_unavailable")

        # what another binding grants without limits needs no store, wherever it stands in the order
        r.publish(bindings=[binding("bot", name="z-without")])
        assert call(r).status_code == 200
        r.publish(remove_bindings=["uid-team-z-without"])
        assert call(r).status_code == 503

        redis.start()
        wait_until(lambda: call(r).status_code == 200)
        assert part(r)["ready"] is True
        metrics = r.metrics()

    (errors,) = [m for m in metrics.splitlines() if m.startswith("toolcrib_counter_store_errors_total ")]
    assert float(errors.split()[1]) >= 4
    said = [m for m in caplog.messages if "counter store" in m]
    assert len(said) == 2, said
    assert "available again" in said[1]


@pytest.mark.real
def test_a_store_killed_amid_calls_admits_its_limit_once_more_at_most_and_breaks_nothing(
    redis: Redis, slow: SlowBackend, threads: ThreadPoolExecutor
) -> None:
    slow.answer()
    grants = [limited(per_minute=30, concurrent=40)]
    codes: list[tuple[int, str]] = []
    over = threading.Event()
    with (
        replica(redis, [calculator(slow)], grants) as a,
        replica(redis, [calculator(slow)], grants) as b,
    ):

        def calling(r: RunningRegistry) -> None:
            while not over.is_set():
                answer = call(r)
                codes.append((answer.status_code, "" if answer.is_success else answer.json()["code"]))

        def count(status: int) -> int:
            return sum(code == status for code, _ in codes)

        callers = [threads.submit(calling, r) for r in (a, b) * 4]
        try:
            wait_until(lambda: count(200) >= 10)
            redis.kill()
            wait_until(lambda: count(503) >= 20)
            redis.start()
            wait_until(lambda: count(429) >= 20)
        finally:
            over.set()
        for caller in callers:
            caller.result(30)
    assert set(codes) <= {(200, ""), (429, "limit_exceeded"), (503, "limits_unavailable")}
    assert 30 <= count(200) <= 60


@pytest.mark.real
def test_a_store_that_hangs_costs_a_call_its_timeout_at_most(
    redis: Redis, slow: SlowBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow.answer()
    # or only the first one would ask it, and the others pay nothing
    monkeypatch.setattr(counters_redis, "_PAUSE_SECONDS", 0.0)
    tools = [calculator(slow), calculator(slow, "reader", annotations=READS)]
    took = []

    def timed(r: RunningRegistry, name: str) -> int:
        began = time.monotonic()
        status = call(r, name).status_code
        took.append(time.monotonic() - began)
        return status

    with replica(redis, tools, [limited(concurrent=1)], timeout=0.25) as r:
        wait_until(lambda: call(r).status_code == 200)
        redis.pause()
        try:
            for _ in range(3):
                assert (timed(r, "calculator"), timed(r, "reader")) == (503, 200)
        finally:
            redis.resume()
        # what was asked meanwhile holds no slot for long: its lease would last more than half a minute
        wait_until(lambda: call(r).status_code == 200, 20)
        wait_until(lambda: [call(r).status_code for _ in range(5)] == [200] * 5, 20)
    assert min(took) > 0.2, "each one asked"
    # the machine may stand still once, not every time
    assert statistics.median(took) < 1.5, took
    assert max(took) < 10, took


@pytest.mark.long
def test_slots_of_a_replica_that_was_killed_are_free_when_their_calls_would_have_ended(
    redis: Redis, slow: SlowBackend, threads: ThreadPoolExecutor, tmp_path: Path
) -> None:
    # long enough for two calls to be in flight when their replica is killed
    lasting = 3.0
    made = calculator(slow, backend=backend(slow.port, timeout=lasting))
    grants = [limited(concurrent=2)]
    config = configuration(
        tmp_path / "doomed", counters={"kind": "redis", "url": redis.url}, egress={"loopback": True}
    )
    with process(config) as doomed, replica(redis, [made], grants) as r:
        doomed.publish(made, bindings=tuple(grants))
        bearer = {"Authorization": f"Bearer {mint('system:serviceaccount:team:bot')}"}
        asked = time.monotonic()
        lost = [
            threads.submit(httpx.post, f"{doomed.url}/tools/calculator", headers=bearer, json={}, timeout=30)
            for _ in range(2)
        ]
        for _ in lost:
            slow.began.get(timeout=30)
        doomed.child.kill()
        assert call(r).json()["limit"] == "concurrent"
        for future in lost:
            assert isinstance(future.exception(30), httpx.HTTPError)
        slow.answer()
        wait_until(lambda: call(r).status_code == 200, timeout=lasting + GRACE + 10.0)
        assert time.monotonic() - asked >= lasting + GRACE - 0.1


@pytest.mark.real
def test_a_password_and_tls_are_read_again_at_each_connection_and_never_shown(
    slow: SlowBackend, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    require_redis()
    slow.answer()
    pki.write_server_certificate(tmp_path, ("127.0.0.1",))
    tls = (tmp_path / "ca.crt", tmp_path / "server.crt", tmp_path / "server.key")
    secret = tmp_path / "password"
    secret.write_text("wrong-secret-1\n")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    pki.write_server_certificate(foreign, ("127.0.0.1",))
    authority = tmp_path / "trusted.crt"
    authority.write_bytes((foreign / "ca.crt").read_bytes())
    with (
        Redis(password="right-secret-2", tls=tls) as redis,
        replica(
            redis,
            [calculator(slow)],
            [limited(per_minute=100)],
            password_file=str(secret),
            ca_file=str(authority),
        ) as r,
    ):
        assert call(r).json()["code"] == "limits_unavailable"
        authority.write_bytes(tls[0].read_bytes())
        wait_until(lambda: "Authentication" in part(r)["detail"])
        assert call(r).status_code == 503
        secret.write_text("right-secret-2\n")
        wait_until(lambda: call(r).status_code == 200)
        shown = part(r)["detail"] + r.metrics() + call(r).text
    assert "secret-" not in caplog.text + shown


@pytest.mark.real
def test_the_store_of_counters_is_no_tools_backend(redis: Redis, slow: SlowBackend) -> None:
    slow.answer()
    wicked = tool("wicked", backend=backend(redis.port), scopes=("calculator:use",))
    with replica(redis, [wicked], [limited(per_minute=100)]) as r:
        assert call(r, "wicked").json()["code"] == "egress_refused"
