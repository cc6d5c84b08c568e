"""Calls through the registry to a real backend, and registrations at run time."""

import json
from base64 import b64decode
from collections.abc import Callable, Iterator

import pytest
from httpx import Response

from registry_harness import backend, binding, running_registry, tool
from stub_server import Answer, Asked, answering
from toolcrib.identity import Identity
from toolcrib.wire.publish import Publish, PublishedTool, Revision
from toolcrib_registry.calls.arguments import CheckedArguments
from toolcrib_registry.calls.backends.port import NO_EXCHANGE, Binary, Exchange, Text, ToolAnswer
from toolcrib_registry.compose import Registry


def echo(asked: Asked) -> Answer:
    """Answers what it was sent; /text with text, /broken with 500."""
    if asked.path == "/text":
        return Answer(b"plain words", headers={"content-type": "text/plain"})
    seen = {
        "path": asked.path,
        "arguments": json.loads(asked.body or b"null"),
        "headers": dict(asked.headers),
    }
    return Answer(json.dumps(seen).encode(), 500 if asked.path == "/broken" else 200)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with answering(echo) as port:
        yield port


SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}, "additionalProperties": False}


def test_a_call_goes_through_and_is_counted_and_the_token_stays_here(port: int) -> None:
    made = tool("calculator", backend=backend(port, "/calc"), input_schema=SCHEMA, server="maths")
    with running_registry([made], [binding("bot")]) as r:
        headers = r.auth("team", "bot")
        simple = r.http.post(r.url + "/tools/calculator", headers=headers, json={"x": 7})
        v1 = r.http.post(
            r.url + "/v1/call", headers=headers, json={"tool": "team/calculator", "arguments": {"x": 7}}
        )
        empty = r.http.post(r.url + "/tools/calculator", headers=headers)
        metrics = r.metrics()

    assert simple.json()["arguments"] == {"x": 7}
    assert v1.json()["tool_id"] == "team/calculator"
    assert v1.json()["result"]["path"] == "/calc"
    assert empty.json()["arguments"] == {}
    assert headers["Authorization"].split()[1] not in simple.text
    assert "Authorization" not in simple.json()["headers"]
    line = 'toolcrib_calls_total{agent="team/bot",outcome="ok",server="maths",tool="team/calculator"} 3.0'
    assert line in metrics
    assert 'toolcrib_decisions_total{action="call",allowed="true",reason="granted"} 3.0' in metrics


def test_text_stays_text_and_failures_are_typed(port: int) -> None:
    tools = [
        tool("words", backend=backend(port, "/text"), scopes=("calculator:use",)),
        tool("broken", backend=backend(port, "/broken"), scopes=("calculator:use",)),
        tool("strict", backend=backend(port), scopes=("calculator:use",), input_schema=SCHEMA),
        tool("nowhere", scopes=("calculator:use",)),
    ]
    with running_registry(tools, [binding("bot")]) as r:
        headers = r.auth("team", "bot")
        answers = {
            t.name: r.http.post(f"{r.url}/tools/{t.name}", headers=headers, json={"y": "s3cret"})
            for t in tools
        }

    assert (answers["words"].text, answers["words"].headers["content-type"]) == (
        "plain words",
        "text/plain; charset=utf-8",
    )
    assert (answers["broken"].status_code, answers["broken"].json()["code"]) == (502, "upstream_error")
    assert (answers["strict"].status_code, answers["strict"].json()["code"]) == (400, "invalid_arguments")
    assert (answers["nowhere"].status_code, answers["nowhere"].json()["code"]) == (503, "no_backend")


class Stub:
    """A backend, of no kind, that answers what it is given."""

    def __init__(self) -> None:
        self.answer = ToolAnswer(b"", "", is_json=True)

    async def call(
        self,
        tool: PublishedTool,
        arguments: CheckedArguments,
        request_id: str,
        caller: Identity,
        exchange: Exchange = NO_EXCHANGE,
    ) -> ToolAnswer:
        return self.answer


