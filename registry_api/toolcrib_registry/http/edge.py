"""The outermost layer, plain ASGI: what is true of every request, as its line of the route table says.

In order: Host (421) and Origin (403), tokens in query strings (400), who is asking and whether that is enough (401, 403,
503), whether there is such a route (404, 405), its body, read and parsed once (400, 413, 415), then the app, or one of
the routes that pass it by (`direct`). Every answer carries X-Request-Id. Nothing here logs a query.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from toolcrib.authorizer import Action
from toolcrib.telemetry import logs, tracing
from toolcrib_registry.audit.request import GONE, SESSION, TOKEN, reason_of
from toolcrib_registry.deps import Deps
from toolcrib_registry.failures import Failure
from toolcrib_registry.http import access_log
from toolcrib_registry.http.access_log import ASKER, CODE, ROUTE, Exchange
from toolcrib_registry.http.bodies import BODY, PARSED, Intake, Unreadable
from toolcrib_registry.http.connection_limits import PLACE
from toolcrib_registry.http.direct import ABSENT, Asked, Direct
from toolcrib_registry.http.host_rules import HostRules
from toolcrib_registry.http.problems import (
    ProblemError,
    broken,
    problem_of,
    unauthenticated,
    unrouted,
)
from toolcrib_registry.http.route_table import Access, Body, Match, RouteTable, Rule
from toolcrib_registry.identity import resources
from toolcrib_registry.identity.authenticator import NOBODY, Asker, Authenticator, token_in_query
from toolcrib_registry.identity.resources import ProtectedResource
from toolcrib_registry.settings import RegistrySettings

_NOT_READY = ProblemError(
    "not_ready",
    "This replica has not received a policy from the operator yet. Retry shortly.",
    headers={"Retry-After": "1"},
)
_NO_KEYS = ProblemError(
    "not_ready",
    "The token issuer's keys have not been fetched yet. Retry shortly.",
    headers={"Retry-After": "5"},
)
_GONE = Asker(problem="the token's service account was deleted, or recreated since the token was issued")
_NONE: Mapping[tuple[str, str], Direct] = {}
_SESSION = re.compile(rb"[A-Za-z0-9._-]{1,64}/[0-9]{1,6}")
_CLOSED = ("/v1/", "/v0.1/", "/api/")
"""Below these nobody without an identity is told whether there is a route."""


class Edge:
    """The agents' listener: wraps an app, and enforces `table` for it. `direct` are the routes that pass it by.

    Raises:
        RouteTableError: one of `direct` has no line.
    """

    def __init__(
        self,
        app: ASGIApp,
        deps: Deps,
        table: RouteTable,
        direct: Mapping[tuple[str, str], Direct] = _NONE,
    ) -> None:
        self._app = app
        self._deps = deps
        self._table = table
        self._direct: Mapping[Rule | None, Direct] = {table.rule(*route): direct[route] for route in direct}
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
        sessions: list[bytes] = []
        given_id = None
        for name, value in scope["headers"]:
            if name == b"host":
                hosts.append(value)
            elif name == b"authorization":
                tokens.append(value)
            elif name == b"origin":
                origins.append(value)
            elif name == b"x-request-id":
                given_id = value
            elif name == b"x-toolcrib-session":
                sessions.append(value)
        request_id = access_log.request_id_of(given_id)
        logs.request_id.set(request_id)
        GONE.set(None)
        TOKEN.set(None)
        SESSION.set(self._session(sessions) if sessions else None)
        path, method = scope["path"], scope["method"]
        found = self._table.find(method, path)
        near = found.near
        asker = NOBODY
        problem = self._rules.check(hosts, origins) or _query_problem(scope["query_string"])
        if problem is None:
            access = near.access if near is not None else _unknown(path)
            if access is not Access.PUBLIC:
                resource = self._resource(found)
                if tokens:
                    asker = await self._identify(tokens, resource)
                    if asker.problem is not None:
                        self._deps.metrics.refused_token()
                problem = self._gate(access, asker, resource)
            scope[ASKER] = asker
        if problem is not None:
            action = near.line.action if near is not None else Action.LIST
            self._deps.decisions.refused(action, reason_of(problem.code), asker.identity)
        # a route that answers everybody shows a bad token what it shows nobody: the answer itself does not say why
        refused = asker.problem if problem is None else None
        challenge = None if refused is None else resources.challenge("invalid_token", description=refused)
        exchange = Exchange(scope, send, request_id, challenge)
        try:
            if problem is not None:
                await _refuse(problem, scope, receive, exchange.send)
            else:
                await self._answered(found, scope, receive, exchange)
        finally:
            exchange.log()

    async def _answered(self, found: Match, scope: Scope, receive: Receive, exchange: Exchange) -> None:
        """What is let in: its body is read here, and the app answers, or one of `direct`."""
        rule, deps = found.rule, self._deps
        scope[ROUTE] = None if found.near is None else found.near.template
        asker: Asker = scope[ASKER]
        intake = None
        try:
            if rule is None:
                raise unrouted(self._table.methods(scope["path"]))
            if rule.body is not Body.NONE:
                intake = Intake(deps.large, asker.account)
                await _take_body(rule, scope, receive, intake, deps.settings.limits.json_depth)
            direct = self._direct.get(rule)
            if direct is None:
                await self._app(scope, receive, exchange.send)
                return
            value = scope.get(PARSED, ABSENT)
            request = Asked(deps, asker, exchange.request_id, found.params, value, scope, receive)
            await (await direct(request)).send(exchange.send)
        except (ProblemError, Failure) as error:
            await _refuse(error, scope, receive, exchange.send, self._resource(found))
        except Exception:
            # as Starlette does it: told to the caller, and raised for the server to log
            if self._direct.get(rule) is not None and not exchange.started:
                await _refuse(broken(), scope, receive, exchange.send)
            raise
        finally:
            if intake is not None:
                intake.done()

    def _resource(self, found: Match) -> ProtectedResource | None:
        """What has tokens of its own, if the request is for that."""
        return None if found.near is None else self._deps.resources.get(found.near.line.path)

    def _session(self, given: list[bytes]) -> str | None:
        """The session and turn that a request claims, for the decision log."""
        if len(given) == 1 and _SESSION.fullmatch(given[0]):
            return given[0].decode()
        self._deps.metrics.ignored_session()
        return None

    async def _identify(self, tokens: list[bytes], resource: ProtectedResource | None) -> Asker:
        """Who is asking. A token whose ServiceAccount is gone is as bad as one that never was good."""
        agents = self._deps.agents if resource is None else resource.agents
        asker = await agents.identify(tokens)
        if asker.identity is not None:
            TOKEN.set(asker.identity.token_id)
        # asked at every request: the authenticator remembers tokens, and a deletion must bite at once
        if asker.identity is not None and self._deps.state.snapshot.policy.is_gone(asker.identity):
            GONE.set(asker.identity)
            return _GONE
        return asker

    def _gate(self, access: Access, asker: Asker, resource: ProtectedResource | None) -> ProblemError | None:
        """401 before a body is read, where nothing is answered without an identity; 503 before the first snapshot,
        and before the first keys of the token's issuer.

        Clients keep the list they have on any answer but 200: an empty one from a replica that has just started would
        take every agent's tools away until a leader has published.
        """
        if asker.identity is not None:
            return None if self._deps.state.ready else _NOT_READY
        if asker.unknown:
            return _NO_KEYS
        if access is Access.FILTERED:
            return None
        if access is Access.LISTING and asker.problem is None:
            return None if self._deps.settings.discovery.anonymous == "list" else unauthenticated(None)
        return unauthenticated(asker.problem, resource)


def _unknown(path: str) -> Access:
    """Who is told that there is no such route."""
    return Access.IDENTITY if path.startswith(_CLOSED) else Access.FILTERED


async def _refuse(
    error: ProblemError | Failure,
    scope: Scope,
    receive: Receive,
    send: Send,
    resource: ProtectedResource | None = None,
) -> None:
    problem = error if isinstance(error, ProblemError) else problem_of(error, resource)
    scope[CODE] = problem.code
    await problem.response()(scope, receive, send)


async def _take_body(rule: Rule, scope: Scope, receive: Receive, intake: Intake, depth: int) -> None:
    """Put the body, and what it says, into the scope, as the rule allows.

    Raises:
        ProblemError: it does not take this body.
    """
    kind = declared = None
    for name, value in scope["headers"]:
        if name == b"content-type" and kind is None:
            kind = value
        elif name == b"content-length" and declared is None:
            declared = value
    try:
        body = scope[BODY] = await intake.read(receive, rule.limit, declared or b"")
    except ProblemError as problem:
        if rule.body is not Body.FORM or problem.code != "too_large":
            raise
        scope[BODY] = None
    else:
        if body and rule.body is not Body.FORM and rule.body is not Body.MODEL:
            scope[PARSED] = await _parsed(rule, intake, body, kind or b"", depth)


async def _parsed(rule: Rule, intake: Intake, body: bytes, kind: bytes, depth: int) -> Any:
    try:
        return await intake.parsed(body, kind, depth)
    except ProblemError as problem:
        if rule.body is not Body.RPC or problem.code != "invalid_json":
            raise
        return Unreadable(str(problem.detail))


def _query_problem(query: bytes) -> ProblemError | None:
    name = token_in_query(query)
    if name is None:
        return None
    return ProblemError(
        "token_in_query",
        f"The query parameter {name} looks like a token. Send it as Authorization: Bearer … and replace it: "
        "it may have been logged on the way.",
    )


class AdminEdge:
    """The admin and metrics listeners: the operator's request ids, lines and spans, and `table` enforced for an app.

    Routes for the admin are answered to `subjects` whose tokens `admin` verifies; to nobody where that is None.
    """

    def __init__(
        self,
        app: ASGIApp,
        table: RouteTable,
        admin: Authenticator | None = None,
        subjects: Collection[str] = (),
    ) -> None:
        self._app = app
        self._table = table
        self._admin, self._subjects = admin, subjects

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if tracing.is_on() and access_log.TRACED not in scope:
            await access_log.traced(self, scope, receive, send)
            return
        # of several ids the last, as on the agents' listener: a proxy adds its own below the caller's
        ids = [value for name, value in scope["headers"] if name == b"x-request-id"]
        request_id = access_log.request_id_of(ids[-1] if ids else None)
        logs.request_id.set(request_id)
        exchange = Exchange(scope, send, request_id)
        found = self._table.find(scope["method"], scope["path"])
        scope[ROUTE] = None if found.near is None else found.near.template
        try:
            if found.rule is None:
                raise unrouted(self._table.methods(scope["path"]))
            if found.rule.access is Access.ADMIN:
                await self._admit(scope)
            if found.rule.body is not Body.NONE:
                await _take_body(found.rule, scope, receive, Intake(None, ""), 0)
            await self._app(scope, receive, exchange.send)
        except ProblemError as error:
            await _refuse(error, scope, receive, exchange.send)
        finally:
            exchange.log()

    async def _admit(self, scope: Scope) -> None:
        """Let only admin subjects through, before a body is read."""
        if self._admin is None:
            raise unauthenticated("this registry has no admin issuer; set issuers and admin_issuer")
        tokens = [v for k, v in scope["headers"] if k == b"authorization"]
        # Not held against the published accounts: the leader publishes those, so that a wrong or an old word about its own
        # account would shut out the one who could correct it. Its tokens live 10 minutes and have an audience of their own.
        asker = scope[ASKER] = await self._admin.identify(tokens)
        if asker.identity is None:
            raise unauthenticated(asker.problem)
        if asker.identity.subject not in self._subjects:
            raise ProblemError("not_admin", "The subject is not listed in adminSubjects.")
        if (place := scope.get(PLACE)) is not None:
            place.admit()


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
            await _refuse(problem, scope, receive, send)
            return
        await (self._metrics if path == "/metrics" else self._admin)(scope, receive, send)
