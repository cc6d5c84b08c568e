"""Clients that send slowly, do not read, or hold too many connections lose those; everybody else is served."""

import asyncio
import json
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from realparts.processes import wait_until
from registry_harness import RunningRegistry, binding, running_registry, tool
from registry_process import configuration, process
from secret_volume import SecretVolume
from slow_clients import ask, closed, connected, drip, rest
from toolcrib_registry.http import serving
from toolcrib_registry.http.connection_limits import ConnectionGate, ConnectionLimits

SHORT = {"header_seconds": 0.4, "body_seconds": 0.4, "send_seconds": 0.4}
HEALTH = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
LISTENERS = ["agents", "metrics", "admin"]
TELLING = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Filler: " + b"x" * 400


@pytest.fixture(scope="module")
def r() -> Iterator[RunningRegistry]:
    with running_registry([tool("calculator")], [binding("bot")], limits=SHORT) as running:
        yield running


def port_of(r: RunningRegistry, listener: str) -> int:
    url = {"agents": r.url, "metrics": r.metrics_url, "admin": r.admin_url}[listener]
    port = urlsplit(url).port
    assert port
    return port


def counted(text: str, listener: str, reason: str) -> float:
    pattern = rf'toolcrib_connections_closed_total{{listener="{listener}",reason="{reason}"}} ([0-9.]+)'
    found = re.search(pattern, text)
    assert found, text
    return float(found[1])


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("sent", [b"", b"G", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n", b"\r\n\r\n"])
def test_a_client_that_sends_nothing_or_half_its_headers_is_gone(
    r: RunningRegistry, listener: str, sent: bytes
) -> None:
    before = counted(r.metrics(), listener, "headers")
    with connected(port_of(r, listener)) as connection:
        connection.sendall(sent)
        assert rest(connection) == b""
    assert counted(r.metrics(), listener, "headers") == before + 1


@pytest.mark.parametrize("listener", LISTENERS)
def test_headers_that_come_byte_by_byte_do_not_move_the_deadline(r: RunningRegistry, listener: str) -> None:
    before = counted(r.metrics(), listener, "headers")
    with connected(port_of(r, listener)) as connection:
        assert drip(connection, TELLING) == b""
    assert counted(r.metrics(), listener, "headers") == before + 1


def test_so_are_those_of_a_second_request(r: RunningRegistry) -> None:
    with connected(port_of(r, "agents")) as connection:
        assert ask(connection, HEALTH).startswith(b"HTTP/1.1 200")
        assert drip(connection, TELLING) == b""


@pytest.mark.parametrize("coding", ["Content-Length: 1000", "Transfer-Encoding: chunked"])
@pytest.mark.parametrize("path", ["/v1/call", "/v1/search", "/tools/calculator"])
def test_a_body_that_comes_byte_by_byte_is_answered_with_408(
    r: RunningRegistry, coding: str, path: str
) -> None:
    before = counted(r.metrics(), "agents", "body")
    token = r.token("team", "bot")
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n{coding}\r\n\r\n"
    body = b"3e8\r\n" if "chunked" in coding else b""
    with connected(port_of(r, "agents")) as connection:
        connection.sendall(head.encode() + body)
        answer = drip(connection, b" " * 400)
    head_of_answer, _, document = answer.partition(b"\r\n\r\n")
    assert head_of_answer.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in head_of_answer
    assert json.loads(document)["code"] == "request_timeout"
    assert counted(r.metrics(), "agents", "body") == before + 1


def test_a_body_that_goes_on_after_its_answer_is_not_waited_for(r: RunningRegistry) -> None:
    before = counted(r.metrics(), "agents", "body")
    with connected(port_of(r, "agents")) as connection:
        head = b"POST /v1/call HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n"
        assert b" 401 " in ask(connection, head)
        assert drip(connection, b" " * 400) == b""
    wait_until(lambda: counted(r.metrics(), "agents", "body") == before + 1, 60)


def test_a_client_that_never_reads_its_answers_is_gone_and_one_that_reads_is_not() -> None:
    big = [tool(f"t{i}", scopes=("s",), description="x" * 3000) for i in range(1000)]
    with running_registry(big, [binding("bot", ["s"])], limits=SHORT) as running:
        request = f"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {running.token('team', 'bot')}\r\n\r\n"
        with connected(port_of(running, "agents"), receive_buffer=4096) as connection:
            connection.sendall(request.encode() * 4)
            wait_until(lambda: counted(running.metrics(), "agents", "answer") == 1, 60)
        whole = httpx.get(running.url + "/", headers=running.auth("team", "bot"), timeout=60)
        assert whole.json()["total_available"] == 1000
        assert counted(running.metrics(), "agents", "answer") == 1


def test_watch_streams_and_long_calls_outlast_the_deadlines(r: RunningRegistry) -> None:
    with httpx.stream("GET", r.url + "/v1/watch", headers=r.auth("team", "bot"), timeout=60) as stream:
        lines = stream.iter_lines()
        wait_until(lambda: next(lines).startswith("event:"), 60)
        # the deadlines of others pass meanwhile
        for _ in range(3):
            with connected(port_of(r, "agents")) as other:
                assert rest(other) == b""
        r.publish([tool("calculator"), tool("later", scopes=("calculator:use",))], [binding("bot")])
        wait_until(lambda: "later" in next(lines), 60)


def test_a_peer_has_512_connections_a_proxy_all_of_them_and_places_are_given_back() -> None:
    limits = {"connections_per_peer": 3, "connections": 5}
    with running_registry([], [], limits=limits) as running:
        port = port_of(running, "agents")
        with connected(port) as first, connected(port) as second, connected(port) as third:
            for each in (first, second, third):
                assert ask(each, HEALTH).startswith(b"HTTP/1.1 200")
            with connected(port) as fourth:
                assert rest(fourth) == b""
            assert not any(closed(each) for each in (first, second, third))
            assert counted(running.metrics(), "agents", "connections_per_peer") == 1
        wait_until(lambda: 'toolcrib_connections{listener="agents"} 0.0' in running.metrics(), 60)
        assert httpx.get(running.url + "/health").status_code == 200
    with running_registry([], [], limits=limits, trusted_proxies=["127.0.0.0/8"]) as running:
        port = port_of(running, "agents")
        with connected(port) as a, connected(port) as b, connected(port) as c, connected(port) as d:
            with connected(port) as e:
                for each in (a, b, c, d, e):
                    assert ask(each, HEALTH).startswith(b"HTTP/1.1 200")
                with connected(port) as sixth:
                    assert rest(sixth) == b""
            assert counted(running.metrics(), "agents", "connections") == 1
            assert counted(running.metrics(), "agents", "connections_per_peer") == 0
            # the operator's listener has places of its own
            assert httpx.get(running.admin_url + "/healthz").status_code == 200


def test_ipv6_peers_are_counted_by_64_bits_and_addresses_of_ipv4_are_themselves() -> None:
    told: list[str] = []
    door = ConnectionGate("agents", ConnectionLimits(per_peer=1, connections=10), told.append)
    places = [door.enter(a, 0.0) for a in ("2001:db8::1", "2001:db8:0:1::1", "10.0.0.1")]
    assert all(places)
    assert not any(door.enter(a, 0.0) for a in ("2001:db8::ffff:2", "::ffff:10.0.0.1", "2001:db8:0:1::1"))
    assert told == ["connections_per_peer"] * 3
    assert places[0] is not None
    for _ in range(2):
        places[0].leave()
    assert door.open == 2
    assert door.enter("2001:db8::2", 0.0)


def test_half_a_tls_handshake_and_half_a_request_after_it_are_gone(tmp_path: Path) -> None:
    volume = SecretVolume(tmp_path / "tls", "127.0.0.1")
    files = volume.files
    settings: dict[str, Any] = {"tls": files, "admin_tls": files, "metrics": {"port": 0, "tls": files}}
    with process(configuration(tmp_path / "r", limits=SHORT, **settings), scheme="https") as running:
        context = ssl.create_default_context(cafile=str(volume.ca))

        def told(listener: str, reason: str) -> float:
            answer = httpx.get(f"https://127.0.0.1:{running.metrics}/metrics", verify=context, timeout=60)
            return counted(answer.text, listener, reason)

        for listener, port in zip(LISTENERS, (running.agents, running.metrics, running.admin), strict=True):
            for hello in (b"", b"\x16\x03\x01\x02\x00\x01\x00"):
                with connected(port) as connection:
                    connection.sendall(hello)
                    rest(connection)
            assert told(listener, "handshake") == 2
            with connected(port) as raw, context.wrap_socket(raw, server_hostname="127.0.0.1") as connection:
                connection.sendall(b"GET / HT")
                assert rest(connection) == b""
            assert told(listener, "headers") == 1


class Served:
    """An app of our own on the registry's server."""

    def __init__(self, app: Any, bounds: ConnectionLimits) -> None:
        self.reasons: list[str] = []
        self._door = ConnectionGate("agents", bounds, self.reasons.append)
        self._app, self._up = app, threading.Event()
        self.port = 0

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()

        def ready(ports: Any) -> None:
            (self.port,) = ports
            self._up.set()

        listener = serving.Listener(self._app, "127.0.0.1", 0, door=self._door)
        await serving.serve([listener], stopping=lambda: None, ready=ready, stop=self._stop, signals=False)

    def __enter__(self) -> "Served":
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._up.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)


def test_while_the_app_does_not_read_its_client_s_time_stands_still() -> None:
    async def late(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(1.5)
        size, more = 0, True
        while more:
            message = await receive()
            size, more = size + len(message.get("body", b"")), message.get("more_body", False)
        body = str(size).encode()
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-length", b"%d" % len(body))],
            }
        )
        await send({"type": "http.response.body", "body": body})

    with Served(late, ConnectionLimits(body_seconds=0.3)) as served:
        answer = httpx.post(f"http://127.0.0.1:{served.port}/", content=b"x" * 20_000_000, timeout=60)
        assert (answer.status_code, answer.text) == (200, "20000000")
        assert served.reasons == []


def test_headers_of_proxies_are_not_believed() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope["client"][0], scope["scheme"]))
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    with Served(app, ConnectionLimits()) as served:
        headers = {"X-Forwarded-For": "192.0.2.1", "X-Forwarded-Proto": "https", "Forwarded": "for=192.0.2.1"}
        httpx.get(f"http://127.0.0.1:{served.port}/", headers=headers)
    assert seen == [("127.0.0.1", "http")]


def test_a_stop_does_not_wait_for_half_a_request() -> None:
    begun = threading.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        begun.set()
        while (await receive()).get("more_body", False):
            pass

    with Served(app, ConnectionLimits(body_seconds=0.3)) as served:
        half = socket.create_connection(("127.0.0.1", served.port), timeout=60)
        half.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n")
        assert begun.wait(60)
    with half:
        assert rest(half).startswith(b"HTTP/1.1 408 ")