WORDS = b"it is locked"
PIXELS = Binary(b"\x89PNG\xff", "image/png")


def test_whatever_kind_of_backend_answered_the_callers_get_json_text_or_bytes_and_failures_as_problems() -> (
    None
):
    stub = Stub()
    with running_registry([tool("calculator")], [binding("bot")], backend=stub) as r:
        headers = r.auth("team", "bot")

        def asked(answer: ToolAnswer) -> tuple[Response, Response]:
            stub.answer = answer
            body = {"tool": "calculator", "arguments": {}}
            return (
                r.http.post(f"{r.url}/tools/calculator", headers=headers, json={}),
                r.http.post(f"{r.url}/v1/call", headers=headers, json=body),
            )

        plain, wrapped = asked(ToolAnswer(PIXELS.data, PIXELS.media_type, False, (PIXELS,)))
        assert (plain.content, plain.headers["content-type"]) == (PIXELS.data, "application/octet-stream")
        assert b64decode(wrapped.json()["result"]) == PIXELS.data
        assert wrapped.json()["content_type"] == "image/png"
        for answer in asked(ToolAnswer(WORDS, "text/plain", False, (Text(WORDS.decode()),), is_error=True)):
            assert (answer.status_code, answer.json()["code"]) == (422, "tool_error")
            assert answer.json()["upstream"] == WORDS.decode()
        for answer in asked(ToolAnswer(b'{"why": "locked"}', "", is_json=True, is_error=True)):
            assert (answer.status_code, answer.json()["upstream"]) == (422, {"why": "locked"})
        for answer in asked(ToolAnswer(b"%s" % (WORDS * 1000), "", False, is_error=True)):
            assert answer.status_code == 422
            assert "upstream" not in answer.json()
        metrics = r.metrics()
    line = 'toolcrib_calls_total{agent="team/bot",outcome="%s",server="",tool="team/calculator"} %s'
    assert line % ("ok", "2.0") in metrics
    assert line % ("tool_error", "6.0") in metrics


def test_arguments_that_do_not_fit_never_reach_a_backend_of_any_kind() -> None:
    made = tool("calculator", input_schema={"type": "object", "required": ["x"]})
    with running_registry([made], [binding("bot")], backend=Stub()) as r:
        answer = r.http.post(f"{r.url}/tools/calculator", headers=r.auth("team", "bot"), json={})

    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_arguments")


def test_a_call_without_the_scope_is_403_even_if_it_was_listed_before(port: int) -> None:
    with running_registry([tool("calculator", backend=backend(port))], [binding("bot")]) as r:
        headers = r.auth("team", "bot")
        assert r.http.get(r.url, headers=headers).json()["total_available"] == 1
        r.publish(remove_bindings=["uid-team-bot"])
        denied = r.http.post(r.url + "/tools/calculator", headers=headers, json={})
        unknown = r.http.post(r.url + "/tools/unknown", headers=headers, json={})
        nobody = r.http.post(r.url + "/tools/calculator", json={})

    assert (denied.status_code, unknown.status_code, nobody.status_code) == (403, 403, 401)
    assert denied.content == unknown.content


class PublishingRegistrar:
    """Puts a registration in force as the local mode does: through the same state, as one more publish."""

    def __init__(self, registry: Registry) -> None:
        self._state = registry.deps.state

    async def register(self, made: PublishedTool, _allowed: Callable[[], bool]) -> None:
        revision = self._state.snapshot.revision
        assert revision is not None
        to = Revision(epoch=revision.epoch, seq=revision.seq + 1)
        await self._state.publish(Publish(base=revision, to=to, tools=(made,)))


