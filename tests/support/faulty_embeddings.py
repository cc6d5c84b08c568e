"""An OpenAI-compatible embeddings endpoint on loopback whose faults are asked for by name.

Its vectors are those of `HashEmbedder`: deterministic, words of their own. `fault` may be changed at any time:

    ""          it answers
    hangs       it takes requests and answers none, until the fault is over
    closes      it ends each connection without a word
    500, 429, 401, 413   it answers with that status
    garbage     it answers with no JSON
    empty       it answers JSON without vectors
    other       its vectors have another dimension
    nan         its vectors are no numbers
    zeros       they are, all of them naught
    huge        it answers several megabytes
"""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hash_embedder import HashEmbedder
from stub_server import Answer, Request, handling

DIMENSION = 32
FAULTS = ("hangs", "closes", "500", "429", "401", "413", "garbage", "empty", "other", "nan", "zeros", "huge")


class FaultyEmbeddings:
    """Answers at `url`; `asked` counts requests, `waiting` those that hang now."""

    def __init__(self) -> None:
        self.url = ""
        self.asked = 0
        self.waiting = 0
        self._fault = ""
        self._changed = threading.Condition()
        self._embedder = HashEmbedder(DIMENSION)

    @property
    def fault(self) -> str:
        """What is wrong with it now."""
        return self._fault

    @fault.setter
    def fault(self, name: str) -> None:
        with self._changed:
            self._fault = name
            self._changed.notify_all()

    def handle(self, request: Request) -> None:
        """Answer one request, or not."""
        texts = request.json()["input"]
        with self._changed:
            self.asked += 1
            self.waiting += 1
            if self._fault == "hangs":
                self._changed.wait_for(lambda: self._fault != "hangs")
            self.waiting -= 1
            fault = self._fault
        if fault == "closes":
            request.last()
            return
        sent = b"<html>" if fault == "garbage" else json.dumps(self._body(texts, fault)).encode()
        request.send(Answer(sent, int(fault) if fault.isdigit() else 200))

    def _body(self, texts: list[str], fault: str) -> Any:
        if fault == "empty":
            return {"object": "list", "data": None}
        rows = asyncio.run(self._embedder.embed_documents(texts)).tolist()
        if fault == "other":
            rows = [row[1:] for row in rows]
        if fault == "nan":
            rows = [[float("nan")] * DIMENSION for _ in rows]
        if fault == "zeros":
            rows = [[0.0] * DIMENSION for _ in rows]
        if fault == "huge":
            rows = [[0.25] * 1_000_000 for _ in rows]
        data = [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)]
        return {
            "object": "list",
            "model": "m",
            "data": data,
            "usage": {"prompt_tokens": 1, "total_tokens": 1},
        }


@contextmanager
def faulty_embeddings() -> Iterator[FaultyEmbeddings]:
    """One that answers, until it is told otherwise."""
    endpoint = FaultyEmbeddings()
    with handling(endpoint.handle) as port:
        endpoint.url = f"http://127.0.0.1:{port}/v1"
        try:
            yield endpoint
        finally:
            endpoint.fault = "closes"  # lets go of what hangs
