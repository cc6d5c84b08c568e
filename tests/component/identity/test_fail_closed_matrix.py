"""Who is nobody, refused or a stranger gets nothing: every kind of identity on every route of both listeners.

115 kinds (`token_kinds.KINDS`) times 52 routes make 5,980 cells; `-v` names both. The rows are the lines of
`http/route_table.py`, and what is expected follows from their access; the tables below say how each is asked. The service
does not start with a route that has no line, and one that is not asked here fails `test_every_line_is_asked`.
"""

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from plain_http import PlainHttp, Reply
from published import suspension
from registry_harness import OPERATOR, RunningRegistry, binding, running_registry, tool
from token_kinds import (
    ACCOUNTS,
    ADMIN,
    AGENT,
    GOOD,
    ISSUERS,
    KEYS,
    KINDS,
    LOGIN,
    SCOPE,
    Outcome,
    Sent,
    Target,
)
from toolcrib.resources.bindings import SubjectKind
from toolcrib.wire.publish import PublishedBinding, PublishedSubject
from toolcrib_registry.http import route_table
from toolcrib_registry.http.route_table import Access
from toolcrib_registry.identity import resources
from toolcrib_registry.identity.issuer import ClientTokens, LocalIssuer
from toolcrib_registry.settings_limits import Limits

pytestmark = pytest.mark.guarantee

NAME, ABSENT = "vault_opener", "vault_nobody"
URL = "http://127.0.0.1:8080"
"""The public URL of the registry's settings."""
SERVER = "/v0.1/servers/{namespace}/{server}/versions"
TOOL = tool(
    NAME, object_name="a-vault", scopes=(SCOPE, "zz-more:look"), description="Zebra in the cellar.", tags=("zz-tag",), server="zz-server",
    input_schema={"type": "object", "properties": {"zz_parameter": {"type": "string"}}}, examples=("zz example",),
)  # fmt: skip
MARKS = ("zebra", "zz-", "zz_", "zz example", TOOL.digest.removeprefix("sha256:"))
"""What only one who sees the tool can know."""


class Answer(NamedTuple):
    """What a route says: a status, and the code of a problem or a check of the body."""

    status: int | tuple[int, ...]
    says: str | Callable[[Any], bool] | None = None


class Line(NamedTuple):
    """One route: how it is asked, and what each outcome gets. `known`: the statuses of one who may."""

    body: Any
    nobody: Answer
    refused: Answer
    stranger: Answer
    known: tuple[int, ...] = (200,)
    path: str = ""


def _empty(answer: Any) -> bool:
    return bool(answer["tools"] == [] and answer["total_available"] == answer["total_registered"] == 0)


def _no_stats(answer: Any) -> bool:
    return bool(answer == {"total_tools": 0, "tools_by_name": [], "scope_usage": {}, "unique_scopes": 0})


def _no_tools(answer: Any) -> bool:
    return answer["tools"] == [] and not answer.get("next_cursor")


def _no_services(answer: Any) -> bool:
    found = [value for name, value in answer.items() if name not in ("query", "search_mode")]
    return not any(found)


def _own_server_alone(answer: Any) -> bool:
    return [s["server"]["name"] for s in answer["servers"]] == ["dev.toolcrib/toolcrib"]


def _not_loaded(answer: Any) -> bool:
    return answer["tools"] == [] and [e["code"] for e in answer["errors"]] == ["tool_not_found"]


class Asked(NamedTuple):
    """How a route is asked, and what one whose token is good and who may not is answered. `known`: as in `Line`."""

    stranger: Answer
    body: Any = None
    path: str = ""
    known: tuple[int, ...] = (200,)


def _line(row: route_table.Line, asked: Asked) -> Line:
    """What each outcome gets, by the access that the table gives."""
    body, path, known = asked.body, asked.path, asked.known
    unauthenticated, invalid = Answer(401, "unauthenticated"), Answer(401, "invalid_token")
    match row.access:
        case Access.PUBLIC | Access.FILTERED:
            return Line(body, asked.stranger, asked.stranger, asked.stranger, known, path)
        case Access.IDENTITY | Access.LISTING:  # the list for nobody is switched off here
            return Line(body, unauthenticated, invalid, asked.stranger, known, path)
        case Access.ADMIN:
            return Line(body, unauthenticated, invalid, Answer(403, "not_admin"), known, path)


def _rows(
    table: Iterable[route_table.Line], asked: dict[tuple[str, str], Asked]
) -> dict[tuple[str, str], Line]:
    return {(row.method, row.path): _line(row, asked[row.method, row.path]) for row in table}


