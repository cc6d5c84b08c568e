"""Every error that the client raises, and which code of the registry means which.

ToolcribError
├── TokenUnavailable         the token source raised, took too long, or gave no usable token
├── Unauthorized             the registry refused the token
├── NotPermitted             not granted, or revoked during the call
├── ToolNotFound             no such tool for this caller
├── AmbiguousName            the name matches several tools; `tool_ids` has them
├── ConfirmationNeeded       a person must confirm the call; `command` is what they run
├── InvalidArguments         the tool's schema refuses the arguments; `errors` says where
├── InvalidRequest           the registry refuses the request itself
├── ToolFailed               the tool ran and refused
├── LimitExceeded            a limit of the grant is used up; `retry_after` says for how long
├── ToolUnavailable          the tool cannot be called now
├── UpstreamFailed           the tool's backend failed; it may have done its work
├── RegistryUnavailable      no registry answers, or it cannot decide now
├── RegistryAnswerInvalid    something answered that is no registry
└── DeadlineExceeded         the deadline of this call passed; it may have reached its tool
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

MOST_DETAIL = 2_000
_LONGEST_WAIT = 3_600.0


class ToolcribError(Exception):
    """The root: catch it to catch everything the client raises on purpose. It never holds a token.

    Attributes:
        code: the registry's stable code; None where no registry answered.
        status: of HTTP; None where nothing answered.
        detail: what happened, for people.
        hint: what to do next, for people.
        request_id: `X-Request-Id` of the request, which the registry's log has, too.
        traceparent: of the request (W3C Trace Context).
        retry_after: seconds to wait; None where the registry names none.
        problem: the whole problem document (RFC 9457).
    """

    def __init__(
        self,
        detail: str,
        *,
        code: str | None = None,
        status: int | None = None,
        hint: str | None = None,
        request_id: str = "",
        traceparent: str = "",
        retry_after: float | None = None,
        problem: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail: str = detail
        self.code: str | None = code
        self.status: int | None = status
        self.hint: str | None = hint
        self.request_id: str = request_id
        self.traceparent: str = traceparent
        self.retry_after: float | None = retry_after
        self.problem: Mapping[str, Any] = problem or {}

    def __str__(self) -> str:
        about = [self.code] if self.code else []
        about += [f"request {self.request_id}"] if self.request_id else []
        return f"{self.detail} ({', '.join(about)})" if about else self.detail


class TokenUnavailable(ToolcribError):
    """The token source raised, took too long, or gave no usable token."""


class Unauthorized(ToolcribError):
    """The registry refused the token, a new one of the source, too."""


class NotPermitted(ToolcribError):
    """Not granted, or revoked during the call."""


class ToolNotFound(ToolcribError):
    """No such tool for this caller; hidden and absent tools answer alike."""


class AmbiguousName(ToolcribError):
    """The name matches several tools."""

    @property
    def tool_ids(self) -> tuple[str, ...]:
        """What to call instead."""
        given = self.problem.get("tool_ids")
        return tuple(t for t in given if isinstance(t, str)) if isinstance(given, list) else ()


class ConfirmationNeeded(ToolcribError):
    """A person must confirm the call first; then the same call is made once."""

    @property
    def command(self) -> str:
        """What a person runs."""
        return str(self.problem.get("command") or "")


class InvalidArguments(ToolcribError):
    """The tool's schema refuses the arguments."""

    @property
    def errors(self) -> tuple[Mapping[str, Any], ...]:
        """One entry a mistake, with `pointer` and `message`: what a model can mend."""
        given = self.problem.get("errors")
        return tuple(e for e in given if isinstance(e, dict)) if isinstance(given, list) else ()


class InvalidRequest(ToolcribError):
    """The registry refuses the request itself."""


class ToolFailed(ToolcribError):
    """The tool ran and refused; `problem["upstream"]` has its own words."""


class LimitExceeded(ToolcribError):
    """A limit of the grant is used up."""


