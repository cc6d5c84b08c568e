"""E. Slow clients: 400 half-sent requests at the default deadlines are gone in 15 s, and others are served meanwhile."""

from __future__ import annotations

import contextlib
import random
import re
import selectors
import socket
import time
from email.utils import parsedate_to_datetime

from attack.stage import Stage, Target, hold
from registry_harness import binding, tool

HALF_SENT = 400
BOUND = 15.0
KINDS = ("nothing", "byte", "line", "headers", "drip", "body", "chunked", "drip body", "pipelined")
PATHS = ("/v1/call", "/mcp", "/mcp/direct")


def attack(stage: Stage, draw: random.Random, count: int) -> int:
    """Half-sent requests of all kinds at once; those that drip send a byte now and then."""
    target = stage.target("slow")
    target.publish([tool("t", scopes=("s",))], [binding("bot", ["s"])])
    before = sum(_closed(target).values())
    with selectors.DefaultSelector() as selector:
        kinds: dict[socket.socket, str] = {}
        try:
            began = _server_s_time(target)
            for _ in range(HALF_SENT):
                kind = draw.choice(KINDS)
                made = socket.create_connection(("127.0.0.1", target.running.agents), timeout=60)
                kinds[made] = kind
                selector.register(made, selectors.EVENT_READ)
                made.sendall(_begun(kind, target, draw.choice(PATHS)).encode())
            slowest = _until_gone(target, selector, dict(kinds), before)
            ended = _server_s_time(target)
        finally:
            for made in kinds:
                made.close()
    case = {"closed": _closed(target), "seconds": ended - began}
    hold("400 half-sent requests are gone in 15 s, by the server's own clock", ended - began <= BOUND, **case)
    hold("each is counted", sum(_closed(target).values()) - before >= HALF_SENT, **case)
    hold("others are answered meanwhile", slowest < 2.0, slowest=slowest, **case)
    return HALF_SENT


def _begun(kind: str, target: Target, path: str) -> str:
    token = target.auth()["Authorization"]
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {token}\r\nContent-Type: application/json\r\n"
    return {
        "nothing": "",
        "byte": "P",
        "line": "GET / HTTP/1.1\r\n",
        "headers": head,
        "drip": "GET /" + "x" * 10,
        "body": head + "Content-Length: 500\r\n\r\n{",
        "chunked": head + "Transfer-Encoding: chunked\r\n\r\n1f4\r\n{",
        "drip body": head + "Content-Length: 500\r\n\r\n",
        "pipelined": "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" + head,
    }[kind]


def _until_gone(
    target: Target, selector: selectors.BaseSelector, left: dict[socket.socket, str], before: float
) -> float:
    """Wait until the server has closed all of them, dripping; how long the slowest of others' requests took."""
    slowest, deadline = 0.0, time.monotonic() + 60
    while left and time.monotonic() < deadline:
        for key, _ in selector.select(timeout=0.2):
            made = key.fileobj
            assert isinstance(made, socket.socket)
            try:
                gone = made.recv(65536) == b""
            except ConnectionError:
                gone = True
            if gone:
                selector.unregister(made)
                del left[made]
        for made, kind in left.items():
            if kind.startswith("drip"):
                with contextlib.suppress(OSError):
                    made.send(b"x" if kind == "drip" else b" ")
        started = time.monotonic()
        answer = target.http.get(target.url + "/", headers=target.auth())
        slowest = max(slowest, time.monotonic() - started)
        hold("others are answered", answer.status_code == 200, answer=answer.text)
    hold("all half-sent requests are closed", not left, left=sorted(set(left.values())))
    return slowest


def _closed(target: Target) -> dict[str, float]:
    found = re.findall(
        r'^toolcrib_connections_closed_total\{listener="agents",reason="([a-z_]+)"\} (\S+)$',
        target.metrics(),
        re.MULTILINE,
    )
    return {reason: float(count) for reason, count in found}


def _server_s_time(target: Target) -> float:
    """The server's own clock, to the second."""
    answer = target.http.get(target.url + "/health")
    return parsedate_to_datetime(answer.headers["date"]).timestamp()
