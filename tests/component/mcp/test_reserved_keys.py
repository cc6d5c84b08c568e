"""Keys of `toolcrib.dev/` are the registry's own: no server of tools, resources or prompts sets one for a client to read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from mcp_client import STATELESS
from mcp_requests import call
from mcp_upstream import McpUpstream, Wire, handshake, running, stateless
from registry_harness import RunningRegistry, binding, running_registry, tool
from scripted_backend import called, result
from toolcrib.wire.backends import PublishedBackend, PublishedMcp

OURS = (
    "toolcrib.dev/code",
    "toolcrib.dev/retry-after",
    "toolcrib.dev/fallback",
    "toolcrib.dev/confirm",
    "toolcrib.dev/x",
)
META = {**dict.fromkeys(OURS, "forged"), "example.org/a": 1, "toolcrib.device/b": 2}
KEPT = {"example.org/a": 1, "toolcrib.device/b": 2}


@pytest.fixture(scope="module")
def registry() -> Iterator[RunningRegistry]:
    with running_registry([tool("ask")], [binding("bot", ("ask:use",))]) as found:
        yield found


def answering(registry: RunningRegistry, up: McpUpstream, **fields: Any) -> None:
    async def answer(wire: Wire) -> None:
        await wire.result(**fields)

    up.on["tools/call"] = answer
    backend = PublishedBackend(url=up.url, mcp=PublishedMcp(server="team/files", tool="ask it"))
    registry.publish([tool("ask", backend=backend)])
    registry.heartbeat()


@pytest.mark.parametrize("era", [stateless, handshake])
@pytest.mark.parametrize("failed", [True, False])
def test_a_server_sets_no_key_of_ours_in_any_meta_of_its_answer(
    registry: RunningRegistry, era: Any, failed: bool
) -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": "a", "_meta": META},
        {"type": "image", "data": "AA==", "mimeType": "image/png", "_meta": META},
        {"type": "resource_link", "uri": "file:///a", "name": "a", "_meta": META},
        {"type": "resource", "resource": {"uri": "file:///b", "text": "b", "_meta": META}, "_meta": META},
    ]
    with running(era()) as up:
        answering(registry, up, content=blocks, isError=failed, _meta=META, structuredContent={"_meta": META})
        found = call(registry, "/mcp", "ask", {}, version=STATELESS)

    assert {k: v for k, v in found["_meta"].items() if not k.startswith("io.")} == KEPT
    assert [block["_meta"] for block in found["content"]] == [KEPT] * 4
    assert found["content"][3]["resource"]["_meta"] == KEPT
    assert found["structuredContent"] == {"_meta": META}, "the tool's own data stay as they are"


def test_a_question_of_a_server_has_no_key_of_ours_in_its_meta(registry: RunningRegistry) -> None:
    asked = {
        "method": "elicitation/create",
        "params": {"message": "Who?", "requestedSchema": {}, "_meta": META},
    }
    with running(stateless()) as up:
        answering(registry, up, resultType="input_required", inputRequests={"who": asked})
        told = result(called(registry, capabilities={"elicitation": {}}))

    assert told["inputRequests"]["who"]["params"]["_meta"] == KEPT


def test_a_server_gets_no_key_of_ours_that_a_caller_wrote(registry: RunningRegistry) -> None:
    with running(stateless()) as up:
        answering(registry, up, content=[])
        called(registry, _meta=META)
        (wire,) = up.of("tools/call")

    assert "toolcrib.dev/" not in json.dumps(wire.message["params"])
    assert wire.message["params"]["_meta"]["example.org/a"] == 1
