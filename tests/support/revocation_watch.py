"""How fast what is taken back is gone, seen by an agent on every replica at once; and a crowd of other agents.

`Eyes` looks at one tool by call, list, search and watch; `Crowd` keeps the replicas busy meanwhile.
"""

from __future__ import annotations

import asyncio
import collections
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import aiohttp

WAYS = ("call", "list", "search", "watch")
Times = dict[tuple[int, str], float]
"""By replica and way."""


@dataclass(frozen=True)
class Seen:
    """By replica and way, of `time.perf_counter`: the first answer as it was waited for, the last one before it."""

    first: Times
    last: Times


@dataclass(frozen=True)
class Wanted:
    """A tool, what it is called with, and a query that finds it."""

    name: str = "calculator"
    arguments: dict[str, Any] = field(default_factory=lambda: {"expression": "6 * 7"})
    query: str = "a calculator to work out a sum"


class Eyes:
    """One agent that looks at one tool on every replica; an async context manager."""

    def __init__(self, urls: Sequence[str], token: str, wanted: Wanted | None = None) -> None:
        self._urls, self._wanted = list(urls), wanted or Wanted()
        self._headers = {"Authorization": f"Bearer {token}"}
        self._streams: list[asyncio.Task[None]] = []
        self._watched: dict[int, set[str]] = {}

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            headers=self._headers, timeout=aiohttp.ClientTimeout(total=30), read_bufsize=1 << 20
        )
        self._streams = [asyncio.create_task(self._watch(i)) for i in range(len(self._urls))]
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self._streams:
            task.cancel()
        await asyncio.gather(*self._streams, return_exceptions=True)
        await self._session.close()

    async def until(self, shown: bool, *, within: float = 30) -> Seen:
        """Look by every way until each answer shows the tool (or not).

        Raises TimeoutError: it names what still answers otherwise.
        """
        began = time.perf_counter()
        places = [(i, way) for i in range(len(self._urls)) for way in WAYS]
        seen = Seen({}, dict.fromkeys(places, began))

        async def one(replica: int, way: str) -> None:
            while await self.shows(replica, way) is not shown:
                seen.last[replica, way] = time.perf_counter()
                await asyncio.sleep(0.004)
            seen.first[replica, way] = time.perf_counter()

        try:
            async with asyncio.timeout(within), asyncio.TaskGroup() as group:
                for place in places:
                    group.create_task(one(*place))
        except TimeoutError:
            left = [place for place in places if place not in seen.first]
            raise TimeoutError(f"after {within:g} s not {'shown' if shown else 'gone'}: {left}") from None
        return seen

    async def shows(self, replica: int, way: str) -> bool:
        """Whether the tool is called, listed, found or watched now; what cannot be said counts as not."""
        name, url = self._wanted.name, self._urls[replica]
        match way:
            case "call":
                async with self._session.post(f"{url}/tools/{name}", json=self._wanted.arguments) as answer:
                    await answer.read()
                    return answer.status == 200
            case "list":
                async with self._session.get(f"{url}/") as answer:
                    body = await answer.json()
                    return answer.status == 200 and name in {t["name"] for t in body["tools"]}
            case "search":
                query = {"query": self._wanted.query, "limit": 10}
                async with self._session.post(f"{url}/v1/search", json=query) as answer:
                    body = await answer.json()
                    return answer.status == 200 and name in {t["name"] for t in body["tools"]}
        return name in self._watched.get(replica, ())

    async def _watch(self, replica: int) -> None:
        while True:
            self._watched[replica] = set()
            try:
                async with self._session.get(
                    f"{self._urls[replica]}/v1/watch", timeout=aiohttp.ClientTimeout(total=None)
                ) as stream:
                    if stream.status == 200:
                        await self._follow(stream, self._watched[replica])
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.05)

    async def _follow(self, stream: aiohttp.ClientResponse, seen: set[str]) -> None:
        kind = ""
        async for line in stream.content:
            if line.startswith(b"event: "):
                kind = line[7:].strip().decode()
            elif line.startswith(b"data: "):
                data = json.loads(line[6:])
                match kind:
                    case "snapshot":
                        seen.clear()
                        seen.update(t["name"] for t in data["tools"])
                    case "added":
                        seen.add(data["tool"]["name"])
                    case "removed":
                        seen.discard(data["name"])


@dataclass
class Did:
    """What a crowd has done."""

    done: collections.Counter[str] = field(default_factory=collections.Counter)
    wrong: collections.Counter[str] = field(default_factory=collections.Counter)


@asynccontextmanager
async def crowd(urls: Sequence[str], token: str, *, each: int = 1, pause: float = 0.02) -> AsyncIterator[Did]:
    """Agents that list, search, call and watch on every replica until the block ends, `each` of every sort."""
    did = Did()
    headers = {"Authorization": f"Bearer {token}"}

    async def work(url: str, way: str) -> None:
        while True:
            try:
                status = await _once(session, url, way)
                did.done[way] += 1
                if status != 200:
                    did.wrong[f"{way} {status}"] += 1
            except (aiohttp.ClientError, TimeoutError) as error:
                did.wrong[f"{way} {type(error).__name__}"] += 1
            await asyncio.sleep(pause)

    async with aiohttp.ClientSession(
        headers=headers, timeout=aiohttp.ClientTimeout(total=30), connector=aiohttp.TCPConnector(limit=0)
    ) as session:
        tasks = [asyncio.create_task(work(u, w)) for u in urls for w in WAYS for _ in range(each)]
        try:
            yield did
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _once(session: aiohttp.ClientSession, url: str, way: str) -> int:
    match way:
        case "call":
            request = session.post(f"{url}/tools/calculator", json={"expression": "1 + 1"})
        case "list":
            request = session.get(f"{url}/")
        case "search":
            request = session.post(f"{url}/v1/search", json={"query": "ask the bank's database", "limit": 5})
        case _:
            return await _watch_a_while(session, url)
    async with request as answer:
        await answer.read()
        return answer.status


async def _watch_a_while(session: aiohttp.ClientSession, url: str) -> int:
    async with session.get(f"{url}/v1/watch") as stream:
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:
            try:
                async with asyncio.timeout(0.5):
                    await stream.content.readline()
            except TimeoutError:
                continue
        return stream.status
