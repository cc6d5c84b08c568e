"""Every route in one table: who is let in, what it does, what body it takes and how large that may be.

The edges enforce it, for FastAPI's routes and for whatever else is mounted behind them. A request without a line goes
nowhere. `check` stops the start where a route has no line, or a line no route.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from starlette.routing import BaseRoute, Mount, Route, compile_path

from toolcrib.authorizer import Action
from toolcrib_registry.audit.log import OtherAction
from toolcrib_registry.calls.assertions.signing import JWKS_PATH
from toolcrib_registry.identity import resources

LimitName = Literal["body_bytes", "admin_body_bytes"]
"""A field of the settings' `limits`."""
CHUNK_BYTES = 4 << 20
"""Of one chunk of a full snapshot. Operators fill 256 KiB; one object may be larger."""
FORM_BYTES = 8 << 10


class Access(StrEnum):
    """Who is answered."""

    PUBLIC = "public"  # everyone; no token is read
    FILTERED = "filtered"  # everyone, with what the caller may see: nothing without an identity
    LISTING = (
        "listing"  # callers with an identity, and those without a token where discovery.anonymous is "list"
    )
    IDENTITY = "identity"  # callers with an identity
    ADMIN = "admin"  # adminSubjects, on the admin listener


class Body(StrEnum):
    """What body a route takes. Any other is left unread."""

    NONE = "none"
    JSON = "json"  # announced as JSON, strict, parsed once at the edge
    RPC = "rpc"  # the same, but its errors are told by its route, in JSON-RPC's form
    MODEL = "model"  # JSON that the route's model parses, once, in a thread: a publish may be many megabytes
    FORM = "form"  # bounded at the edge, judged by its route: its errors have a form of their own (RFC 6749 §5.2)


@dataclass(frozen=True, slots=True)
class Line:
    """One route.

    `action` is what the decision log says of a request that is refused here; what is let in is recorded by its service,
    with the same word. `limit` is the bytes of its body, or the setting that says so.
    """

    method: str
    path: str
    access: Access
    action: Action | OtherAction = Action.LIST
    body: Body = Body.NONE
    limit: LimitName | int = 0

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def _reads(method: str, path: str, access: Access, action: Action | OtherAction = Action.LIST) -> Line:
    return Line(method, path, access, action)


def _takes(path: str, action: Action | OtherAction) -> Line:
    return Line("POST", path, Access.IDENTITY, action, Body.JSON, "body_bytes")


def _rpc(path: str) -> Line:
    return Line("POST", path, Access.IDENTITY, OtherAction.MCP, Body.RPC, "body_bytes")


def _admin(path: str, limit: LimitName | int = "admin_body_bytes") -> Line:
    return Line("POST", path, Access.ADMIN, OtherAction.ADMIN, Body.MODEL, limit)


AGENTS: tuple[Line, ...] = (
    _reads("GET", "/openapi.json", Access.PUBLIC),
    _reads("HEAD", "/openapi.json", Access.PUBLIC),
    _reads("GET", "/healthz", Access.PUBLIC),
    _reads("GET", "/readyz", Access.PUBLIC),
    _reads("GET", "/health", Access.PUBLIC),
    _reads("GET", JWKS_PATH, Access.PUBLIC),
    *(_reads("GET", resources.WELL_KNOWN + path, Access.PUBLIC) for path in resources.PATHS),
    _reads("GET", "/", Access.FILTERED),
    _reads("HEAD", "/", Access.FILTERED),
    _reads("GET", "/stats", Access.FILTERED, Action.STATS),
    _takes("/tools/register", OtherAction.REGISTER),
    _reads("GET", "/tools/{name:path}", Access.FILTERED),
    _takes("/tools/{name:path}", Action.CALL),
    _reads("GET", "/v1/tools", Access.LISTING),
    _reads("GET", "/v1/tools/{namespace}/{name}", Access.LISTING),
    _takes("/v1/describe", Action.DESCRIBE),
    _takes("/v1/load", Action.LOAD),
    _takes("/v1/call", Action.CALL),
    _takes("/v1/search", Action.SEARCH),
    _takes("/v1/compat/intelligent_tool_finder", Action.SEARCH),
    _takes("/api/search/semantic", Action.SEARCH),
    _reads("GET", "/v0.1/servers", Access.LISTING),
    _reads("GET", "/v0.1/servers/{namespace}/{server}/versions", Access.LISTING),
    _reads("GET", "/v0.1/servers/{namespace}/{server}/versions/{version}", Access.LISTING),
    _reads("GET", "/v1/watch", Access.IDENTITY, Action.WATCH),
    _rpc("/mcp"),
    _rpc("/mcp/direct"),
    _reads("GET", "/mcp/direct", Access.IDENTITY, Action.WATCH),
    _reads("GET", "/v1/access-review", Access.IDENTITY, OtherAction.ACCESS_REVIEW),
    _takes("/v1/access-review", OtherAction.ACCESS_REVIEW),
    _takes("/v1/access-requests", OtherAction.ACCESS_REQUEST),
)
"""The agents' listener."""
OAUTH = (Line("POST", "/oauth/token", Access.PUBLIC, Action.LIST, Body.FORM, FORM_BYTES),)
"""On the agents' listener where the local issuer is."""
ADMIN: tuple[Line, ...] = (
    _reads("GET", "/openapi.json", Access.PUBLIC),
    _reads("HEAD", "/openapi.json", Access.PUBLIC),
    _reads("GET", "/healthz", Access.PUBLIC),
    _reads("GET", "/readyz", Access.PUBLIC),
    _reads("GET", "/v1/admin/state", Access.ADMIN, OtherAction.ADMIN),
    _admin("/v1/admin/publish"),
    _admin("/v1/admin/snapshot/chunks", CHUNK_BYTES),
    _admin("/v1/admin/snapshot/commit"),
    _admin("/v1/admin/heartbeat"),
    _admin("/v1/admin/credentials"),
    _admin("/v1/admin/calls"),
    _admin("/v1/admin/index"),
    _reads("GET", "/v1/admin/index", Access.ADMIN, OtherAction.ADMIN),
    _admin("/v1/admin/backends", FORM_BYTES),
    _reads("GET", "/v1/admin/backends", Access.ADMIN, OtherAction.ADMIN),
    _admin("/v1/admin/servers"),
    _admin("/v1/admin/servers/list", FORM_BYTES),
    _reads("GET", "/v1/admin/outbox", Access.ADMIN, OtherAction.ADMIN),
    _admin("/v1/admin/outbox"),
)
"""The admin listener."""
METRICS: tuple[Line, ...] = (
    _reads("GET", "/openapi.json", Access.PUBLIC),
    _reads("HEAD", "/openapi.json", Access.PUBLIC),
    _reads("GET", "/metrics", Access.PUBLIC),
)
"""The metrics listener."""


