"""From what an MCP server answers instead of a result to how a call fails: pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolcrib_registry.calls.bounds import CallBounds
from toolcrib_registry.calls.echoed_secrets import Secrets
from toolcrib_registry.calls.errors import (
    CallError,
    CapabilityMissing,
    InvalidArguments,
    LoginRequired,
    ToolError,
    TransportUnsupported,
    UpstreamError,
    UpstreamProtocol,
    UpstreamRedirect,
)
from toolcrib_registry.upstream import errors, messages
from toolcrib_registry.upstream.protocol import CAPABILITIES, MISSING_REQUIRED_CLIENT_CAPABILITY

_INTERNAL_ERROR = -32603
_MISUNDERSTOOD = (-32700, -32600, -32601, -32020, -32022)
"""No tool said that: we and the server do not understand each other."""
_MOST_REQUIRED = 1_024
"""Bytes of the capabilities that a server may name."""


def translated(failure: errors.McpFailure, limits: CallBounds, secrets: tuple[str, ...]) -> CallError:
    """How the call fails.

    Args:
        failure: what the server answered.
        limits: how much of it is shown.
        secrets: what was sent to authenticate; what repeats one is not shown.
    """
    match failure:
        case errors.TransportUnsupported():
            return TransportUnsupported(
                f"{failure}. Use a server of Streamable HTTP (MCP 2025-03-26 or later)"
            )
        case errors.LoginRequired():
            return _login(failure, Secrets.of(secrets))
        case errors.RefusedByStatus():
            return _by_status(failure)
        case errors.RefusedByRpc():
            return _by_rpc(failure, limits, Secrets.of(secrets))
        case errors.RequestTooLarge():
            return InvalidArguments(str(failure))
    return UpstreamProtocol(str(failure))


def _login(failure: errors.LoginRequired, secrets: Secrets) -> CallError:
    url = failure.metadata_url
    if url is None:
        return ToolError("the tool's server refused the credential (401)", extra={"upstream_status": 401})
    shown = {} if secrets.repeated_in(url.encode()) else {"resource_metadata": url}
    return LoginRequired(
        "the tool's server wants a login, which the registry does not make; give its ToolServer a credential",
        extra=shown,
    )


def _by_status(failure: errors.RefusedByStatus) -> CallError:
    status, extra = failure.status, {"upstream_status": failure.status}
    if 300 <= status < 400:
        return UpstreamRedirect(f"the backend redirects ({status}); redirects are not followed")
    if 400 <= status < 500:
        return ToolError(
            f"the tool's server refused the call ({status})", retry_after=failure.retry_after, extra=extra
        )
    if 500 <= status < 600:
        return UpstreamError(
            f"the tool's server failed ({status})", retry_after=failure.retry_after, extra=extra
        )
    return UpstreamProtocol(f"the backend returned status {status}")


def _required(failure: errors.RefusedByRpc) -> Mapping[str, Any] | None:
    """The capabilities that the server misses in the caller's client; None: it misses none, or names none that there are."""
    if failure.code != MISSING_REQUIRED_CLIENT_CAPABILITY or type(failure.data) is not dict:
        return None
    required = failure.data.get("requiredCapabilities")
    if type(required) is not dict or not required or not set(required) <= CAPABILITIES:
        return None
    return required if len(messages.encoded(required)) <= _MOST_REQUIRED else None


def _by_rpc(failure: errors.RefusedByRpc, limits: CallBounds, secrets: Secrets) -> CallError:
    said: dict[str, Any] = {"code": failure.code, "message": failure.message}
    if failure.data is not None:
        said["data"] = failure.data
    text = messages.encoded(said)
    if len(text) > limits.error_bytes:
        said.pop("data", None)
        said["message"] = failure.message[: limits.error_bytes // 4]
    extra = {} if secrets.repeated_in(text) else {"upstream": said}
    if extra and (required := _required(failure)) is not None:
        words = ", ".join(required)
        return CapabilityMissing(f"the tool needs the client to offer {words}", required, extra=extra)
    if failure.code == _INTERNAL_ERROR:
        return UpstreamError(f"the tool's server failed (error {failure.code})", extra=extra)
    if failure.code in _MISUNDERSTOOD:
        return UpstreamProtocol(
            f"the tool's server does not take the request (error {failure.code})", extra=extra
        )
    return ToolError(f"the tool's server refused the call (error {failure.code})", extra=extra)
