"""One text's vector."""

from toolcrib_registry.search.entry import Vector
from toolcrib_registry.search.vectors import Embedder


async def vector_of(embedder: Embedder, text: str) -> Vector:
    """What `embedder` makes of a request that asks for one thing."""
    row: Vector = (await embedder.embed_request([text]))[0]
    return row
