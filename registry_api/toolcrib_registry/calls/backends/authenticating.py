"""What authenticates a call now: a value of a Secret as it is, or an access token that is obtained with one."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from toolcrib.identity import Identity, Issuer
from toolcrib.resources import credential_hosts
from toolcrib.resources.backends import AuthType
from toolcrib.wire.backends import PublishedAuth, PublishedBackend, PublishedOAuth
from toolcrib_registry.calls.backends.remedies import CLUSTER, Remedies
from toolcrib_registry.calls.backends.routes import (
    Authentication,
    authentication,
    credential_of,
    refused_place,
)
from toolcrib_registry.calls.credentials import CredentialStore
from toolcrib_registry.calls.errors import BackendAuthFailed, CredentialPending
from toolcrib_registry.calls.oauth import grants
from toolcrib_registry.calls.oauth.grants import Grant
from toolcrib_registry.calls.oauth.tokens import Tokens
from toolcrib_registry.outbound.errors import EgressRefused
from toolcrib_registry.outbound.guard import Target


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, and by which token."""

    identity: Identity
    token: str = field(repr=False)


def owner(
    backend: PublishedBackend | None, caller: Caller, *, private: bool = False
) -> tuple[Any, ...] | None:
    """The caller to whom a backend's answer belongs, as a key; None: it is everybody's.

    Whatever is kept of answers is kept by this key.

    Args:
        backend: the source of the answer.
        caller: on whose behalf it was asked.
        private: the answer itself says that it is for its caller alone (MCP's `cacheScope`).
    """
    personal = private or (backend is not None and backend.personal)
    return caller.identity.cache_key if personal else None


REJECTED = BackendAuthFailed(
    "the backend refuses the access token (401). Check auth.oauth.scope and auth.oauth.resource, and what the client may do"
)


@dataclass(frozen=True, slots=True)
class Authenticating:
    """Finds it.

    Attributes:
        credentials: what the operator pushed.
        tokens: obtains access tokens; None: there are none.
        issuers: those whose tokens callers have, by `iss`.
        remedies: what to do about a host that may not be called.
    """

    credentials: CredentialStore
    tokens: Tokens | None = None
    remedies: Remedies = CLUSTER
    issuers: Mapping[str, Issuer] = field(default_factory=dict)

    def known(self, auth: PublishedAuth | None, namespace: str, to: Target) -> Authentication:
        """The same as `of`, with the access token that there is already, or without one.

        Raises:
            CallError: see `of`.
        """
        if auth is None or auth.oauth is None:
            return authentication(auth, self.credentials, to)
        grant = self._grant(auth, auth.oauth, namespace, to)
        token = None if self.tokens is None else self.tokens.held(grant)
        return Authentication({}, (), grant) if token is None else _bearer(token, grant)

    async def of(
        self,
        auth: PublishedAuth | None,
        namespace: str,
        to: Target,
        seconds: float,
        caller: Caller | None = None,
    ) -> Authentication:
        """What authenticates to the backend at `to`, within `seconds`; `caller` None: nobody calls, a list is read.

        Raises:
            CredentialPending: this replica has no credential, or it has changed meanwhile.
            Refused: it may not go there.
            BackendAuthFailed, BackendUnavailable: no access token can be had.
        """
        if auth is None or auth.oauth is None:
            return authentication(auth, self.credentials, to)
        grant = self._grant(auth, auth.oauth, namespace, to, caller)
        if self.tokens is None:
            raise BackendAuthFailed("this registry obtains no access tokens")
        try:
            token = await self.tokens.token(grant, seconds, "" if caller is None else caller.token)
        except EgressRefused as refused:
            raise refused_place(refused, self.remedies) from refused
        if self._grant(auth, auth.oauth, namespace, to, caller) != grant:
            raise CredentialPending("the backend's credential has just changed", retry_after=1)
        return _bearer(token, grant)

    def renewed(self, sent: Authentication) -> bool:
        """The backend refused what was sent (401). Whether another token should be asked for, once."""
        if sent.grant is None or self.tokens is None:
            return False
        return self.tokens.drop(sent.grant, sent.secrets[0])

    def latest(self, sent: Authentication) -> Mapping[str, str]:
        """The header fields that authenticate now, where they are sent again and again."""
        token = None if sent.grant is None or self.tokens is None else self.tokens.held(sent.grant)
        return sent.headers if token is None else _fields(token)

    def _grant(
        self,
        auth: PublishedAuth,
        oauth: PublishedOAuth,
        namespace: str,
        to: Target,
        caller: Caller | None = None,
    ) -> Grant:
        secret = credential_of(auth, self.credentials, to)
        references = (oauth.client_id, auth.secret)
        values = grants.values(references, self.credentials)
        if values is None:
            raise CredentialPending(
                "the backend's client id has not reached this replica yet. See the Tool's Ready condition",
                retry_after=5,
            )
        if auth.type is not AuthType.TOKEN_EXCHANGE:
            caller = None
        issuer = None if caller is None else self._issuer(caller)
        return Grant(
            namespace=namespace,
            backend=to.origin,
            server=to if (oauth.token_url, oauth.token_service, caller) == (None, None, None) else None,
            token_url=oauth.token_url,
            token_service=oauth.token_service,
            client_id=values[0],
            client_secret=values[1],
            references=references,
            hosts=credential_hosts.entries(secret.hosts),
            authentication=oauth.client_authentication,
            scope=oauth.scope,
            resource=oauth.resource,
            audience=oauth.audience,
            issuer=issuer,
            subject="" if caller is None else hashlib.sha256(caller.token.encode()).hexdigest(),
            expires_at=math.inf if caller is None else caller.identity.expires_at,
        )

    def _issuer(self, caller: Caller) -> Issuer:
        """The issuer that made the caller's token, as the registry's settings have it."""
        issuer = self.issuers.get(caller.identity.issuer)
        if issuer is None or not caller.token:
            raise BackendAuthFailed("the tool's backend takes tokens of callers, and this caller has none")
        return issuer


def _bearer(token: str, grant: Grant) -> Authentication:
    return Authentication(_fields(token), (token,), grant)


def _fields(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}
