"""What a backend's protocol can carry reaches the client: content of all kinds, progress, questions and their answers.

The backends of today speak HTTP, which carries none of it: here it is a backend of the tests behind the product's port.
"""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx
import pytest

from registry_harness import ManualClock, RunningRegistry, backend, binding, running_registry, tool
from stub_server import Answer, Asked, answering
from toolcrib.identity import Identity
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.calls.arguments import CheckedArguments
from toolcrib_registry.calls.backends.port import (
    NO_EXCHANGE,
    Binary,
    Embedded,
    Exchange,
    InputRequired,
    Progress,
    ResourceLink,
    Text,
    ToolAnswer,
)

STATELESS, HANDSHAKE = "2026-07-28", "2025-11-25"
OWN = "io.modelcontextprotocol/"
Behaviour = Callable[[Exchange], Awaitable[ToolAnswer]]


class Scripted:
    """A backend that does what a test says, and keeps what it was given."""

    def __init__(self) -> None:
        self.behave: Behaviour
        self.given: list[Exchange] = []
        self.cancelled = threading.Event()

    async def call(
        self,
        tool: PublishedTool,
        arguments: CheckedArguments,
        request_id: str,
        caller: Identity,
        exchange: Exchange = NO_EXCHANGE,
    ) -> ToolAnswer:
        """What the test says."""
        self.given.append(exchange)
        try:
            return await self.behave(exchange)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    def answers(self, **fields: Any) -> None:
        """Answer with these fields of a ToolAnswer."""
        made = ToolAnswer(**{"raw": b"", "media_type": "", "is_json": False, **fields})

        async def behave(_: Exchange) -> ToolAnswer:
            return made

        self.behave = behave

    def asks(self, question: InputRequired) -> None:
        """Ask once; then answer."""

        async def behave(exchange: Exchange) -> ToolAnswer:
            if exchange.responses is None:
                return ToolAnswer(b"", "", is_json=False, input_required=question)
            return ToolAnswer(b"", "", is_json=False, blocks=(Text("done"),))

        self.behave = behave


GRANTS = [binding("bot", ("ask:use",)), binding("other", ("ask:use",))]


@pytest.fixture(scope="module")
def backend_of_tests() -> Scripted:
    return Scripted()


@pytest.fixture(scope="module")
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="module")
def running(backend_of_tests: Scripted, clock: ManualClock) -> Iterator[RunningRegistry]:
    with running_registry([tool("ask")], GRANTS, backend=backend_of_tests, clock=clock) as found:
        yield found


@pytest.fixture
def scripted(backend_of_tests: Scripted) -> Scripted:
    """The backend, with nothing given to it yet."""
    backend_of_tests.given.clear()
    backend_of_tests.cancelled.clear()
    return backend_of_tests


@pytest.fixture
def r(running: RunningRegistry, scripted: Scripted) -> RunningRegistry:
    running.publish([tool("ask")], GRANTS)
    running.heartbeat()
    return running


def called(
    r: RunningRegistry,
    version: str = STATELESS,
    *,
    who: str = "bot",
    capabilities: dict[str, Any] | None = None,
    meta: dict[str, Any] | None = None,
    arguments: dict[str, Any] | None = None,
    **params: Any,
) -> httpx.Response:
    """A call of the tool `ask`."""
    headers = {"mcp-protocol-version": version, "accept": "application/json, text/event-stream"}
    said = dict(meta or {})
    if version == STATELESS:
        headers |= {"mcp-method": "tools/call", "mcp-name": "ask"}
        said |= {f"{OWN}protocolVersion": version, f"{OWN}clientCapabilities": capabilities or {}}
    body = {
        "jsonrpc": "2.0",
        "id": 7,
        "method": "tools/call",
        "params": {"name": "ask", "arguments": arguments or {}, "_meta": said, **params},
    }
    return r.http.post(r.url + "/mcp/direct", json=body, headers={**r.auth("team", who), **headers})


