"""Vectors from an OpenAI-compatible embeddings endpoint: the only registry module that imports `openai`.

Queries and tool descriptions leave the process for that endpoint; the packaged model, the default, sends nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openai
import orjson

from toolcrib_registry.search.entry import Vector
from toolcrib_registry.search.errors import EmbedderRefused, EmbedderUnavailable, SearchError
from toolcrib_registry.search.text import QUERY_LIMIT

_BATCH = 64
_DOCUMENT_LIMIT = 8_000
"""Characters of a document that are sent."""
_REFUSED = frozenset({400, 413, 422})
"""What endpoints say of a text that they cannot take, such as one of too many tokens."""
_NUMBER_BYTES = 40
"""More than a number takes in JSON, also where each has a line of its own."""
_ROW_BYTES = 1_024
_SLACK = 65_536
_AT_ONCE = 262_144
"""Bytes of an answer that may be parsed on the event loop, in a millisecond or two."""


class OpenAIEmbedder:
    """Asks `{base_url}/embeddings`. The configured dimension is checked against every answer."""

    def __init__(
        self,
        *,
        base_url: str,
        model: str,
        dimension: int,
        api_key_file: str | None = None,
        seconds: float = 30.0,
    ) -> None:
        """Use `model` at `base_url`, waiting `seconds` for each request; nothing is sent yet.

        The key is read from its file for each request: anyone who replaces it need not restart anything.
        """
        self._model = model
        self._dimension = dimension
        self._key_file = api_key_file
        self._seconds = seconds
        self._closed = False
        self._client = openai.AsyncOpenAI(
            base_url=base_url,
            # the library refuses to start without one; servers that want none ignore it
            api_key="none",
            timeout=seconds,
            # anyone who asks tries again, and knows when; the library would sleep as long as the server says
            max_retries=0,
            default_headers={"accept-encoding": "identity"},
            http_client=openai.DefaultAsyncHttpxClient(
                trust_env=False, follow_redirects=False, event_hooks={"response": [_headers_seen]}
            ),
        )

    @property
    def name(self) -> str:
        """The model's name; a model that changes under its name needs a wipe of the index."""
        return f"openai-{self._model}"

    @property
    def dimension(self) -> int:
        """As configured."""
        return self._dimension

    async def embed_request(self, texts: Sequence[str]) -> Vector:
        """One normalised vector a text, as rows, in one request."""
        return await self._embed([t[:QUERY_LIMIT] for t in texts])

    async def embed_documents(self, texts: Sequence[str]) -> Vector:
        """One normalised vector a text, as rows; 64 texts a request."""
        vectors = np.zeros((len(texts), self._dimension), np.float32)
        for start in range(0, len(texts), _BATCH):
            part = [t[:_DOCUMENT_LIMIT] for t in texts[start : start + _BATCH]]
            vectors[start : start + len(part)] = await self._embed(part)
        return vectors

    async def aclose(self) -> None:
        """Close the connections."""
        self._closed = True
        await self._client.close()

    async def _embed(self, texts: list[str]) -> Vector:
        if self._closed:
            raise EmbedderUnavailable("the embedder is closed")
        if not texts:
            return np.zeros((0, self._dimension), np.float32)
        # an empty input is an error for most servers
        sent = [t.encode("utf-8", "replace").decode() if t.strip() else "-" for t in texts]
        if self._key_file is not None:
            self._client.api_key = await asyncio.to_thread(_key, self._key_file)
        try:
            # the library's own timeout is per read: an answer that drips would last for ever
            async with asyncio.timeout(self._seconds):
                body = await self._answer(sent)
                if len(body) <= _AT_ONCE:
                    return _vectors(body, len(sent), self._dimension)
                return await asyncio.to_thread(_vectors, body, len(sent), self._dimension)
        except openai.APIStatusError as error:
            kind = EmbedderRefused if error.status_code in _REFUSED else EmbedderUnavailable
            raise kind(f"the embeddings endpoint returned status {error.status_code}") from error
        except openai.OpenAIError as error:
            raise EmbedderUnavailable(
                f"the embeddings endpoint cannot be used: {type(error).__name__}"
            ) from error
        except TimeoutError as error:
            raise EmbedderUnavailable(
                f"the embeddings endpoint did not respond within {self._seconds:g} s"
            ) from error

    async def _answer(self, sent: list[str]) -> bytes:
        """The body, of no more bytes than so many vectors need; the library would read and parse one of any size."""
        most = _SLACK + len(sent) * (_ROW_BYTES + self._dimension * _NUMBER_BYTES)
        asked = self._client.embeddings.with_streaming_response.create(
            model=self._model, input=sent, encoding_format="float"
        )
        async with asked as response:
            body = bytearray()
            try:
                async for part in response.iter_bytes():
                    body += part
                    if len(body) > most:
                        raise EmbedderUnavailable(f"the embeddings endpoint sent more than {most} bytes")
            except SearchError:
                raise
            except Exception as error:
                # what its HTTP library raises here is not translated by `openai`
                raise EmbedderUnavailable(
                    f"the response of the embeddings endpoint was cut off: {type(error).__name__}"
                ) from error
            return bytes(body)


async def _headers_seen(response: Any) -> None:
    """Leave unread what is read without a bound: the body of an error, and one that grows when it is unpacked."""
    if not response.is_success:
        await response.aclose()
    elif response.headers.get("content-encoding", "identity") != "identity":
        raise EmbedderUnavailable("the embeddings endpoint sent a compressed body, which was not requested")


def _vectors(body: bytes, count: int, dimension: int) -> Vector:
    """The normalised rows of an answer, in the order of the texts."""
    try:
        rows = sorted(orjson.loads(body)["data"], key=lambda item: item["index"])
        if [row["index"] for row in rows] != list(range(count)):
            raise EmbedderUnavailable("the embeddings endpoint did not return one vector for each text")
        given = np.array([row["embedding"] for row in rows], np.float64)
    except (TypeError, ValueError, KeyError, ArithmeticError) as error:
        raise EmbedderUnavailable("the embeddings endpoint returned no vectors") from error
    if given.shape != (count, dimension):
        raise EmbedderUnavailable(
            f"the embeddings endpoint returned vectors of shape {given.shape}, not {(count, dimension)}"
        )
    # scaled first: squares of large numbers are none
    largest = np.abs(given).max(axis=1, keepdims=True)
    if not np.isfinite(largest).all() or not largest.all():
        raise EmbedderUnavailable(
            "the embeddings endpoint returned a vector of zeros or of numbers that are not finite"
        )
    scaled = given / largest
    normalised: Vector = (scaled / np.linalg.norm(scaled, axis=1, keepdims=True)).astype(np.float32)
    return normalised


def _key(path: str) -> str:
    try:
        key = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise EmbedderUnavailable(f"embedder.api_key_file {path} cannot be read: {why}") from error
    if not key.isascii() or not key.isprintable() or not key:
        raise EmbedderUnavailable(f"embedder.api_key_file {path} holds no key")
    return key
