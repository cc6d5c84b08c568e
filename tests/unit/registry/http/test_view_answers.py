"""Answers made of a view: none holds the event loop, none shows what was revoked meanwhile, none fills the memory."""

import asyncio
import json
import pkgutil
import threading
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.responses import Response

from published import binding, bot, tool
from registry_harness import ManualClock
from toolcrib.wire.api import LoadRequest
from toolcrib.wire.publish import Publish, Removed, Revision
from toolcrib_registry.calls.canaries import CanaryCounter
from toolcrib_registry.http.problems import ProblemError
from toolcrib_registry.http.routes import catalog
from toolcrib_registry.http.view_answers import Made, send_view_answer
from toolcrib_registry.identity.authenticator import Asker
from toolcrib_registry.limits import large_requests
from toolcrib_registry.limits.large_requests import LargeRequests
from toolcrib_registry.policy import discovery
from toolcrib_registry.policy.state import PolicyState
from toolcrib_registry.settings import RegistrySettings

pytestmark = pytest.mark.anyio
BOT = Asker(identity=bot())
LARGE = "x" * 4_000
TOOLS = tuple(tool(f"team-a/tool-{i:03}", description=LARGE) for i in range(40))
SETTINGS = RegistrySettings(issuers=[])


async def parts(tools: tuple[Any, ...] = TOOLS) -> Any:
    """What routes need of a registry in which the bot may see `tools`."""
    state = PolicyState(ManualClock())
    await state.publish(Publish(base=None, to=Revision(epoch=1, seq=1), tools=tools, bindings=(binding(),)))
    nothing = SimpleNamespace(
        discovered=lambda *_: None, decided=lambda *_: None, listed=lambda *_, **__: None, add=lambda *_: None
    )
    decisions = SimpleNamespace(listed=nothing.listed, loaded=nothing.add)
    return SimpleNamespace(
        state=state,
        large=LargeRequests(),
        settings=SETTINGS,
        clock=state.clock,
        metrics=nothing,
        decisions=decisions,
        refusals=nothing,
        canaries=CanaryCounter(),
    )


async def remove(deps: Any, *tools: str) -> None:
    now = deps.state.snapshot.revision
    step = Publish(
        base=now, to=Revision(epoch=1, seq=now.seq + 1), removed=Removed(tools=tools or (TOOLS[0].tool_id,))
    )
    await deps.state.publish(step)


class Reader:
    """Takes an answer apart as it comes."""

    def __init__(self) -> None:
        self.status, self.body, self.sizes = 0, b"", list[int]()

    async def send(self, message: Any) -> None:
        self.status = message.get("status", self.status)
        self.body += message.get("body", b"")
        self.sizes.append(len(message.get("body", b"")))


async def sent(answer: Response) -> Any:
    reader = Reader()
    await answer({"type": "http"}, None, reader.send)  # type: ignore[arg-type]
    return json.loads(reader.body)


async def page(deps: Any) -> Any:
    return await sent(await catalog.tools(deps, BOT, 500, None, None))


async def loaded(deps: Any) -> Any:
    return await sent(await catalog.load(deps, BOT, LoadRequest(tools=tuple(t.tool_id for t in TOOLS))))


async def listed(deps: Any) -> Any:
    reader = Reader()

    async def make(seen: Any) -> Made:
        return Made((await discovery.answer(deps.state, seen, deps.settings))[0])

    await send_view_answer(deps, BOT, make, reader.send)
    return json.loads(reader.body)


ENCODE = {
    page: "toolcrib_registry.http.routes.catalog.ToolDefinition",
    loaded: "toolcrib_registry.calls.definitions.McpTool",
}


@pytest.mark.parametrize("ask", ENCODE)
async def test_a_tool_that_is_revoked_while_an_answer_is_encoded_is_not_in_it(
    ask: Callable[[Any], Awaitable[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    deps, begun, go = await parts(), threading.Event(), threading.Event()
    made = pkgutil.resolve_name(ENCODE[ask])

    class Slow:
        @staticmethod
        def of(*asked: Any) -> Any:
            begun.set()
            assert go.wait(30), "the event loop goes on while this is made"
            return made.of(*asked)

    monkeypatch.setattr(ENCODE[ask], Slow)
    asked = asyncio.ensure_future(ask(deps))
    assert await asyncio.to_thread(begun.wait, 30)
    await remove(deps)
    go.set()
    assert TOOLS[0].tool_id not in json.dumps((await asked)["tools"])


async def test_a_tool_that_is_revoked_while_a_list_is_encoded_is_not_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deps, begun, go, encoded = await parts(), threading.Event(), threading.Event(), discovery.encoded

    def slow(*asked: Any) -> Any:
        begun.set()
        assert go.wait(30)
        return encoded(*asked)

    monkeypatch.setattr(discovery, "encoded", slow)
    monkeypatch.setattr("toolcrib_registry.policy.state.AT_ONCE", 1)
    asked = asyncio.ensure_future(listed(deps))
    assert await asyncio.to_thread(begun.wait, 30)
    await remove(deps)
    go.set()
    assert len((await asked)["tools"]) == len(TOOLS) - 1


async def test_a_page_of_large_tools_ends_before_its_limit_and_pages_together_have_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalog, "PAGE_BYTES", 10 * len(LARGE))
    deps, found, cursor = await parts(), list[str](), None
    while True:
        answer = await sent(await catalog.tools(deps, BOT, 500, cursor, None))
        assert 0 < len(answer["tools"]) <= 10
        found += [t["tool_id"] for t in answer["tools"]]
        if (cursor := answer["next_cursor"]) is None:
            break
    assert found == [t.tool_id for t in TOOLS]


async def test_large_answers_of_one_caller_that_nobody_reads_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    deps, body = await parts(), b"x" * 1_000_000
    monkeypatch.setattr(large_requests, "UNREAD_EACH", 5 * len(body))
    reading, cut = [0], [0]

    async def never(message: Any) -> None:
        if message["type"] == "http.response.body":
            reading[0] += 1
            await asyncio.Event().wait()

    async def ask() -> None:
        async def make(_: Any) -> Made:
            return Made(bytes(bytearray(body)))

        await send_view_answer(deps, BOT, make, never)
        cut[0] += 1

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ask()) for _ in range(20)]
        for _ in range(100):
            await asyncio.sleep(0)
        assert (reading[0], cut[0]) == (20, 15)
        for task in tasks:
            task.cancel()


