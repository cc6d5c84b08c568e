"""Requests of MCP to a running registry, one POST each."""

from typing import Any

import httpx

from oracle import revisions
from registry_harness import RunningRegistry

VERSIONS = ("2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")


def rpc(
    version: str | None, method: str, params: dict[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Body and header fields."""
    body, fields = revisions.request(version, method, params or {})
    return body, {name.replace("_", "-"): value for name, value in fields.items()}


def call_of(path: str, name: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
    """The parameters of a call of a tool: over `/mcp` through `call_tool`."""
    if path == "/mcp":
        return {"name": "call_tool", "arguments": {"tool_id": name, "args": arguments or {}}}
    return {"name": name, "arguments": arguments or {}}


def ask(
    r: RunningRegistry,
    path: str,
    method: str,
    params: dict[str, Any] | None = None,
    *,
    version: str | None = VERSIONS[-1],
    account: str = "bot",
) -> httpx.Response:
    """The answer to one request of a service account of `team`."""
    body, fields = rpc(version, method, params)
    return r.http.post(r.url + path, headers=r.auth("team", account) | fields, json=body)


def call(
    r: RunningRegistry, path: str, name: str, arguments: dict[str, Any] | None = None, **options: Any
) -> dict[str, Any]:
    """The result of a call of a tool that the caller sees."""
    answer = ask(r, path, "tools/call", call_of(path, name, arguments), **options)
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()["result"]
    return result