def test_a_registration_is_in_the_next_discovery_and_callable(port: int) -> None:
    writer = [
        binding("writer", ["registry:write"], namespace=None),
        *(binding(who, ["fx:use"], namespace="toolcrib-runtime", name=who) for who in ("bot", "writer")),
    ]
    body = {
        "name": "fx",
        "endpoint": "/fx",
        "scopes": ["fx:use"],
        "description": "Exchange rates.",
        "parameters": {"pair": {"type": "string", "description": "EURUSD", "required": True}},
        "host": "127.0.0.1",
        "port": port,
    }
    with running_registry([tool("calculator")], writer, registrar=PublishingRegistrar) as r:
        url, headers = r.url + "/tools/register", r.auth("team", "writer")
        first = r.http.post(url, headers=headers, json=body)
        second = r.http.post(url, headers=headers, json=body)
        forbidden = r.http.post(url, headers=r.auth("team", "bot"), json=body)
        nobody = r.http.post(url, json=body)
        short = {"name": "bare", "endpoint": "/b", "scopes": ["fx:use"], "description": ""}
        bare = r.http.post(url, headers=headers, json=short)
        agent = r.auth("team", "bot")
        (entry,) = [t for t in r.http.get(r.url, headers=agent).json()["tools"] if t["name"] == "fx"]
        called = r.http.post(r.url + entry["endpoint"], headers=agent, json={"pair": "EURUSD"})
        no_backend = r.http.post(r.url + "/tools/bare", headers=agent, json={})

    assert first.json() == {
        "status": "success",
        "message": "Tool 'fx' registered successfully",
        "total_tools": 1,
    }
    assert (second.status_code, second.json()["detail"]) == (400, "Tool 'fx' already registered")
    assert (forbidden.status_code, nobody.status_code) == (403, 401)
    assert bare.json()["total_tools"] == 2  # who registers is told of what it sees itself: no calculator
    assert entry["parameters"] == {"pair": {"type": "string", "description": "EURUSD", "required": True}}
    assert (called.json()["path"], called.json()["arguments"]) == ("/fx", {"pair": "EURUSD"})
    assert no_backend.json()["code"] == "no_backend"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"scopes": ["registry:write"]}, "reserved_scope"),
        ({"scopes": []}, "invalid_request"),
        ({"name": "no spaces allowed"}, "invalid_request"),
        ({"host": "169.254.169.254", "port": 80}, "egress_refused"),
        ({"host": "0x7f000001.example", "port": 80}, "egress_refused"),
        ({"host": "evil.example/#", "port": 80}, "invalid_request"),
        ({"host": "example.com"}, "invalid_request"),
        ({"input_schema": {"type": "object", "$ref": "http://evil.example/s"}}, "schema_unsafe"),
        ({"description": "Rates.\u202e"}, "hidden_text"),
        ({"examples": ["EUR\U000e0041"]}, "hidden_text"),
        ({"parameters": {"pa\u200bir": "string"}}, "hidden_text"),
        ({"unknown": 1}, "invalid_request"),
    ],
)
def test_a_bad_registration_changes_nothing(change: dict[str, object], code: str) -> None:
    writer = binding("writer", ["registry:write"], namespace=None)
    body = {"name": "fx", "endpoint": "/fx", "scopes": ["fx:use"], "description": "", **change}
    with running_registry(bindings=[writer], registrar=PublishingRegistrar) as r:
        answer = r.http.post(r.url + "/tools/register", headers=r.auth("team", "writer"), json=body)
        total = r.http.get(r.url + "/stats", headers=r.auth("team", "writer")).json()["total_tools"]

    assert (answer.status_code, answer.json()["code"], total) == (400, code, 0)


def test_registration_is_off_unless_switched_on() -> None:
    writer = binding("writer", ["registry:write"], namespace=None)
    body = {"name": "fx", "endpoint": "/fx", "scopes": ["fx:use"]}
    with running_registry(bindings=[writer]) as r:
        answer = r.http.post(r.url + "/tools/register", headers=r.auth("team", "writer"), json=body)

    assert (answer.status_code, answer.json()["code"]) == (403, "registration_off")
