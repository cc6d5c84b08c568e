"""The outermost layer, plain ASGI: what is true of every request, and the raw path of `GET /`.

In order: Host (421) and Origin (403), tokens in query strings (400), who is asking, then either the answer of
`GET /` from the bytes kept with the view, or the app. Every answer carries X-Request-Id. Nothing here logs a query.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from toolcrib.telemetry import logs, tracing
from toolcrib_registry.audit.log import GONE, TOKEN, reason_of
from toolcrib_registry.calls.assertions.signing import JWKS_PATH
from toolcrib_registry.deps import Deps
from toolcrib_registry.failures import Failure
from toolcrib_registry.http import access_log
from toolcrib_registry.http.access_log import ASKER, CODE, Exchange
from toolcrib_registry.http.problems import PROBLEM_JSON, ProblemError, problem_of, unauthenticated
from toolcrib_registry.http.view_answers import Made, send_view_answer
from toolcrib_registry.identity.authenticator import NOBODY, Asker, token_in_query
from toolcrib_registry.policy import discovery
from toolcrib_registry.policy.state import CallerView
from toolcrib_registry.settings import RegistrySettings

REQUEST_ID = "toolcrib.request_id"

_NOT_READY = ProblemError(
    "not_ready", "No leader has published to this replica yet.", headers={"Retry-After": "1"}
)
_NO_KEYS = ProblemError(
    "not_ready", "The keys of the token's issuer have not been had yet.", headers={"Retry-After": "5"}
)
_GONE = Asker(problem="the token's service account was deleted, or recreated since the token was issued")
_UNGATED = frozenset({"/health", "/healthz", "/readyz", "/openapi.json", "/oauth/token", JWKS_PATH})
_ACTIONS = frozenset({"search", "describe", "load", "call", "watch", "access-review"})
_CLOSED = ("/v1/", "/api/")
"""Nothing below is answered without an identity, but for the list where that is switched on."""
_SEARCHES = frozenset({"/api/search/semantic", "/v1/compat/intelligent_tool_finder"})
_ANONYMOUS_LISTS = "/v1/tools"


class HostRules:
    """Which Host and Origin headers are answered (against DNS rebinding and foreign pages)."""

    def __init__(self, settings: RegistrySettings) -> None:
        names = {h.lower() for h in settings.allowed_hosts} | {settings.public_host.lower()}
        self._any = "*" in names
        self._domains = tuple(n[1:] for n in names if n.startswith("*."))
        self._hosts = frozenset(n for n in names if not n.startswith("*."))
        self._origins = frozenset(o.lower().rstrip("/") for o in settings.allowed_origins)

    def check(self, hosts: list[bytes], origins: list[bytes]) -> ProblemError | None:
        """What is wrong with them, if anything."""
        host = hosts[0].decode("latin-1").lower() if len(hosts) == 1 else ""
        if not self._any and not self._serves(_name_of(host)):
            return ProblemError("wrong_host", "This host is not served here; see allowed_hosts.")
        if len(origins) > 1:
            return ProblemError("origin_refused", "Several Origin headers: send one at most.")
        for origin in origins:
            text = origin.decode("latin-1").lower().rstrip("/")
            if text not in self._origins and text not in (f"http://{host}", f"https://{host}"):
                return ProblemError("origin_refused", "Web pages of this origin are not let in.")
        return None

    def _serves(self, name: str) -> bool:
        """Whether the name is one of ours, or below a domain of ours: `*.…`, as Gateways and Ingresses have it."""
        return name in self._hosts or (name.endswith(self._domains) and not name.startswith((".", "*")))


def _name_of(host: str) -> str:
    """The host without its port; IPv6 in brackets."""
    if host.startswith("["):
        return host[: host.find("]") + 1]
    return host.rsplit(":", 1)[0].rstrip(".")


class Edge:
    """The agents' listener: wraps the FastAPI app."""

    def __init__(self, app: ASGIApp, deps: Deps) -> None:
        self._app = app
        self._deps = deps
        self._rules = HostRules(deps.settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; other protocols go to the app (lifespan) or nowhere."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if tracing.is_on() and access_log.TRACED not in scope:
            await access_log.traced(self, scope, receive, send)
            return
        hosts: list[bytes] = []
        tokens: list[bytes] = []
        origins: list[bytes] = []
        given_id = none_match = None
        for name, value in scope["headers"]:
            if name == b"host":
                hosts.append(value)
            elif name == b"authorization":
                tokens.append(value)
            elif name == b"origin":
                origins.append(value)
            elif name == b"x-request-id":
                given_id = value
            elif name == b"if-none-match":
                none_match = value if none_match is None else none_match + b"," + value
        request_id = access_log.request_id_of(given_id)
        logs.request_id.set(request_id)
        GONE.set(None)
        TOKEN.set(None)
        problem = self._rules.check(hosts, origins) or _query_problem(scope["query_string"])
        if problem is None:
            path, method = scope["path"], scope["method"]
            asker = NOBODY if path in _UNGATED or not tokens else await self._identify(tokens)
            if asker.problem is not None:
                self._deps.metrics.refused_token()
            scope[ASKER] = asker
            problem = self._gate(path, method, asker)
            if problem is not None:
                self._deps.decisions.refused(_action(path, method), reason_of(problem.code), asker.identity)
            if problem is None and path == "/" and method in ("GET", "HEAD"):
                try:
                    await self._discover(asker, none_match, request_id, scope, send)
                    return
                except Failure as error:
                    problem = problem_of(error)
                    self._deps.decisions.refused("list", problem.code, asker.identity)
                except ProblemError as error:
                    problem = error
        scope[REQUEST_ID] = request_id
        exchange = Exchange(scope, send, request_id)
        try:
            if problem is not None:
                scope[CODE] = problem.code
                await send_problem(problem, exchange.send)
            else:
                await self._app(scope, receive, exchange.send)
        finally:
            exchange.log()

    async def _identify(self, tokens: list[bytes]) -> Asker:
        """Who is asking. A token whose ServiceAccount is gone is as bad as one that never was good."""
        asker = await self._deps.agents.identify(tokens)
        if asker.identity is not None:
            TOKEN.set(asker.identity.token_id)
        # asked at every request: the authenticator remembers tokens, and a deletion must bite at once
        if asker.identity is not None and self._deps.state.snapshot.policy.is_gone(asker.identity):
            GONE.set(asker.identity)
            return _GONE
        return asker

    def _gate(self, path: str, method: str, asker: Asker) -> ProblemError | None:
        """401 before a body is read, where nothing is answered without an identity; 503 before the first snapshot,
        and before the first keys of the token's issuer.

        Clients keep the list they have on any answer but 200: an empty one from a replica that has just started would
        take every agent's tools away until a leader has published.
        """
        if asker.identity is not None:
            return None if self._deps.state.ready else _NOT_READY
        if asker.unknown:
            return _NO_KEYS
        if path.startswith(_CLOSED):
            listing = path == _ANONYMOUS_LISTS or path.startswith(_ANONYMOUS_LISTS + "/")
            anonymous = self._deps.settings.discovery.anonymous == "list" and asker.problem is None
            return None if listing and anonymous else unauthenticated(asker.problem)
        if method == "POST" and path.startswith("/tools/"):
            return unauthenticated(asker.problem)
        return None

    async def _discover(
        self, asker: Asker, none_match: bytes | None, request_id: str, scope: Scope, send: Send
    ) -> None:
        deps = self._deps

        async def make(caller_view: CallerView) -> Made:
            body, etag = await discovery.answer(deps.state, caller_view, deps.settings)
            unchanged = none_match is not None and matches(none_match, etag)
            headers = (
                (b"etag", etag),
                (b"cache-control", b"private, no-cache"),
                (b"vary", b"Authorization"),
                (b"x-content-type-options", b"nosniff"),
                (b"x-request-id", request_id.encode()),
            )

            def record(seen: CallerView) -> None:
                deps.metrics.discovered(seen.identity, "/")
                deps.decisions.listed("list", seen)
                # the one line that is worth a look at the level first: this is asked thousands of times a second
                if access_log.log.isEnabledFor(logging.DEBUG):
                    access_log.write(logging.DEBUG, scope, "/", 304 if unchanged else 200, request_id)

            return Made(body, headers, unchanged, record)

        await send_view_answer(deps, asker, make, send, head=scope["method"] == "HEAD")


def _action(path: str, method: str) -> str:
    """What a request that is refused unread was about, for its record."""
    if path.startswith("/tools/") and method == "POST":
        return "register" if path == "/tools/register" else "call"
    if path in _SEARCHES:
        return "search"
    what = path.removeprefix("/v1/").partition("/")[0]
    return what if path.startswith("/v1/") and what in _ACTIONS else "list"


def matches(none_match: bytes, etag: bytes) -> bool:
    """Whether If-None-Match names `etag` (weak comparison, RFC 9110 §13.1.2)."""
    if none_match.strip() == b"*":
        return True
    return any(tag.strip().removeprefix(b"W/") == etag for tag in none_match.split(b","))


def _query_problem(query: bytes) -> ProblemError | None:
    name = token_in_query(query)
    if name is None:
        return None
    return ProblemError(
        "token_in_query",
        f"The query parameter {name} looks like a token. Send it as Authorization: Bearer … and replace it: "
        "it may have been logged on the way.",
    )


async def send_problem(problem: ProblemError, send: Send) -> None:
    """Send `problem` as the answer."""
    body = problem.body()
    headers: Iterable[tuple[str, str]] = (
        ("content-type", PROBLEM_JSON),
        ("content-length", str(len(body))),
        ("cache-control", "no-store"),
        *(problem.headers or {}).items(),
    )
    encoded = [(k.lower().encode(), v.encode()) for k, v in headers]
    await send({"type": "http.response.start", "status": problem.status_code, "headers": encoded})
    await send({"type": "http.response.body", "body": body})


class OnePort:
    """All listeners on one port, for the local mode: `/v1/admin/…` and `/metrics` go to apps of their own."""

    def __init__(self, agents: ASGIApp, admin: ASGIApp, metrics: ASGIApp, settings: RegistrySettings) -> None:
        self._agents = agents
        self._admin = admin
        self._metrics = metrics
        self._rules = HostRules(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on by its path."""
        path = scope.get("path", "")
        if scope["type"] != "http" or not (path == "/metrics" or path.startswith("/v1/admin")):
            await self._agents(scope, receive, send)
            return
        hosts = [v for k, v in scope["headers"] if k == b"host"]
        origins = [v for k, v in scope["headers"] if k == b"origin"]
        if (problem := self._rules.check(hosts, origins)) is not None:
            await send_problem(problem, send)
            return
        await (self._metrics if path == "/metrics" else self._admin)(scope, receive, send)
