"""What is asked of a token endpoint: pure."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote_plus, urlencode

import orjson

from toolcrib.identity import Issuer
from toolcrib.resources.backends import ClientAuthentication
from toolcrib.version import __version__
from toolcrib.wire.backends import PublishedTokenService, SecretReference
from toolcrib_registry.calls.credentials import CredentialStore
from toolcrib_registry.outbound.guard import Target

EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class Grant:
    """One OAuth client, and the backend that its tokens are for. With another id or secret it is another grant.

    Attributes:
        namespace: on whose behalf tokens are obtained.
        backend: origin of the backend.
        server: the MCP server whose metadata names the token endpoint; None: `token_url` or `token_service` does.
        token_url, token_service: the token endpoint, as configured.
        client_id, client_secret: of the client.
        references: where both were read from.
        hosts: entries of the Secret's annotation: where the secret may go.
        authentication: how id and secret are sent.
        scope, resource, audience: what the token is to be good for; None: the authorization server decides.
        issuer: that of the caller's token, which is exchanged there; None: the client asks for itself.
        subject: digest of that token, so that no caller gets another's.
        expires_at: its end, in seconds since the epoch.
    """

    namespace: str
    backend: str
    server: Target | None
    token_url: str | None
    token_service: PublishedTokenService | None
    client_id: str = field(repr=False)
    client_secret: str = field(repr=False)
    references: tuple[SecretReference, SecretReference]
    hosts: frozenset[str] = frozenset()
    authentication: ClientAuthentication = ClientAuthentication.BASIC
    scope: str | None = None
    resource: str | None = None
    audience: str | None = None
    issuer: Issuer | None = field(default=None, compare=False)  # `subject` tells its tokens apart
    subject: str = ""
    expires_at: float = math.inf

    @property
    def digest(self) -> str:
        """Tells grants apart, also by id and secret, without showing them."""
        told = (
            self.backend, self.token_url, self.client_id, self.client_secret, self.authentication, self.scope,
            self.resource, self.audience, self.subject, str(self.token_service),
        )  # fmt: skip
        return hashlib.sha256(orjson.dumps(told)).hexdigest()

    @property
    def endpoint(self) -> str:
        """Names its authorization server within its namespace, for breakers and logs."""
        if self.issuer is not None:
            return self.issuer.issuer
        if self.token_service is not None:
            return str(self.token_service)
        return self.token_url or f"the one of {self.backend}"


def request(grant: Grant, resource: str | None, token: str = "") -> tuple[Mapping[str, str], bytes]:
    """Header fields and body of a token request (RFC 6749, 4.4.2; RFC 8693, 2.1; RFC 8707).

    Args:
        grant: which.
        resource: what the token is for; None: it is not said.
        token: the caller's, if one is exchanged.
    """
    fields = {"grant_type": "client_credentials"}
    if grant.issuer is not None:
        fields = {
            **grant.issuer.exchange_parameters,
            "grant_type": EXCHANGE,
            "subject_token": token,
            "subject_token_type": ACCESS_TOKEN,
        }
    if grant.audience is not None:
        fields["audience"] = grant.audience
    if grant.scope is not None:
        fields["scope"] = grant.scope
    if resource is not None:
        fields["resource"] = resource
    headers = {
        "accept": "application/json",
        "content-type": FORM,
        "user-agent": f"toolcrib/{__version__}",
    }
    if grant.authentication is ClientAuthentication.POST:
        fields |= {"client_id": grant.client_id, "client_secret": grant.client_secret}
    else:
        pair = f"{quote_plus(grant.client_id)}:{quote_plus(grant.client_secret)}"
        headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return headers, urlencode(fields).encode()


def values(
    references: tuple[SecretReference, SecretReference], credentials: CredentialStore
) -> tuple[str, str] | None:
    """Client id and secret as this replica holds them now; None: it lacks one."""
    identity, secret = (credentials.get(each) for each in references)
    if identity is None or secret is None:
        return None
    # Secrets made from files end in a newline
    return identity.value.strip("\r\n"), secret.value.strip("\r\n")
