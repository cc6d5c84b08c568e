"""What is bounded: label values, waiting records, and readers that do not read."""

import socket
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry

from realparts.processes import wait_until
from registry_harness import RunningRegistry, binding, running_registry, tool
from toolcrib_registry.metrics.recorder import Metrics


def test_labels_beyond_their_budget_are_counted_as_other() -> None:
    metrics = Metrics(CollectorRegistry(), agents=2, tools=1)

    for name in ("one", "two", "one"):
        metrics.called(None, tool(name), "ok", 0.1)

    text = metrics.exposition().decode()
    assert 'tool="team/one"} 2.0' in text
    assert 'tool="other"} 1.0' in text
    assert "team/two" not in text


def test_a_reader_that_does_not_read_is_dropped() -> None:
    limits = {"watch_send_seconds": 0.3}
    big = [
        tool(f"tool_{i}", scopes=("s",), input_schema={"type": "object", "description": "x" * 50_000})
        for i in range(100)
    ]
    with running_registry(big, [binding("bot", ["s"])], limits=limits) as r:
        parts = urlsplit(r.url)
        assert parts.hostname
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect((parts.hostname, parts.port or 80))
            token = r.token("team", "bot")
            connection.sendall(
                f"GET /v1/watch HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
            )
            wait_until(lambda: "toolcrib_watch_streams_dropped_total 1.0" in _metrics(r), 60)
        assert "toolcrib_watch_streams 0.0" in _metrics(r)


def _metrics(r: RunningRegistry) -> str:
    return r.metrics()


class BrokenBackend:
    """Fails in a way that nobody foresaw."""

    async def call(self, tool: object, arguments: object, request_id: str, caller: object, *_: object) -> Any:
        raise RuntimeError("s3cret inside")


def test_what_nobody_foresaw_is_a_500_that_tells_nothing_and_is_counted() -> None:
    with running_registry([tool("calculator")], [binding("bot")], backend=BrokenBackend()) as r:
        answer = r.http.post(r.url + "/tools/calculator", headers=r.auth("team", "bot"), json={})
        metrics = _metrics(r)
        alive = r.http.get(r.url + "/health")

    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "s3cret" not in answer.text
    assert 'outcome="internal",server="",tool="team/calculator"} 1.0' in metrics
    assert alive.json() == {"status": "healthy"}
