"""A token source that asks a token endpoint: OAuth 2.0 client credentials (RFC 6749 §4.4)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import httpx2

from toolcrib_runner import tokens
from toolcrib_runner.errors import TokenUnavailable

MAX_ANSWER = 256 * 1024
EARLY = 0.2
"""The part of a token's life that is not used, so that it does not expire on its way."""


class ClientCredentials:
    """Gets a token from `url` for a client id and secret, and a new one before it expires or when it is refused."""

    def __init__(
        self,
        url: str,
        client_id: str,
        client_secret: str,
        *,
        scope: str | None = None,
        timeout: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url
        self._client_id = client_id
        self._secret = client_secret
        self._scope = scope
        self._timeout = timeout
        self._clock = clock
        self._lock = threading.Lock()
        self._token: str | None = None
        self._until = 0.0

    def __call__(self) -> str:
        """The current token.

        Raises:
            TokenUnavailable: the endpoint gives none; the message has its OAuth error code, if any.
        """
        with self._lock:
            if self._token is None or self._clock() >= self._until:
                self._token, life = self._fetch()
                self._until = self._clock() + life * (1 - EARLY)
            return self._token

    def renew(self) -> None:
        """Fetch a new token at the next call."""
        with self._lock:
            self._token = None

    def _fetch(self) -> tuple[str, float]:
        form = {"grant_type": "client_credentials"} | (
            {"scope": self._scope} if self._scope is not None else {}
        )
        try:
            with httpx2.Client(timeout=self._timeout, trust_env=False) as client:
                with client.stream(
                    "POST", self._url, data=form, auth=httpx2.BasicAuth(self._client_id, self._secret)
                ) as response:
                    body = _bounded(response)
                    status = response.status_code
        except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
            raise TokenUnavailable(f"the token endpoint cannot be reached: {error}") from error
        try:
            answer = httpx2.Response(200, content=body).json()
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise TokenUnavailable(f"the token endpoint returned status {status} and no JSON")
        if status != 200:
            code = answer.get("error")
            raise TokenUnavailable(
                f"the token endpoint returned status {status}: {code if isinstance(code, str) else '?'}"
            )
        token, life = answer.get("access_token"), answer.get("expires_in", 60)
        if not isinstance(token, str) or not isinstance(life, int | float):
            raise TokenUnavailable("the token endpoint's response has no access_token")
        return tokens.checked(token), float(life)

    def __repr__(self) -> str:
        return f"ClientCredentials({self._client_id!r})"


def _bounded(response: httpx2.Response) -> bytes:
    body = b""
    for part in response.iter_bytes():
        body += part
        if len(body) > MAX_ANSWER:
            raise TokenUnavailable("the token endpoint's response is too large")
    return body
