"""A bearer token as it stands, read strictly before anything in it is believed.

What two readers could understand in two ways is refused: duplicate members, NaN, stray characters in the base64
(RFC 7515 §2, RFC 7519 §4, RFC 8725 §2.4), and so is every kind of token that is no access token (RFC 8725 §3.11, docs/decisions/0036).
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolcrib.errors import TokenMalformed, TokenRejected

MAX_TOKEN = 16 * 1024
REFUSED_HEADERS = ("b64", "crit", "jku", "jwk", "x5c", "x5u", "zip")
"""Headers that bring keys of their own, or change how the token is to be read."""
HEADER_TYPES = frozenset({"jwt", "application/jwt", "at+jwt", "application/at+jwt"})
"""`typ` of access tokens (RFC 9068 §2.1) and of tokens that do not say; logout+jwt, secevent+jwt, dpop+jwt are others."""
_ACCESS = frozenset({"at+jwt", "application/at+jwt"})
_OTHER_TYPES = frozenset({"refresh", "offline", "logout"})
_ID_TOKEN_CLAIMS = ("nonce", "at_hash", "c_hash", "s_hash")
_COMPACT = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]*)")


@dataclass(frozen=True, slots=True)
class Unverified:
    """What a token says of itself; nothing of it is proven."""

    header: Mapping[str, Any]
    claims: Mapping[str, Any]

    def refuse_other_kinds(self, *, id_tokens: bool) -> None:
        """Pass access tokens, and ID tokens where `id_tokens` says so.

        Raises:
            TokenRejected: it says that it is something else, or that only the holder of a key may use it.
        """
        kind = _word(self.claims, "typ")
        if (
            _word(self.header, "typ") not in HEADER_TYPES | {None}
            or kind in _OTHER_TYPES
            or "events" in self.claims
        ):
            raise TokenRejected("the token is not an access token: its typ is another")
        if "cnf" in self.claims:
            raise TokenRejected(
                "the token is bound to a key of its client (cnf), which this registry cannot check"
            )
        mark = self._id_token_mark(kind)
        if mark is not None and not id_tokens:
            raise TokenRejected(f"the token is an ID token ({mark}), not an access token")

    def _id_token_mark(self, kind: str | None) -> str | None:
        """What shows that it is an ID token (OIDC Core §2; `typ` is Keycloak's, `token_use` Cognito's)."""
        use = _word(self.claims, "token_use")
        if kind == "id":
            return "typ"
        if use == "id":
            return "token_use"
        if _word(self.header, "typ") in _ACCESS or kind == "bearer" or use == "access":
            return None  # it says what it is; older Keycloaks copy the nonce into access tokens too
        return next((name for name in _ID_TOKEN_CLAIMS if name in self.claims), None)


def read(token: str) -> Unverified:
    """The header and the claims of a compact JWS.

    Raises:
        TokenMalformed: unreadable, ambiguous, too long, or with a header that is never accepted.
    """
    if len(token) > MAX_TOKEN:
        raise TokenMalformed(f"the token is longer than {MAX_TOKEN} characters")
    parts = _COMPACT.fullmatch(token)
    if parts is None:
        raise TokenMalformed("the token is malformed")
    header, claims, _ = (_decoded(part) for part in parts.groups())
    found = Unverified(_object(header), _object(claims))
    if any(name in found.header for name in REFUSED_HEADERS):
        raise TokenMalformed(f"token headers {', '.join(REFUSED_HEADERS)} are refused")
    return found


def claimed_issuer(token: str) -> str | None:
    """The `iss` that a token carries, unverified; None where it carries none.

    Raises:
        TokenMalformed: unreadable.
    """
    found = read(token).claims.get("iss")
    return found if isinstance(found, str) and found else None


def _decoded(part: str) -> bytes:
    try:
        raw = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except (binascii.Error, ValueError) as error:
        raise TokenMalformed("the token is malformed") from error
    if base64.urlsafe_b64encode(raw).rstrip(b"=").decode() != part:
        raise TokenMalformed("the token is malformed")  # bits to spare: one token in several spellings
    return raw


def _object(raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(raw.decode(), object_pairs_hook=_unique, parse_constant=_refused)
        json.dumps(value, ensure_ascii=False).encode()  # half a character (a lone surrogate) has no bytes
    except (ValueError, RecursionError) as error:
        raise TokenMalformed("the token is malformed") from error
    if not isinstance(value, dict):
        raise TokenMalformed("the token is malformed")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a member appears twice")
    return made


def _refused(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _word(members: Mapping[str, Any], name: str) -> str | None:
    """The member in lower case; "" where it is no text, which is no kind of token that is known."""
    if name not in members:
        return None
    value = members[name]
    return value.lower() if isinstance(value, str) else ""
