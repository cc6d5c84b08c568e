"""An OpenAI-compatible embeddings endpoint on loopback: honest unless told to fail in a particular way."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hash_embedder import HashEmbedder
from stub_server import Request, handling

Rows = Sequence[Sequence[float]]


def hashed(dimension: int) -> Callable[[list[str]], Rows]:
    """Vectors of words, as `HashEmbedder` makes them for queries: an endpoint knows no difference."""
    model = HashEmbedder(dimension)
    return lambda texts: asyncio.run(model.embed_request(texts)).tolist()


class EmbeddingsEndpoint:
    """Answers `POST /v1/embeddings`; what it was sent is kept."""

    def __init__(self, vectors: Callable[[list[str]], Rows]) -> None:
        self.url = ""
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

    @property
    def texts(self) -> list[str]:
        """Every text it was sent, in order."""
        return [text for request in list(self.requests) for text in request["input"]]

    def close(self) -> None:
        """Let go of what hangs or drips."""
        self._closing.set()
        self.go_on.set()

    def handle(self, request: Request) -> None:
        """Answer one request."""
        body = request.json()
        self.requests.append(body)
        self.keys.append(request.headers.get("authorization", ""))
        self.asked.set()
        self.go_on.wait(30)
        status, sent = self._answer(body)
        length = {"content-length": str(len(sent)), "connection": "close"}
        request.begin({"content-type": "application/json", **self.headers, **length}, status)
        while self.drips and not self._closing.wait(0.05):
            request.write(b" ")
        request.write(sent)

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
    with handling(endpoint.handle) as port:
        endpoint.url = f"http://127.0.0.1:{port}/v1"
        try:
            yield endpoint
        finally:
            endpoint.close()
