"""Judging a backend's answer: pure. What is not a tool's answer becomes a typed error."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import orjson

from toolcrib_registry.calls.errors import (
    CallError,
    ToolError,
    UpstreamError,
    UpstreamProtocol,
    UpstreamRedirect,
)
from toolcrib_registry.calls.limits import CallLimits
from toolcrib_registry.outbound.messages import OutboundResponse

MAX_RETRY_AFTER = 3_600
_TELLING = 4
"""Characters from which on a credential is looked for in results: a shorter one stands in every other text by chance."""
_ESCAPE = re.compile(r'\\(?:u([0-9A-Fa-f]{4})|(["\\/]))')
_HTML = ("text/html", "application/xhtml+xml")


@dataclass(frozen=True, slots=True)
class CallResult:
    """What a tool answered.

    Attributes:
        status: the backend's status, 2xx.
        content_type: its media type, without parameters.
        value: parsed JSON, or text; None where the body is empty.
        raw: the body as it came.
        elapsed: seconds the call took, retries included.
    """

    status: int
    content_type: str
    value: Any
    raw: bytes = field(repr=False)
    elapsed: float = 0.0


def judged(
    response: OutboundResponse, *, limits: CallLimits, elapsed: float, secrets: tuple[str, ...]
) -> CallResult:
    """The result in an answer.

    Args:
        response: the whole answer.
        limits: bounds on depth and on what is shown of an error.
        elapsed: seconds so far.
        secrets: forms of the credential that was sent; an answer that repeats one is not passed on, whatever its status.

    Raises:
        CallError: the answer is a refusal, a failure, a redirect, or not a tool's answer.
    """
    if not 200 <= response.status < 300:
        raise _failure(response, limits, secrets)
    value = _value(response, limits)
    telling = tuple(secret for secret in secrets if len(secret) >= _TELLING)
    if telling and (
        _repeats([response.content_type, value], telling) or _repeats(_unescaped(response.body), telling)
    ):
        raise UpstreamProtocol("the backend's response repeats its credential and is withheld")
    return CallResult(response.status, response.content_type, value, response.body, elapsed)


def _value(response: OutboundResponse, limits: CallLimits) -> Any:
    body, kind = response.body, response.content_type
    if not body:
        return None
    if kind in _HTML or (not kind and body[:256].lstrip().lower().startswith((b"<!doctype html", b"<html"))):
        raise UpstreamProtocol("the backend answered HTML, not a tool's result")
    if kind == "application/json" or kind.endswith("+json"):
        return _json(body, limits)
    if not kind:
        try:
            return _json(body, limits)
        except UpstreamProtocol:
            return _text(body)
    return _text(body)


def _json(body: bytes, limits: CallLimits) -> Any:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise UpstreamProtocol("the backend's answer is not the JSON that it claims to be") from None
    if body.count(b"[") + body.count(b"{") > limits.answer_depth:
        _check_depth(value, limits.answer_depth)
    return value


def _check_depth(value: Any, limit: int) -> None:
    stack = [(value, 1)]
    while stack:
        node, depth = stack.pop()
        if isinstance(node, dict | list):
            if depth > limit:
                raise UpstreamProtocol(f"the backend's answer is nested deeper than {limit} levels")
            stack.extend((child, depth + 1) for child in (node.values() if isinstance(node, dict) else node))


def _text(body: bytes) -> str:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise UpstreamProtocol("the backend's answer is neither JSON nor UTF-8 text") from None
    if "\x00" in text:
        raise UpstreamProtocol("the backend's answer is neither JSON nor UTF-8 text")
    return text


def _failure(response: OutboundResponse, limits: CallLimits, secrets: tuple[str, ...]) -> CallError:
    status = response.status
    if 300 <= status < 400:
        return UpstreamRedirect(f"the backend redirects ({status}); redirects are not followed")
    extra: dict[str, Any] = {"upstream_status": status}
    if 400 <= status < 500:
        shown = _shown(response, limits, secrets)
        if shown is not None:
            extra["upstream"] = shown
        return ToolError(
            f"the tool refused the call ({status})", retry_after=_retry_after(response), extra=extra
        )
    if 500 <= status < 600:
        return UpstreamError(
            f"the tool's backend failed ({status})", retry_after=_retry_after(response), extra=extra
        )
    return UpstreamProtocol(f"the backend answered with status {status}")


def _shown(response: OutboundResponse, limits: CallLimits, secrets: tuple[str, ...]) -> Any:
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
    return None if _repeats(value, secrets) else value


def _repeats(value: Any, secrets: tuple[str, ...]) -> bool:
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            stack.extend((*node.keys(), *node.values()))
        elif isinstance(node, list):
            stack.extend(node)
        elif any(secret in str(node) for secret in secrets):
            return True
    return False


def _unescaped(body: bytes) -> str:
    """The body's text without JSON's escapes: of a member that stands twice the parsed value has the last one alone."""
    text = body.decode(errors="replace")
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else found[2], text)


def _retry_after(response: OutboundResponse) -> int | None:
    text = response.headers.get("retry-after", "")
    return min(int(text), MAX_RETRY_AFTER) if text.isascii() and text.isdigit() and len(text) < 10 else None
