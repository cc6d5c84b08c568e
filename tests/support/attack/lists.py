"""E. Lists and pages of large tools: nothing holds the loop or fills the memory, and nothing revoked is in them."""

from __future__ import annotations

import random
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx

from attack.stage import JSON, Stage, Target, code_of, hold
from registry_harness import binding, tool
from toolcrib.wire.publish import PublishedBinding, PublishedTool

LIST_BYTES = 12 << 20
ACCOUNTS = 6
ROUTES = ("/", "/v1/tools?limit=500", "/v1/tools", "load", "/v1/watch")
LATE = 0.25
"""Seconds after which an answer that begins is surely one that was sent after the publish was answered."""
_MIB = 1 << 20


def attack(stage: Stage, draw: random.Random, count: int) -> int:
    """Worlds of large tools, asked for on all routes at one time, with a revocation in between, and not read."""
    target = stage.target("lists", limits={"list_bytes": LIST_BYTES})
    for number in range(max(1, count // 15)):
        tools = _tools(draw) if number else _large(250)
        target.publish(tools, _bindings())
        before = target.held()
        _bounded(target, tools)
        _revoked(draw, target, tools)
        if number == 0:
            _churned(target, tools)
            _unread(target, tools)
        held = target.held() - before
        hold(
            "no list, page or stream holds the event loop",
            not held,
            said=target.said_held(),
            tools=len(tools),
        )
    return max(1, count // 15)


def _large(number: int) -> list[PublishedTool]:
    """So many that all of them on the event loop would hold it for more than 0.1 s."""
    parameters = {f"p{i:03}": {"type": "string", "description": "x" * 300} for i in range(115)}
    schema = {"type": "object", "properties": parameters}
    return [tool(f"t{i:04}", scopes=("all:use",), input_schema=schema) for i in range(number)]


def _tools(draw: random.Random) -> list[PublishedTool]:
    """Few that are large or many that are small; schemas of names, of prose, or nested."""
    kind, size = draw.choice(("names", "prose", "nested")), draw.choice((200, 5_000, 40_000))
    number = max(20, min(600, 4 * _MIB // (size + 300)))
    made = []
    for i in range(number):
        if kind == "names":
            schema: Any = {"properties": {f"p{i:05}": {} for i in range(size // 12)}}
        elif kind == "prose":
            schema = {"properties": {"a": {"type": "string", "description": "x" * size}}}
        else:
            inner: Any = {}
            for _ in range(20):
                inner = {
                    "type": "object",
                    "properties": {"a": inner, "b": {"description": "y" * (size // 40)}},
                }
            schema = inner
        made.append(tool(f"t{i:04}", scopes=("all:use",), input_schema={"type": "object", **schema}))
    return made


def _bindings() -> list[PublishedBinding]:
    # the scopes of a caller are in its list: each account has one of its own
    return [
        b
        for i in range(ACCOUNTS)
        for b in (binding(f"a{i}", ["all:use"]), binding(f"a{i}", [f"s{i}:x"], name=f"o{i}"))
    ]


def _ask(
    target: Target, route: str, account: str, tools: list[PublishedTool]
) -> tuple[float, httpx.Response]:
    """When the answer began, and the answer; of a stream its first event."""
    headers = target.auth(f"team/{account}")
    with ExitStack() as stack:
        if route == "load":
            names = [t.tool_id for t in tools[:100]]
            asked = target.http.stream(
                "POST", f"{target.url}/v1/load", headers={**headers, **JSON}, json={"tools": names}
            )
        else:
            asked = target.http.stream("GET", target.url + route, headers=headers)
        answer = stack.enter_context(asked)
        text, began = b"", 0.0
        # what waits to be read too long is cut, and so is an event with a tool that is revoked
        with suppress(httpx.RemoteProtocolError):
            for piece in answer.iter_raw():
                began = began or time.monotonic()
                text += piece
                if route == "/v1/watch" and text.endswith(b"\n\n"):
                    break
        return began, httpx.Response(answer.status_code, content=text)


def _bounded(target: Target, tools: list[PublishedTool]) -> None:
    """A list is complete or refused; pages have all."""
    _, answer = _ask(target, "/", "a0", tools)
    case = {"tools": len(tools), "status": answer.status_code, "bytes": len(answer.content)}
    if answer.status_code == 200:
        hold("a list is not larger than its limit", len(answer.content) <= LIST_BYTES + 4096, **case)
        hold("a list has all tools", answer.json()["total_available"] == len(tools), **case)
    else:
        hold(
            "a list above the limit is refused by name",
            code_of(answer) == "list_too_large",
            text=answer.text,
            **case,
        )
    found, cursor = list[str](), ""
    while True:
        _, page = _ask(target, "/v1/tools?limit=500" + (f"&cursor={cursor}" if cursor else ""), "a0", tools)
        hold(
            "a page is bounded",
            page.status_code == 200 and len(page.content) < 14 * _MIB,
            bytes=len(page.content),
        )
        found += [t["tool_id"] for t in page.json()["tools"]]
        cursor = page.json()["next_cursor"] or ""
        if not cursor:
            break
    hold("pages together have all tools, once", found == sorted(t.tool_id for t in tools), **case)


def _revoked(draw: random.Random, target: Target, tools: list[PublishedTool]) -> None:
    """Tools go while all routes are asked for by all accounts: what begins later has none of them."""
    gone = draw.sample(tools, max(1, len(tools) // 10))
    left = [t for t in tools if t not in gone]
    with ThreadPoolExecutor(ACCOUNTS) as pool:
        asked = [
            (route, pool.submit(_ask, target, route, f"a{i}", tools))
            for i, route in ((i, draw.choice(ROUTES)) for i in range(ACCOUNTS))
        ]
        time.sleep(draw.choice((0.0, 0.02, 0.05)))  # an attack comes at any moment
        target.publish(left, _bindings())
        at = time.monotonic()
        for route, one in asked:
            began, answer = one.result()
            if began > at + LATE:
                told = [t.tool_id for t in gone if f'"{t.tool_id}"'.encode() in answer.content]
                named = [t for t in told if not (route == "load" and b"tool_not_found" in answer.content)]
                hold(
                    "what is revoked is in no answer that begins later",
                    not named,
                    route=route,
                    late=began - at,
                )


def _churned(target: Target, tools: list[PublishedTool]) -> None:
    """A namespace whose tools come and go without a pause keeps no list from those who may see it."""
    wide = [binding("w", ["all:use"], namespace=None, name="wide", namespaces=("team", "evil"))]
    target.publish(tools, wide)
    evil = [tool(f"e{i}", namespace="evil", scopes=("all:use",)) for i in range(8)]
    stop = threading.Event()

    def never_stop() -> None:
        count = 0
        while not stop.is_set():
            count += 1
            now = evil[count // 2 % len(evil)]
            target.step(() if count % 2 else [now], [now.tool_id] if count % 2 else ())
            stop.wait(0.02)  # fifty changes a second

    with ThreadPoolExecutor(1) as pool:
        target.step(evil)
        publishing = pool.submit(never_stop)
        try:
            for route in ("/", "/v1/tools?limit=500", "load"):
                began = time.monotonic()
                _, answer = _ask(target, route, "w", tools)
                case = {"route": route, "status": answer.status_code, "seconds": time.monotonic() - began}
                hold(
                    "a list is sent although another namespace never stops", answer.status_code == 200, **case
                )
                asked = tools if route == "/" else tools[:100]
                missing = [t.name for t in asked if f'"{t.name}"'.encode() not in answer.content]
                hold("it has all tools of those that do not change", not missing, missing=missing[:5], **case)
        finally:
            stop.set()
            publishing.result()


def _unread(target: Target, tools: list[PublishedTool]) -> None:
    """Answers that nobody reads do not fill the memory."""
    before, connections = _resident(target), list[socket.socket]()
    try:
        for number in range(36):
            made = socket.socket()
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            made.connect(("127.0.0.1", target.running.agents))
            token = target.auth(f"team/a{number % ACCOUNTS}")["Authorization"]
            route = ("/", "/v1/tools?limit=500", "/v1/watch")[number % 3]
            made.sendall(
                f"GET {route} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {token}\r\n\r\n".encode()
            )
            connections.append(made)
        _, answer = _ask(target, "/v1/tools?limit=1", "a0", tools)
        hold("others are answered meanwhile", answer.status_code == 200, status=answer.status_code)
        grown = _resident(target) - before
        hold("answers that nobody reads take 256 MiB at most", grown < 254 * _MIB, mib=grown // _MIB)
    finally:
        for made in connections:
            made.close()


def _resident(target: Target) -> int:
    """Bytes of memory of the registry's process now."""
    text = Path(f"/proc/{target.running.child.pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) * 1024
