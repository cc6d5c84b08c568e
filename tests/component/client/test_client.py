"""The client against a running registry: what is granted is found and called, and what ends is told."""

import gc
import gzip
import json
import multiprocessing
import sys
import threading
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from prometheus_client import CollectorRegistry

from registry_harness import RunningRegistry, backend, binding, running_registry, tool
from stub_server import Answer, Asked, Request, answering, handling
from toolcrib_client import (
    AsyncToolcrib,
    Change,
    DeadlineExceeded,
    InvalidArguments,
    NotPermitted,
    RegistryAnswerInvalid,
    RegistryUnavailable,
    TokenUnavailable,
    Toolcrib,
    ToolcribError,
    ToolNotFound,
    Unauthorized,
    exchange,
)
from toolcrib_client.metrics import ClientMetrics

EXPRESSION = {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}
TOOLS = ("calculator", "file_reader")
GRANT = binding("planner", [f"{name}:use" for name in TOOLS])


@pytest.fixture(scope="module")
def executing() -> Iterator[int]:
    def answer(asked: Asked) -> Answer:
        return Answer(json.dumps({"result": asked.json()["expression"]}).encode())

    with answering(answer) as port:
        yield port


@pytest.fixture
def registry(executing: int) -> Iterator[RunningRegistry]:
    tools = [tool(n, input_schema=EXPRESSION, backend=backend(executing, f"/{n}")) for n in TOOLS]
    with running_registry([*tools, tool("secret")], [GRANT]) as running:
        yield running


def test_what_is_granted_is_listed_described_loaded_found_and_called(
    registry: RunningRegistry, connect: Any
) -> None:
    crib = connect(registry.url, lambda: registry.token("team", "planner"))

    assert [t.name for t in crib.tools()] == ["calculator", "file_reader"]
    assert crib.describe("calculator").input_schema == EXPRESSION
    assert crib.search("calculator", limit=1).hits[0].tool_id == "team/calculator"
    loaded = crib.load(["calculator", "secret"])
    assert [t.model_name for t in loaded.tools] == ["calculator"]
    assert [(f.tool, f.code) for f in loaded.failures] == [("secret", "tool_not_found")]
    assert crib.call("calculator", {"expression": "6*7"}).result == {"result": "6*7"}


def test_functions_for_models_have_the_names_by_which_they_are_called(
    registry: RunningRegistry, executing: int, connect: Any
) -> None:
    dotted = tool("files.read", object_name="files-read", input_schema=EXPRESSION, backend=backend(executing))
    registry.publish([dotted], [binding("planner", [*GRANT.scopes, "files.read:use"])])
    crib = connect(registry.url, lambda: registry.token("team", "planner"))

    names = [f["function"]["name"] for f in crib.openai_tools()]

    assert names == [f["name"] for f in crib.anthropic_tools()]
    assert [crib.call(name, {"expression": "1"}).tool_id for name in names] == [
        "team/calculator",
        "team/file-reader",
        "team/files-read",
    ]
    assert "files.read" not in names


def openai_call(name: str, arguments: str) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}


def test_a_description_reaches_a_model_without_control_characters(
    registry: RunningRegistry, connect: Any
) -> None:
    evil = tool(
        "calculator",
        description="Adds.\x1b[2J\u202e\u00a0Two\u2028numbers.\n\tOften.",
        input_schema=EXPRESSION,
    )
    registry.publish([evil], [GRANT])
    crib = connect(registry.url, lambda: registry.token("team", "planner"))

    shown = ["Adds.[2J Two numbers.\n\tOften."]
    assert [f["function"]["description"] for f in crib.openai_tools()[:1]] == shown
    assert [f["description"] for f in crib.anthropic_tools()[:1]] == shown


