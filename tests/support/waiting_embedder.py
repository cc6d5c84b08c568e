"""An embedder that embeds a query when it is told to: a search is on its way until then."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import numpy as np

from toolcrib_registry.search.entry import Vector


class WaitingEmbedder:
    """Sets `asked` when a query comes, and embeds it once `go` is set."""

    name, dimension = "waiting/1", 2

    def __init__(self) -> None:
        self.asked, self.go = threading.Event(), threading.Event()

    async def embed_request(self, texts: Sequence[str]) -> Vector:
        """When it is told to."""
        self.asked.set()
        await asyncio.to_thread(self.go.wait, 60)
        return await self.embed_documents(texts)

    async def embed_documents(self, texts: Sequence[str]) -> Vector:
        """At once."""
        return np.tile(np.array([1.0, 0.0], dtype=np.float32), (len(texts), 1))

    async def aclose(self) -> None:
        """Nothing to close."""
