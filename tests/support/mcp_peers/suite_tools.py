"""A registry with the tools that the conformance suite asks for by name, over HTTP backends of our own.

Text, errors and schemas are what the suite's scenarios describe. What no HTTP backend can answer does `suite_backend`.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from imported import toolserver
from mcp_peers.suite_backend import BEHAVIOURS, SuiteBackend
from registry_harness import RunningRegistry, backend, binding, running_registry, tool
from stub_server import Answer, Asked, answering
from toolcrib import publishing
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry import compose
from toolcrib_registry.calls.backends.http.backend import HttpBackend

ACCOUNT = ("team", "conformance")
_SCOPE = "suite:use"
_TEXT = {"content-type": "text/plain"}

_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
_SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
_MIRRORED: dict[str, Any] = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
    "required": ["region"],
}

_SCHEMAS = {
    "json_schema_2020_12_tool": _SCHEMA_2020_12,
    "test_error_handling": _NO_ARGUMENTS,
    "test_logging_tool": _NO_ARGUMENTS,
    "test_mirrored_header": _MIRRORED,
    "test_simple_text": _NO_ARGUMENTS,
    "test_trigger_prompt_change": _NO_ARGUMENTS,
    "test_trigger_tool_change": _NO_ARGUMENTS,
    **dict.fromkeys(BEHAVIOURS, _NO_ARGUMENTS),
}


@contextlib.contextmanager
def serving_suite_tools() -> Iterator[RunningRegistry]:
    """The registry, until the block ends; the account `ACCOUNT` may use all of it."""
    change: list[Callable[[], None]] = []

    def answer(asked: Asked) -> Answer:
        match asked.path.strip("/"):
            case "test_error_handling":
                return Answer(b"This tool intentionally returns an error for testing", 500, _TEXT)
            case "test_trigger_tool_change":
                change[0]()
                return Answer(b"The list of tools has changed.", headers=_TEXT)
            case "test_trigger_prompt_change":
                change[1]()
                return Answer(b"The list of prompts has changed.", headers=_TEXT)
            case "mcp":
                return _server_without_prompts(asked)
            case _:
                return Answer(b"This is a simple text response for testing.", headers=_TEXT)

    with answering(answer) as port:

        def published(name: str, schema: dict[str, Any]) -> PublishedTool:
            return tool(name, scopes=(_SCOPE,), input_schema=schema, backend=backend(port, f"/{name}"))

        tools = [published(name, schema) for name, schema in _SCHEMAS.items()]
        extra = published("test_changing", _NO_ARGUMENTS)

        def composed(*given: Any, **options: Any) -> SuiteBackend:
            return SuiteBackend(HttpBackend(*given, **options))

        with (
            mock.patch.object(compose, "HttpBackend", composed),
            running_registry(tools, [binding(ACCOUNT[1], (_SCOPE,))]) as registry,
        ):
            server = publishing.server(
                toolserver("prompting", f"http://127.0.0.1:{port}/mcp", defaults={"scopes": [_SCOPE]}), None
            )
            assert server is not None
            change.append(
                _toggling(
                    lambda: registry.publish([extra]),
                    lambda: registry.publish(remove_tools=[extra.tool_id]),
                )
            )
            change.append(
                _toggling(
                    lambda: registry.publish(servers=[server]),
                    lambda: registry.publish(remove_servers=[server.server_id]),
                )
            )
            yield registry


def _server_without_prompts(asked: Asked) -> Answer:
    """What an MCP server answers that has nothing: granting it changes what its caller may list all the same."""
    result = {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {},
        "serverInfo": {"name": "prompting", "version": "1"},
    }
    body = {"jsonrpc": "2.0", "id": json.loads(asked.body)["id"], "result": result}
    return Answer(json.dumps(body).encode(), headers={"content-type": "application/json"})


def _toggling(publish: Callable[[], object], take_away: Callable[[], object]) -> Callable[[], None]:
    """What publishes something, and takes it away the next time."""
    lock = threading.Lock()
    there = False

    def toggle() -> None:
        nonlocal there
        with lock:
            there = not there
            if there:
                publish()
            else:
                take_away()

    return toggle
