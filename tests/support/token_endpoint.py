"""An authorization server on a real loopback port, of which a test decides every answer, and Secrets of its clients."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote_plus

from evil_upstream import Request, Upstream, response, upstream
from toolcrib.resources.backends import AuthType
from toolcrib.wire.backends import PublishedAuth, PublishedOAuth, SecretReference
from toolcrib.wire.publish import Credential, Credentials
from toolcrib_registry.calls.credentials import CredentialStore

CLIENT, SECRET = "the client", "s3cret: of/client"
ID_KEY, SECRET_KEY = "client-id", "client-secret"


def reference(key: str, namespace: str = "heist") -> SecretReference:
    """A key of the client's Secret."""
    return SecretReference(namespace=namespace, name="client", key=key)


def auth(namespace: str = "heist", **oauth: Any) -> PublishedAuth:
    """What a backend that takes access tokens publishes."""
    client = PublishedOAuth(client_id=reference(ID_KEY, namespace), **oauth)
    return PublishedAuth(
        type=AuthType.CLIENT_CREDENTIALS, secret=reference(SECRET_KEY, namespace), oauth=client
    )


def credentials(
    *hosts: str, namespace: str = "heist", client: str = CLIENT, secret: str = SECRET
) -> Credentials:
    """The client's Secret, as the operator pushes it."""
    values = {ID_KEY: client, SECRET_KEY: secret}
    made = (
        Credential(namespace=namespace, name="client", key=key, hosts=hosts, value=value)
        for key, value in values.items()
    )
    return Credentials(epoch=1, credentials=tuple(made))


def store(*hosts: str, **fields: Any) -> CredentialStore:
    """A replica's credentials with that Secret."""
    made = CredentialStore()
    made.replace(credentials(*hosts, **fields))
    return made


@dataclass
class TokenEndpoint:
    """The server. Tokens are `token-1`, `token-2` and so on, unless `answers` says something else."""

    up: Upstream
    lifetime: Any = 3600
    answers: Callable[[], bytes] | None = None
    good: list[str] = field(default_factory=list)
    """Tokens that backends accept."""

    @property
    def url(self) -> str:
        return f"{self.up.url}/token"

    @property
    def requests(self) -> list[Request]:
        """Those for tokens."""
        return [request for request in self.up.requests if request.target == "/token"]

    def accepts(self, request: Request) -> bool:
        """Whether a backend lets this request in."""
        return request.headers.get("authorization", "").removeprefix("Bearer ") in self.good

    def token(self) -> bytes:
        """The next token."""
        value = f"token-{len(self.requests)}"
        self.good.append(value)
        said = {"access_token": value, "token_type": "Bearer", "expires_in": self.lifetime}
        return response(json.dumps({k: v for k, v in said.items() if v is not None}).encode())


@asynccontextmanager
async def token_endpoint() -> AsyncIterator[TokenEndpoint]:
    """One that gives a token to everybody."""

    def answer(request: Request) -> bytes:
        if request.target != "/token":
            return response(b"", status=404)
        return made.token() if made.answers is None else made.answers()

    async with upstream(answer) as up:
        made = TokenEndpoint(up)
        yield made


def form(request: Request) -> dict[str, str]:
    """The fields of a token request."""
    return dict(parse_qsl(request.body.decode(), strict_parsing=True))


def basic(request: Request) -> tuple[str, str]:
    """Id and secret in its header."""
    text = base64.b64decode(request.headers["authorization"].removeprefix("Basic ")).decode()
    identity, _, secret = text.partition(":")
    return unquote_plus(identity), unquote_plus(secret)
