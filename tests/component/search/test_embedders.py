"""What is particular to one embedder: models in folders, and an endpoint over real HTTP that fails in every way.

What they have in common is in tests/contract/test_embedder.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from embeddings_endpoint import EmbeddingsEndpoint, embeddings_endpoint
from hash_embedder import HashEmbedder
from registry_process import configuration
from toolcrib_registry.adapters.embedders.onnx import OnnxEmbedder
from toolcrib_registry.adapters.embedders.openai import OpenAIEmbedder
from toolcrib_registry.compose import build
from toolcrib_registry.search import calibration
from toolcrib_registry.search.entry import Vector
from toolcrib_registry.search.errors import EmbedderUnavailable
from toolcrib_registry.settings import RegistrySettings
from vector_of import vector_of

pytestmark = pytest.mark.anyio

TEXTS = [
    "weather get forecast: Tomorrow's weather of a city",
    "files read file: Read a file of the shared folder",
    "payments create invoice: Bill a customer",
]


@pytest.fixture(scope="module")
def packaged() -> OnnxEmbedder:
    """The model in the distribution."""
    return OnnxEmbedder.packaged()


async def test_words_of_the_same_meaning_are_near(packaged: OnnxEmbedder) -> None:
    documents = await packaged.embed_documents(TEXTS[:3])

    for query, right in (("will it rain in Oslo", 0), ("open that document", 1), ("charge a client", 2)):
        assert int(np.argmax(documents @ await vector_of(packaged, query))) == right


async def test_a_request_and_its_parts_cost_one_run_of_the_model(
    packaged: OnnxEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    real = packaged._states

    def counted(text: str) -> Any:
        read.append(text)
        return real(text)

    monkeypatch.setattr(packaged, "_states", counted)
    whole = "Find flights to Oslo, then book a hotel near the station and send me the receipt."
    rows = await packaged.embed_request([whole, "Find flights to Oslo", "book a hotel near the station"])

    assert read == [whole]
    assert (rows[0] == (await vector_of(packaged, whole))).all()
    assert rows[1] @ await vector_of(packaged, "flights to Oslo") > rows[2] @ await vector_of(
        packaged, "flights to Oslo"
    )


async def test_queries_are_encoded_at_the_same_time_and_each_as_if_alone(
    packaged: OnnxEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"request number {n} about the weather" for n in range(12)]
    alone = [packaged._encode_request([t]) for t in texts]
    together, encode = threading.Barrier(2), packaged._encode_request

    def both(given: list[str]) -> Vector:
        together.wait(30)
        return encode(given)

    monkeypatch.setattr("toolcrib.process.processors.available", lambda: 2)
    embedder = OnnxEmbedder.packaged()
    monkeypatch.setattr(embedder, "_encode_request", both)
    found = await asyncio.gather(*(embedder.embed_request([t]) for t in texts))
    await embedder.aclose()

    for one, other in zip(found, alone, strict=True):
        assert np.array_equal(one, other)


async def test_a_query_overtakes_a_long_list_of_documents(packaged: OnnxEmbedder) -> None:
    documents = asyncio.create_task(packaged.embed_documents([f"{TEXTS[0]} {i}" for i in range(400)]))
    await asyncio.sleep(0)

    await vector_of(packaged, "weather")

    assert not documents.done()
    documents.cancel()


async def test_the_event_loop_goes_on_while_two_hundred_documents_are_embedded(
    packaged: OnnxEmbedder,
) -> None:
    documents = asyncio.create_task(packaged.embed_documents([f"{TEXTS[0]} {i}" for i in range(200)]))
    waits = []
    while not documents.done():
        before = time.process_time()
        await asyncio.sleep(0.002)
        waits.append(time.process_time() - before)
    await documents

    # one text takes 5 ms, all of them a second: whatever blocks shows at once. What this process computes counts, not
    # what it waits for on a busy machine
    assert len(waits) > 20
    assert statistics.median(waits) < 0.02
    assert max(waits) < 0.4


def model_folder(place: Path, **changed: str | bytes) -> Path:
    """The packaged model in a folder of its own; `changed` are files' contents, `__` standing for a dot."""
    place.mkdir()
    with as_file(files("toolcrib_registry") / "model") as packaged:
        for name in ("model.onnx", "tokenizer.json"):
            (place / name).symlink_to(packaged / name)
    for name, content in changed.items():
        path = place / name.replace("__", ".").replace("_0_", "/")
        path.unlink(missing_ok=True)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return place


