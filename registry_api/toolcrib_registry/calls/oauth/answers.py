"""Judging what authorization servers answer: pure. Their own words are shown to nobody."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import orjson

from toolcrib_registry.calls.errors import BackendAuthFailed
from toolcrib_registry.outbound.messages import OutboundResponse, retry_after

MOST_BYTES = 64 << 10
"""Of one answer: a token takes some KiB at most."""
DEFAULT_LIFETIME = 300.0
"""Seconds, where the answer names none."""
MOST_LIFETIME = 86_400.0
_TOKEN = re.compile(r"[!-~]{1,16384}")
_HINTS = {
    "invalid_client": "the authorization server does not accept the client id or its secret ({}). Check the Secret that auth"
    " names, and auth.oauth.clientAuthentication",
    "unauthorized_client": "the client may not use this grant ({}). Allow it at the authorization server",
    "unsupported_grant_type": "the authorization server does not support this grant ({})",
    "invalid_scope": "the authorization server does not grant the scope ({}). Check auth.oauth.scope",
    "invalid_target": "the authorization server does not know the resource ({}). Check auth.oauth.resource",
    "invalid_grant": "the authorization server does not accept the grant ({})",
    "invalid_request": "the authorization server does not accept the request ({}). Check auth.oauth",
}
"""By the errors of RFC 6749, 5.2, and RFC 8707."""
_DOWN = (502, 503, 504)


@dataclass(frozen=True, slots=True)
class Granted:
    """An access token, and how many seconds it lives."""

    value: str = field(repr=False)
    lifetime: float


def token(response: OutboundResponse) -> Granted:
    """The token in an answer.

    Raises:
        BackendAuthFailed: there is none, or none that a header can carry.
    """
    if response.status != 200:
        raise _refusal(response)
    said = document(response, "the token endpoint")
    value, kind = said.get("access_token"), said.get("token_type")
    if type(value) is not str or _TOKEN.fullmatch(value) is None:
        raise BackendAuthFailed(
            "the token endpoint's answer holds no access token, or one that a header cannot carry"
        )
    if type(kind) is not str or kind.lower() != "bearer":
        raise BackendAuthFailed("the authorization server gives tokens of another type than Bearer")
    return Granted(value, _lifetime(said.get("expires_in")))


def document(response: OutboundResponse, whose: str) -> dict[str, Any]:
    """The JSON object in an answer of success.

    Raises:
        BackendAuthFailed: it is something else.
    """
    kind = response.content_type
    if kind == "application/json" or kind.endswith("+json"):
        try:
            found = orjson.loads(response.body)
        except orjson.JSONDecodeError:
            found = None
        if type(found) is dict:
            return found
    raise BackendAuthFailed(f"the answer of {whose} is not a JSON object. Check auth.oauth.tokenUrl")


def text(said: dict[str, Any], key: str) -> str | None:
    """A member that is text."""
    found = said.get(key)
    return found if type(found) is str else None


def failed(status: int, whose: str, retry_after: int | None = None) -> BackendAuthFailed:
    """An answer with a status that is no success."""
    if 300 <= status < 400:
        return BackendAuthFailed(f"{whose} redirects ({status}); redirects are not followed")
    return BackendAuthFailed(
        f"{whose} failed ({status})" if status >= 500 else f"{whose} refused the request ({status})",
        retry_after=retry_after,
        down=status in _DOWN,
    )


def _refusal(response: OutboundResponse) -> BackendAuthFailed:
    seconds = retry_after(response.headers)
    if response.status in (400, 401, 403):
        try:
            code = text(document(response, ""), "error")
        except BackendAuthFailed:
            code = None
        if code in _HINTS:
            return BackendAuthFailed(_HINTS[code].format(code), retry_after=seconds)
    return failed(response.status, "the token endpoint", seconds)


def _lifetime(value: Any) -> float:
    """Seconds. Some servers write the number as text."""
    if value is None:
        return DEFAULT_LIFETIME
    if type(value) is str and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if type(value) not in (int, float) or not value > 0:
        raise BackendAuthFailed("the token endpoint's answer has an expires_in that is not a positive number")
    return float(min(value, MOST_LIFETIME))
