"""`/healthz`, `/readyz` and `/metrics` of the runner's process, on a small server of its own thread."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest


@contextmanager
def serving(
    registry: CollectorRegistry,
    status: Callable[[], Mapping[str, Any]],
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    ready: Callable[[], bool] = lambda: True,
) -> Iterator[str]:
    """Serve until the block ends; yields the base URL. `status()` is what `/healthz` and `/readyz` answer, as JSON.

    `/healthz` is 200 as long as the process answers at all: a registry that is away is a state to report, not a
    reason to restart the agent. `/readyz` is 503 until `ready()`.

    Raises:
        OSError: the port is taken or not allowed.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version = "toolcrib-runner"
        sys_version = ""
        timeout = 30
        wbufsize = -1

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(200, generate_latest(registry), CONTENT_TYPE_LATEST)
            elif path in ("/healthz", "/readyz"):
                code = 200 if path == "/healthz" or ready() else 503
                self._answer(code, json.dumps(dict(status())).encode(), "application/json")
            else:
                self._answer(404, b"/healthz, /readyz and /metrics are here\n", "text/plain")

        def _answer(self, code: int, body: bytes, kind: str) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None:
            """Probes and scrapes are not worth a line."""

    server = ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="toolcrib-health", daemon=True)
    thread.start()
    try:
        yield f"http://{host}:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
