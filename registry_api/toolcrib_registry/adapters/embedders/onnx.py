"""Sentence vectors from an ONNX model on this machine's CPU: the only module that imports onnxruntime and tokenizers.

The packaged model is described in `model/MODEL_CARD.md`; `docs/guides/search.md` says how to use another. Texts are
encoded one by one: the dynamic quantisation scales a batch as a whole, so a vector would otherwise depend on its
neighbours and ranks would not be reproducible (measured: cosine 0.985 between batched and single).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from tokenizers import Tokenizer

from toolcrib.process import processors
from toolcrib_registry.adapters.embedders.onnx_folder import ModelFolder
from toolcrib_registry.search.entry import Vector
from toolcrib_registry.search.errors import EmbedderUnavailable, brief
from toolcrib_registry.search.text import QUERY_LIMIT

# onnxruntime's official builds collect usage data unless this is set before they are loaded (its Privacy.md, 2026-11)
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
import onnxruntime

DOCUMENT_LIMIT = 8_000
"""Characters of a document that are tokenised: far more than are encoded."""
_CHUNK = 16
"""Documents encoded between two looks at whether anybody still waits for them."""

QUERY_THREADS = 4
"""Queries that are encoded at one time, at most: the event loop needs some of the processor, too."""

_T = TypeVar("_T")


class OnnxEmbedder:
    """Mean-pooled, L2-normalised vectors of a BERT-like ONNX model.

    Queries have a thread a core, documents one of their own, so that a search never queues behind an import. One session
    serves them all: its runs know nothing of each other.
    """

    def __init__(self, folder: Path) -> None:
        """Load the model in `folder` (see `ModelFolder`); blocks for about 0.2 s.

        Raises:
            EmbedderUnavailable: a file is missing or is not what it should be.
        """
        source = ModelFolder.read(folder)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._first = source.pooling == "first"
        self._prompts = {"query": source.query_prompt, "document": source.document_prompt}
        self._name = f"onnx-{source.digest[:16]}"
        try:
            self._session = onnxruntime.InferenceSession(
                str(source.model), options, providers=["CPUExecutionProvider"]
            )
            self._tokenizer = Tokenizer.from_file(str(source.tokenizer))
            # the packaged tokenizer pads every text to 128 tokens, which costs five times the work
            self._tokenizer.no_padding()
            self._tokenizer.enable_truncation(source.max_tokens)
            self._inputs = {i.name for i in self._session.get_inputs()}
            outputs = [o.name for o in self._session.get_outputs()]
            # some exports pool inside the model
            self._output = "sentence_embedding" if "sentence_embedding" in outputs else outputs[0]
            self._dimension = len(self._encode("x"))
        except Exception as error:  # both libraries raise bare Exception
            raise EmbedderUnavailable(f"the embedding model cannot be loaded: {brief(error)}") from error
        self._queries = ThreadPoolExecutor(min(QUERY_THREADS, processors.available()), "embed-query")
        self._documents = ThreadPoolExecutor(1, "embed-documents")

    @classmethod
    def packaged(cls) -> OnnxEmbedder:
        """The model that comes with the distribution."""
        with as_file(files("toolcrib_registry") / "model") as folder:
            return cls(folder)

    @property
    def name(self) -> str:
        """Names the exact files that vectors depend on: an edited model is another one."""
        return self._name

    @property
    def dimension(self) -> int:
        """Length of a vector, as the model says."""
        return self._dimension

    async def embed_request(self, texts: Sequence[str]) -> Vector:
        """The whole and its parts, as normalised rows, from one encoding where the model's tokens are to be had.

        A part is the mean of its own tokens within the whole: as good as an encoding of its own (development data,
        within half a point) and free.
        """
        prompted = self._prompted("query", texts, QUERY_LIMIT)
        return await self._run(self._queries, self._encode_request, prompted)

    async def embed_documents(self, texts: Sequence[str]) -> Vector:
        """One normalised vector a text, as rows; about 6 ms each, in a thread of its own."""
        vectors = np.zeros((len(texts), self._dimension), np.float32)
        for start in range(0, len(texts), _CHUNK):
            part = self._prompted("document", texts[start : start + _CHUNK], DOCUMENT_LIMIT)
            vectors[start : start + len(part)] = await self._run(self._documents, self._encode_all, part)
        return vectors

    async def aclose(self) -> None:
        """Stop the threads; what still runs ends by itself."""
        self._queries.shutdown(wait=False, cancel_futures=True)
        self._documents.shutdown(wait=False, cancel_futures=True)

    def _prompted(self, kind: str, texts: Sequence[str], limit: int) -> list[str]:
        return [self._prompts[kind] + t[:limit] for t in texts]

    async def _run(self, pool: ThreadPoolExecutor, work: Callable[[_T], Vector], argument: _T) -> Vector:
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, work, argument)
        except (
            Exception
        ) as error:  # onnxruntime and tokenizers raise bare Exception; a closed pool RuntimeError
            raise EmbedderUnavailable(f"the text could not be encoded: {brief(error)}") from error

    def _encode_all(self, texts: list[str]) -> Vector:
        rows = [self._encode(t) for t in texts]
        return np.stack(rows) if rows else np.zeros((0, self._dimension), np.float32)

    def _encode_request(self, texts: list[str]) -> Vector:
        whole, parts = _clean(texts[0]), [_clean(t) for t in texts[1:]]
        states, offsets = self._states(whole)
        rows = [self._pooled(states)]
        prompt = len(self._prompts["query"])
        for part, span in zip(parts, spans(whole[prompt:], [p[prompt:] for p in parts]), strict=True):
            inside = [
                i for i, (a, b) in enumerate(offsets)
                if span is not None and a < b and span[0] <= a - prompt and b - prompt <= span[1]
            ]  # fmt: skip
            by_tokens = states.ndim == 2 and not self._first and inside
            rows.append(self._pooled(states[inside]) if by_tokens else self._encode(part))
        return np.stack(rows)

    def _encode(self, text: str) -> Vector:
        return self._pooled(self._states(_clean(text))[0])

    def _states(self, text: str) -> tuple[Vector, list[tuple[int, int]]]:
        """What the model makes of `text` (a row a token, or one for all), and where each token is in it."""
        encoded = self._tokenizer.encode(text)
        ids = np.array([encoded.ids], np.int64)
        feed = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.zeros_like(ids),
        }
        feed = {k: v for k, v in feed.items() if k in self._inputs}
        given: Any = self._session.run([self._output], feed)[0]
        return np.asarray(given[0], np.float32), encoded.offsets

    def _pooled(self, states: Vector) -> Vector:
        if states.ndim == 2:
            states = states[0] if self._first else states.mean(axis=0, dtype=np.float32)
        norm = float(np.linalg.norm(states))
        if not np.isfinite(norm):
            raise ValueError("the model returned numbers that are not finite")
        return states / np.float32(norm) if norm > 0.0 else states


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def spans(whole: str, parts: Sequence[str]) -> list[tuple[int, int] | None]:
    """Where each of `parts` begins and ends in `whole`: their words follow each other there. None where they do not."""
    found: list[tuple[int, int] | None] = []
    position = 0
    for part in parts:
        first, at = -1, position
        for word in part.split():
            place = whole.find(word, at)
            if place < 0:
                first = -1
                break
            first, at = (place if first < 0 else first), place + len(word)
        if first < 0:
            found.append(None)
        else:
            found.append((first, at))
            position = at
    return found
