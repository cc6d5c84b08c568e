"""Sentence vectors from an ONNX model on this machine's CPU: the only module that imports onnxruntime and tokenizers.

The packaged model is described in `model/MODEL_CARD.md`. Texts are encoded one by one: the dynamic quantisation
scales a batch as a whole, so a vector would otherwise depend on its neighbours and ranks would not be
reproducible (measured: cosine 0.985 between batched and single).
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import as_file, files
from pathlib import Path
from typing import TypeVar

import numpy as np
from tokenizers import Tokenizer

from toolcrib_registry.search.entry import Vector
from toolcrib_registry.search.errors import EmbedderUnavailable, brief
from toolcrib_registry.search.text import QUERY_LIMIT

# onnxruntime's official builds collect usage data unless this is set before they are loaded (its Privacy.md, 2026-11)
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
import onnxruntime

MAX_TOKENS = 256
"""Longer texts are cut; the model was trained on shorter ones."""
DOCUMENT_LIMIT = 8_000
"""Characters of a document that are tokenised: far more than `MAX_TOKENS` tokens."""
_CHUNK = 16
"""Documents encoded between two looks at whether anybody still waits for them."""

_T = TypeVar("_T")


class OnnxEmbedder:
    """Mean-pooled, L2-normalised vectors of a BERT-like ONNX model.

    Queries and documents have a thread each, so that a search never queues behind an import.
    """

    def __init__(self, model: Path, tokenizer: Path) -> None:
        """Load `model` (`model.onnx`) and `tokenizer` (`tokenizer.json`); blocks for about 0.2 s.

        Raises:
            EmbedderUnavailable: a file is missing or is not what it should be.
        """
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            data = model.read_bytes()
            self._session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
            self._tokenizer = Tokenizer.from_file(str(tokenizer))
            self._inputs = {i.name for i in self._session.get_inputs()}
            self._dimension = int(self._session.get_outputs()[0].shape[-1])
        except Exception as error:  # both libraries raise bare Exception
            raise EmbedderUnavailable(f"the embedding model cannot be loaded: {brief(error)}") from error
        # the packaged tokenizer pads every text to 128 tokens, which costs five times the work
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MAX_TOKENS)
        digest = hashlib.sha256(data + tokenizer.read_bytes()).hexdigest()
        self._name = f"onnx-{digest[:16]}"
        self._queries = ThreadPoolExecutor(1, "embed-query")
        self._documents = ThreadPoolExecutor(1, "embed-documents")

    @classmethod
    def packaged(cls) -> OnnxEmbedder:
        """The model that comes with the distribution."""
        folder = files("toolcrib_registry") / "model"
        with as_file(folder / "model.onnx") as model, as_file(folder / "tokenizer.json") as tokenizer:
            return cls(model, tokenizer)

    @property
    def name(self) -> str:
        """Names the exact model and tokenizer files."""
        return self._name

    @property
    def dimension(self) -> int:
        """Length of a vector, as the model says."""
        return self._dimension

    async def embed_query(self, text: str) -> Vector:
        """One normalised vector; about 4 ms."""
        return await self._run(self._queries, self._encode, text[:QUERY_LIMIT])

    async def embed_queries(self, texts: Sequence[str]) -> Vector:
        """One normalised vector a text, as rows."""
        return await self._run(self._queries, self._encode_all, [t[:QUERY_LIMIT] for t in texts])

    async def embed_documents(self, texts: Sequence[str]) -> Vector:
        """One normalised vector a text, as rows; about 6 ms each, in a thread of its own."""
        vectors = np.zeros((len(texts), self._dimension), np.float32)
        for start in range(0, len(texts), _CHUNK):
            part = [t[:DOCUMENT_LIMIT] for t in texts[start : start + _CHUNK]]
            vectors[start : start + len(part)] = await self._run(self._documents, self._encode_all, part)
        return vectors

    async def aclose(self) -> None:
        """Stop the threads; what still runs ends by itself."""
        self._queries.shutdown(wait=False, cancel_futures=True)
        self._documents.shutdown(wait=False, cancel_futures=True)

    async def _run(self, pool: ThreadPoolExecutor, work: Callable[[_T], Vector], argument: _T) -> Vector:
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, work, argument)
        except (
            Exception
        ) as error:  # onnxruntime and tokenizers raise bare Exception; a closed pool RuntimeError
            raise EmbedderUnavailable(f"the text could not be encoded: {brief(error)}") from error

    def _encode_all(self, texts: list[str]) -> Vector:
        return np.stack([self._encode(t) for t in texts])

    def _encode(self, text: str) -> Vector:
        encoded = self._tokenizer.encode(text.encode("utf-8", "replace").decode())
        ids = np.array([encoded.ids], np.int64)
        feed = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.zeros_like(ids),
        }
        hidden = self._session.run(None, {k: v for k, v in feed.items() if k in self._inputs})[0]
        pooled: Vector = hidden[0].mean(axis=0, dtype=np.float32)
        norm = float(np.linalg.norm(pooled))
        return pooled / np.float32(norm) if norm > 0.0 else pooled
