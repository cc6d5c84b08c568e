"""A client of MCP that sends one message and holds what comes back against the models of `mcp_types`."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, Queue
from typing import Any

import httpx
from mcp_types.jsonrpc import JSONRPCError, JSONRPCResponse
from mcp_types.methods import parse_server_notification, validate_server_result

from registry_harness import RunningRegistry

HANDSHAKE = ("2025-03-26", "2025-06-18", "2025-11-25")
STATELESS = "2026-07-28"
VERSIONS = (*HANDSHAKE, STATELESS)
OWN = "io.modelcontextprotocol/"
BOTH = "application/json, text/event-stream"
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


def message(
    method: str,
    params: Mapping[str, Any] | None = None,
    version: str = STATELESS,
    *,
    id: Any = 1,
    capabilities: Mapping[str, Any] | None = None,
    **meta: Any,
) -> dict[str, Any]:
    """A request as a client of the revision writes it."""
    found = dict(params or {})
    said = {**found.get("_meta", {}), **meta}
    if version == STATELESS:
        said = {f"{OWN}protocolVersion": version, f"{OWN}clientCapabilities": capabilities or {}, **said}
    if said:
        found["_meta"] = said
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": found}


def fields_of(body: Any, version: str | None) -> dict[str, str]:
    """The header fields that go with it."""
    fields = {"accept": BOTH, "content-type": "application/json"}
    if version is not None:
        fields["mcp-protocol-version"] = version
    if version == STATELESS and isinstance(body, dict) and "method" in body:
        fields["mcp-method"] = body["method"]
        name = (body.get("params") or {}).get(_NAMED.get(body["method"], ""))
        if name is not None:
            fields["mcp-name"] = name
    return fields


@dataclass(frozen=True)
class McpClient:
    """One caller in one revision, at one path."""

    r: RunningRegistry
    version: str = STATELESS
    path: str = "/mcp/direct"
    who: str = "bot"

    def post(self, body: Any, headers: Mapping[str, str | bytes | None] | None = None) -> httpx.Response:
        """Send a body: bytes as they are, anything else as JSON. A header of None is left out."""
        sent = {**self.r.auth("team", self.who), **fields_of(body, self.version), **(headers or {})}
        content = body if isinstance(body, bytes) else json.dumps(body)
        return self.r.http.post(self.r.url + self.path, content=content, headers=_given(sent))

    def ask(self, method: str, params: Mapping[str, Any] | None = None, **more: Any) -> httpx.Response:
        """Send a request."""
        return self.post(message(method, params, self.version, **more))

    def result(self, method: str, params: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        """The result of a request, valid in the revision."""
        return result_of(self.ask(method, params, **more), method, self.version)

    def call(self, name: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        """The result of a call."""
        return self.result("tools/call", {"name": name, "arguments": dict(arguments or {})}, **more)

    def value(self, name: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """The structured content of a call's result, which stands there as text, too."""
        found = self.call(name, arguments)
        assert "isError" not in found, found
        assert json.loads(found["content"][0]["text"]) == found["structuredContent"]
        return found["structuredContent"]

    def error(
        self, method: str, params: Mapping[str, Any] | None = None, **more: Any
    ) -> tuple[int, int, str]:
        """HTTP's status, and the code and message of a request's error."""
        return error_of(self.ask(method, params, **more))

    def listed(self) -> list[dict[str, Any]]:
        """All tools, page by page."""
        tools: list[dict[str, Any]] = []
        cursor: dict[str, str] = {}
        while True:
            page = self.result("tools/list", cursor)
            tools += page["tools"]
            if "nextCursor" not in page:
                return tools
            cursor = {"cursor": page["nextCursor"]}


def _given(headers: Mapping[str, Any]) -> list[tuple[bytes, bytes]]:
    """Headers as bytes: values may be what no careful client would send."""
    return [
        (k.encode(), v if isinstance(v, bytes) else v.encode("latin-1"))
        for k, v in headers.items()
        if v is not None
    ]


