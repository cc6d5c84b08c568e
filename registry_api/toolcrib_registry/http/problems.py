"""Every answer that is a problem document: RFC 9457, with a stable `code`.

ProblemError (an HTTPException, so that FastAPI passes it on as it is)
    raised by routes and by the reading of bodies; `CODES` gives each code its status and title. What services raise
    (`failures`) becomes one by `problem_of`.

The body holds nothing that depends on the request but what the caller sent: denied and unknown answer alike, to
the byte. The request's id is in the header `X-Request-Id`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import orjson
from fastapi import HTTPException
from starlette.responses import Response

from toolcrib import wording
from toolcrib.resources import mistakes
from toolcrib.wire.simple import PATH
from toolcrib_registry.calls.errors import CallError, Refused
from toolcrib_registry.calls.step_up import InsufficientScope
from toolcrib_registry.failures import Failure, Unauthenticated
from toolcrib_registry.identity import resources
from toolcrib_registry.identity.resources import ProtectedResource
from toolcrib_registry.next_steps import NEXT_STEPS

PROBLEM_JSON = "application/problem+json"

CODES: Mapping[str, tuple[int, str]] = {
    "invalid_json": (400, "The body is not valid JSON"),
    "invalid_request": (400, "The request is not valid"),
    "invalid_arguments": (400, "The arguments do not match the tool's schema"),
    "arguments_too_complex": (400, "The arguments take too long to check"),
    "invalid_cursor": (400, "Invalid cursor"),
    "token_in_query": (400, "Token in the query string"),
    "already_registered": (400, "The name is taken"),
    "schema_unsafe": (400, "The schema is not safe to evaluate"),
    "hidden_text": (400, "A text holds hidden characters"),
    "reserved_scope": (400, "The scope is reserved"),
    "egress_refused": (400, "The address is not allowed"),
    "unauthenticated": (401, "No identity"),
    "invalid_token": (401, "Invalid token"),
    "not_permitted": (403, "Not permitted"),
    "insufficient_scope": (403, "The token lacks a scope"),
    "revoked": (403, "Revoked during the call"),
    "confirmation_rejected": (403, "A person rejected the call"),
    "not_admin": (403, "Not permitted"),
    "origin_refused": (403, "Origin not allowed"),
    "registration_off": (403, "Registration is disabled"),
    "not_found": (404, "Not found"),
    "tool_not_found": (404, "No such tool"),
    "not_listed": (404, "The list is not held"),
    "method_not_allowed": (405, "Method not allowed"),
    "not_acceptable": (406, "Not acceptable"),
    "request_timeout": (408, "The request arrived too slowly"),
    "ambiguous_name": (409, "The name matches several tools"),
    "already_granted": (409, "The tool is granted already"),
    "confirmation_needed": (409, "A person must confirm the call"),
    "cursor_stale": (409, "The list has changed"),
    "revision_mismatch": (409, "The replica holds another revision"),
    "epoch_fenced": (409, "The sender no longer leads"),
    "too_large": (413, "The body is too large"),
    "list_too_large": (413, "The list is too large"),
    "unsupported_media_type": (415, "The body must be JSON"),
    "wrong_host": (421, "Unknown host"),
    "limit_exceeded": (429, "A limit of the grant is used up"),
    "too_many_requests": (429, "Too many access requests are open"),
    "too_many_subscriptions": (429, "Too many resources are followed"),
    "internal": (500, "Internal error"),
    "no_backend": (503, "The tool has no backend"),
    "policy_stale": (503, "The policy is stale"),
    "confirmation_unavailable": (503, "The call cannot be confirmed"),
    "limits_unavailable": (503, "The grant's limits cannot be checked"),
    "index_unavailable": (503, "The search index is unavailable"),
    "large_requests_busy": (503, "Too many large requests"),
    "too_many_streams": (503, "Too many streams"),
    "audit_unavailable": (503, "The decision cannot be recorded"),
    "requests_unavailable": (503, "The access request could not be passed on"),
    "not_durable": (503, "The registration could not be stored"),
    "not_ready": (503, "Not ready"),
    "shutting_down": (503, "The registry is stopping"),
    "tool_error": (422, "The tool refused the call"),
    "input_required": (422, "The tool asks for input"),
    "transport_unsupported": (502, "The tool's server speaks HTTP+SSE alone"),
    "backend_auth_failed": (502, "The registry could not authenticate to the tool's backend"),
    "login_required": (502, "The tool's server wants a login"),
    "upstream_error": (502, "The backend failed"),
    "upstream_protocol": (502, "The backend's response is not valid"),
    "upstream_redirect": (502, "The backend redirects"),
    "upstream_too_large": (502, "The backend's response is too large"),
    "upstream_unreachable": (502, "No connection to the backend"),
    "backend_busy": (503, "Too many calls to the backend are in progress"),
    "backend_unavailable": (503, "The backend's circuit breaker is open"),
    "credential_pending": (503, "The replica lacks the backend's credential"),
    "service_pending": (503, "The backend's Service has no published address"),
    "upstream_timeout": (504, "The backend did not answer in time"),
}
FORMS: Mapping[str, str] = {
    **wording.FORMS,
    PATH: "a path that begins with '/', of printable ASCII characters",
}
"""What a text of a request must be, by the pattern that says so."""
CALL_STATUS: Mapping[str, int] = {Refused.code: 502}
"""Where a call that failed has another status than `CODES` says: an address is the caller's fault at a registration."""


