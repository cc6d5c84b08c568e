"""How a server is reached and what authenticates a look at it: as calls of its tools are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from toolcrib.identity import Identity
from toolcrib.resources.backends import ASSERTION_HEADER
from toolcrib.wire.imports import ServerWanted
from toolcrib_registry.calls.backends.authenticating import Authenticating
from toolcrib_registry.calls.backends.remedies import CLUSTER, Remedies
from toolcrib_registry.calls.backends.routes import Asserts, Authentication
from toolcrib_registry.calls.credentials import CredentialStore
from toolcrib_registry.calls.oauth.tokens import Tokens
from toolcrib_registry.outbound.guard import PolicySource, Target, target
from toolcrib_registry.upstream.servers import Asking, Server

SUBJECT = "toolcrib:import"
"""`sub` of the assertion of a look: no caller is behind it."""


def audience(server: str) -> str:
    """`aud` of the assertion of a look: no tool has this id."""
    return f"toolservers/{server}"


@dataclass(frozen=True, slots=True)
class Route:
    """Where a server is asked, and with what."""

    server: Server
    asking: Asking
    credential: Authentication = field(repr=False)


@dataclass(frozen=True, slots=True)
class Routes:
    """Finds the routes of servers.

    Attributes:
        policy: the same policy that the client's pool enforces.
        credentials: what the operator pushed.
        assertions: signs requests to servers that take assertions; None: nothing is signed.
        issuer: `sub_iss` of those assertions.
        tokens: obtains access tokens; None: servers that take some cannot be looked at.
        remedies: what to do about a place that the guard refuses.
    """

    policy: PolicySource
    credentials: CredentialStore
    assertions: Asserts | None = None
    issuer: str = ""
    tokens: Tokens | None = None
    remedies: Remedies = CLUSTER

    @property
    def version(self) -> tuple[object, object]:
        """Something else whenever a route may be another."""
        return self.policy.current, self.credentials.version

    def server(self, wanted: ServerWanted) -> Server:
        """The server as it would be asked now; nothing is sent.

        Raises:
            EgressRefused: the guard says no, or no address is known.
            CallError: the credential is not here, or must not go there.
        """
        to = self._place(wanted)
        credential = self._auth.known(wanted.backend.auth, wanted.namespace, to)
        return Server(wanted.server, to, credential.digest, wanted.namespace)

    async def of(self, wanted: ServerWanted) -> Route:
        """The route of a server now.

        Raises:
            EgressRefused: the guard says no, or no address is known.
            CallError: the credential is not here, must not go there, or gives no access token.
        """
        backend, namespace, to = wanted.backend, wanted.namespace, self._place(wanted)
        auth = self._auth
        credential = await auth.of(backend.auth, namespace, to, backend.timeout)
        signer = self.assertions if backend.asserted else None
        caller = Identity(issuer=self.issuer, subject=SUBJECT, expires_at=math.inf)

        def sign(method: str, body: bytes | None) -> Mapping[str, str]:
            if signer is None or method == "DELETE":
                return auth.latest(credential)
            made = signer.made(audience(wanted.server), caller, method, to.path, body)
            return {**auth.latest(credential), ASSERTION_HEADER: made}

        server = Server(wanted.server, to, credential.digest, namespace)
        return Route(server, Asking(backend.timeout, sign), credential)

    def renewed(self, route: Route) -> bool:
        """The server refused the credential (401). Whether the route is to be made again, once."""
        return self._auth.renewed(route.credential)

    @property
    def _auth(self) -> Authenticating:
        return Authenticating(self.credentials, self.tokens, self.remedies)

    def _place(self, wanted: ServerWanted) -> Target:
        return target(wanted.backend, namespace=wanted.namespace, policy=self.policy.current)