def test_calls_of_a_model_are_answered_in_its_providers_shape_failed_ones_with_the_reason(
    registry: RunningRegistry, connect: Any
) -> None:
    crib = connect(registry.url, lambda: registry.token("team", "planner"))

    assert crib.openai_answer(openai_call("calculator", '{"expression": "1"}')) == {
        "role": "tool",
        "tool_call_id": "c1",
        "content": '{"result":"1"}',
    }
    block = {"type": "tool_use", "id": "u1", "name": "calculator", "input": {"expression": 1}}
    assert crib.anthropic_answer(block) == {
        "type": "tool_result",
        "tool_use_id": "u1",
        "is_error": True,
        "content": crib.openai_answer(openai_call("calculator", '{"expression": 1}'))["content"],
    }
    assert "/expression" in crib.anthropic_answer(block)["content"]
    assert "not permitted" in crib.openai_answer(openai_call("secret", "{}"))["content"]
    for garbage in ("{", "[]", "[" * 5_000):
        said = crib.openai_answer(openai_call("calculator", garbage))["content"]
        assert said.startswith("The arguments cannot be used"), garbage


def test_what_no_model_can_mend_is_raised_and_not_told_to_it(registry: RunningRegistry, connect: Any) -> None:
    with pytest.raises(Unauthorized):
        connect(registry.url, lambda: "no.such.token").openai_answer(openai_call("calculator", "{}"))
    with pytest.raises(TypeError, match="'function'"):
        connect(registry.url, lambda: registry.token("team", "planner")).openai_answer({"id": "c1"})


def test_requests_are_counted_by_what_came_of_them(registry: RunningRegistry, connect: Any) -> None:
    numbers = CollectorRegistry()
    metrics = ClientMetrics(numbers)
    crib = connect(registry.url, lambda: registry.token("team", "planner"), observe=metrics)
    away = connect("http://127.0.0.1:9", None, observe=metrics)

    crib.search("calculator")
    crib.tools()
    for tried in (lambda: crib.call("secret"), lambda: away.describe("calculator")):
        with pytest.raises(ToolcribError):
            tried()

    def counted(operation: str, outcome: str) -> float | None:
        about = {"operation": operation, "outcome": outcome}
        return numbers.get_sample_value("toolcrib_client_requests_total", about)

    assert counted("search", "ok") == counted("tools", "ok") == 1
    assert counted("call", "not_permitted") == counted("describe", "RegistryUnavailable") == 1
    assert numbers.get_sample_value("toolcrib_client_request_seconds_count", {"operation": "call"}) == 1


def test_a_source_that_can_renew_its_token_is_told_that_it_was_refused(
    registry: RunningRegistry, connect: Any
) -> None:
    class Source:
        token = "no.such.token"

        def __call__(self) -> str:
            return self.token

        def renew(self) -> None:
            self.token = registry.token("team", "planner")

    assert len(connect(registry.url, Source()).tools()) == 2


def test_errors_go_by_code_and_name_the_request(registry: RunningRegistry, connect: Any) -> None:
    trace = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
    crib = connect(registry.url, lambda: registry.token("team", "planner"), traceparent=lambda: trace)

    with pytest.raises(InvalidArguments) as wrong:
        crib.call("calculator", {"expression": 1})
    with pytest.raises(ToolNotFound):
        crib.describe("secret")
    with pytest.raises(NotPermitted):
        crib.call("secret")
    with pytest.raises(Unauthorized):
        connect(registry.url, lambda: "no.such.token").tools()

    assert wrong.value.errors[0]["pointer"] == "/expression"
    assert wrong.value.hint
    assert wrong.value.request_id.startswith("client-")
    assert wrong.value.traceparent == trace


def test_a_refused_token_is_asked_for_once_more(registry: RunningRegistry, connect: Any) -> None:
    tokens = iter(["no.such.token", *[registry.token("team", "planner")] * 2])

    assert len(connect(registry.url, lambda: next(tokens)).tools()) == 2


@pytest.mark.parametrize("hangs", [False, True])
def test_a_token_source_that_raises_or_hangs_is_an_error_within_the_deadline_and_tells_no_secret(
    registry: RunningRegistry, connect: Any, hangs: bool
) -> None:
    ended = threading.Event()

    def source() -> str:
        if hangs:
            ended.wait(30)
        raise RuntimeError("hunter2")

    crib = connect(registry.url, source, deadline=0.2 if hangs else 30)
    try:
        with pytest.raises(TokenUnavailable) as told:
            crib.tools()
    finally:
        ended.set()

    assert "hunter2" not in str(told.value)
    assert told.value.request_id


