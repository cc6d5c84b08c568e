"""An MCP server of 2026-07-28 that has resources and prompts, as JSON over `stub_server`."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from stub_server import Answer, Asked, answering

JSON = {"content-type": "application/json"}


@dataclass
class OfferingServer:
    """What it lists, and what it was asked.

    Attributes:
        resources, templates, prompts: entries of its lists.
        asked: method and parameters of each request.
        down: it answers 503.
        reading: reads of resources wait for it.
        ttl_ms: for how long it says that its lists may be kept.
        meta: of each entry's contents.
        endless: its lists have no last page.
    """

    resources: list[dict[str, Any]] = field(default_factory=list)
    templates: list[dict[str, Any]] = field(default_factory=list)
    prompts: list[dict[str, Any]] = field(default_factory=list)
    name: str = "one"
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    down: bool = False
    reading: threading.Event | None = None
    ttl_ms: int = 0
    meta: dict[str, Any] = field(default_factory=dict)
    endless: bool = False
    port: int = 0

    @property
    def url(self) -> str:
        """Its endpoint."""
        return f"http://127.0.0.1:{self.port}/mcp"

    def of(self, method: str) -> list[dict[str, Any]]:
        """The parameters of the requests of a method."""
        return [params for asked, params in self.asked if asked == method]

    def answer(self, asked: Asked) -> Answer:
        """The answer to one request."""
        message = json.loads(asked.body)
        method, params = message["method"], message.get("params", {})
        self.asked.append((method, params))
        if self.down:
            return Answer(b"", 503)
        result = {
            "resultType": "complete",
            "ttlMs": self.ttl_ms,
            "cacheScope": "private",
            **self._result(method, params),
        }
        if self.endless and method.endswith("/list"):
            result["nextCursor"] = str(len(self.asked))
        return Answer(
            json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode(), headers=JSON
        )

    def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        match method:
            case "server/discover":
                offered: dict[str, dict[str, Any]] = {
                    "resources": {},
                    "prompts": {},
                    "completions": {},
                    "tools": {},
                }
                about = {"serverInfo": {"name": self.name, "version": "1"}}
                return {"supportedVersions": ["2026-07-28"], "capabilities": offered, **about}
            case "resources/list":
                return {"resources": self.resources}
            case "resources/templates/list":
                return {"resourceTemplates": self.templates}
            case "prompts/list":
                return {"prompts": self.prompts}
            case "resources/read":
                if self.reading is not None:
                    self.reading.wait(30)
                return {"contents": [{"uri": params["uri"], "text": f"of {self.name}", **self.meta}]}
            case "prompts/get":
                said = f"{params['name']} of {self.name}: {json.dumps(params.get('arguments', {}))}"
                return {"messages": [{"role": "user", "content": {"type": "text", "text": said}}]}
            case "completion/complete":
                return {"completion": {"values": [f"{self.name}:{params['argument']['value']}"]}}
        return {"tools": []}


@contextlib.contextmanager
def offering(server: OfferingServer) -> Iterator[OfferingServer]:
    """Serve it until the block ends."""
    with answering(server.answer) as port:
        server.port = port
        yield server
