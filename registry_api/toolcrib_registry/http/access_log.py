"""What every request leaves behind, whatever listener it came to: its id, its line in the log, its span.

Lines and spans name the route, never the path, the query or a body: a path may hold what was meant to be secret.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolcrib.telemetry import logs, tracing
from toolcrib_registry.identity.authenticator import Asker

ASKER = "toolcrib.asker"
CODE = "toolcrib.problem_code"
TRACED = "toolcrib.traced"
ROUTE = "toolcrib.route"
"""Keys of the ASGI scope: who asks, the code of the problem that was the answer, whether the span is open, the template
of the route that answers."""
log = logging.getLogger("toolcrib.registry.access")

_CARRIED = (b"traceparent", b"tracestate")
_USUAL = frozenset(
    {
        "/",
        "/health",
        "/healthz",
        "/readyz",
        "/metrics",
        "/v1/admin/heartbeat",
        "/v1/admin/outbox",
        "/v1/admin/calls",
    }
)
PRIVATE = ((b"cache-control", b"private, no-cache"), (b"vary", b"Authorization"))
"""Headers of answers to one caller, where they have none of their own."""


def request_id_of(given: bytes | None) -> str:
    """The caller's id if it is a sane one, else a fresh one."""
    if given is not None and logs.is_sane_request_id(text := given.decode("latin-1")):
        return text
    return logs.new_request_id()


def route_of(scope: Scope) -> str:
    """The template of the route that answers, such as `/tools/{name}`; `other` where there is none."""
    template: str = scope.get(ROUTE) or ("/" if scope["path"] == "/" else "other")
    return template


def _agent(scope: Scope) -> str | None:
    """Who asks, as metrics name it: from a verified token alone."""
    asker: Asker | None = scope.get(ASKER)
    return asker.identity.label if asker is not None and asker.identity is not None else None


class Exchange:
    """One request under way: adds the headers of every answer, and writes one line about it.

    Args:
        challenge: WWW-Authenticate of an answer that is given although the caller's token is bad.
    """

    __slots__ = ("_challenge", "_scope", "_send", "_start", "_status", "request_id")

    def __init__(self, scope: Scope, send: Send, request_id: str, challenge: str | None = None) -> None:
        self._scope = scope
        self._send = send
        self._challenge = challenge
        self.request_id = request_id
        self._status = 0
        self._start = time.perf_counter()

    @property
    def started(self) -> bool:
        """Whether the answer has begun."""
        return self._status != 0

    def send(self, message: Message) -> Awaitable[None]:
        """What the app sends goes through here."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = [
                *message.get("headers", ()),
                (b"x-request-id", self.request_id.encode()),
                (b"x-content-type-options", b"nosniff"),
            ]
            for name, _ in headers:
                if name == b"cache-control":
                    break
            else:
                headers += PRIVATE
            if self._challenge is not None:
                headers.append((b"www-authenticate", self._challenge.encode()))
            message["headers"] = headers
        return self._send(message)

    def log(self) -> None:
        """One line: lists, probes and polls that went well at debug, what broke here at warning, the rest at info."""
        route = route_of(self._scope)
        level = logging.WARNING if self._status >= 500 else logging.INFO
        if self._status < 400 and (route in _USUAL or self._polls(route)):
            level = logging.DEBUG
        if not log.isEnabledFor(level):
            return
        method = self._scope["method"][:16]
        line: dict[str, str | float | None] = {
            "message": f"{method} {route} {self._status}",
            "method": method,
            "route": route,
            "status": self._status,
            "agent": _agent(self._scope),
            "request_id": self.request_id,
            "ms": round((time.perf_counter() - self._start) * 1000, 1),
        }
        if code := self._scope.get(CODE):
            line["code"] = code
        logs.say(log, level, line)

    def _polls(self, route: str) -> bool:
        return bool(self._scope["method"] == "GET" and route.startswith("/v1/admin/"))


async def traced(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Let `app` answer inside the server's span, which continues the caller's trace."""
    scope[TRACED] = True
    status = 0

    async def watched(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        await send(message)

    parent = {k.decode(): v.decode("latin-1") for k, v in scope["headers"] if k in _CARRIED}
    method = scope["method"][:16]
    with tracing.span(method, {"http.request.method": method}, kind="server", parent=parent) as span:
        try:
            await app(scope, receive, watched)
        finally:
            route, code = route_of(scope), scope.get(CODE)
            span.rename(f"{method} {route}")
            span.set({
                "http.route": route,
                "http.response.status_code": status,
                "toolcrib.problem.code": code,
                "toolcrib.request_id": logs.request_id.get() or None,
                "toolcrib.agent": _agent(scope),
            })  # fmt: skip
            if status >= 500:
                span.failed(code or str(status))
