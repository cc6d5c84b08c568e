"""An MCP server of 2026-07-28 that has resources and prompts, as JSON over `stub_server`."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import jwt

from stub_server import Answer, Request, handling

JSON = {"content-type": "application/json"}
_OPEN = threading.Lock()


@dataclass
class OfferingServer:
    """What it lists, and what it was asked.

    Attributes:
        resources, templates, prompts: entries of its lists.
        asked: method and parameters of each request.
        by_caller: it has other entries for each caller, whom a request's assertion names, and refuses those of others.
        listing: its lists wait for it.
        open: requests for lists that wait, and whose clients still wait.
        down: it answers 503.
        reading: reads of resources wait for it.
        ttl_ms: for how long it says that its lists may be kept.
        scopes: who may keep the pages of its lists, page by page; None: it does not say.
        meta: of each entry's contents.
        endless: its lists have no last page.
    """

    resources: list[dict[str, Any]] = field(default_factory=list)
    templates: list[dict[str, Any]] = field(default_factory=list)
    prompts: list[dict[str, Any]] = field(default_factory=list)
    name: str = "one"
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    by_caller: bool = False
    listing: threading.Event | None = None
    open: int = 0
    down: bool = False
    reading: threading.Event | None = None
    ttl_ms: int = 0
    scopes: tuple[str | None, ...] = ("private",)
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

    def answer(self, asked: Request) -> Answer:
        """The answer to one request."""
        message = json.loads(asked.body)
        method, params = message["method"], message.get("params", {})
        self.asked.append((method, params))
        if self.listing is not None and method.endswith("/list"):
            self._hold(self.listing, asked)
        if self.down:
            return Answer(b"", 503)
        page = int(params.get("cursor", 0))
        scope = self.scopes[min(page, len(self.scopes) - 1)]
        made = self._of_caller(caller_of(asked), method, params) if self.by_caller else None
        result = {
            "resultType": "complete",
            "ttlMs": self.ttl_ms,
            **({} if scope is None else {"cacheScope": scope}),
            **(self._result(method, params) if made is None else made),
        }
        if method.endswith("/list") and (self.endless or page + 1 < len(self.scopes)):
            result["nextCursor"] = str(page + 1)
        said = {"error": result["error"]} if "error" in result else {"result": result}
        return Answer(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}).encode(), headers=JSON)

    def _hold(self, event: threading.Event, asked: Request) -> None:
        with _OPEN:
            self.open += 1
        while not event.wait(0.02) and not asked.gone():
            pass
        with _OPEN:
            self.open -= 1

    def _of_caller(self, who: str, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        """Key of the caller whose list this is; None: everybody's."""
        refused = {"error": {"code": -32602, "message": "no"}}
        match method:
            case "resources/list":
                return {"resources": [{"uri": f"docs://of-{who}", "name": who}, *self.resources]}
            case "resources/templates/list":
                return {"resourceTemplates": [{"uriTemplate": f"pages://of-{who}/{{n}}", "name": who}]}
            case "prompts/list":
                return {"prompts": [{"name": f"of-{who}", "description": f"for {who}"}]}
            case "resources/read":
                if "://of-" in params["uri"] and f"://of-{who}" not in params["uri"]:
                    return refused
                return {"contents": [{"uri": params["uri"], "text": f"for {who}"}]}
            case "prompts/get":
                return None if params["name"] == f"of-{who}" else refused
            case "completion/complete":
                return {"completion": {"values": [f"for {who}"]}}
        return None

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


def caller_of(asked: Request) -> str:
    """The service account that a request's assertion names."""
    claims = jwt.decode(asked.headers["toolcrib-assertion"], options={"verify_signature": False})
    return str(claims["sub"]).rpartition(":")[2]


@contextlib.contextmanager
def offering(server: OfferingServer) -> Iterator[OfferingServer]:
    """Serve it until the block ends."""
    with handling(lambda request: request.send(server.answer(request))) as port:
        server.port = port
        yield server