async def test_the_name_follows_every_file_that_vectors_depend_on(
    packaged: OnnxEmbedder, tmp_path: Path
) -> None:
    same = OnnxEmbedder(model_folder(tmp_path / "same"))
    other = OnnxEmbedder(
        model_folder(tmp_path / "other", sentence_bert_config__json='{"max_seq_length": 64}')
    )

    assert packaged.name.startswith("onnx-")
    assert same.name == packaged.name
    assert other.name != packaged.name
    long = "word " * 100 + "weather"
    assert (await vector_of(same, long) == await vector_of(packaged, long)).all()
    assert not (await vector_of(other, long) == await vector_of(packaged, long)).all()
    await same.aclose()
    await other.aclose()


async def test_a_models_prompts_and_pooling_are_used(packaged: OnnxEmbedder, tmp_path: Path) -> None:
    prompts = '{"prompts": {"query": "query: ", "passage": "passage: "}}'
    first = (
        '{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false, "word_embedding_dimension": 384}'
    )
    prompted = OnnxEmbedder(model_folder(tmp_path / "prompted", config_sentence_transformers__json=prompts))
    pooled = OnnxEmbedder(model_folder(tmp_path / "pooled", **{"1_Pooling_0_config__json": first}))

    assert (await vector_of(prompted, "rain") == await vector_of(packaged, "query: rain")).all()
    document = (await prompted.embed_documents(["rain"]))[0]
    assert (document == (await packaged.embed_documents(["passage: rain"]))[0]).all()
    by_first, by_mean = await vector_of(pooled, "rain"), await vector_of(packaged, "rain")
    assert float(np.dot(by_first, by_mean)) < 0.99
    await prompted.aclose()
    await pooled.aclose()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model__onnx": b"no model"}, "cannot be loaded"),
        ({"tokenizer__json": "{}"}, "cannot be loaded"),
        ({"1_Pooling_0_config__json": '{"pooling_mode_max_tokens": true}'}, "max_tokens is not supported"),
        ({"sentence_bert_config__json": '{"max_seq_length": "long"}'}, "max_seq_length is not between"),
        ({"config_sentence_transformers__json": "[]"}, "is not an object"),
        ({"config_sentence_transformers__json": "{"}, "is not JSON"),
    ],
)
async def test_a_folder_that_cannot_be_used_is_refused_with_what_is_wrong(
    tmp_path: Path, changed: dict[str, str | bytes], said: str
) -> None:
    with pytest.raises(EmbedderUnavailable, match=said):
        OnnxEmbedder(model_folder(tmp_path / "model", **changed))


async def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(EmbedderUnavailable, match=r"model\.onnx cannot be read: No such file"):
        OnnxEmbedder(tmp_path)


@pytest.fixture
def endpoint() -> Iterator[EmbeddingsEndpoint]:
    """A fresh endpoint of three dimensions, the first of which tells a text's length."""
    with embeddings_endpoint(lambda texts: [[float(len(t)), 3.0, 4.0] for t in texts]) as endpoint:
        yield endpoint


@pytest.fixture
async def remote(endpoint: EmbeddingsEndpoint, tmp_path: Path) -> AsyncIterator[OpenAIEmbedder]:
    """An embedder of three dimensions that asks it."""
    (tmp_path / "key").write_text("secret-key\n")
    embedder = OpenAIEmbedder(
        base_url=endpoint.url, model="m", dimension=3, api_key_file=str(tmp_path / "key"), seconds=30
    )
    yield embedder
    await embedder.aclose()


async def test_an_endpoints_vectors_are_put_in_order_and_normalised(
    remote: OpenAIEmbedder, endpoint: EmbeddingsEndpoint
) -> None:
    texts = ["a" * n for n in range(1, 151)]

    vectors = await remote.embed_documents(texts)

    expected = np.array([[n, 3.0, 4.0] for n in range(1, 151)], np.float32)
    np.testing.assert_allclose(vectors, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-6)
    assert [len(r["input"]) for r in endpoint.requests] == [64, 64, 22]
    assert set(endpoint.keys) == {"Bearer secret-key"}


async def test_a_key_that_is_replaced_is_used_at_once_and_one_that_is_missing_is_an_outage(
    remote: OpenAIEmbedder, endpoint: EmbeddingsEndpoint, tmp_path: Path
) -> None:
    await vector_of(remote, "x")
    (tmp_path / "key").write_text("another-key\n")
    await vector_of(remote, "x")
    assert endpoint.keys == ["Bearer secret-key", "Bearer another-key"]

    (tmp_path / "key").write_text(" ")
    with pytest.raises(EmbedderUnavailable, match=r"api_key_file .*key holds no key"):
        await vector_of(remote, "x")
    (tmp_path / "key").unlink()
    with pytest.raises(EmbedderUnavailable, match="cannot be read: No such file"):
        await vector_of(remote, "x")
    (tmp_path / "key").write_text("third-key")
    await vector_of(remote, "x")
    assert endpoint.keys[-1] == "Bearer third-key"


