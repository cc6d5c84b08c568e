"""A breaker before each backend: what counts as its failure, and whose it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from toolcrib.identity import Identity
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.calls.arguments import CheckedArguments
from toolcrib_registry.calls.backends.port import NO_EXCHANGE, Exchange, ToolAnswer, ToolBackend
from toolcrib_registry.calls.breakers import Breakers
from toolcrib_registry.calls.bulkheads import backend_of
from toolcrib_registry.calls.errors import (
    BackendUnavailable,
    CallError,
    LoginRequired,
    ToolError,
    TransportUnsupported,
    UpstreamError,
    UpstreamProtocol,
    UpstreamRedirect,
    UpstreamTimeout,
    UpstreamTooLarge,
    UpstreamUnreachable,
)
from toolcrib_registry.failures import Failure

_T = TypeVar("_T")
_DOWN = (502, 503, 504)
_ANSWERED = (
    ToolError, UpstreamError, UpstreamProtocol, UpstreamTooLarge, UpstreamRedirect, LoginRequired, TransportUnsupported,
)  # fmt: skip
"""The backend is there: arguments can cause each of these."""


@dataclass(frozen=True, slots=True)
class Breaking:
    """Calls `backend`, unless its breaker is open."""

    backend: ToolBackend
    breakers: Breakers

    async def call(
        self,
        tool: PublishedTool,
        arguments: CheckedArguments,
        request_id: str,
        caller: Identity,
        exchange: Exchange = NO_EXCHANGE,
    ) -> ToolAnswer:
        """What the tool's backend answers.

        Raises:
            CallError: see `calls.errors`.
        """
        return await within(
            self.breakers, tool, lambda: self.backend.call(tool, arguments, request_id, caller, exchange)
        )


def refuses(breakers: Breakers, tool: PublishedTool) -> bool:
    """Whether a call of the tool would be refused now because its backend failed."""
    if not breakers.open:
        return False
    key = _key(tool)
    return key is not None and breakers.refuses(key)


def is_down(error: Failure) -> bool:
    """Whether the backend failed as no arguments can cause it: what counts for its breaker, and the open breaker itself."""
    return isinstance(error, CallError) and (
        isinstance(error, BackendUnavailable) or _answered(error) is False
    )


def has_answered(error: Failure) -> bool:
    """Whether a call failed by what the backend answered."""
    return isinstance(error, CallError) and _answered(error) is True


async def within(breakers: Breakers, tool: PublishedTool, work: Callable[[], Awaitable[_T]]) -> _T:
    """What `work` gets of the tool's backend, unless its breaker is open.

    Raises:
        CallError: see `calls.errors`.
    """
    key = _key(tool)
    if key is None:
        return await work()
    tried, answered = breakers.enter(key), None
    try:
        found = await work()
        answered = True
    except CallError as error:
        answered = _answered(error)
        raise
    finally:
        breakers.leave(key, answered, tried=tried)
    return found


def _key(tool: PublishedTool) -> str | None:
    """The server, or the Service or host as the tool's own namespace calls it: one namespace opens no other's."""
    backend = tool.backend
    if backend is not None and backend.mcp is not None:
        return f"server {backend.mcp.server}"
    found = backend_of(tool)
    return None if found is None else f"{found} of {tool.namespace}"


def _answered(error: CallError) -> bool | None:
    if isinstance(error, UpstreamUnreachable | UpstreamTimeout):
        return False
    if isinstance(error, UpstreamError) and error.extra.get("upstream_status") in _DOWN:
        return False
    return True if isinstance(error, _ANSWERED) else None
