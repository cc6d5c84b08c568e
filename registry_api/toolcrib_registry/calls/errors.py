"""Every way in which a call fails, each with its stable code (`http.problems` has its status).

Failure → CallError
├── InvalidArguments     invalid_arguments
├── ArgumentsTooComplex  arguments_too_complex
├── NoBackend            no_backend
├── CredentialPending    credential_pending
├── BackendAuthFailed    backend_auth_failed  no access token for the backend, or one that it refuses
├── ServicePending       service_pending
├── BackendBusy          backend_busy
├── BackendUnavailable   backend_unavailable
├── Refused              egress_refused
├── UpstreamUnreachable  upstream_unreachable
├── UpstreamTimeout      upstream_timeout
├── UpstreamRedirect     upstream_redirect
├── UpstreamTooLarge     upstream_too_large
├── UpstreamProtocol     upstream_protocol   HTML, lying length, early close, invalid JSON, bad headers
├── TransportUnsupported transport_unsupported  an MCP server that speaks HTTP+SSE alone
├── LoginRequired        login_required      an MCP server that wants a login
├── ToolError            tool_error          the backend answered 4xx, or an error
│   └── CapabilityMissing  tool_error        an MCP server that wants a capability of the caller's client
└── UpstreamError        upstream_error      the backend answered 5xx
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolcrib_registry.failures import Failure


class CallError(Failure):
    """A call that did not succeed. `detail` and `extra` are safe to show to the caller.

    Args:
        detail: one sentence.
        retry_after: seconds after which another try makes sense, if known.
        extra: further members of the answer.
    """

    code = "call_failed"

    def __init__(
        self, detail: str, *, retry_after: int | None = None, extra: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(self.code, detail, retry_after=retry_after, extra=extra)


class InvalidArguments(CallError):
    """The arguments do not match the tool's schema or its route; `extra["errors"]` lists {pointer, message}."""

    code = "invalid_arguments"

    def __init__(self, detail: str, errors: list[dict[str, str]] | None = None) -> None:
        super().__init__(detail, extra={"errors": errors or []})


class ArgumentsTooComplex(CallError):
    """Checking the arguments against the tool's schema would take too long; they were not checked."""

    code = "arguments_too_complex"


class NoBackend(CallError):
    """The tool has no backend to call."""

    code = "no_backend"


class CredentialPending(CallError):
    """The replica lacks the credential that the backend needs."""

    code = "credential_pending"


class BackendAuthFailed(CallError):
    """There is no access token for the backend, or the backend refuses the one there is.

    Args:
        detail: why, after "no access token for the backend: ", without the authorization server's own words.
        retry_after: as of each failure.
        down: the authorization server did not answer.
    """

    code = "backend_auth_failed"

    def __init__(self, detail: str, *, retry_after: int | None = None, down: bool = False) -> None:
        super().__init__(detail, retry_after=retry_after)
        self.down = down

    def copy(self) -> BackendAuthFailed:
        """The same failure for another caller."""
        return BackendAuthFailed(self.detail, retry_after=self.retry_after, down=self.down)


class ServicePending(CallError):
    """No address of the backend's Service has been published: it does not exist, or the operator is older than this replica."""

    code = "service_pending"


class BackendBusy(CallError):
    """Too many calls to the backend are in progress; this one was not sent."""

    code = "backend_busy"


class BackendUnavailable(CallError):
    """The backend's circuit breaker is open; this call was not sent."""

    code = "backend_unavailable"


class Refused(CallError):
    """The outbound guard refuses the backend's address, or the credential may not go there."""

    code = "egress_refused"


class UpstreamUnreachable(CallError):
    """No connection to the backend."""

    code = "upstream_unreachable"


class UpstreamTimeout(CallError):
    """The backend did not answer within the tool's deadline."""

    code = "upstream_timeout"


class UpstreamRedirect(CallError):
    """The backend redirects; redirects are not followed."""

    code = "upstream_redirect"


class UpstreamTooLarge(CallError):
    """The backend's answer exceeds its bound."""

    code = "upstream_too_large"


class UpstreamProtocol(CallError):
    """The backend's response is not valid JSON or text."""

    code = "upstream_protocol"


class TransportUnsupported(CallError):
    """The tool's MCP server speaks the transport of 2024-11-05 (HTTP+SSE) alone."""

    code = "transport_unsupported"


class LoginRequired(CallError):
    """The tool's MCP server wants a token that a login gives; `extra["resource_metadata"]` says where to learn more."""

    code = "login_required"


class ToolError(CallError):
    """The backend refused the call; `extra["upstream_status"]` says how (4xx), or `extra["upstream"]` what it said."""

    code = "tool_error"


class CapabilityMissing(ToolError):
    """The tool's MCP server wants a capability that the caller's client did not declare.

    Args:
        detail: one sentence.
        required: the capabilities, as `ClientCapabilities` has them.
        extra: further members of the answer.
    """

    def __init__(
        self, detail: str, required: Mapping[str, Any], *, extra: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(detail, extra=extra)
        self.required = required


class UpstreamError(CallError):
    """The backend failed (5xx)."""

    code = "upstream_error"