class ToolUnavailable(ToolcribError):
    """The tool cannot be called now; the registry did not reach it."""


class UpstreamFailed(ToolcribError):
    """The tool's backend failed; it may have done its work."""


class RegistryUnavailable(ToolcribError):
    """No registry answers, or it cannot decide now."""


class RegistryAnswerInvalid(ToolcribError):
    """Something answered that is no registry, or not one of a known version."""


class DeadlineExceeded(ToolcribError):
    """The deadline passed; a call may have reached its tool."""


BY_CODE: Mapping[str, type[ToolcribError]] = {
    **dict.fromkeys(("invalid_token", "unauthenticated", "insufficient_scope"), Unauthorized),
    **dict.fromkeys(("not_permitted", "revoked", "confirmation_rejected"), NotPermitted),
    "tool_not_found": ToolNotFound,
    "ambiguous_name": AmbiguousName,
    "confirmation_needed": ConfirmationNeeded,
    **dict.fromkeys(("invalid_arguments", "arguments_too_complex"), InvalidArguments),
    **dict.fromkeys(
        (
            "invalid_cursor",
            "cursor_stale",
            "invalid_json",
            "invalid_request",
            "list_too_large",
            "too_large",
            "already_granted",
        ),
        InvalidRequest,
    ),
    **dict.fromkeys(("tool_error", "input_required"), ToolFailed),
    **dict.fromkeys(("limit_exceeded", "too_many_requests", "too_many_subscriptions"), LimitExceeded),
    **dict.fromkeys(
        (
            *("backend_auth_failed", "backend_busy", "backend_unavailable", "credential_pending"),
            *("egress_refused", "login_required", "no_backend", "service_pending", "transport_unsupported"),
            "confirmation_unavailable",
        ),
        ToolUnavailable,
    ),
    **dict.fromkeys(
        (
            *("upstream_error", "upstream_protocol", "upstream_redirect", "upstream_timeout"),
            *("upstream_too_large", "upstream_unreachable"),
        ),
        UpstreamFailed,
    ),
    **dict.fromkeys(
        (
            *("audit_unavailable", "index_unavailable", "internal", "large_requests_busy", "request_timeout"),
            *("limits_unavailable", "not_ready", "policy_stale", "shutting_down", "too_many_streams"),
            "requests_unavailable",
        ),
        RegistryUnavailable,
    ),
}
"""A code that is not here goes by its status."""
BY_STATUS: Mapping[int, type[ToolcribError]] = {
    401: Unauthorized,
    403: NotPermitted,
    408: RegistryUnavailable,
    429: RegistryUnavailable,
}


def of_answer(
    status: int, body: bytes, retry_after: str | None, *, request_id: str = "", traceparent: str = ""
) -> ToolcribError:
    """The error that an answer means which is no success."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        parsed = None
    problem: dict[str, Any] = parsed if isinstance(parsed, dict) else {}
    code = _text(problem.get("code"))
    kind = BY_CODE.get(code or "") or BY_STATUS.get(status)
    if kind is None:
        kind = RegistryUnavailable if status >= 500 else InvalidRequest if code else RegistryAnswerInvalid
    detail = _text(problem.get("detail")) or _text(problem.get("title"))
    return kind(
        detail or f"HTTP {status} without a problem document: check that the URL is a registry's",
        code=code,
        status=status,
        hint=_text(problem.get("hint")),
        request_id=request_id,
        traceparent=traceparent,
        retry_after=_seconds(retry_after),
        problem=problem,
    )


def _text(value: object) -> str | None:
    """One line of printable characters: what comes over the network is shown in terminals."""
    if not isinstance(value, str):
        return None
    return "".join(c if c.isprintable() else " " for c in value[:MOST_DETAIL])


def _seconds(header: str | None) -> float | None:
    return (
        min(float(header), _LONGEST_WAIT)
        if header and header.isascii() and header.strip().isdigit()
        else None
    )
