"""Every way in which a call fails, each with its stable code and HTTP status.

CallError
├── InvalidArguments     400 invalid_arguments
├── ArgumentsTooComplex  400 arguments_too_complex
├── NoBackend            503 no_backend
├── CredentialPending    503 credential_pending
├── ServicePending       503 service_pending
├── BackendBusy          503 backend_busy
├── Refused              502 egress_refused
├── UpstreamUnreachable  502 upstream_unreachable
├── UpstreamTimeout      504 upstream_timeout
├── UpstreamRedirect     502 upstream_redirect
├── UpstreamTooLarge     502 upstream_too_large
├── UpstreamProtocol     502 upstream_protocol   HTML, lying length, early close, invalid JSON, bad headers
├── ToolError            422 tool_error          the backend answered 4xx
└── UpstreamError        502 upstream_error      the backend answered 5xx
"""

from __future__ import annotations

from typing import Any, ClassVar


class CallError(Exception):
    """A call that did not succeed. `detail` and `extra` are safe to show to the caller.

    Attributes:
        detail: one sentence.
        retry_after: seconds after which another try makes sense, if known.
        extra: further members of the problem document.
    """

    code: ClassVar[str] = "call_failed"
    status: ClassVar[int] = 502

    def __init__(
        self, detail: str, *, retry_after: int | None = None, extra: dict[str, Any] | None = None
    ) -> None:
        self.detail = detail
        self.retry_after = retry_after
        self.extra = extra or {}
        super().__init__(detail)


class InvalidArguments(CallError):
    """The arguments do not fit the tool's schema or its route; `extra["errors"]` lists {pointer, message}."""

    code = "invalid_arguments"
    status = 400

    def __init__(self, detail: str, errors: list[dict[str, str]] | None = None) -> None:
        super().__init__(detail, extra={"errors": errors or []})


class ArgumentsTooComplex(CallError):
    """Checking the arguments against the tool's schema would take too long; they were not checked."""

    code = "arguments_too_complex"
    status = 400


class NoBackend(CallError):
    """The tool has no backend to call."""

    code = "no_backend"
    status = 503


class CredentialPending(CallError):
    """This replica lacks the credential that the backend needs."""

    code = "credential_pending"
    status = 503


class ServicePending(CallError):
    """No address of the backend's Service has been published: it does not exist, or the operator is older than this replica."""

    code = "service_pending"
    status = 503


class BackendBusy(CallError):
    """Too many calls to the backend are in progress; this one was not sent."""

    code = "backend_busy"
    status = 503


class Refused(CallError):
    """The outbound guard refuses the backend's address, or the credential may not go there."""

    code = "egress_refused"


class UpstreamUnreachable(CallError):
    """No connection to the backend."""

    code = "upstream_unreachable"


class UpstreamTimeout(CallError):
    """The backend did not answer within the tool's deadline."""

    code = "upstream_timeout"
    status = 504


class UpstreamRedirect(CallError):
    """The backend redirects; redirects are not followed."""

    code = "upstream_redirect"


class UpstreamTooLarge(CallError):
    """The backend's answer exceeds its bound."""

    code = "upstream_too_large"


class UpstreamProtocol(CallError):
    """The backend's answer is not what a tool answers."""

    code = "upstream_protocol"


class ToolError(CallError):
    """The backend refused the call (4xx); `extra["upstream_status"]` says how."""

    code = "tool_error"
    status = 422


class UpstreamError(CallError):
    """The backend failed (5xx)."""

    code = "upstream_error"