def test_a_token_source_that_exits_is_named_as_the_cause_at_once(registry: RunningRegistry) -> None:
    with Toolcrib(registry.url, sys.exit) as crib, pytest.raises(TokenUnavailable, match="raised SystemExit"):
        crib.tools()


def test_a_tool_that_is_revoked_between_two_calls_is_refused_and_told_as_lost(
    registry: RunningRegistry, connect: Any
) -> None:
    crib = connect(registry.url, lambda: registry.token("team", "planner"))
    crib.rediscover()
    crib.call("calculator", {"expression": "1"})

    registry.publish([], [binding("planner", ["file_reader:use"])])

    with pytest.raises(NotPermitted):
        crib.call("calculator", {"expression": "1"})
    seen = crib.rediscover()
    assert (seen.lost, seen.unchanged) == (("calculator",), ("file_reader",))


def test_a_watch_tells_the_view_and_then_what_is_lost(registry: RunningRegistry, connect: Any) -> None:
    events = connect(registry.url, lambda: registry.token("team", "planner")).watch()

    first = next(events)
    registry.publish([], [binding("planner", ["file_reader:use"])])
    second = next(events)
    events.close()

    assert (first.kind, len(first.tools)) == ("snapshot", 2)
    assert (second.kind, second.name) == ("removed", "calculator")


def test_a_watch_that_breaks_is_opened_again(connect: Any) -> None:
    asked: list[str] = []

    def handle(request: Request) -> None:
        asked.append(request.headers["authorization"])
        request.begin({"Content-Type": "text/event-stream"})
        request.write(b'event: snapshot\ndata: {"revision": "%d", "tools": []}\n\n' % len(asked))
        request.cut()

    tokens = iter(["a", "b", "c"])
    with handling(handle) as port:
        events = connect(f"http://127.0.0.1:{port}", lambda: next(tokens)).watch()
        seen: list[Change] = [next(events), next(events)]
        events.close()

    assert [change.revision for change in seen] == ["1", "2"]
    assert asked == ["Bearer a", "Bearer b"]


def test_a_watch_that_does_not_open_within_the_deadline_is_asked_for_again_and_may_then_be_silent_for_longer(
    connect: Any,
) -> None:
    asked: list[str] = []
    released = threading.Event()

    def handle(request: Request) -> None:
        asked.append(request.path)
        if len(asked) == 1:
            released.wait(30)
            return
        request.begin({"Content-Type": "text/event-stream"})
        released.wait(0.6)
        request.write(b'event: snapshot\ndata: {"revision": "%d", "tools": []}\n\n' % len(asked))

    with handling(handle) as port:
        events = connect(f"http://127.0.0.1:{port}", None, deadline=0.3).watch()
        seen = next(events)
        released.set()
        events.close()

    assert seen.revision == "2"


def test_a_watch_whose_token_stays_refused_ends(connect: Any, registry: RunningRegistry) -> None:
    with pytest.raises(Unauthorized):
        next(connect(registry.url, lambda: "no.such.token").watch())


def test_a_registry_that_is_away_is_told_at_once_and_a_silent_one_at_the_deadline(connect: Any) -> None:
    released = threading.Event()

    def silent(request: Request) -> None:
        released.wait(30)
        request.cut()

    with handling(silent) as port:
        with pytest.raises(DeadlineExceeded) as late:
            connect(f"http://127.0.0.1:{port}", None, deadline=0.2).call("calculator")
        released.set()
    with pytest.raises(RegistryUnavailable):
        connect(f"http://127.0.0.1:{port}", None).tools()

    assert late.value.request_id


def test_reading_is_asked_again_after_a_broken_connection_and_a_call_never_is(connect: Any) -> None:
    asked: list[str] = []

    def breaking(request: Request) -> None:
        asked.append(request.path.partition("?")[0])
        request.cut()

    with handling(breaking) as port:
        crib = connect(f"http://127.0.0.1:{port}", None)
        with pytest.raises(RegistryUnavailable):
            crib.search("a")
        with pytest.raises(RegistryUnavailable):
            crib.call("calculator")

    assert asked == ["/v1/search"] * 3 + ["/v1/call"]


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"tools": [{}]}'], ids=["html", "list", "tools"])
def test_what_is_no_registry_is_told_as_such(connect: Any, body: bytes) -> None:
    with answering(lambda _: Answer(body)) as port, pytest.raises(RegistryAnswerInvalid) as told:
        connect(f"http://127.0.0.1:{port}", None).tools()

    assert told.value.request_id