def result(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()["result"]
    return found


def events(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.headers["content-type"].startswith("text/event-stream"), response.text
    lines = response.text.splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


@pytest.mark.parametrize("version", [STATELESS, HANDSHAKE])
def test_every_kind_of_content_arrives_as_mcp_has_it(
    r: RunningRegistry, scripted: Scripted, version: str
) -> None:
    scripted.answers(
        blocks=(
            Text("hello"),
            Binary(b"\x89PNG", "image/png"),
            Binary(b"RIFF", "audio/wav"),
            Binary(b"%PDF", "application/pdf"),
            ResourceLink("file:///a", "a", "text/plain"),
            Embedded("file:///b", "text of b", "text/plain"),
            Embedded("file:///c", b"bytes"),
        ),
        meta={"example.org/cost": 3},
    )

    found = result(called(r, version))

    assert found["content"] == [
        {"type": "text", "text": "hello"},
        {"type": "image", "data": "iVBORw==", "mimeType": "image/png"},
        {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"},
        {
            "type": "resource",
            "resource": {"uri": "toolcrib:answer", "mimeType": "application/pdf", "blob": "JVBERg=="},
        },
        {"type": "resource_link", "uri": "file:///a", "name": "a", "mimeType": "text/plain"},
        {"type": "resource", "resource": {"uri": "file:///b", "mimeType": "text/plain", "text": "text of b"}},
        {"type": "resource", "resource": {"uri": "file:///c", "blob": "Ynl0ZXM="}},
    ]
    assert found["_meta"]["example.org/cost"] == 3
    assert "isError" not in found


@pytest.mark.parametrize(("raw", "before_2026"), [(b'{"a":1}', True), (b"[1,2]", False), (b"42", False)])
def test_structured_content_is_of_any_type_since_2026_and_an_object_before(
    r: RunningRegistry, scripted: Scripted, raw: bytes, before_2026: bool
) -> None:
    scripted.answers(raw=raw, media_type="application/json", is_json=True)

    assert result(called(r, STATELESS))["structuredContent"] == json.loads(raw)
    before = result(called(r, HANDSHAKE))
    assert ("structuredContent" in before) is before_2026
    assert before["content"] == [{"type": "text", "text": raw.decode()}]


def test_a_tool_that_says_it_failed_is_told_with_its_own_words(
    r: RunningRegistry, scripted: Scripted
) -> None:
    scripted.answers(blocks=(Text("no such file"),), is_error=True)

    found = result(called(r))

    assert (found["isError"], found["content"]) == (True, [{"type": "text", "text": "no such file"}])
    assert 'outcome="tool_error"' in r.metrics(), "an error inside a 200 counts as one"


def test_what_a_client_says_of_its_request_goes_on_less_the_protocols_own(
    r: RunningRegistry, scripted: Scripted
) -> None:
    scripted.answers()

    called(r, capabilities={"roots": {}}, meta={"traceparent": "00-x", "progressToken": 1})

    (given,) = scripted.given
    assert given.meta == {"traceparent": "00-x"}
    assert given.capabilities == {"roots": {}}


@pytest.mark.parametrize("version", [STATELESS, HANDSHAKE])
def test_progress_is_told_before_the_answer_to_a_client_that_asks_for_it(
    r: RunningRegistry, scripted: Scripted, version: str
) -> None:
    async def behave(exchange: Exchange) -> ToolAnswer:
        assert exchange.progress is not None
        await exchange.progress(Progress(1, 2, "half"))
        await exchange.progress(Progress(2.5))
        return ToolAnswer(b"", "", is_json=False, blocks=(Text("x" * 100_000),))

    scripted.behave = behave

    half, further, last = events(called(r, version, meta={"progressToken": "p-1"}))

    assert half == {
        "jsonrpc": "2.0",
        "method": "notifications/progress",
        "params": {"progressToken": "p-1", "progress": 1, "total": 2, "message": "half"},
    }
    assert further["params"] == {"progressToken": "p-1", "progress": 2.5}
    assert (last["id"], last["result"]["content"][0]["text"]) == (7, "x" * 100_000)


def test_a_call_of_which_no_progress_is_told_is_answered_as_every_call(
    r: RunningRegistry, scripted: Scripted
) -> None:
    scripted.answers(blocks=(Text("done"),))

    told = called(r, meta={"progressToken": 5})

    assert told.headers["content-type"] == "application/json"
    assert result(told)["content"] == [{"type": "text", "text": "done"}]


def test_without_a_token_no_backend_is_asked_for_progress(r: RunningRegistry, scripted: Scripted) -> None:
    scripted.answers()

    called(r)

    assert scripted.given[0].progress is None


def test_a_grant_that_ends_while_progress_is_told_ends_the_call(
    r: RunningRegistry, scripted: Scripted
) -> None:
    begun = threading.Event()

    async def behave(exchange: Exchange) -> ToolAnswer:
        assert exchange.progress is not None
        await exchange.progress(Progress(1))
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    scripted.behave = behave
    found: list[httpx.Response] = []
    calling = threading.Thread(target=lambda: found.append(called(r, meta={"progressToken": 1})))
    calling.start()
    assert begun.wait(10)
    r.publish(remove_bindings=["uid-team-bot"])
    calling.join(10)

    *_, last = events(found[0])
    assert last["result"]["_meta"]["toolcrib.dev/code"] == "revoked"
    assert scripted.cancelled.is_set()


def test_a_client_that_goes_ends_the_work_whose_progress_it_was_told(
    r: RunningRegistry, scripted: Scripted
) -> None:
    async def behave(exchange: Exchange) -> ToolAnswer:
        assert exchange.progress is not None
        await exchange.progress(Progress(1))
        await asyncio.Event().wait()
        raise AssertionError

    scripted.behave = behave
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "ask", "_meta": {"progressToken": 1}},
    }
    headers = {**r.auth("team", "bot"), "accept": "text/event-stream"}
    with r.http.stream("POST", r.url + "/mcp/direct", json=body, headers=headers) as response:
        assert next(response.iter_lines()).startswith("event:")

    assert scripted.cancelled.wait(1), "within a second"


ASKS = {"who": {"method": "elicitation/create", "params": {"message": "Who are you?", "requestedSchema": {}}}}
ELICITS = {"elicitation": {}}
ANSWERS = {"who": {"action": "accept", "content": {"name": "Ada"}}}


def test_a_question_reaches_the_client_and_its_answer_the_tool(
    r: RunningRegistry, scripted: Scripted
) -> None:
    scripted.asks(InputRequired(ASKS, "step 1"))

    asked = result(called(r, capabilities=ELICITS, arguments={"a": 1}))

    assert (asked["resultType"], asked["inputRequests"]) == ("input_required", ASKS)
    state = asked["requestState"]
    assert "step 1" not in state

    done = result(
        called(r, capabilities=ELICITS, arguments={"a": 1}, inputResponses=ANSWERS, requestState=state)
    )

    assert done["content"] == [{"type": "text", "text": "done"}]
    assert (scripted.given[1].state, scripted.given[1].responses) == ("step 1", ANSWERS)
    assert 'outcome="input_required"' in r.metrics()


@pytest.mark.parametrize(
    "other",
    [
        {"who": "other"},
        {"arguments": {"a": 2}},
        {"requestState": "AAAA"},
        {"requestState": "?"},
        {"requestState": ""},
    ],
    ids=["another caller", "other arguments", "made up", "no base64", "empty"],
)
def test_a_state_is_good_for_the_same_caller_and_call_alone(
    r: RunningRegistry, scripted: Scripted, other: dict[str, Any]
) -> None:
    scripted.asks(InputRequired(ASKS, "step 1"))
    state = result(called(r, capabilities=ELICITS, arguments={"a": 1}))["requestState"]

    again = {"arguments": {"a": 1}, "inputResponses": ANSWERS, "requestState": state, **other}
    refused = called(r, capabilities=ELICITS, **again)

    assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32602)
    assert len(scripted.given) == 1, "the tool never sees it"