def result_of(response: httpx.Response, method: str, version: str) -> dict[str, Any]:
    """The result in a response, valid in the revision."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    return valid_result(response.json(), method, version)


def valid_result(body: Any, method: str, version: str) -> dict[str, Any]:
    """The result in the body of a response, valid in the revision."""
    JSONRPCResponse.model_validate(body)
    found: dict[str, Any] = body["result"]
    validate_server_result(method, version, found)
    if version == STATELESS:
        assert found["resultType"] in ("complete", "input_required")
        assert found["_meta"][f"{OWN}serverInfo"]["name"] == "toolcrib"
    else:
        assert not {"resultType", "ttlMs", "cacheScope"} & found.keys(), "fields of another era"
        assert f"{OWN}serverInfo" not in found.get("_meta", {})
    return found


def error_of(response: httpx.Response) -> tuple[int, int, str]:
    """HTTP's status, and the code and message of the error in a response."""
    assert response.headers["content-type"] == "application/json", response.text
    error = JSONRPCError.model_validate(response.json()).error
    return response.status_code, error.code, error.message


class Notices:
    """A stream that is read by a thread: `next` gives messages, each with the moment in which it came."""

    def __init__(self, response: httpx.Response, version: str) -> None:
        self.came: Queue[tuple[float, str, Any] | None] = Queue()
        """(monotonic seconds, "message" or "comment", what); None: the end."""
        self._response, self._version = response, version
        self.followed: list[str] | None = None
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        try:
            for line in self._response.iter_lines():
                if line.startswith(":"):
                    self.came.put((time.monotonic(), "comment", line))
                elif line.startswith("data: "):
                    self.came.put((time.monotonic(), "message", json.loads(line.removeprefix("data: "))))
        except (httpx.StreamError, httpx.TransportError):
            pass
        self.came.put(None)

    def next(self, seconds: float = 20.0) -> Any:
        """The next message; valid in the revision."""
        return self.timed(seconds)[1]

    def timed(self, seconds: float = 20.0) -> tuple[float, Any]:
        """The next message, and when it came."""
        while True:
            found = self.came.get(timeout=seconds)
            assert found is not None, "the stream has ended"
            at, kind, what = found
            if kind == "message":
                if "method" in what:
                    parse_server_notification(what["method"], self._version, what.get("params"))
                return at, what

    def ended(self, seconds: float = 20.0) -> bool:
        """Whether nothing comes but the end."""
        return self.came.get(timeout=seconds) is None

    def quiet(self, seconds: float) -> bool:
        """Whether nothing comes for so long."""
        try:
            self.came.get(timeout=seconds)
        except Empty:
            return True
        return False


@contextlib.contextmanager
def listening(
    client: McpClient, *, follow: Sequence[str] | None = None, session: str = "", **token: Any
) -> Iterator[Notices]:
    """The caller's stream of notices; its beginning has come.

    Args:
        client: whose.
        follow: resources, instead of the list of tools (2026-07-28): `followed` of what comes are those that the server follows.
        session: of the stream (handshake era).
        token: of the token that it is opened with.
    """
    r, version = client.r, client.version
    what: Any = {"toolsListChanged": True} if follow is None else {"resourceSubscriptions": list(follow)}
    wanted = {"notifications": what}
    body = message("subscriptions/listen", wanted, version, id="s-1") if version == STATELESS else None
    headers = {**r.auth("team", client.who, **token), **fields_of(body, version)}
    if session:
        headers["mcp-session-id"] = session
    with (
        httpx.Client(timeout=httpx.Timeout(30, read=None), verify=False) as http,
        http.stream(
            "POST" if body else "GET", r.url + client.path, headers=headers,
            content=json.dumps(body) if body else None,
        ) as response,
    ):  # fmt: skip
        if response.status_code != 200:
            response.read()
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/event-stream")
        connection: socket.socket = response.extensions["network_stream"].get_extra_info("socket")
        notices = Notices(response, version)
        try:
            if body:
                first = notices.next()
                assert first["method"] == "notifications/subscriptions/acknowledged"
                notices.followed = first["params"]["notifications"].get("resourceSubscriptions")
            else:
                began = notices.came.get(timeout=20)
                assert began is not None
                assert began[1] == "comment"
            yield notices
        finally:
            # closing alone would not end the connection while the thread reads from it
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            notices.thread.join(20)
