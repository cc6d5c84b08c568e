"""What is bounded: label values, waiting records, and readers that do not read."""

import socket
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import orjson
from prometheus_client import CollectorRegistry

from registry_harness import ManualClock, RunningRegistry, binding, running_registry, tool
from toolcrib.authorizer import Decision, Reason
from toolcrib_registry.decision_log import DecisionLog
from toolcrib_registry.metrics import Metrics


def test_labels_beyond_their_budget_are_counted_as_other() -> None:
    metrics = Metrics(CollectorRegistry(), agents=2, tools=1)

    for name in ("one", "two", "one"):
        metrics.called(None, tool(name), "ok", 0.1)

    text = metrics.exposition().decode()
    assert 'tool="team/one"} 2.0' in text
    assert 'tool="other"} 1.0' in text
    assert "team/two" not in text


def test_a_full_decision_log_drops_counts_and_leaves_a_gap(tmp_path: Path) -> None:
    fifo = tmp_path / "log"
    lost: list[int] = []
    log = DecisionLog(fifo, ManualClock(0.0), dropped=lambda: lost.append(1), capacity=2)
    gate = threading.Event()
    write = log._write_one
    log._write_one = lambda record: (gate.wait(timeout=10), write(record))[1]  # type: ignore[method-assign]

    for i in range(20):
        log.decided("call", None, f"tool-{i}", None, Decision(False, Reason.NO_IDENTITY), "1.1")
    gate.set()
    log.close()

    kept = [orjson.loads(line)["seq"] for line in fifo.read_bytes().splitlines()]
    assert len(kept) + len(lost) == 20
    assert lost
    assert kept == sorted(kept)


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
            _until(lambda: "toolcrib_watch_streams_dropped_total 1.0" in _metrics(r))
        assert "toolcrib_watch_streams 0.0" in _metrics(r)


def _metrics(r: RunningRegistry) -> str:
    return str(r.http.get(r.admin_url + "/metrics").text)


def _until(holds: object) -> None:
    assert callable(holds)
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