async def test_a_query_is_cut_and_cleaned_before_it_is_sent(
    remote: OpenAIEmbedder, endpoint: EmbeddingsEndpoint
) -> None:
    await vector_of(remote, "x\ud800" * 10_000)
    await vector_of(remote, "")

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
        (200, b"<html>busy</html>"),
        (200, b""),
        (200, b"\xff\xfe"),
        (200, b'{"data": [{"index": 0, "embedding": [NaN, 1.0, 1.0]}]}'),
        (200, b'{"data": [{"index": 0, "embedding": [1e999, 1.0, 1.0]}]}'),
        (200, {"data": [{"index": 0, "embedding": "AACAPwAAAEAAAEBA"}]}),
        (200, {"data": [{"index": "x", "embedding": [1, 2, 3]}, {"embedding": None}]}),
        (200, {"data": [{"index": 1, "embedding": [1, 2, 3]}]}),
        (200, {"data": [{"index": 0, "embedding": [1, 2, 3]}] * 2}),
        (200, {"data": [{"index": 0, "embedding": [0.0, 0.0, 0.0]}]}),
        (200, b'{"data": [{"index": 0, "embedding": [' + b"1" * 400 + b", 1.0, 1.0]}]}"),
        (200, b"[" * 50_000),
        (307, {}),
        (429, {"error": {"message": "slow down"}}),
        (500, b"Traceback (most recent call last)"),
    ],
)
async def test_an_endpoint_that_answers_wrongly_is_unavailable_and_its_body_is_not_repeated(
    remote: OpenAIEmbedder, endpoint: EmbeddingsEndpoint, status: int, answer: object
) -> None:
    endpoint.status, endpoint.answer = status, answer

    with pytest.raises(EmbedderUnavailable) as caught:
        await vector_of(remote, "anything")

    assert "secret-key" not in str(caught.value)


@pytest.mark.parametrize("how", ["hangs", "drips"])
async def test_an_endpoint_that_does_not_finish_is_unavailable_when_its_time_is_over(
    endpoint: EmbeddingsEndpoint, how: str
) -> None:
    embedder = OpenAIEmbedder(base_url=endpoint.url, model="m", dimension=3, seconds=0.3)
    if how == "hangs":
        endpoint.go_on.clear()
    endpoint.drips = how == "drips"
    async with asyncio.timeout(20):
        with pytest.raises(EmbedderUnavailable, match=r"Timeout|0\.3 s"):
            await vector_of(embedder, "anything")

    endpoint.go_on.set()
    endpoint.drips = False
    async with asyncio.timeout(30):
        while True:
            # on a busy machine it may take longer than that to answer, too
            with contextlib.suppress(EmbedderUnavailable):
                assert (await vector_of(embedder, "anything")).shape == (3,)
                break
    await embedder.aclose()


async def test_two_rows_of_one_index_are_not_handed_out_in_the_order_of_arrival(
    remote: OpenAIEmbedder, endpoint: EmbeddingsEndpoint
) -> None:
    endpoint.answer = {"data": [{"index": 0, "embedding": [float(i), 1.0, 1.0]} for i in range(2)]}

    with pytest.raises(EmbedderUnavailable, match="one vector for each text"):
        await remote.embed_documents(["one", "two"])


async def test_large_and_small_numbers_have_a_direction(
    remote: OpenAIEmbedder, endpoint: EmbeddingsEndpoint
) -> None:
    rows = {"large": [3e30, 0.0, 4e30], "larger": [3e200, 0.0, 4e200], "small": [3e-200, 0.0, 4e-200]}
    endpoint.vectors = lambda texts: [rows[t] for t in texts]

    vectors = await remote.embed_documents(list(rows))

    np.testing.assert_allclose(vectors, [[0.6, 0.0, 0.8]] * 3, atol=1e-6)