def test_each_changed_character_of_a_state_is_noticed(r: RunningRegistry, scripted: Scripted) -> None:
    scripted.asks(InputRequired(ASKS, "step 1"))
    state = result(called(r, capabilities=ELICITS))["requestState"]

    for at in range(0, len(state), 7):
        changed = state[:at] + ("A" if state[at] != "A" else "B") + state[at + 1 :]
        refused = called(r, capabilities=ELICITS, inputResponses=ANSWERS, requestState=changed)
        assert refused.status_code == 400, at


@pytest.mark.parametrize("more", ["-TAMPERED", "=", "\n", "A" * 4])
@pytest.mark.parametrize("text", ["step 1", "step 12", "step 123"], ids=len)
def test_nothing_can_be_appended_to_a_state(
    r: RunningRegistry, scripted: Scripted, text: str, more: str
) -> None:
    """Three lengths: with two, one and no characters of padding."""
    scripted.asks(InputRequired(ASKS, text))
    state = result(called(r, capabilities=ELICITS))["requestState"]

    refused = called(r, capabilities=ELICITS, inputResponses=ANSWERS, requestState=state + more)

    assert refused.status_code == 400


def test_a_state_is_good_for_ten_minutes_and_while_the_tools_route_stays(
    r: RunningRegistry, scripted: Scripted, clock: ManualClock
) -> None:
    scripted.asks(InputRequired(ASKS, "step 1"))
    state = result(called(r, capabilities=ELICITS))["requestState"]
    again = {"capabilities": ELICITS, "inputResponses": ANSWERS, "requestState": state}

    clock.advance(599)
    assert called(r, **again).status_code == 200
    clock.advance(2)
    assert called(r, **again).status_code == 400

    fresh = result(called(r, capabilities=ELICITS))["requestState"]
    r.publish([tool("ask", backend=backend(1))])
    assert called(r, **{**again, "requestState": fresh}).status_code == 400