def test_a_number_that_no_float_holds_is_no_answer_of_a_registry(connect: Any) -> None:
    hit = f'{{"tool_id": "a/b", "name": "b", "short_desc": "", "confidence": 1{"0" * 400}}}'
    body = f'{{"revision": "1", "tools": [{hit}]}}'.encode()
    with answering(lambda _: Answer(body)) as port, pytest.raises(RegistryAnswerInvalid):
        connect(f"http://127.0.0.1:{port}", None).search("b")


def test_a_redirect_is_not_followed_so_that_the_token_goes_nowhere_else(connect: Any) -> None:
    asked: list[str] = []

    def answer(request: Asked) -> Answer:
        asked.append(request.path)
        return Answer(b"", 307, {"Location": "/elsewhere"})

    with answering(answer) as port, pytest.raises(ToolcribError):
        connect(f"http://127.0.0.1:{port}", lambda: "secret").describe("calculator")

    assert asked == ["/v1/describe"]


def test_cancelling_a_call_closes_its_connection() -> None:
    asked, closed = threading.Event(), threading.Event()

    def waiting(request: Request) -> None:
        asked.set()
        if request.gone(30):
            closed.set()

    async def cancel(port: int) -> None:
        async with (
            AsyncToolcrib(f"http://127.0.0.1:{port}", None) as crib,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(crib.call, "calculator")
            assert await anyio.to_thread.run_sync(asked.wait, 30)
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                assert await anyio.to_thread.run_sync(closed.wait, 30)

    with handling(waiting) as port:
        anyio.run(cancel, port)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_client_that_was_used_in_an_event_loop_works_in_the_next_one(registry: RunningRegistry) -> None:
    crib = AsyncToolcrib(registry.url, lambda: registry.token("team", "planner"))

    async def listed() -> list[str]:
        return [t.name for t in await crib.tools()]

    assert anyio.run(listed) == anyio.run(listed) == ["calculator", "file_reader"]
    anyio.run(crib.close)
    gc.collect()  # what was open in loops that are gone


def test_renew_may_be_async() -> None:
    class Source:
        token = "old"

        async def __call__(self) -> str:
            return self.token

        async def renew(self) -> None:
            self.token = "new"

    used: list[str] = []

    def answer(asked: Asked) -> Answer:
        used.append(asked.headers["authorization"])
        return Answer(b"{}", 401)

    async def describe(url: str) -> None:
        async with AsyncToolcrib(url, Source()) as crib:
            with pytest.raises(Unauthorized):
                await crib.describe("calculator")

    with answering(answer) as port:
        anyio.run(describe, f"http://127.0.0.1:{port}")
    assert used == ["Bearer old", "Bearer new"]


def test_an_answer_that_decodes_to_more_than_the_bound_is_given_up(connect: Any) -> None:
    bomb = gzip.compress(gzip.compress(bytes(exchange.MOST_BYTES + 1)))
    with answering(lambda _: Answer(bomb, 200, {"Content-Encoding": "gzip, gzip"})) as port:
        with pytest.raises(RegistryAnswerInvalid, match="larger than"):
            connect(f"http://127.0.0.1:{port}", None).describe("calculator")


def _listed(crib: Toolcrib, told: Any) -> None:
    told.send([t.name for t in crib.tools()])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_client_that_was_used_before_a_fork_works_in_the_child_and_in_the_parent(
    registry: RunningRegistry,
) -> None:
    token = registry.token("team", "planner")
    forking = multiprocessing.get_context("fork")
    with Toolcrib(registry.url, lambda: token) as crib:
        before = [t.name for t in crib.tools()]
        here, there = forking.Pipe()
        child = forking.Process(target=_listed, args=(crib, there))
        child.start()

        assert here.poll(30)
        assert here.recv() == before == [t.name for t in crib.tools()]
        child.join(30)
