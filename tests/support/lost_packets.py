"""Calls whose name server loses packets, with an /etc/resolv.conf that names it: prints what happened as JSON.

Runs in namespaces of its own (`name_server.within`). Each case has a client of its own; seconds are those of each call,
from sending it to its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Callable
from typing import Any

from evil_upstream import response, upstream
from name_server import ADDRESS, NameServer, Question, loopback_up, name_server
from toolcrib.wire.backends import PublishedBackend
from toolcrib_registry.adapters.outbound.cares import CaresResolver
from toolcrib_registry.adapters.outbound.http import OutboundHttp
from toolcrib_registry.outbound.errors import OutboundError
from toolcrib_registry.outbound.guard import EgressPolicy, target
from toolcrib_registry.outbound.messages import OutboundRequest

POLICY = EgressPolicy(allow=("*",), loopback=True)
CALLERS = 16
UNANSWERED = 200
Calls = list[dict[str, Any]]


def main() -> None:
    """Print the cases."""
    loopback_up()
    with name_server(ADDRESS, 53) as server:
        print(json.dumps(asyncio.run(cases(server))))


async def cases(server: NameServer) -> dict[str, Any]:
    """What became of the calls of each case, and what the server was asked."""
    found: dict[str, Any] = {}
    async with upstream(lambda _: response()) as tool:

        async def run(name: str, lose: Callable[[Question], bool], *hosts: list[str]) -> None:
            server.asked.clear()
            server.lose = lose
            async with OutboundHttp(POLICY) as outbound:
                calls = [
                    await asyncio.gather(*(_call(outbound, h, tool.port) for h in each)) for each in hosts
                ]
                waiting = _sockets()
            asked = [{"name": q.name, "kind": q.kind, "at": q.at} for q in server.asked]
            found[name] = {"calls": calls, "asked": asked, "sockets": waiting}

        def address(name: str) -> str:
            return server.add(name, "127.0.0.1")

        lost: set[str] = set()

        def first(question: Question) -> bool:
            known = question.name in lost
            lost.add(question.name)
            return not known

        await run("nothing lost", lambda _: False, [address("well.example.test")] * CALLERS)
        await run("one lost", first, [address("one.example.test")] * CALLERS)
        silent = [address("all.example.test")] * CALLERS
        await run("all lost", lambda _: True, silent, silent)
        many = [address(f"silent-{number}.example.test") for number in range(UNANSWERED)]
        good = address("good.example.test")
        await run("others lost", lambda q: q.name.startswith("silent"), [good], [*many, *many])
        await run("absent", lambda _: False, ["absent.example.test"] * CALLERS)
    found["names"] = await _names(server)
    return found


async def _names(server: NameServer) -> dict[str, Any]:
    """What names without a final dot resolve to, and which of them the server was asked for."""
    server.add("short.example.test", "127.0.0.3")
    server.add("one.two.three", "127.0.0.4")
    server.asked.clear()
    resolve = CaresResolver()
    found = {
        name: list((await resolve(name)).addresses)
        for name in ("localhost", "in-hosts.corp", "short", "one.two.three")
    }
    return {"found": found, "asked": server.names()}


async def _call(outbound: OutboundHttp, host: str, port: int) -> dict[str, Any]:
    place = target(PublishedBackend(url=f"http://{host}:{port}/"), namespace="team", policy=POLICY)
    began, problem = time.monotonic(), ""
    try:
        await outbound.send(OutboundRequest(target=place, method="POST", path="/", body=b"{}", timeout=30.0))
    except OutboundError as error:
        problem = str(error)
    return {"seconds": time.monotonic() - began, "problem": problem}


def _sockets() -> int:
    found = 0
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found += os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:")
    return found


if __name__ == "__main__":
    main()
