"""The keys of a registry for the example tools: fetched directly, whatever proxy variables say."""

import http.client
import json
import ssl
import urllib.request
from pathlib import Path
from typing import Any

import jwt

JWKS_PATH = "/.well-known/jwks.json"
SECONDS = 5
LARGEST = 64 * 1024


class DirectKeys(jwt.PyJWKClient):
    """A `PyJWKClient` without proxies: a registry is a neighbour, on this machine or in this cluster."""

    def fetch_data(self) -> Any:
        """The key set. Raises jwt.PyJWKClientConnectionError where it cannot be fetched."""
        handlers: list[Any] = [urllib.request.ProxyHandler({}), _NoRedirects()]
        if self.ssl_context is not None:
            handlers.append(urllib.request.HTTPSHandler(context=self.ssl_context))
        try:
            with urllib.request.build_opener(*handlers).open(self.uri, timeout=self.timeout) as answer:
                return json.loads(answer.read(LARGEST))
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise jwt.PyJWKClientConnectionError(f"the keys cannot be fetched: {error}") from error


def keys_at(url: str, ca_file: Path | None = None) -> jwt.PyJWKClient:
    """The keys at `url`, fetched when they are needed first.

    Raises:
        OSError: the CA file cannot be read or holds no certificate.
        jwt.PyJWTError: not an http or https address.
    """
    context = ssl.create_default_context(cafile=ca_file) if ca_file else None
    return DirectKeys(url, timeout=SECONDS, ssl_context=context)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None