async def test_what_is_cut_before_it_was_begun_is_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    deps = await parts()
    monkeypatch.setattr(large_requests, "UNREAD_TOGETHER", 1_000)
    monkeypatch.setattr(PolicyState, "caller_view", _slowly(PolicyState.caller_view))

    async def make(_: Any) -> Made:
        return Made(b"x" * 100_000)

    with pytest.raises(ProblemError) as refused:
        await send_view_answer(deps, BOT, make, Reader().send)
    assert refused.value.code == "large_requests_busy"


def _slowly(inner: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def slow(*asked: Any, **options: Any) -> Any:
        for _ in range(5):
            await asyncio.sleep(0)
        return await inner(*asked, **options)

    return slow


async def test_a_large_answer_is_handed_over_in_slices() -> None:
    deps, reader = await parts(), Reader()

    async def make(_: Any) -> Made:
        return Made(b"x" * 200_000)

    await send_view_answer(deps, BOT, make, reader.send)
    assert (len(reader.body), max(reader.sizes)) == (200_000, 64 * 1024)


EVIL = tuple(tool(f"evil/tool-{i}", namespace="evil") for i in range(40))
MOST = 8
"""Encodings that one answer may take."""


async def step(deps: Any, **changes: Any) -> None:
    now = deps.state.snapshot.revision
    await deps.state.publish(Publish(base=now, to=Revision(epoch=1, seq=now.seq + 1), **changes))


def edited(deps: Any, count: int) -> Awaitable[None]:
    """The same tool with another text each time."""
    return step(deps, tools=(tool(EVIL[0].tool_id, namespace="evil", description=f"v{count}"),))


def come_and_gone(deps: Any, count: int) -> Awaitable[None]:
    """A tool that is deleted and created in turns."""
    return step(deps, removed=Removed(tools=(EVIL[0].tool_id,))) if count % 2 else step(deps, tools=EVIL[:1])


def one_by_one(deps: Any, count: int) -> Awaitable[None]:
    """Another tool goes each time."""
    return step(deps, removed=Removed(tools=(EVIL[count % len(EVIL)].tool_id,)))


def scopes_too(deps: Any, count: int) -> Awaitable[None]:
    """A binding of that namespace grants other scopes each time."""
    other = binding(
        name="evil", namespace="evil", namespaces=("evil",), scopes=(f"s{count}:use",), uid="evil"
    )
    return step(deps, bindings=(other,))


@pytest.mark.parametrize("change", [edited, come_and_gone, one_by_one, scopes_too])
@pytest.mark.parametrize("ask", [page, loaded, listed])
async def test_a_publisher_that_never_stops_keeps_no_list_from_others(
    ask: Callable[[Any], Awaitable[Any]],
    change: Callable[[Any, int], Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deps = await parts((*TOOLS, *EVIL))
    await step(deps, bindings=(binding(name="wide", namespace=None, namespaces=("team-a", "evil")),))
    encodings, inner = [0], asyncio.to_thread

    async def meanwhile(work: Any, *asked: Any) -> Any:
        made = await inner(work, *asked)
        if change_now[0]:
            encodings[0] += 1
            change_now[0] = False
            await change(deps, encodings[0])
            change_now[0] = True
        return made

    change_now = [True]
    monkeypatch.setattr(asyncio, "to_thread", meanwhile)
    monkeypatch.setattr("toolcrib_registry.policy.state.AT_ONCE", 1)
    answer = await asyncio.wait_for(ask(deps), 60)
    found = json.dumps(answer["tools"])
    assert all(f'"{t.tool_id}"' in found or f'"{t.name}"' in found for t in TOOLS)
    assert 0 < encodings[0] <= MOST
    assert all(f'"{t.tool_id}"' not in found for t in EVIL if t.tool_id not in deps.state.snapshot.tools), (
        "what has gone is not in it"
    )


async def test_a_tool_that_is_recreated_under_its_id_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    deps, inner, texts = await parts(), asyncio.to_thread, ["second"]

    async def meanwhile(work: Any, *asked: Any) -> Any:
        made = await inner(work, *asked)
        if texts:
            again = tool(TOOLS[0].tool_id, uid="another", description=texts.pop())
            monkeypatch.setattr(asyncio, "to_thread", inner)
            await step(deps, tools=(again,))
        return made

    monkeypatch.setattr(asyncio, "to_thread", meanwhile)
    monkeypatch.setattr("toolcrib_registry.policy.state.AT_ONCE", 1)
    assert (await page(deps))["tools"][0]["description"] == "second"
