"""The conformance suite's client under test: a registry that imports the suite's server and calls its tools, as one process.

    MCP_CONFORMANCE_SCENARIO=tools_call python -m mcp_peers.suite_client http://localhost:1234/mcp

The suite starts it, with the scenario and the arguments to use in the environment. It ends with 0 if all went as it
should, as far as a client can tell.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from imported import Import, imported, toolserver
from mcp_client import McpClient
from registry_harness import RunningRegistry, binding, running_registry

_STUBS: Mapping[str, Any] = {
    "string": "x",
    "integer": 0,
    "number": 0,
    "boolean": False,
    "object": {},
    "array": [],
}
_ANSWER = {"action": "accept", "content": {"confirmed": True}}


class Driver:
    """Calls the suite's tools by the names that they have there."""

    def __init__(self, registry: RunningRegistry, found: Import) -> None:
        self._registry = registry
        self.tools = {
            tool.backend.mcp.tool: tool for tool in found.tools if tool.backend and tool.backend.mcp
        }

    def call(self, tool: str, arguments: Mapping[str, Any] | None = None) -> None:
        """Call by plain HTTP; whether that succeeds is the suite's to judge."""
        given = dict(arguments or {})
        body = {"tool": self.tools[tool].tool_id, "arguments": given}
        answer = self._registry.http.post(
            f"{self._registry.url}/v1/call", headers=self._registry.auth("team", "bot"), json=body
        )
        print(tool, answer.status_code, answer.text[:500], file=sys.stderr)
        if answer.status_code == 400 and None in given.values():
            # the schema does not admit null, so no such call leaves the registry; without it, it does
            self.call(tool, {name: value for name, value in given.items() if value is not None})

    def converse(self, tool: str) -> None:
        """Call by MCP, and answer what is asked."""
        client, params = McpClient(self._registry), {"name": self.tools[tool].name, "arguments": {}}
        capabilities: dict[str, Any] = {"elicitation": {}}
        result = client.result("tools/call", params, capabilities=capabilities)
        if result.get("resultType") == "input_required":
            more: dict[str, Any] = {"inputResponses": dict.fromkeys(result["inputRequests"], _ANSWER)}
            if "requestState" in result:
                more["requestState"] = result["requestState"]
            result = client.result("tools/call", {**params, **more}, capabilities=capabilities, id=2)
        print(tool, json.dumps(result)[:500], file=sys.stderr)


def _nothing(_: Driver) -> None:
    """Importing is all."""


def _add(driver: Driver) -> None:
    if "add_numbers" in driver.tools:  # one scenario's server lists no tool at all
        driver.call("add_numbers", {"a": 5, "b": 3})


def _all(driver: Driver) -> None:
    for name, tool in driver.tools.items():
        properties = tool.input_schema.get("properties", {})
        required = tool.input_schema.get("required", [])
        driver.call(name, {each: _STUBS[properties[each]["type"]] for each in required})


def _given(driver: Driver) -> None:
    for call in json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])["toolCalls"]:
        driver.call(call["name"], call["arguments"])


def _echo(driver: Driver) -> None:
    driver.call("json_schema_echo", {"schema": driver.tools["json_schema_2020_12_tool"].input_schema})


def _converse(driver: Driver) -> None:
    for tool in ("echo_state", "unrelated", "no_state", "no_result_type"):
        driver.converse(f"test_mrtr_{tool}")


SCENARIOS: Mapping[str, Callable[[Driver], None]] = {
    "http-custom-headers": _given,
    "http-invalid-tool-headers": _all,
    "http-standard-headers": _all,
    "initialize": _nothing,
    "json-schema-2020-12-preservation": _echo,
    "json-schema-ref-no-deref": _nothing,
    "request-metadata": _add,
    "sep-2322-client-request-state": _converse,
    "tools_call": _add,
}
"""What is done in each; the suite has more, of logins and of what no client of a registry's does."""


def main(scenario: str, url: str) -> None:
    """Import the server at `url`, and do what the scenario asks for."""
    with running_registry(bindings=[binding("bot", ["suite:use"])]) as registry:
        found = imported(registry, toolserver("suite", url))["suite"]
        print(found.seen, *map(str, found.left_out), sep="\n", file=sys.stderr)
        SCENARIOS[scenario](Driver(registry, found))


if __name__ == "__main__":
    main(os.environ["MCP_CONFORMANCE_SCENARIO"], sys.argv[1])
