"""An OpenAI-compatible embeddings endpoint on loopback: honest unless told to fail in a particular way."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from hash_embedder import HashEmbedder

Rows = Sequence[Sequence[float]]


def hashed(dimension: int) -> Callable[[list[str]], Rows]:
    """Vectors of words, as `HashEmbedder` makes them for queries: an endpoint knows no difference."""
    model = HashEmbedder(dimension)
    return lambda texts: asyncio.run(model.embed_request(texts)).tolist()


class EmbeddingsEndpoint:
    """Answers `POST /v1/embeddings`; what it was sent is kept."""

    def __init__(self, vectors: Callable[[list[str]], Rows]) -> None:
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.vectors = vectors
        self.status = 200
        self.answer: Any = None
        """Sent instead of vectors; bytes are sent as they are."""
        self.headers: dict[str, str] = {}
        """Sent with each answer."""
        self.refuses: Callable[[str], bool] = lambda text: False
        """A request with such a text is answered 400."""
        self.go_on = threading.Event()
        """While it is cleared, requests hang."""
        self.go_on.set()
        self.drips = False
        """Send a byte of the answer from time to time, without an end."""
        self.asked = threading.Event()
        """Set by each request."""
        self._closing = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.requests.append(body)
                outer.keys.append(self.headers["authorization"])
                outer.asked.set()
                outer.go_on.wait(30)
                status, sent = outer._answer(body)
                try:
                    self.send_response(status)
                    self.send_header("content-type", "application/json")
                    for name, value in outer.headers.items():
                        self.send_header(name, value)
                    self.send_header("content-length", str(len(sent)))
                    self.end_headers()
                    while outer.drips and not outer._closing.wait(0.05):
                        self.wfile.write(b" ")
                        self.wfile.flush()
                    self.wfile.write(sent)
                except OSError:
                    """Whoever asked has given up."""

            def log_message(self, *given: object) -> None:
                """Stay quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = False
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def texts(self) -> list[str]:
        """Every text it was sent, in order."""
        return [text for request in list(self.requests) for text in request["input"]]

    def close(self) -> None:
        """Stop serving."""
        self._closing.set()
        self.go_on.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, body: dict[str, Any]) -> tuple[int, bytes]:
        if any(map(self.refuses, body["input"])):
            return 400, json.dumps({"error": {"message": "maximum context length"}}).encode()
        if isinstance(self.answer, bytes):
            return self.status, self.answer
        if self.answer is not None:
            return self.status, json.dumps(self.answer).encode()
        rows = [
            {"object": "embedding", "index": i, "embedding": list(row)}
            for i, row in enumerate(self.vectors(body["input"]))
        ]
        # the order is the client's business: an index comes with each
        whole = {"object": "list", "model": body["model"], "data": rows[::-1], "usage": {}}
        return self.status, json.dumps(whole).encode()


@contextmanager
def embeddings_endpoint(vectors: Callable[[list[str]], Rows]) -> Iterator[EmbeddingsEndpoint]:
    """A fresh endpoint on a free port."""
    endpoint = EmbeddingsEndpoint(vectors)
    try:
        yield endpoint
    finally:
        endpoint.close()
