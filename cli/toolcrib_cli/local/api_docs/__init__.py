"""`/docs` of the local mode: the API's pages, made in the browser from `/openapi.json` by Swagger UI.

Everything is served from here, and a Content-Security-Policy lets the page load nothing from elsewhere. A cluster has
no such page: docs/decisions/0070-api-pages.md.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Awaitable, Callable, MutableMapping
from importlib import resources
from typing import Any, NamedTuple

from toolcrib_registry.http.host_rules import HostRules

_Scope = MutableMapping[str, Any]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_App = Callable[[_Scope, Any, _Send], Awaitable[None]]

PATH = "/docs"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class _File(NamedTuple):
    """A file of `assets`, and what it is."""

    name: str
    media_type: str

    @property
    def packed(self) -> bool:
        """Whether it is kept compressed."""
        return self.name.endswith(".gz")


FILES = {
    PATH: _File("index.html", "text/html; charset=utf-8"),
    f"{PATH}/start.js": _File("start.js", "text/javascript; charset=utf-8"),
    f"{PATH}/swagger-ui-bundle.js": _File("swagger-ui-bundle.js.gz", "text/javascript; charset=utf-8"),
    f"{PATH}/swagger-ui.css": _File("swagger-ui.css.gz", "text/css; charset=utf-8"),
    f"{PATH}/licenses": _File("swagger-ui-bundle.js.LICENSE.txt", "text/plain; charset=utf-8"),
}
"""What is served, by path."""


class ApiDocs:
    """Answers GET and HEAD for these files, to the hosts and origins that the registry answers."""

    def __init__(self, rules: HostRules) -> None:
        self._rules = rules

    def beside(self, app: _App) -> _App:
        """An app that answers these paths, and asks `app` for all others."""

        async def answer(scope: _Scope, receive: Any, send: _Send) -> None:
            file = FILES.get(scope["path"]) if scope["type"] == "http" else None
            if file is None:
                await app(scope, receive, send)
            elif (foreign := self._rules.check(_named(scope, b"host"), _named(scope, b"origin"))) is not None:
                await _refuse(send, foreign.status_code, foreign.code, foreign.detail)
            elif scope["method"] not in ("GET", "HEAD"):
                await _refuse(send, 405, "method_not_allowed", "GET only.")
            else:
                await _serve(scope, send, file)

        return answer


async def _serve(scope: _Scope, send: _Send, file: _File) -> None:
    body = resources.files(__name__).joinpath("assets", file.name).read_bytes()
    headers = [
        (b"content-type", file.media_type.encode()),
        (b"content-security-policy", POLICY.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cache-control", b"no-cache"),
    ]
    if file.packed:
        headers.append((b"vary", b"accept-encoding"))
        if any(b"gzip" in value for value in _named(scope, b"accept-encoding")):
            headers.append((b"content-encoding", b"gzip"))
        else:
            body = gzip.decompress(body)
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


async def _refuse(send: _Send, status: int, code: str, detail: str) -> None:
    body = json.dumps({"code": code, "detail": detail}).encode()
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _named(scope: _Scope, name: bytes) -> list[bytes]:
    return [value for key, value in scope["headers"] if key == name]
