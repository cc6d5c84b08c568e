"""A replica that is asked to stop while others serve: no request fails, and what has begun is finished."""

import asyncio
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import aiohttp
import httpx
import pytest

from realparts.processes import wait_until
from registry_harness import backend, binding, mint, tool
from registry_process import RegistryProcess, configuration, process
from service_proxy import load, service
from stub_server import Answer, Asked, answering
from toolcrib_runner.agent import DynamicToolAgent

TOKEN = mint("system:serviceaccount:team:bot")
AUTH = {"Authorization": f"Bearer {TOKEN}"}


class Backend:
    """Answers /quick at once, and /slow when `release` is set; `waiting` is set while somebody waits."""

    def __init__(self) -> None:
        self.release, self.waiting = threading.Event(), threading.Event()
        self.port = 0

    def answer(self, asked: Asked) -> Answer:
        if asked.path == "/slow":
            self.waiting.set()
            self.release.wait(120)
        return Answer(b"42")


@pytest.fixture
def upstream() -> Iterator[Backend]:
    made = Backend()
    with answering(made.answer) as made.port:
        yield made
        made.release.set()


@contextmanager
def replica(folder: Path, upstream: Backend, **settings: object) -> Iterator[RegistryProcess]:
    # a slow call lasts until it is released, however long a busy machine takes to get there
    tools = [
        tool(name, backend=backend(upstream.port, f"/{name}", timeout=120)) for name in ("quick", "slow")
    ]
    with process(configuration(folder, egress={"loopback": True}, **settings)) as running:
        running.publish(*tools, bindings=(binding("bot", ("quick:use", "slow:use")),))
        yield running


def listens(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def answered_in_time() -> Iterator[None]:
    """A caller that is left waiting has failed, though it has an answer at last."""
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    assert took < 15, f"slow: {took:.1f} s"


@pytest.mark.slow
def test_a_replica_that_drains_under_load_fails_no_request_and_finishes_what_it_has_begun(
    tmp_path: Path, upstream: Backend
) -> None:
    with (
        # longer than a busy machine keeps any thread of this test waiting
        replica(tmp_path / "a", upstream, drain_seconds=12) as one,
        replica(tmp_path / "b", upstream) as two,
        service([(r.agents, f"{r.admin_url}/readyz") for r in (one, two)]) as front,
        DynamicToolAgent("bot", TOKEN, f"http://127.0.0.1:{front.port}") as agent,
    ):
        url = f"http://127.0.0.1:{front.port}"
        sent: Counter[str] = Counter()
        kept = [httpx.Client(headers=AUTH, timeout=30) for _ in range(3)]

        def over_httpx(client: httpx.Client) -> None:
            with answered_in_time():
                assert [t["name"] for t in client.get(url + "/").json()["tools"]] == ["quick", "slow"]
            with answered_in_time():
                assert client.post(url + "/tools/quick", json={}).json() == 42
            sent["httpx"] += 2

        def fresh() -> None:
            with httpx.Client(headers=AUTH, timeout=30, verify=False) as client:
                over_httpx(client)

        def over_aiohttp() -> None:
            async def ask() -> None:
                async with aiohttp.ClientSession(headers=AUTH) as session:
                    for _ in range(20):
                        with answered_in_time():
                            async with session.post(url + "/v1/search", json={"query": "quick"}) as answer:
                                assert answer.status == 200, await answer.text()
                                await answer.read()
                        sent["aiohttp"] += 1

            asyncio.run(ask())

        def an_agent() -> None:
            with answered_in_time():
                assert agent.call("quick", {}) == 42
            sent["agent"] += 1

        long_call: list[object] = []

        def call_slow() -> None:
            answer = httpx.post(one.url + "/tools/slow", json={}, headers=AUTH, timeout=120, verify=False)
            long_call.append((answer.status_code, answer.json(), answer.headers["connection"]))

        slow = threading.Thread(target=call_slow)
        slow.start()
        assert upstream.waiting.wait(30)
        workers = [lambda c=c: over_httpx(c) for c in kept]  # type: ignore[misc]
        with load(*workers, fresh, over_aiohttp, an_agent) as failures:
            wait_until(lambda: min(front.counts.values()) > 3, 60)
            one.child.send_signal(signal.SIGTERM)
            wait_until(lambda: httpx.get(f"{one.admin_url}/readyz").status_code == 503, 60)
            drained = httpx.get(f"{one.admin_url}/readyz").json()
            raw = httpx.get(one.url + "/", headers=AUTH)
            wait_until(lambda: not listens(one.agents), 60)
            # the operator's listener stays until the last call is done
            assert listens(one.admin)
            assert one.child.poll() is None
            upstream.release.set()
            slow.join(60)
            assert one.child.wait(30) == 0
            before = sum(sent.values())
            wait_until(lambda: sum(sent.values()) > before + 50, 60)
        for client in kept:
            client.close()

    assert failures == []
    assert long_call == [(200, 42, "close")]
    assert drained["parts"]["serving"]["detail"].startswith("draining")
    assert (raw.status_code, raw.headers["connection"]) == (200, "close")
    assert set(sent) == {"httpx", "aiohttp", "agent"}
    print(f"\nrequests while a replica drained: {sum(sent.values())}, failed: {len(failures)}")


def test_streams_end_when_the_drain_begins_and_new_ones_are_sent_elsewhere_at_once(
    tmp_path: Path, upstream: Backend
) -> None:
    def ended(lines: Iterator[str]) -> bool:
        return any(line == "event: end" and "shutting_down" in next(lines) for line in lines)

    with replica(tmp_path, upstream, drain_seconds=60) as one:
        with httpx.stream("GET", one.url + "/v1/watch", headers=AUTH) as stream:
            lines = stream.iter_lines()
            assert any(line == "event: snapshot" for line in lines)
            one.child.send_signal(signal.SIGTERM)
            assert ended(lines)
        with httpx.stream("GET", one.url + "/v1/watch", headers=AUTH) as again:
            assert again.headers["connection"] == "close"
            assert ended(again.iter_lines())

        # a drain of a minute and a call without end: the second signal waits for neither

        def ask() -> None:
            with suppress(httpx.HTTPError):
                httpx.post(one.url + "/tools/slow", json={}, headers=AUTH, timeout=30, verify=False)

        hung = threading.Thread(target=ask, daemon=True)
        hung.start()
        assert upstream.waiting.wait(30)
        asked = time.monotonic()
        one.child.send_signal(signal.SIGTERM)
        assert one.child.wait(30) == 0
        assert time.monotonic() - asked < 8, (
            "neither for the minute of the drain nor the ten seconds of calls in flight"
        )
        hung.join(30)
