"""MCP over three replicas that know nothing of each other: requests in turns, and one that is killed.

`make mcp-replicas` asks 10,000 times; a usual run asks fewer (TOOLCRIB_MCP_REQUESTS).
"""

import asyncio
import contextlib
import itertools
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from mcp_requests import VERSIONS, call_of, rpc
from registry_harness import OPERATOR, backend, binding, mint, tool
from registry_process import RegistryProcess, configuration, process
from stub_server import Answer, Asked, answering
from toolcrib.wire.publish import Publish, PublishedTool, Revision

pytestmark = pytest.mark.guarantee

REQUESTS = int(os.environ.get("TOOLCRIB_MCP_REQUESTS") or 2_000)
AT_ONE_TIME = 12
STATELESS = VERSIONS[-1]
NAMES = [f"tool_{i}" for i in range(20)]
GRANTS = (binding("bot", ("s:use",)),)
SCHEMA = {
    "type": "object",
    "properties": {"number": {"type": "integer"}, "text": {"type": "string", "maxLength": 100}},
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def tools() -> Iterator[list[PublishedTool]]:
    def echo(asked: Asked) -> Answer:
        if asked.path == "/list":
            return Answer(b"[1, 2]")
        if asked.path == "/text":
            return Answer(b"plain", headers={"content-type": "text/plain"})
        return Answer(asked.body)

    with answering(echo) as port:
        made = [
            tool(name, scopes=("s:use",), input_schema=SCHEMA, backend=backend(port, "/echo"))
            for name in NAMES
        ]
        for kind in ("list", "text"):
            made.append(tool(kind, scopes=("s:use",), backend=backend(port, f"/{kind}")))
        yield made


@contextlib.contextmanager
def running(folder: Path, tools: list[PublishedTool]) -> Iterator[list[RegistryProcess]]:
    """Three replicas."""
    with contextlib.ExitStack() as stack:
        found = [
            stack.enter_context(process(configuration(folder / f"r{i}", egress={"loopback": True})))
            for i in range(3)
        ]
        for replica in found:
            replica.publish(*tools, bindings=GRANTS)
        yield found


@pytest.fixture(scope="module")
def replicas(
    tmp_path_factory: pytest.TempPathFactory, tools: list[PublishedTool]
) -> Iterator[list[RegistryProcess]]:
    with running(tmp_path_factory.mktemp("replicas"), tools) as found:
        yield found


@pytest.fixture
def headers() -> dict[str, str]:
    return {"authorization": f"Bearer {mint('system:serviceaccount:team:bot')}"}


Request = tuple[str, str, dict[str, Any], str]
"""Path, method, parameters, revision."""


def one_of_each(number: int, draw: random.Random) -> Request:
    """One request, of any kind that its revision has."""
    version, name = VERSIONS[number % len(VERSIONS)], draw.choice(NAMES)
    tool_id = f"team/{name.replace('_', '-')}"
    arguments = {"number": number}
    begins: Request = (
        ("/mcp/direct", "server/discover", {}, version)
        if version == STATELESS
        else (
            "/mcp/direct",
            "initialize",
            {
                "protocolVersion": version,
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            },
            version,
        )
    )

    def meta(tool_name: str, **given: Any) -> Request:
        return "/mcp", "tools/call", {"name": tool_name, "arguments": given}, version

    return draw.choice(
        (
            begins,
            ("/mcp", "tools/list", {}, version),
            ("/mcp/direct", "tools/list", {}, version),
            ("/mcp/direct", "tools/call", call_of("/mcp/direct", name, arguments), version),
            ("/mcp/direct", "tools/call", call_of("/mcp/direct", name, arguments), version),
            meta("call_tool", tool_id=tool_id, args=arguments),
            meta("search_tools", query=f"the tool {name}", schemas=draw.random() < 0.5),
            meta("describe_tool", tool_id=draw.choice((tool_id, name))),
            meta("load_tools", tool_ids=[tool_id, name]),
        )
    )


async def asked(
    session: aiohttp.ClientSession, replica: RegistryProcess, request: Request, known: str | None = None
) -> tuple[dict[str, Any], str | None]:
    """The answer, and the session's id where there is one."""
    path, method, params, version = request
    body, fields = rpc(version, method, params)
    if known is not None:
        fields["mcp-session-id"] = known
    async with session.post(replica.url + path, json=body, headers=fields) as answer:
        message: dict[str, Any] = await answer.json()
        assert answer.status == 200, message
        return message, answer.headers.get("mcp-session-id")


def check(number: int, request: Request, message: dict[str, Any]) -> None:
    """The answer is that of this request."""
    _, method, params, version = request
    result = message["result"]
    assert (result.get("resultType") == "complete") == (version == STATELESS)
    assert not result.get("isError"), result
    if method == "initialize":
        assert result["protocolVersion"] == version
    if method == "tools/list" and request[0] == "/mcp/direct":
        assert len(result["tools"]) == len(NAMES) + 2
    if "number" in str(params):
        assert result["structuredContent"] == {"number": number}


async def in_turns(replicas: list[RegistryProcess], headers: dict[str, str], count: int) -> Counter[str]:
    """Requests one after another to each replica in turn, several at one time."""
    draw, done, known = random.Random(7), Counter[str](), [None]
    numbers = iter(range(count))

    async def work(session: aiohttp.ClientSession) -> None:
        for number in numbers:
            request = one_of_each(number, draw)
            replica = replicas[number % len(replicas)]
            message, given = await asked(session, replica, request, known[0])
            known[0] = given or known[0]  # type: ignore[call-overload]
            check(number, request, message)
            done[f"{request[3]} {request[1]}"] += 1

    async with aiohttp.ClientSession(headers=headers) as session:
        await asyncio.gather(*(work(session) for _ in range(AT_ONE_TIME)))
    return done


def test_requests_of_all_revisions_in_turns_over_three_replicas_are_all_answered(
    replicas: list[RegistryProcess], headers: dict[str, str]
) -> None:
    done = asyncio.run(in_turns(replicas, headers, REQUESTS))

    print(
        f"{sum(done.values()):,} requests over {len(replicas)} replicas, 0 errors: {dict(sorted(done.items()))}"
    )
    assert sum(done.values()) == REQUESTS
    assert {key.split()[0] for key in done} == set(VERSIONS)
    assert all(not line.get("status", 200) >= 400 for replica in replicas for line in replica.lines)


class Stream:
    """A change stream; `events` are the methods of its notices so far."""

    def __init__(self) -> None:
        self.begun, self.ended = asyncio.Event(), asyncio.Event()
        self.events: list[str] = []
        self.changed = asyncio.Event()

    async def read(self, session: aiohttp.ClientSession, replica: RegistryProcess, version: str) -> None:
        """Until it ends."""
        body, fields = rpc(version, "subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        listening = version == STATELESS
        opened = (
            session.post(replica.url + "/mcp/direct", json=body, headers=fields)
            if listening
            else session.get(replica.url + "/mcp/direct", headers=fields)
        )
        try:
            async with opened as answer:
                assert answer.status == 200
                async for line in answer.content:
                    self.begun.set()
                    if b"list_changed" in line:
                        self.events.append("list_changed")
                        self.changed.set()
        except aiohttp.ClientError:
            pass
        finally:
            self.ended.set()


@contextlib.asynccontextmanager
async def streams(
    replicas: list[RegistryProcess], headers: dict[str, str], each: int
) -> AsyncIterator[list[tuple[RegistryProcess, Stream]]]:
    """So many streams of each era at each replica, once all have begun."""
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
        found = [(replica, Stream(), v) for replica in replicas for v in (*VERSIONS[-2:],) * each]
        tasks = [asyncio.create_task(stream.read(session, replica, v)) for replica, stream, v in found]
        try:
            async with asyncio.timeout(30):
                await asyncio.gather(*(stream.begun.wait() for _, stream, _ in found))
            yield [(replica, stream) for replica, stream, _ in found]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def published(replica: RegistryProcess, tools: list[PublishedTool]) -> None:
    """A new leader's snapshot of these tools."""
    step = Publish(to=Revision(epoch=2, seq=1), tools=tuple(tools), bindings=GRANTS)
    token = {"authorization": f"Bearer {mint(OPERATOR, audience='toolcrib-admin')}"}
    async with (
        aiohttp.ClientSession(headers=token) as session,
        session.post(
            f"{replica.admin_url}/v1/admin/publish",
            data=step.model_dump_json(),
            headers={"content-type": "application/json"},
        ) as answer,
    ):
        assert answer.status == 200, await answer.text()


def test_a_replica_that_is_killed_ends_its_own_streams_and_no_others(
    headers: dict[str, str], tools: list[PublishedTool], tmp_path: Path
) -> None:
    with running(tmp_path, tools) as replicas:
        assert asyncio.run(_one_is_killed(replicas, headers, tools)) == {1: 2 * 2 * 4}


async def _one_is_killed(
    replicas: list[RegistryProcess], headers: dict[str, str], tools: list[PublishedTool]
) -> Counter[int]:
    """How many streams of the others had how many notices."""
    killed, *left = replicas

    async with streams(replicas, headers, 4) as found:
        lost = [stream for replica, stream in found if replica is killed]
        others = [stream for replica, stream in found if replica is not killed]
        work = asyncio.create_task(in_turns(left, headers, 200))
        killed.child.kill()
        async with asyncio.timeout(60):
            await asyncio.gather(*(stream.ended.wait() for stream in lost))
            await work
            for replica in left:
                await published(replica, tools[1:])
            await asyncio.gather(*(stream.changed.wait() for stream in others))
        assert not any(stream.ended.is_set() for stream in others)
        assert not any(stream.events for stream in lost)
        return Counter(len(stream.events) for stream in others)


CALLS = 200
OWN = ("resultType", "ttlMs", "cacheScope")
"""Fields of the stateless era."""


def the_same_calls() -> list[tuple[str, str, dict[str, Any]]]:
    draw = random.Random(11)
    made = []
    for number in range(CALLS):
        path = draw.choice(("/mcp", "/mcp/direct"))
        name = draw.choice((*NAMES, *NAMES, "list", "text", "nothing"))
        arguments: dict[str, Any] = {} if name in ("list", "text") else {"number": number}
        if draw.random() < 0.1:
            arguments = {"number": "no number", "text": "x" * 200}
        made.append((path, "tools/call", call_of(path, name, arguments)))
    return made


def of_no_era(message: dict[str, Any]) -> dict[str, Any]:
    """An answer without what only one era has."""
    result = {k: v for k, v in message.get("result", {}).items() if k not in OWN}
    result["_meta"] = {k: v for k, v in result.get("_meta", {}).items() if "serverInfo" not in k}
    if not isinstance(result.get("structuredContent"), dict):
        result.pop("structuredContent", None)  # before 2026-07-28 it is an object
    return {"result": result, "error": message.get("error")}


def test_the_same_calls_give_equal_results_in_all_revisions(
    replicas: list[RegistryProcess], headers: dict[str, str]
) -> None:
    async def run() -> dict[str, list[dict[str, Any]]]:
        turns = itertools.cycle(replicas)
        async with aiohttp.ClientSession(headers=headers) as session:
            return {
                version: [
                    of_no_era((await asked(session, next(turns), (*call, version)))[0])
                    for call in the_same_calls()
                ]
                for version in VERSIONS
            }

    found = asyncio.run(run())
    first, *others = found.values()
    assert all(first == other for other in others)
    kinds = Counter(
        "error" if one["error"] else "failed" if one["result"].get("isError") else "ok" for one in first
    )
    assert kinds.keys() == {"error", "failed", "ok"}, kinds
