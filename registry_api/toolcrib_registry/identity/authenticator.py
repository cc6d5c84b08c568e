"""From an Authorization header to an identity. A token that is present but bad is never anonymous."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qsl

from toolcrib.authorizer import is_valid
from toolcrib.errors import TokenError, UnknownKey
from toolcrib.identity import Identity, Issuer, check_issuers, verify
from toolcrib_registry.clock import Clock
from toolcrib_registry.identity.keys import Keys

REMEMBERED = 10_000
"""Verified tokens remembered at one time."""
QUERY_NAMES = frozenset({"access_token", "token", "id_token", "auth_token", "bearer", "authorization", "jwt"})


@dataclass(frozen=True, slots=True)
class Asker:
    """Who is asking: an identity, nobody (no token), or somebody whose token is bad (`problem` says why).

    `unknown`: nothing can be said of the token yet, because its issuer's keys have never been had. `token` is the one that
    the identity was proven by, if its issuer exchanges tokens; it goes nowhere but to that issuer.
    """

    identity: Identity | None = None
    problem: str | None = None
    unknown: bool = False
    token: str = field(default="", repr=False, compare=False)

    @property
    def account(self) -> str:
        """Who takes turns and fills room; empty without an identity."""
        return "" if self.identity is None else self.identity.account


NOBODY = Asker()


class Authenticator:
    """Verifies bearer tokens of some issuers and remembers the good ones until they expire.

    Args:
        issuers: those trusted for this listener.
        keys: their public keys.
        clock: tells what has expired.
    """

    def __init__(self, issuers: Iterable[Issuer], keys: Keys, clock: Clock) -> None:
        self._issuers: Mapping[str, Issuer] = check_issuers(issuers)
        self._exchanging = frozenset(
            name for name, each in self._issuers.items() if each.exchange_url is not None
        )
        self._keys = keys
        self._clock = clock
        self._known: OrderedDict[bytes, Asker] = OrderedDict()
        self._version = keys.version

    @property
    def version(self) -> int:
        """Grows when an issuer's keys change: what was identified before may be refused now."""
        return self._keys.version

    async def identify(self, headers: list[bytes]) -> Asker:
        """Who the values of a request's Authorization headers stand for. Never raises."""
        if not headers:
            return NOBODY
        if len(headers) > 1:
            return Asker(problem="several Authorization headers")
        scheme, _, token = headers[0].strip().partition(b" ")
        token = token.strip()
        if scheme.lower() != b"bearer" or not token:
            return Asker(problem="the Authorization header is not of the form Bearer <token>")
        asker = self._remembered(token) or await self._verified(token)
        if asker.identity is None or asker.identity.issuer not in self._exchanging:
            return asker
        # those that are remembered are without: what is kept for long holds digests of tokens alone
        return replace(asker, token=token.decode("ascii"))

    def _remembered(self, token: bytes) -> Asker | None:
        if self._version != self._keys.version:
            self._known.clear()
            self._version = self._keys.version
            return None
        known = self._known.get(hashlib.sha256(token).digest())
        if known is None or known.identity is None or not is_valid(known.identity, self._clock.now()):
            return None
        return known

    async def _verified(self, token: bytes) -> Asker:
        try:
            text = token.decode("ascii")
        except UnicodeDecodeError:
            return Asker(problem="the token is malformed")
        version = self._keys.version
        try:
            identity = await self._verify(text)
        except UnknownKey as error:
            return Asker(problem=str(error), unknown=error.issuer not in self._keys.keys)
        except TokenError as error:
            return Asker(problem=str(error))
        asker = Asker(identity)
        if version == self._version == self._keys.version:
            self._known[hashlib.sha256(token).digest()] = asker
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return asker

    async def _verify(self, token: str) -> Identity:
        try:
            return self._once(token)
        except UnknownKey as error:
            if not await self._keys.refresh(error.issuer):
                raise
        return self._once(token)

    def _once(self, token: str) -> Identity:
        return verify(token, issuers=self._issuers, keys=self._keys.keys, now=self._clock.now())


def token_in_query(query: bytes) -> str | None:
    """The name of a parameter that looks like a token in a URL, where logs and proxies would keep it."""
    if not query:
        return None
    for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name.lower() in QUERY_NAMES:
            return name.lower()
    return None