class RouteTableError(ValueError):
    """The table and the routes do not agree; the message names each that is alone."""


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A line as it is enforced: `template` names the route in logs, `limit` is in bytes."""

    line: Line
    pattern: re.Pattern[str]
    template: str
    limit: int
    access: Access
    body: Body


class Match(NamedTuple):
    """What a request means. `rule` None: nothing is answered here; `near` is then the first rule of the path, if any."""

    rule: Rule | None
    near: Rule | None
    params: Mapping[str, str]


_NOTHING: Mapping[str, str] = {}


class RouteTable:
    """Lines by method and path; `limits` has the attributes that `Line.limit` names."""

    def __init__(self, lines: Iterable[Line], limits: Any) -> None:
        self.lines = tuple(lines)
        self._exact: dict[tuple[str, str], Match] = {}
        self._rules: list[Rule] = []
        self._patterns: dict[str, list[Rule]] = {}
        for line in self.lines:
            pattern, template, _ = compile_path(line.path)
            limit = line.limit if isinstance(line.limit, int) else int(getattr(limits, line.limit))
            rule = Rule(line, pattern, template, limit, line.access, line.body)
            self._rules.append(rule)
            if "{" in line.path:
                self._patterns.setdefault(line.method, []).append(rule)
            else:
                self._exact[line.method, line.path] = Match(rule, rule, _NOTHING)

    def find(self, method: str, path: str) -> Match:
        """The rule of a request. Literal paths come before patterns."""
        found = self._exact.get((method, path))
        if found is not None:
            return found
        for rule in self._patterns.get(method, ()):
            if (matched := rule.pattern.fullmatch(path)) is not None:
                return Match(rule, rule, matched.groupdict())
        return Match(None, next(self._at(path), None), _NOTHING)

    def rule(self, method: str, path: str) -> Rule:
        """The rule of the line that says just so.

        Raises:
            RouteTableError: there is none.
        """
        for rule in self._rules:
            if (rule.line.method, rule.line.path) == (method, path):
                return rule
        raise RouteTableError(f"{method} {path} is answered past the app and has no line.")

    def methods(self, path: str) -> tuple[str, ...]:
        """What may be done at this path."""
        return tuple(dict.fromkeys(rule.line.method for rule in self._at(path)))

    def _at(self, path: str) -> Iterator[Rule]:
        return (rule for rule in self._rules if rule.pattern.fullmatch(path))


def check(
    listener: str, lines: Sequence[Line], routes: Iterable[BaseRoute], also: Iterable[Line] = ()
) -> None:
    """Compare the table with what is there.

    Args:
        listener: its name, for the message.
        lines: of the table.
        routes: of an app, included and mounted ones too. A mounted app needs a line at or below its path.
        also: lines that the edge answers by itself.

    Raises:
        RouteTableError: a route has no line, a line no route, or a line is there twice.
    """
    named = [(line.method, line.path) for line in lines]
    wrong = [f"{m} {p} is defined twice" for m, p in dict.fromkeys(named) if named.count((m, p)) > 1]
    served = {(line.method, line.path) for line in also}
    for route in _flat(routes):
        if route.method is not None:
            served.add((route.method, route.path))
            if (route.method, route.path) not in named:
                wrong.append(f"{route.method} {route.path} has no line")
            continue
        below = {(m, p) for m, p in named if p == route.path or p.startswith(route.path + "/")}
        served |= below
        if not below:
            wrong.append(f"the app mounted at {route.path or '/'} has no line")
    wrong += [f"{m} {p} has a line and no route" for m, p in named if (m, p) not in served]
    if wrong:
        raise RouteTableError(
            f"routes of the {listener} listener: {'; '.join(wrong)}. See http/route_table.py."
        )


class _Served(NamedTuple):
    """A route; `method` None: whatever is mounted there."""

    method: str | None
    path: str


def _flat(routes: Iterable[BaseRoute], prefix: str = "") -> Iterator[_Served]:
    for route in routes:
        if (router := getattr(route, "original_router", None)) is not None:  # FastAPI's included routers
            yield from _flat(router.routes, prefix + route.include_context.prefix)  # type: ignore[attr-defined]
        elif isinstance(route, Mount):
            yield _Served(None, prefix + route.path)
        elif isinstance(route, Route):
            yield from (_Served(method, prefix + route.path) for method in sorted(route.methods or ()))
        else:
            raise RouteTableError(
                f"{type(route).__name__} {route!r}: only routes and mounted apps can have a line."
            )
