"""The search index on the admin channel: what the operator has a replica write, and what it holds."""

from __future__ import annotations

from pydantic import Field

from toolcrib.wire.model import Wire


class IndexRequest(Wire):
    """Bring these tools of the replica's snapshot into the search index and these ids out of it."""

    epoch: int
    upsert: tuple[str, ...] = Field(default=(), max_length=200, description="tool ids")
    remove: tuple[str, ...] = Field(default=(), max_length=2_000, description="tool ids")


class IndexAnswer(Wire):
    """What was read back from the index itself after writing: tool id → digest."""

    indexed: dict[str, str] = Field(default_factory=dict)
    failed: dict[str, str] = Field(default_factory=dict, description="tool id → why")


class IndexInventory(Wire):
    """What the index holds under its present identity: tool id → digest."""

    identity: str
    tools: dict[str, str]
