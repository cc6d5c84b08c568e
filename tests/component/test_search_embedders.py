"""The packaged model, and an embeddings endpoint over real HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from toolcrib_registry.adapters.onnx_embedder import OnnxEmbedder
from toolcrib_registry.adapters.openai_embedder import OpenAIEmbedder
from toolcrib_registry.search.errors import EmbedderUnavailable

pytestmark = pytest.mark.anyio

TEXTS = [
    "weather get forecast: Tomorrow's weather of a city",
    "files read file: Read a file of the shared folder",
    "payments create invoice: Bill a customer",
    "x",
    "",
    "\x00\u202e 天气 \ud800",
    "word " * 5_000,
]


@pytest.fixture(scope="module")
def packaged() -> OnnxEmbedder:
    """The model in the distribution."""
    return OnnxEmbedder.packaged()


async def test_a_text_has_one_vector_whatever_it_is_embedded_with(packaged: OnnxEmbedder) -> None:
    together = await packaged.embed_documents(TEXTS * 3)
    alone = [(await packaged.embed_documents([t]))[0] for t in TEXTS]

    assert together.shape == (3 * len(TEXTS), packaged.dimension)
    assert together.dtype == np.float32
    for i, vector in enumerate(together):
        assert (vector == alone[i % len(TEXTS)]).all()
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-5)


async def test_words_of_the_same_meaning_are_near(packaged: OnnxEmbedder) -> None:
    documents = await packaged.embed_documents(TEXTS[:3])

    for query, right in (("will it rain in Oslo", 0), ("open that document", 1), ("charge a client", 2)):
        assert int(np.argmax(documents @ await packaged.embed_query(query))) == right


async def test_nothing_to_embed_is_an_empty_matrix(packaged: OnnxEmbedder) -> None:
    assert (await packaged.embed_documents([])).shape == (0, packaged.dimension)


async def test_a_query_overtakes_a_long_list_of_documents(packaged: OnnxEmbedder) -> None:
    documents = asyncio.create_task(packaged.embed_documents([f"{TEXTS[0]} {i}" for i in range(400)]))
    await asyncio.sleep(0)

    await packaged.embed_query("weather")

    assert not documents.done()
    documents.cancel()


async def test_the_name_follows_the_files(packaged: OnnxEmbedder, tmp_path: Path) -> None:
    assert packaged.name == OnnxEmbedder.packaged().name
    assert packaged.name.startswith("onnx-")
    (tmp_path / "model.onnx").write_bytes(b"no model")
    (tmp_path / "tokenizer.json").write_text("{}")

    for model in (tmp_path / "model.onnx", tmp_path / "missing.onnx"):
        with pytest.raises(EmbedderUnavailable):
            OnnxEmbedder(model, tmp_path / "tokenizer.json")


async def test_a_closed_model_says_so() -> None:
    embedder = OnnxEmbedder.packaged()
    await embedder.aclose()

    with pytest.raises(EmbedderUnavailable):
        await embedder.embed_query("anything")


class Endpoint:
    """An embeddings endpoint on loopback that answers as told."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.status = 200
        self.answer: Any = None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.requests.append(body)
                outer.keys.append(self.headers["authorization"])
                data = [
                    {"object": "embedding", "index": i, "embedding": [float(len(t)), 3.0, 4.0]}
                    for i, t in enumerate(body["input"])
                ]
                whole = {"object": "list", "model": "m", "data": data[::-1], "usage": {}}
                sent = json.dumps(whole if outer.answer is None else outer.answer).encode()
                self.send_response(outer.status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)

            def log_message(self, *given: object) -> None:
                """Stay quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()

    def close(self) -> None:
        """Stop serving."""
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """A fresh endpoint."""
    endpoint = Endpoint()
    yield endpoint
    endpoint.close()


@pytest.fixture
async def remote(endpoint: Endpoint, tmp_path: Path) -> AsyncIterator[OpenAIEmbedder]:
    """An embedder of three dimensions that asks it."""
    url = f"http://127.0.0.1:{endpoint.server.server_address[1]}/v1"
    (tmp_path / "key").write_text("secret-key\n")
    embedder = OpenAIEmbedder(
        base_url=url, model="m", dimension=3, api_key_file=str(tmp_path / "key"), seconds=5
    )
    yield embedder
    await embedder.aclose()


async def test_an_endpoints_vectors_are_put_in_order_and_normalised(
    remote: OpenAIEmbedder, endpoint: Endpoint
) -> None:
    texts = ["a" * n for n in range(1, 151)]

    vectors = await remote.embed_documents(texts)

    expected = np.array([[n, 3.0, 4.0] for n in range(1, 151)], np.float32)
    np.testing.assert_allclose(vectors, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-6)
    assert [len(r["input"]) for r in endpoint.requests] == [64, 64, 22]
    assert set(endpoint.keys) == {"Bearer secret-key"}


async def test_a_key_that_is_replaced_is_used_at_once_and_one_that_is_missing_is_an_outage(
    remote: OpenAIEmbedder, endpoint: Endpoint, tmp_path: Path
) -> None:
    await remote.embed_query("x")
    (tmp_path / "key").write_text("another-key\n")
    await remote.embed_query("x")
    assert endpoint.keys == ["Bearer secret-key", "Bearer another-key"]

    (tmp_path / "key").write_text(" ")
    with pytest.raises(EmbedderUnavailable, match=r"api_key_file .*key holds no key"):
        await remote.embed_query("x")
    (tmp_path / "key").unlink()
    with pytest.raises(EmbedderUnavailable, match="cannot be read: No such file"):
        await remote.embed_query("x")
    (tmp_path / "key").write_text("third-key")
    await remote.embed_query("x")
    assert endpoint.keys[-1] == "Bearer third-key"


async def test_a_query_is_cut_and_cleaned_before_it_is_sent(
    remote: OpenAIEmbedder, endpoint: Endpoint
) -> None:
    await remote.embed_query("x\ud800" * 10_000)
    await remote.embed_query("")

    assert len(endpoint.requests[0]["input"][0]) == 2_000
    assert endpoint.requests[1]["input"] == ["-"]


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (401, {"error": {"message": "Incorrect API key provided: secret-key"}}),
        (400, {"error": {"message": "too long"}}),
        (200, {"object": "list", "model": "m", "data": [], "usage": {}}),
        (200, {"data": [{"index": 0, "embedding": [1.0, 2.0], "object": "embedding"}]}),
        (200, {"data": [{"index": 0, "embedding": ["a", "b", "c"], "object": "embedding"}]}),
        (200, {"unexpected": True}),
        (200, ["unexpected"]),
    ],
)
async def test_an_endpoint_that_answers_wrongly_is_unavailable_and_its_body_is_not_repeated(
    remote: OpenAIEmbedder, endpoint: Endpoint, status: int, answer: object
) -> None:
    endpoint.status, endpoint.answer = status, answer

    with pytest.raises(EmbedderUnavailable) as caught:
        await remote.embed_query("anything")

    assert "secret-key" not in str(caught.value)


async def test_an_endpoint_that_is_not_there_is_unavailable() -> None:
    embedder = OpenAIEmbedder(base_url="http://127.0.0.1:9/v1", model="m", dimension=3, seconds=1)

    with pytest.raises(EmbedderUnavailable):
        await embedder.embed_query("anything")
    await embedder.aclose()


def test_the_packaged_model_leaves_nothing_behind_that_reports_to_its_vendor(tmp_path: Path) -> None:
    script = (
        "import asyncio\n"
        "from toolcrib_registry.adapters.onnx_embedder import OnnxEmbedder\n"
        "print(asyncio.run(OnnxEmbedder.packaged().embed_query('x')).shape)\n"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "ORT_"))}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment | {"HOME": str(tmp_path)}, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []
