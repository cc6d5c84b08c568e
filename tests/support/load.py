"""Steady requests of an agent from the host, on kept and on fresh connections, while a test changes the cluster."""

import asyncio
import collections
import ssl
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Self

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

SLOW = 15.0
"""Seconds: a request that takes longer has failed, whatever it was answered."""


@dataclass
class Result:
    """What became of the requests."""

    sent: int = 0
    failed: collections.Counter[str] = field(default_factory=collections.Counter)
    slowest: float = 0.0  # s

    def __str__(self) -> str:
        bad = sum(self.failed.values())
        return f"{self.sent} requests, {bad} failed, slowest {self.slowest * 1000:.0f} ms" + (
            f" ({dict(self.failed)})" if bad else ""
        )


class Load:
    """Requests until the block ends; a context manager. `keep` workers hold their connection, `fresh` never do.

    Each worker discovers and calls in turn, `pause` seconds apart: nothing is tried twice. `url`'s host is
    dialled at `address`, verified by its name.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        address: str,
        ca_file: str = "",
        keep: int = 2,
        fresh: int = 2,
        pause: float = 0.1,
    ) -> None:
        self._url, self._address, self._pause = url, address, pause
        self._headers = {"Authorization": f"Bearer {token}"}
        self._tls: ssl.SSLContext | bool = ssl.create_default_context(cafile=ca_file) if ca_file else True
        self._workers = [False] * keep + [True] * fresh
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="load")
        self.result = Result()

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.go_on(len(self._workers) * 2)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive(), "the load does not end"

    def go_on(self, requests: int, timeout: float = 120) -> None:
        """Wait until so many more requests were sent. Raises TimeoutError."""
        until, deadline = self.result.sent + requests, time.monotonic() + timeout
        while self.result.sent < until:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.result}")
            time.sleep(0.02)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for fresh in self._workers:
                group.create_task(self._worker(fresh))

    async def _worker(self, fresh: bool) -> None:
        connector = aiohttp.TCPConnector(resolver=_Fixed(self._address), ssl=self._tls, force_close=fresh)
        timeout = aiohttp.ClientTimeout(total=60)
        async with aiohttp.ClientSession(
            connector=connector, headers=self._headers, timeout=timeout
        ) as session:
            turn = 0
            while not self._stop.is_set():
                turn += 1
                await self._one(session, turn)
                await asyncio.sleep(self._pause)

    async def _one(self, session: aiohttp.ClientSession, turn: int) -> None:
        began = time.monotonic()
        problem = ""
        try:
            if turn % 2:
                async with session.get(f"{self._url}/") as answer:
                    body: Any = await answer.json()
                    if answer.status != 200 or not body["tools"]:
                        problem = f"discovery {answer.status}: {len(body.get('tools', ()))} tools"
            else:
                arguments = {"expression": f"{turn} + 1"}
                async with session.post(f"{self._url}/tools/calculator", json=arguments) as answer:
                    body = await answer.json()
                    if answer.status != 200:
                        problem = f"call {answer.status} {body.get('code')}"
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            problem = f"{type(error).__name__}: {error}"[:200]
        took = time.monotonic() - began
        self.result.sent += 1
        self.result.slowest = max(self.result.slowest, took)
        if took > SLOW:
            problem = problem or "slow"
        if problem:
            self.result.failed[problem] += 1


class _Fixed(AbstractResolver):
    """Every name is one address."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
        return [{"hostname": host, "host": self._address, "port": port, "family": 2, "proto": 0, "flags": 0}]

    async def close(self) -> None:
        return None