@pytest.mark.parametrize(
    ("question", "capabilities", "missing"),
    [
        (ASKS, {}, {"elicitation": {}}),
        ({"s": {"method": "sampling/createMessage", "params": {}}}, ELICITS, {"sampling": {}}),
        ({"r": {"method": "roots/list"}}, {}, {"roots": {}}),
        (
            {"u": {"method": "elicitation/create", "params": {"mode": "url", "url": "https://x"}}},
            ELICITS,
            {"elicitation": {"url": {}}},
        ),
    ],
)
def test_a_client_that_cannot_answer_is_told_what_it_lacks(
    r: RunningRegistry, scripted: Scripted, question: Any, capabilities: Any, missing: Any
) -> None:
    scripted.asks(InputRequired(question))

    refused = called(r, capabilities=capabilities)

    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (400, -32021)
    assert error["data"] == {"requiredCapabilities": missing}


def test_a_client_of_2025_is_told_what_the_tool_asks(r: RunningRegistry, scripted: Scripted) -> None:
    scripted.asks(InputRequired(ASKS))

    found = result(called(r, HANDSHAKE))

    assert found["isError"] is True
    assert "Who are you?" in found["content"][0]["text"]


def test_plain_http_is_told_that_the_tool_asks(r: RunningRegistry, scripted: Scripted) -> None:
    scripted.asks(InputRequired(ASKS))

    refused = r.http.post(r.url + "/v1/call", json={"tool": "ask"}, headers=r.auth("team", "bot"))

    assert (refused.status_code, refused.json()["code"]) == (422, "input_required")


def test_the_trace_of_a_request_goes_on_to_an_http_backend() -> None:
    seen: list[Asked] = []

    def answer(asked: Asked) -> Answer:
        seen.append(asked)
        return Answer(b"{}")

    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    with (
        answering(answer) as port,
        running_registry([tool("ask", backend=backend(port))], [binding("bot", ("ask:use",))]) as r,
    ):
        called(r, meta={"traceparent": parent, "tracestate": "a=1"})
        called(r, meta={"traceparent": "00-x\r\nx: y"})

    first, second = seen
    assert (first.headers["traceparent"], first.headers["tracestate"]) == (parent, "a=1")
    assert "traceparent" not in second.headers