def body_of(code: str, status: int, title: str, detail: str, extra: Mapping[str, Any]) -> bytes:
    """The document, encoded."""
    document = {
        "type": f"urn:toolcrib:problem:{code}",
        "title": title,
        "status": status,
        "code": code,
        "detail": detail,
        **({"hint": step} if (step := NEXT_STEPS.get(code)) else {}),
        **extra,
    }
    try:
        return orjson.dumps(document)
    except TypeError:  # integers beyond 64 bits; an error must not fail for what it shows
        return json.dumps(document, default=str).encode()


class ProblemError(HTTPException):
    """What a caller is told instead of an answer.

    Args:
        code: one of `CODES`, or any code together with `status`.
        detail: one or two sentences for a person; never a secret.
        headers: to be sent with it.
        status: where the code is not of `CODES`.
        extra: further members of the document.
    """

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        status: int | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        known, title = CODES.get(code, (500, code.replace("_", " ").capitalize()))
        self.code = code
        self.title = title
        self.extra = dict(extra or {})
        super().__init__(status or known, detail, dict(headers or {}))

    def body(self) -> bytes:
        """The document, encoded."""
        return body_of(self.code, self.status_code, self.title, str(self.detail), self.extra)

    def response(self) -> Response:
        """The document as an answer, the one form in which problems are sent; nobody may keep it."""
        headers = {"Cache-Control": "no-store", **(self.headers or {})}
        return Response(self.body(), self.status_code, headers, media_type=PROBLEM_JSON)


def problem_of(error: Failure, resource: ProtectedResource | None = None) -> ProblemError:
    """What a service said, as a problem document.

    Args:
        resource: what was asked for, where it has tokens of its own.
    """
    if isinstance(error, Unauthenticated):
        return unauthenticated(error.problem, resource)
    if isinstance(error, InsufficientScope) and resource is not None:
        return insufficient_scope(resource, error)
    status = CALL_STATUS.get(error.code) if isinstance(error, CallError) else None
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    return ProblemError(error.code, error.detail, status=status, headers=headers, extra=error.extra)


def unauthenticated(reason: str | None, resource: ProtectedResource | None = None) -> ProblemError:
    """401: with no token at all (`reason` None), or with one that proves nothing (RFC 6750 §3).

    Args:
        resource: what was asked for, where it has tokens of its own.
    """
    code = "unauthenticated" if reason is None else "invalid_token"
    error = None if reason is None else code
    detail = (
        "Send a bearer token: Authorization: Bearer …"
        if reason is None
        else f"The bearer token is not accepted: {reason}. Get a new one, for this registry, from an issuer that it trusts."
    )
    challenge = (resources if resource is None else resource).challenge(error, description=reason)
    return ProblemError(code, detail, headers={"WWW-Authenticate": challenge})


def insufficient_scope(resource: ProtectedResource, error: InsufficientScope) -> ProblemError:
    """403, with the scopes to ask for (RFC 6750 §3.1)."""
    challenge = resource.challenge(error.code, error.scopes)
    return ProblemError(error.code, error.detail, headers={"WWW-Authenticate": challenge})


def unrouted(methods: Sequence[str]) -> ProblemError:
    """404, or 405 where the path takes `methods`."""
    if not methods:
        return ProblemError("not_found", "Nothing is served at this path. See the paths in /openapi.json.")
    return ProblemError(
        "method_not_allowed",
        "This path does not support that method. See the Allow header.",
        headers={"Allow": ", ".join(methods)},
    )


def invalid(errors: Iterable[Any], fields: Collection[str] = ()) -> ProblemError:
    """400, naming the fields at fault; what was sent is not repeated, it may hold a secret.

    Args:
        errors: pydantic's.
        fields: those of the body.
    """
    found = [
        {"field": ".".join(str(p)[:64] for p in e.get("loc", ())), "message": _said(e, fields)}
        for e in list(errors)[:20]
    ]
    first = found[0] if found else {"field": "", "message": "not valid"}
    detail = f"{first['field']}: {first['message']}"
    return ProblemError("invalid_request", detail, extra={"errors": found})


def _said(error: Any, fields: Collection[str]) -> str:
    said = wording.said(error, FORMS)[:300]
    place = error.get("loc", ())
    if error.get("type") == "extra_forbidden" and len(place) == 2 and len(str(place[1])) <= 64:
        meant = mistakes.nearest(str(place[1]), fields)
        said += f"; did you mean {meant}?" if meant else ""
    return said


def broken() -> ProblemError:
    """500, of which the caller learns nothing more."""
    return ProblemError("internal", "Internal error. Search the registry's log for the id in X-Request-Id.")
