"""What a tool answers reaches the client as MCP has it, and what a client says of its request reaches the tool."""

import json
from typing import Any

import pytest

from mcp_client import STATELESS
from registry_harness import RunningRegistry, backend, binding, running_registry, tool
from scripted_backend import ScriptedBackend, called, result
from stub_server import Answer, Asked, answering
from toolcrib_registry.calls.backends.port import Binary, Embedded, ResourceLink, Text

HANDSHAKE = "2025-11-25"
GRANTS = [binding("bot", ("ask:use",)), binding("other", ("ask:use",))]


@pytest.mark.parametrize("version", [STATELESS, HANDSHAKE])
def test_every_kind_of_content_arrives_as_mcp_has_it(
    asking: RunningRegistry, scripted: ScriptedBackend, version: str
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

    found = result(called(asking, version))

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


def test_what_a_block_says_of_itself_arrives_too(asking: RunningRegistry, scripted: ScriptedBackend) -> None:
    notes = {"audience": ["user"], "priority": 0.5}
    meta = {"example.org/page": 2}
    scripted.answers(
        blocks=(
            Text("hello", annotations=notes, meta=meta),
            Binary(b"\x89PNG", "image/png", annotations=notes),
            ResourceLink("file:///a", "a", title="A", description="The letter", size=7, meta=meta),
            Embedded("file:///b", "text of b", annotations=notes, meta=meta),
        )
    )

    text, image, link, resource = result(called(asking))["content"]

    assert (text["annotations"], text["_meta"]) == (notes, meta)
    assert (image["annotations"], "_meta" in image) == (notes, False)
    assert link == {
        "type": "resource_link", "uri": "file:///a", "name": "a", "title": "A", "description": "The letter", "size": 7, "_meta": meta,
    }  # fmt: skip
    assert (resource["annotations"], resource["_meta"]) == (notes, meta)
    assert "annotations" not in resource["resource"]


OUTPUT = {"type": "object", "properties": {"z": {"type": "integer"}}, "required": ["z"]}


@pytest.mark.parametrize("version", [STATELESS, HANDSHAKE])
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"raw": b'{"y":1}', "is_json": True}, '- /: "z" is a required property'),
        ({"raw": b'{"z":"one"}', "is_json": True}, "- /z: "),
        ({"raw": b"[1,2]", "is_json": True}, "- /: must be an object"),
        ({"blocks": (Text("plain"),)}, "- /: must be an object"),
        ({}, "- /: must be an object"),
    ],
    ids=["a missing key", "another type", "an array", "text", "nothing"],
)
def test_an_answer_that_its_output_schema_does_not_allow_is_an_error_with_what_the_tool_said(
    asking: RunningRegistry,
    scripted: ScriptedBackend,
    version: str,
    answer: dict[str, Any],
    said: str,
) -> None:
    asking.publish([tool("ask", output_schema=OUTPUT)], GRANTS)
    scripted.answers(**answer)

    found = result(called(asking, version))

    first, *rest = found["content"]
    assert first["text"].startswith("The tool's result does not match its output schema.\n")
    assert said in first["text"]
    assert (found["isError"], "structuredContent" in found) == (True, False)
    assert found["_meta"]["toolcrib.dev/code"] == "upstream_protocol"
    given = answer.get("raw", b"").decode() or ("plain" if "blocks" in answer else "")
    assert [block["text"] for block in rest] == ([given] if given else [])
    assert 'outcome="ok"' in asking.metrics(), "the call was made"


@pytest.mark.parametrize("version", [STATELESS, HANDSHAKE])
def test_an_answer_that_fits_its_output_schema_arrives(
    asking: RunningRegistry, scripted: ScriptedBackend, version: str
) -> None:
    asking.publish([tool("ask", output_schema=OUTPUT)], GRANTS)
    scripted.answers(raw=b'{"z":1}', is_json=True)

    assert result(called(asking, version))["structuredContent"] == {"z": 1}


def test_an_answer_of_another_type_is_no_error_where_its_schema_is_not_one_of_objects(
    asking: RunningRegistry, scripted: ScriptedBackend
) -> None:
    asking.publish([tool("ask", output_schema={"type": "array"})], GRANTS)
    scripted.answers(raw=b"[1]", is_json=True)

    assert result(called(asking, STATELESS))["structuredContent"] == [1]
    assert result(called(asking, HANDSHAKE))["content"] == [{"type": "text", "text": "[1]"}]


@pytest.mark.parametrize(("raw", "before_2026"), [(b'{"a":1}', True), (b"[1,2]", False), (b"42", False)])
def test_structured_content_is_of_any_type_since_2026_and_an_object_before(
    asking: RunningRegistry, scripted: ScriptedBackend, raw: bytes, before_2026: bool
) -> None:
    scripted.answers(raw=raw, media_type="application/json", is_json=True)

    assert result(called(asking, STATELESS))["structuredContent"] == json.loads(raw)
    before = result(called(asking, HANDSHAKE))
    assert ("structuredContent" in before) is before_2026
    assert before["content"] == [{"type": "text", "text": raw.decode()}]


def test_a_tool_that_says_it_failed_is_told_with_its_own_words(
    asking: RunningRegistry, scripted: ScriptedBackend
) -> None:
    scripted.answers(blocks=(Text("no such file"),), is_error=True)

    found = result(called(asking))

    assert (found["isError"], found["content"]) == (True, [{"type": "text", "text": "no such file"}])
    assert 'outcome="tool_error"' in asking.metrics(), "an error inside a 200 counts as one"


def test_what_a_client_says_of_its_request_goes_on_less_the_protocols_own(
    asking: RunningRegistry, scripted: ScriptedBackend
) -> None:
    scripted.answers()

    called(asking, capabilities={"roots": {}}, meta={"traceparent": "00-x", "progressToken": 1})

    (given,) = scripted.given
    assert given.meta == {"traceparent": "00-x"}
    assert given.capabilities == {"roots": {}}


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
