"""Judging a backend's answer: pure. What is not a tool's answer becomes a typed error."""

from __future__ import annotations

from typing import Any

import orjson

from toolcrib_registry.calls.backends import nesting
from toolcrib_registry.calls.backends.port import Text, ToolAnswer
from toolcrib_registry.calls.bounds import CallBounds
from toolcrib_registry.calls.echoed_secrets import Secrets
from toolcrib_registry.calls.errors import (
    CallError,
    ToolError,
    UpstreamError,
    UpstreamProtocol,
    UpstreamRedirect,
)
from toolcrib_registry.outbound.messages import OutboundResponse, retry_after

_HTML = ("text/html", "application/xhtml+xml")


def judged(
    response: OutboundResponse, *, limits: CallBounds, elapsed: float, secrets: tuple[str, ...]
) -> ToolAnswer:
    """The tool's answer in a response.

    Args:
        response: the whole answer.
        limits: bounds on depth and on what is shown of an error.
        elapsed: seconds so far.
        secrets: what was sent to authenticate; an answer that repeats one, in a form of `calls.echoed_secrets`, is not
            passed on, whatever its status.

    Raises:
        CallError: the answer is a refusal, a failure, a redirect, or not a tool's answer.
    """
    found = Secrets.of(secrets)
    if not 200 <= response.status < 300:
        raise _failure(response, limits, found)
    kind = response.content_type
    text = _text_in(response.body, kind, limits)
    if found.repeated_in(response.body) or found.repeated_in(kind.encode()):
        raise UpstreamProtocol("the backend's response repeats its credential and is withheld")
    if text is None:
        return ToolAnswer(response.body, kind, is_json=True, elapsed=elapsed)
    return ToolAnswer(text.encode(), kind, False, (Text(text),), elapsed=elapsed)


def _text_in(body: bytes, kind: str, limits: CallBounds) -> str | None:
    """The answer, of this media type, where it is text; None where it is empty or JSON."""
    if not body:
        return None
    if kind in _HTML or (not kind and body[:256].lstrip().lower().startswith((b"<!doctype html", b"<html"))):
        raise UpstreamProtocol("the backend returned HTML, not a tool's result")
    if kind == "application/json" or kind.endswith("+json"):
        _json(body, limits)
        return None
    if not kind:
        try:
            value = _json(body, limits)
        except UpstreamProtocol:
            return _text(body)
        return value if isinstance(value, str) else None
    return _text(body)


def _json(body: bytes, limits: CallBounds) -> Any:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise UpstreamProtocol("the backend's response claims to be JSON but is not valid JSON") from None
    nesting.check(value, limits.answer_depth, body)
    return value


def _text(body: bytes) -> str:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise UpstreamProtocol("the backend's response is neither valid JSON nor UTF-8 text") from None
    if "\x00" in text:
        raise UpstreamProtocol("the backend's response is neither valid JSON nor UTF-8 text")
    return text


def _failure(response: OutboundResponse, limits: CallBounds, secrets: Secrets) -> CallError:
    status = response.status
    if 300 <= status < 400:
        return UpstreamRedirect(f"the backend redirects ({status}); redirects are not followed")
    extra: dict[str, Any] = {"upstream_status": status}
    if 400 <= status < 500:
        shown = _shown(response, limits, secrets)
        if shown is not None:
            extra["upstream"] = shown
        return ToolError(
            f"the tool refused the call ({status})", retry_after=retry_after(response.headers), extra=extra
        )
    if 500 <= status < 600:
        return UpstreamError(
            f"the tool's backend failed ({status})", retry_after=retry_after(response.headers), extra=extra
        )
    return UpstreamProtocol(f"the backend returned status {status}")


def _shown(response: OutboundResponse, limits: CallBounds, secrets: Secrets) -> Any:
    """The refusal's own JSON, where it is small; other texts may hold anything and stay here."""
    body, kind = response.body, response.content_type
    if (
        not body
        or len(body) > limits.error_bytes
        or not (kind == "application/json" or kind.endswith("+json"))
    ):
        return None
    try:
        value = _json(body, limits)
    except UpstreamProtocol:
        return None
    return None if secrets.repeated_in(body) else value
