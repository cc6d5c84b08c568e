"""An MCP server of one file and the standard library: runs in a pod by `python3 -c`. Revision 2025-11-25, port 8080."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
_TOOL = {"name": "stamp", "description": "Stamps a text as received by the clerk.", "inputSchema": _TEXT}
_INITIALIZED = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "clerk", "version": "1"},
}


def answered(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """The result of a request; None: there is no such method."""
    if method == "initialize":
        return _INITIALIZED
    if method == "tools/list":
        return {"tools": [_TOOL]}
    if method == "tools/call":
        stamped = {"stamped": params["arguments"]["text"]}
        return {"content": [{"type": "text", "text": json.dumps(stamped)}], "structuredContent": stamped}
    return {} if method == "ping" else None


class Handler(BaseHTTPRequestHandler):
    """Answers each POST with JSON; streams are not offered."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "id" not in message:
            self._send(202, b"")
            return
        result = answered(message["method"], message.get("params") or {})
        said = (
            {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
        )
        self._send(200, json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}).encode())

    def do_GET(self) -> None:
        self._send(405, b"")

    def do_DELETE(self) -> None:
        self._send(405, b"")

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    ThreadingHTTPServer(("", 8080), Handler).serve_forever()
