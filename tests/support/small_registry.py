"""A small honest registry for the runner's tests: the simple discovery protocol, calls and the live stream.

It implements the wire contract and nothing else: who holds which token sees which tools, and a call is answered by
a Python function. Faults are asked for by name. The runner's tests against the real registry are in
`tests/component/runner/test_real_registry.py`.
"""

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from stub_server import Answer, Request, handling

Implementation = Callable[..., Any]


class Problem(Exception):
    """Raised by an implementation: the call is answered with this problem document."""

    def __init__(self, status: int, code: str, detail: str = "", **extra: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.document = {"status": status, "code": code, "detail": detail, **extra}


@dataclass
class SmallTool:
    """A tool: what is listed, and what answers."""

    name: str
    run: Implementation
    description: str = ""
    parameters: dict[str, dict[str, Any]] = field(default_factory=dict)

    def entry(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "endpoint": f"/tools/{self.name}",
            "scopes": [f"{self.name}:use"],
            "description": self.description,
            "parameters": self.parameters,
            "returns": "",
            "host": "registry.invalid",
            "port": 1,
        }


class SmallRegistry:
    """What the server answers from; change it at any time, and watchers are told."""

    def __init__(self, *tools: SmallTool, token: str = "token-1", watchable: bool = True) -> None:
        self.url = ""
        self.requests: list[str] = []
        self.tokens_seen: list[str | None] = []
        self.watchers = 0
        self._changed = threading.Condition()
        self._version = 0
        self._open = True
        self._tools = {t.name: t for t in tools}
        self._tokens = {token}
        self._watchable = watchable
        self.discovery_problem: Problem | None = None
        self.searchable = False

    def set_tools(self, *tools: SmallTool) -> None:
        with self._changed:
            self._tools = {t.name: t for t in tools}
            self._bump()

    def revoke(self, name: str) -> None:
        with self._changed:
            self._tools = {n: t for n, t in self._tools.items() if n != name}
            self._bump()

    def accept(self, *tokens: str) -> None:
        with self._changed:
            self._tokens = set(tokens)
            self._bump()

    def wait_for_watchers(self, count: int, timeout: float = 30.0) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.watchers >= count, timeout)

    def _bump(self) -> None:
        self._version += 1
        self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._open = False
            self._changed.notify_all()

    def discovery(self, token: str | None) -> dict[str, Any]:
        known = token in self._tokens
        tools = [t.entry() for t in self._tools.values()] if known else []
        return {
            "service": "small",
            "version": "0",
            "protocol": "MCP",
            "authenticated": known,
            "scopes": [],
            "total_available": len(tools),
            "total_registered": len(tools),
            "tools": tools,
        }

    def answer(self, name: str, token: str | None, arguments: dict[str, Any]) -> Any:
        if token not in self._tokens:
            raise Problem(401, "invalid_token", "The bearer token is not accepted")
        tool = self._tools.get(name)
        if tool is None:
            raise Problem(403, "not_permitted", "Not permitted")
        return tool.run(**arguments)

    def handle(self, request: Request) -> None:
        """Answer one request."""
        given = request.headers.get("authorization")
        token = given.removeprefix("Bearer ") if given else None
        self.requests.append(f"{request.method} {request.path}")
        self.tokens_seen.append(token)
        try:
            if (request.method, request.path) == ("GET", "/v1/watch") and self._watchable:
                self._watch(request, token)
            else:
                request.send(self._answered(request, token))
        except Problem as problem:
            body = json.dumps(problem.document).encode()
            request.send(Answer(body, problem.status, {"Content-Type": "application/problem+json"}))

    def _answered(self, request: Request, token: str | None) -> Answer:
        if request.method == "POST" and request.path.startswith("/tools/"):
            result = self.answer(request.path.removeprefix("/tools/"), token, request.json())
            return Answer(json.dumps(result).encode())
        if (request.method, request.path) == ("POST", "/v1/search") and self.searchable:
            return Answer(json.dumps({"tools": self._found(token, request.json())}).encode())
        if (request.method, request.path) == ("POST", "/v1/load") and self.searchable:
            named = request.json()["tools"]
            return Answer(
                json.dumps({"tools": [t for t in self._definitions(token) if t["name"] in named]}).encode()
            )
        if (request.method, request.path) != ("GET", "/"):
            raise Problem(404, "not_found")
        if self.discovery_problem is not None:
            raise self.discovery_problem
        body = json.dumps(self.discovery(token)).encode()
        etag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        headers = {"Content-Type": "application/json", "ETag": etag}
        same = request.headers.get("if-none-match") == etag
        return Answer(b"", 304, headers) if same else Answer(body, 200, headers)

    def _definitions(self, token: str | None) -> list[dict[str, Any]]:
        """The visible tools as `/v1/load` gives them."""
        return [
            {
                "name": tool["name"],
                "inputSchema": {
                    "type": "object",
                    "properties": {
                        name: {"type": about["type"]} for name, about in tool["parameters"].items()
                    },
                    "required": list(tool["parameters"]),
                },
            }
            for tool in self.discovery(token)["tools"]
        ]

    def _found(self, token: str | None, asked: dict[str, Any]) -> list[dict[str, Any]]:
        """The visible tools that share words with the query, most first."""
        words = set(asked["query"].lower().split())
        scored = []
        for tool in self.discovery(token)["tools"]:
            own = set(f"{tool['name'].replace('_', ' ')} {tool['description']}".lower().split())
            if shared := len(words & own):
                scored.append((-shared, tool["name"]))
        return [{"name": name} for _, name in sorted(scored)[: asked["limit"]]]

    def _watch(self, request: Request, token: str | None) -> None:
        if token not in self._tokens:
            raise Problem(401, "invalid_token")
        request.begin({"Content-Type": "text/event-stream"})
        with self._changed:
            seen = self._version
            self.watchers += 1
            self._changed.notify_all()
        try:
            request.write(b"event: snapshot\ndata: {}\n\n")
            while True:
                with self._changed:
                    self._changed.wait_for(
                        lambda seen=seen: self._version != seen or not self._open  # type: ignore[misc]
                    )
                    seen = self._version
                    ends = not self._open or token not in self._tokens
                if ends:
                    return
                request.write(b"event: changed\ndata: {}\n\n")
        finally:
            with self._changed:
                self.watchers -= 1


@contextmanager
def serving(registry: SmallRegistry, port: int = 0) -> Iterator[SmallRegistry]:
    """Serve on loopback; on leaving, every connection is cut."""
    registry._open = True
    with handling(registry.handle, port) as found:
        registry.url = f"http://127.0.0.1:{found}"
        try:
            yield registry
        finally:
            registry.close()
