"""An MCP endpoint of which a test decides every answer, streams and breaks included."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from stub_server import Answer, Request, handling


@dataclass(frozen=True)
class Wire(Request):
    """One request, and the means to answer it as MCP does."""

    @property
    def message(self) -> Any:
        """The body's value."""
        return self.json() if self.body else None

    def answer(self, body: bytes | Mapping[str, Any], status: int = 200, **headers: str) -> None:
        """Send everything at once; a mapping as JSON."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        self.send(Answer(raw, status, {"content-type": "application/json", **given}))

    def result(self, **result: Any) -> None:
        """Answer the request with this result."""
        self.answer({"jsonrpc": "2.0", "id": self.message["id"], "result": result})

    def stream(self) -> None:
        """Begin an event stream; it ends when the handler returns."""
        self.begin({"content-type": "text/event-stream"})

    def event(self, message: Mapping[str, Any]) -> None:
        """Send a message in the stream."""
        self.write(f"event: message\ndata: {json.dumps(message)}\n\n".encode())

    def gone(self, seconds: float = 30.0) -> bool:
        """Wait until the client has closed the connection; False: it has not."""
        return super().gone(seconds)


@dataclass
class McpStub:
    """Where it listens, and what it was asked."""

    url: str = ""
    asked: list[Wire] = field(default_factory=list)

    def of(self, method: str) -> list[Wire]:
        """The requests with this JSON-RPC method."""
        return [w for w in self.asked if w.body and w.message.get("method") == method]


@contextlib.contextmanager
def mcp_stub(answer: Callable[[Wire], None], port: int = 0) -> Iterator[McpStub]:
    """Answers every request by `answer`, which runs in a thread for each connection. At the end all connections break."""
    stub = McpStub()

    def handle(request: Request) -> None:
        wire = Wire(**vars(request))
        stub.asked.append(wire)
        answer(wire)

    with handling(handle, port) as found:
        stub.url = f"http://127.0.0.1:{found}"
        yield stub
