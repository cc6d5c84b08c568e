"""The port of backends: executes a tool that its caller may use."""

from __future__ import annotations

from typing import Any, Protocol

from toolcrib.identity import Identity
from toolcrib.wire.publish import PublishedTool


class Called(Protocol):
    """What a backend answered."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def content_type(self) -> str:
        """The media type."""
        ...

    @property
    def value(self) -> Any:
        """Parsed JSON, or text."""
        ...

    @property
    def raw(self) -> bytes:
        """The body as it came."""
        ...

    @property
    def elapsed(self) -> float:
        """Seconds."""
        ...


class Calls(Protocol):
    """Executes tools. It decides nothing: who may call was decided before."""

    async def call(
        self, tool: PublishedTool, arguments: dict[str, Any], request_id: str, caller: Identity
    ) -> Called:
        """Check `arguments`, send them to the tool's backend, for `caller`, return its answer.

        Raises:
            CallError: with a `code`, a `status` and a `detail` for the caller.
        """
        ...
