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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

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


def _handler(registry: SmallRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def do_GET(self) -> None:
            token = self._note()
            if self.path == "/v1/watch" and registry._watchable:
                return self._watch(token)
            if self.path != "/":
                return self._problem(Problem(404, "not_found"))
            if registry.discovery_problem is not None:
                return self._problem(registry.discovery_problem)
            body = json.dumps(registry.discovery(token)).encode()
            etag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
            if self.headers.get("if-none-match") == etag:
                return self._answer(304, b"", etag)
            return self._answer(200, body, etag)

        def do_POST(self) -> None:
            token = self._note()
            arguments = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if not self.path.startswith("/tools/"):
                return self._problem(Problem(404, "not_found"))
            try:
                result = registry.answer(self.path.removeprefix("/tools/"), token, arguments)
            except Problem as problem:
                return self._problem(problem)
            return self._answer(200, json.dumps(result).encode())

        def _note(self) -> str | None:
            given = self.headers.get("authorization")
            token = given.removeprefix("Bearer ") if given else None
            registry.requests.append(f"{self.command} {self.path}")
            registry.tokens_seen.append(token)
            return token

        def _watch(self, token: str | None) -> None:
            if token not in registry._tokens:
                self._problem(Problem(401, "invalid_token"))
                return
            self.close_connection = True
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            with registry._changed:
                seen = registry._version
                registry.watchers += 1
                registry._changed.notify_all()
            try:
                self._event("snapshot")
                while True:
                    with registry._changed:
                        registry._changed.wait_for(
                            lambda seen=seen: registry._version != seen or not registry._open  # type: ignore[misc]
                        )
                        seen = registry._version
                        ends = not registry._open or token not in registry._tokens
                    if ends:
                        return
                    self._event("changed")
            except OSError:
                return
            finally:
                with registry._changed:
                    registry.watchers -= 1

        def _event(self, name: str) -> None:
            self.wfile.write(f"event: {name}\ndata: {{}}\n\n".encode())
            self.wfile.flush()

        def _problem(self, problem: Problem) -> None:
            self._answer(
                problem.status, json.dumps(problem.document).encode(), kind="application/problem+json"
            )

        def _answer(
            self, status: int, body: bytes, etag: str | None = None, kind: str = "application/json"
        ) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            if etag:
                self.send_header("ETag", etag)
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, registry: SmallRegistry) -> None:
        self._connections: set[Any] = set()
        super().__init__(("127.0.0.1", port), _handler(registry))

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def drop_connections(self) -> None:
        """As a process that is killed: idle connections of the pool end too."""
        for request in list(self._connections):
            try:
                request.shutdown(2)
            except OSError:
                continue


@contextmanager
def serving(registry: SmallRegistry, port: int = 0) -> Iterator[SmallRegistry]:
    """Serve on loopback; on leaving, every connection is cut."""
    server = _Server(port, registry)
    registry._open = True
    registry.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        registry.close()
        server.shutdown()
        thread.join()
        server.drop_connections()
        server.server_close()