@pytest.mark.parametrize("status", [200, 400, 500])
@pytest.mark.parametrize("compressed", [False, True])
async def test_an_answer_of_any_size_stops_neither_the_event_loop_nor_the_deadline(
    remote: OpenAIEmbedder, endpoint: EmbeddingsEndpoint, status: int, compressed: bool
) -> None:
    body = b'{"data": [{"index": 0, "embedding": [' + b"0.25, " * 2_000_000 + b"1.0]}]}"
    endpoint.status, endpoint.answer = status, gzip.compress(body, 1) if compressed else body
    endpoint.headers = {"content-encoding": "gzip"} if compressed else {}
    asked = asyncio.create_task(vector_of(remote, "anything"))
    longest = 0.0
    while not asked.done():
        before = time.process_time()
        await asyncio.sleep(0.002)
        longest = max(longest, time.process_time() - before)

    with pytest.raises(EmbedderUnavailable, match=str(status) if status != 200 else "bytes|compressed"):
        await asked
    assert longest < 0.4  # parsed, it takes seconds


async def test_vectors_as_long_as_they_come_fit_however_they_are_printed() -> None:
    row = [-1.2345678901234567e-05] * 4_096
    with embeddings_endpoint(lambda texts: [row for _ in texts]) as endpoint:
        embedder = OpenAIEmbedder(base_url=endpoint.url, model="m", dimension=4_096)
        data = [{"object": "embedding", "index": i, "embedding": row} for i in range(3)]
        endpoint.answer = json.dumps({"object": "list", "data": data}, indent=4).encode()

        vectors = await embedder.embed_documents(["a", "b", "c"])

        np.testing.assert_allclose(vectors, -1 / 64, atol=1e-6)
        await embedder.aclose()


async def test_no_text_and_no_key_goes_where_a_redirect_or_the_environment_points(
    remote: OpenAIEmbedder,
    endpoint: EmbeddingsEndpoint,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with embeddings_endpoint(lambda texts: [[1.0, 2.0, 3.0] for _ in texts]) as elsewhere:
        endpoint.status, endpoint.headers = 307, {"location": f"{elsewhere.url}/embeddings"}
        with pytest.raises(EmbedderUnavailable, match="307"):
            await vector_of(remote, "anything")

        endpoint.status, endpoint.headers = 200, {}
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, elsewhere.url.removesuffix("/v1"))
            monkeypatch.setenv(name.upper(), elsewhere.url.removesuffix("/v1"))
        embedder = OpenAIEmbedder(
            base_url=endpoint.url, model="m", dimension=3, api_key_file=str(tmp_path / "key"), seconds=30
        )
        await vector_of(embedder, "anything")
        await embedder.aclose()

        assert (len(endpoint.requests), elsewhere.requests, elsewhere.keys) == (2, [], [])


@pytest.mark.parametrize("status", [429, 500])
async def test_a_request_that_fails_is_made_once(
    remote: OpenAIEmbedder, endpoint: EmbeddingsEndpoint, status: int
) -> None:
    endpoint.status, endpoint.headers = status, {"retry-after": "0"}

    with pytest.raises(EmbedderUnavailable, match=str(status)):
        await vector_of(remote, "anything")

    assert len(endpoint.requests) == 1


async def test_an_endpoint_that_is_not_there_is_unavailable() -> None:
    embedder = OpenAIEmbedder(base_url="http://127.0.0.1:9/v1", model="m", dimension=3, seconds=1)

    with pytest.raises(EmbedderUnavailable):
        await vector_of(embedder, "anything")
    await embedder.aclose()


def test_the_packaged_model_leaves_nothing_behind_that_reports_to_its_vendor(tmp_path: Path) -> None:
    script = (
        "import asyncio\n"
        "from toolcrib_registry.adapters.embedders.onnx import OnnxEmbedder\n"
        "print(asyncio.run(OnnxEmbedder.packaged().embed_request(['x'])).shape)\n"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "ORT_"))}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment | {"HOME": str(tmp_path)}, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_confidence_is_fitted_to_the_packaged_model(packaged: OnnxEmbedder) -> None:
    assert packaged.name == calibration.FITTED_FOR, "run bench/research/calibrate.py DATA --write"


@pytest.mark.parametrize("fitted", [True, False])
async def test_one_warning_at_the_start_says_that_confidence_belongs_to_another_embedder(
    fitted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    embedder = HashEmbedder(16)
    if fitted:
        monkeypatch.setattr("toolcrib_registry.compose.FITTED_FOR", embedder.name)
    settings = RegistrySettings.model_validate(yaml.safe_load(configuration(tmp_path).read_text()))

    registry = await build(settings, embedder=embedder)
    await registry.aclose()

    said = [r.getMessage() for r in caplog.records if "confidence is calibrated for another" in r.message]
    assert [embedder.name in s for s in said] == ([] if fitted else [True])