def _unrouted(code: str, access: Access = Access.FILTERED) -> Line:
    status = {"not_found": 404, "method_not_allowed": 405}[code]
    row = route_table.Line("GET", "/", access)
    return _line(row, Asked(Answer(status, code), known=(status,)))


OPEN = Asked(Answer(200))
CALL = Answer(403, "not_permitted")
CLIENT = Answer((400, 401), lambda answer: answer["error"] in ("invalid_client", "invalid_request"))
UNKNOWN = Answer(200, lambda answer: answer.get("error") == {"code": -32602, "message": "Unknown tool"})


def _rpc(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


HOW: dict[tuple[str, str], Asked] = {
    ("GET", "/"): Asked(Answer(200, _empty)),
    ("HEAD", "/"): OPEN,
    ("GET", "/stats"): Asked(Answer(200, _no_stats)),
    ("GET", "/tools/{name:path}"): Asked(Answer(404, "tool_not_found"), path=f"/tools/{NAME}"),
    ("POST", "/tools/{name:path}"): Asked(CALL, {"zz": 1}, f"/tools/{NAME}", known=(503,)),
    ("POST", "/tools/register"): Asked(
        CALL, {"name": "new", "endpoint": "/x", "description": "d", "scopes": ["new:use"]}, known=(403,)),
    ("GET", "/v1/tools"): Asked(Answer(200, _no_tools)),
    ("GET", "/v1/tools/{namespace}/{name}"): Asked(Answer(404, "tool_not_found"), path=f"/v1/tools/{TOOL.tool_id}"),
    ("GET", "/v0.1/servers"): Asked(Answer(200, _own_server_alone)),
    ("GET", SERVER): Asked(
        Answer(404, "not_found"), path="/v0.1/servers/dev.toolcrib.team/zz-server/versions"),
    ("GET", SERVER + "/{version}"): Asked(
        Answer(404, "not_found"), path="/v0.1/servers/dev.toolcrib.team%2Fzz-server/versions/latest"),
    ("POST", "/v1/search"): Asked(Answer(200, _no_tools), {"query": "Zebra in the cellar"}),
    ("POST", "/v1/compat/intelligent_tool_finder"): Asked(
        Answer(200, lambda answer: answer == []), {"natural_language_query": "Zebra in the cellar"}),
    ("POST", "/api/search/semantic"): Asked(Answer(200, _no_services), {"query": "vault opener"}),
    ("POST", "/v1/describe"): Asked(Answer(404, "tool_not_found"), {"tool": NAME}),
    ("POST", "/v1/load"): Asked(Answer(200, _not_loaded), {"tools": [NAME]}),
    ("POST", "/v1/call"): Asked(CALL, {"tool": NAME, "arguments": {"zz": 1}}, known=(503,)),
    ("GET", "/v1/watch"): Asked(Answer(200, lambda first: first["tools"] == [])),
    ("POST", "/mcp"): Asked(UNKNOWN, _rpc("call_tool", {"tool_id": NAME, "args": {"zz": 1}})),
    ("POST", "/mcp/direct"): Asked(UNKNOWN, _rpc(NAME, {"zz": 1})),
    ("GET", "/mcp/direct"): Asked(Answer(200)),
    ("GET", "/v1/access-review"): Asked(CALL, path=f"/v1/access-review?tool={NAME}", known=(200, 403)),
    ("POST", "/v1/access-review"): Asked(CALL, {"tool": NAME}, known=(200, 403)),
    ("POST", "/v1/access-requests"): Asked(  # nobody takes it here
        Answer(503, "requests_unavailable"), {"tool_id": TOOL.tool_id, "why": "x"}, known=(409,)),
    ("GET", "/health"): OPEN,
    ("GET", "/healthz"): OPEN,
    ("GET", "/readyz"): OPEN,
    ("GET", "/openapi.json"): OPEN,
    ("HEAD", "/openapi.json"): OPEN,
    ("GET", "/.well-known/jwks.json"): OPEN,
    **{("GET", resources.WELL_KNOWN + path): OPEN for path in resources.PATHS},
    ("POST", "/oauth/token"): Asked(CLIENT, "grant_type=client_credentials", known=(401,)),
}  # fmt: skip
AGENTS = _rows((*route_table.AGENTS, *route_table.OAUTH), HOW)
"""The agents' listener."""
UNROUTED: dict[tuple[str, str], Line] = {
    ("POST", "/"): _unrouted("method_not_allowed"),
    ("DELETE", "/v1/tools"): _unrouted("method_not_allowed", Access.IDENTITY),
    ("GET", "/v1/nothing"): _unrouted("not_found", Access.IDENTITY),
    ("GET", "/v1/admin/state"): _unrouted("not_found", Access.IDENTITY),
    ("GET", "/metrics"): _unrouted("not_found"),
    ("GET", "/nothing"): _unrouted("not_found"),
}
"""On the agents' listener, where there is no route."""
PUBLISH = Asked(CALL, {}, known=(400,))
READ = Asked(CALL)
HOW_ADMIN: dict[tuple[str, str], Asked] = {
    ("GET", "/v1/admin/state"): READ,
    ("POST", "/v1/admin/publish"): PUBLISH,
    ("POST", "/v1/admin/snapshot/chunks"): PUBLISH,
    ("POST", "/v1/admin/snapshot/commit"): PUBLISH,
    ("POST", "/v1/admin/heartbeat"): PUBLISH,
    ("POST", "/v1/admin/credentials"): PUBLISH,
    ("POST", "/v1/admin/index"): PUBLISH,
    ("GET", "/v1/admin/index"): READ,
    ("POST", "/v1/admin/backends"): PUBLISH,
    ("GET", "/v1/admin/backends"): READ,
    ("POST", "/v1/admin/servers"): PUBLISH,
    ("POST", "/v1/admin/servers/list"): PUBLISH,
    ("POST", "/v1/admin/calls"): PUBLISH,
    ("GET", "/v1/admin/outbox"): READ._replace(known=(400, 403)),
    ("POST", "/v1/admin/outbox"): PUBLISH,
    ("GET", "/healthz"): OPEN,
    ("GET", "/readyz"): OPEN,
    ("GET", "/openapi.json"): OPEN,
    ("HEAD", "/openapi.json"): OPEN,
}
ADMINS = _rows(route_table.ADMIN, HOW_ADMIN)
"""The admin listener."""


def _grant(name: str, **fields: Any) -> PublishedBinding:
    return binding(name, (SCOPE,), **fields)


def _bindings() -> list[PublishedBinding]:
    def subject(kind: SubjectKind, **fields: Any) -> tuple[PublishedSubject]:
        return (PublishedSubject(kind=kind, **fields),)

    return [
        *(_grant(name) for name in ("bot", "revoked", "deleted", "anew", "denied", "stopped")),
        binding("stopped", ("registry:write", "registry:admin"), namespace=None, name="powers-of-the-stopped"),
        suspension(
            "stopped", "team", *subject(SubjectKind.OAUTH_CLIENT, issuer=LOGIN, client_id="stopped"),
            *subject(SubjectKind.USER, issuer=LOGIN, name="stopped"),
        ),
        _grant("expired", expires_at=1.0), _grant("early", not_before=4e9),
        binding("denied", (), name="denial", deny=("*",)), binding("elsewhere", ("other:use",)),
        binding("bot", ("registry:write", "registry:admin"), namespace=None, name="powers"),
        _grant("user", subjects=subject(SubjectKind.USER, issuer=LOGIN, name="alice")),
        _grant("client", subjects=subject(SubjectKind.OAUTH_CLIENT, issuer=LOGIN, client_id="agent")),
        _grant("group", subjects=subject(SubjectKind.GROUP, issuer=LOGIN, name="ops")),
        # an administrator's mistake: this group is the cluster's, and of no other issuer
        _grant("mistake", subjects=subject(SubjectKind.GROUP, issuer=LOGIN, name="system:serviceaccounts:team")),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRegistry]:
    local = LocalIssuer.open(tmp_path_factory.mktemp("issuer") / "data")
    with running_registry(
        publish=False, issuers=ISSUERS, admin_subjects=(OPERATOR,), extra_keys=KEYS,
        token_endpoint=ClientTokens(local, lambda namespace, name: set()), limits=Limits(registration_seconds=0.2),
    ) as running:  # fmt: skip
        running.publish([TOOL], _bindings(), accounts=ACCOUNTS)
        running.publish(remove_bindings=["uid-team-revoked"])
        yield running


@pytest.fixture(scope="module")
def agents(registry: RunningRegistry) -> Iterator[PlainHttp]:
    with contextlib.closing(PlainHttp(registry.url)) as http:
        yield http


@pytest.fixture(scope="module")
def admin(registry: RunningRegistry) -> Iterator[PlainHttp]:
    with contextlib.closing(PlainHttp(registry.admin_url)) as http:
        yield http


def _ask(http: PlainHttp, route: tuple[str, str], line: Line, sent: Sent) -> Reply:
    method, pattern = route
    headers, body = [*sent.headers], None
    if isinstance(line.body, str):
        headers.append(("Content-Type", b"application/x-www-form-urlencoded"))
        body = line.body.encode()
    elif line.body is not None:
        headers.append(("Content-Type", b"application/json"))
        body = json.dumps(line.body).encode()
    return http.ask(method, line.path or pattern, headers, sent.query, body)


def _wrong(answer: Reply, expected: Answer, outcome: Outcome, path: str) -> str | None:
    """What is not as it should be."""
    if answer.status not in (expected.status if isinstance(expected.status, tuple) else (expected.status,)):
        return f"status {answer.status} instead of {expected.status}: {answer.text[:200]}"
    challenge = answer.header("www-authenticate")
    if isinstance(expected.says, str):
        document = answer.json()
        if answer.header("content-type") != "application/problem+json" or document["code"] != expected.says:
            return f"another problem: {document}"
        if expected.status == 401 and _undescribed(challenge) != _challenge(outcome, path):
            return f"WWW-Authenticate: {challenge}"
    elif expected.says is not None and not expected.says(answer.json()):
        return f"another body: {answer.text[:300]}"
    return None


def _challenge(outcome: Outcome, path: str) -> str:
    error = 'error="invalid_token"' if outcome is Outcome.REFUSED else ""
    if path not in resources.PATHS:
        return "Bearer " + ", ".join(filter(None, ('realm="toolcrib"', error)))
    # the providers of ISSUERS offer a login
    metadata = f'resource_metadata="{URL}{resources.WELL_KNOWN}{path}"'
    return "Bearer " + ", ".join(filter(None, (error, metadata)))


def _undescribed(challenge: str | None) -> str:
    """Without why, which every kind of bad token says in words of its own."""
    return re.sub(r', error_description="[^"\\]+"|error_description="[^"\\]+", ', "", challenge or "")


def _leak(answer: Reply) -> str | None:
    said = (answer.text + json.dumps(dict(answer.headers))).lower()
    return next((f"it says {mark!r}: {said[:300]}" for mark in MARKS if mark.lower() in said), None)


def _matrix(http: PlainHttp, target: Target, route: tuple[str, str], line: Line) -> None:
    failures = []
    for name, kind in KINDS.items():
        outcome = kind.admin if target is ADMIN else kind.agents
        answer = _ask(http, route, line, kind.make(target))
        match outcome:
            case Outcome.NOBODY:
                expected = line.nobody
            case Outcome.REFUSED:
                expected = line.refused
            case Outcome.STRANGER:
                expected = line.stranger
            case Outcome.IN_QUERY:
                expected = Answer(400, None if route[0] == "HEAD" else "token_in_query")
            case Outcome.KNOWN:
                expected = Answer(line.known[0])
        wrong = _wrong(answer, expected, outcome, route[1])
        if wrong is None and route[1] != "/openapi.json":
            wrong = None if outcome is Outcome.KNOWN else _leak(answer)
        if wrong is not None:
            failures.append(f"{name}: {wrong}")
    assert not failures, "\n".join(failures)


def _ids(routes: dict[tuple[str, str], Line]) -> list[str]:
    return [f"{method} {path} x {len(KINDS)} identities" for method, path in routes]


@pytest.mark.parametrize("name", [n for n, kind in KINDS.items() if kind.agents is Outcome.REFUSED])
def test_a_bad_token_sees_nothing_and_is_told_why(agents: PlainHttp, name: str) -> None:
    answer = agents.ask("GET", "/", [*KINDS[name].make(AGENT).headers])

    assert (answer.status, _empty(answer.json()), answer.json()["authenticated"]) == (200, True, False)
    challenge = answer.header("www-authenticate") or ""
    assert challenge.startswith('Bearer realm="toolcrib", error="invalid_token", error_description="')
    assert _leak(answer) is None


@pytest.mark.parametrize("route", [*AGENTS, *UNROUTED], ids=_ids({**AGENTS, **UNROUTED}))
def test_agents_without_a_good_identity_get_nothing(agents: PlainHttp, route: tuple[str, str]) -> None:
    _matrix(agents, AGENT, route, {**AGENTS, **UNROUTED}[route])


RESOURCES = {route: line for route, line in AGENTS.items() if route[1] in resources.PATHS}


@pytest.mark.parametrize("route", RESOURCES, ids=_ids(RESOURCES))
def test_tokens_for_a_protected_resource_alone_are_checked_as_closely(
    agents: PlainHttp, route: tuple[str, str]
) -> None:
    other = next(path for path in resources.PATHS if path != route[1])

    _matrix(agents, Target(AGENT.subject, URL + route[1], URL + other), route, RESOURCES[route])


@pytest.mark.parametrize("route", ADMINS, ids=_ids(ADMINS))
def test_nobody_but_the_operator_is_admitted_to_the_admin_listener(
    admin: PlainHttp, route: tuple[str, str]
) -> None:
    _matrix(admin, ADMIN, route, ADMINS[route])


def test_on_one_port_the_admin_routes_are_as_closed() -> None:
    with (
        running_registry(issuers=ISSUERS, extra_keys=KEYS, one_port=True) as running,
        contextlib.closing(PlainHttp(running.url)) as http,
    ):
        for route in (("GET", "/v1/admin/state"), ("POST", "/v1/admin/publish")):
            _matrix(http, ADMIN, route, ADMINS[route])


def test_every_line_is_asked() -> None:
    assert list(AGENTS) == [(row.method, row.path) for row in (*route_table.AGENTS, *route_table.OAUTH)]
    assert set(AGENTS) == set(HOW)
    assert list(ADMINS) == [(row.method, row.path) for row in route_table.ADMIN]
    assert set(ADMINS) == set(HOW_ADMIN)
    assert {("POST", path) for path in resources.PATHS} <= RESOURCES.keys()
    assert {row.access for row in route_table.METRICS} == {Access.PUBLIC}


@pytest.mark.parametrize("route", AGENTS, ids=_ids(AGENTS))
def test_good_identities_are_served_where_others_are_not(agents: PlainHttp, route: tuple[str, str]) -> None:
    line = AGENTS[route]
    for name, make in GOOD.items():
        answer = _ask(agents, route, line, make(AGENT))
        assert answer.status in line.known, (name, answer.text)
        if line.known == (200,) and line.stranger.says is not None:
            assert _wrong(answer, line.stranger, Outcome.STRANGER, route[1]), (
                f"{name} gets no more than a stranger"
            )


@pytest.mark.parametrize("route", ADMINS)
def test_the_operator_is_admitted(admin: PlainHttp, route: tuple[str, str]) -> None:
    answer = _ask(admin, route, ADMINS[route], GOOD["a service account"](ADMIN))
    assert answer.status in ADMINS[route].known, answer.text


NAMING = [r for r, line in AGENTS.items() if NAME in json.dumps([line.path, line.body])]


@pytest.mark.parametrize("route", NAMING, ids=_ids({r: AGENTS[r] for r in NAMING}))
def test_a_tool_out_of_sight_and_one_that_is_not_there_answer_alike(
    agents: PlainHttp, route: tuple[str, str]
) -> None:
    line = AGENTS[route]
    path, body = json.loads(json.dumps([line.path, line.body]).replace(NAME, ABSENT))
    for name, kind in KINDS.items():
        sent = kind.make(AGENT)
        asked = _ask(agents, route, line, sent)
        other = _ask(agents, route, line._replace(path=path, body=body), sent)
        assert (other.status, other.text.replace(ABSENT, NAME)) == (asked.status, asked.text), name
        assert _headers(other) == _headers(asked), name


def _headers(answer: Reply) -> list[tuple[str, str]]:
    return [(k, v) for k, v in answer.headers if k.lower() not in ("date", "x-request-id")]


def test_no_kind_of_token_is_written_to_the_decision_log(tmp_path: Path) -> None:
    log = tmp_path / "decisions.jsonl"
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(
            running_registry([TOOL], _bindings(), issuers=ISSUERS, extra_keys=KEYS, decision_log=str(log))
        )
        tokens = []
        http = stack.enter_context(contextlib.closing(PlainHttp(running.url)))
        for kind in KINDS.values():
            sent = kind.make(AGENT)
            _ask(http, ("POST", "/v1/call"), AGENTS["POST", "/v1/call"], sent)
            tokens += [v.decode("latin-1").split()[-1] for _, v in sent.headers if v.strip()]
    written = log.read_text()
    assert written, "strangers' calls are recorded"
    assert not [t for t in tokens if len(t) > 40 and t in written]
