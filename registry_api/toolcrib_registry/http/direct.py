"""Routes that the edge answers itself, past FastAPI: `GET /`, `POST /v1/call`, `POST /tools/{name}` and `POST /v1/search`.

They are asked most, and FastAPI and Starlette took a third of a call's processor time. FastAPI still documents them
(`documentation.documented_only`); a differential test holds their answers against FastAPI's own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, TypeVar

from pydantic import Field, TypeAdapter, ValidationError
from starlette.types import Receive, Scope, Send

from toolcrib.authorizer import Action
from toolcrib.text import short
from toolcrib.wire.api import CallRequest
from toolcrib.wire.search import SearchAnswer, SearchRequest, SearchResult
from toolcrib_registry.calls import service as calls
from toolcrib_registry.deps import Deps
from toolcrib_registry.failures import Failure
from toolcrib_registry.http import call_response
from toolcrib_registry.http.access_log import PRIVATE
from toolcrib_registry.http.call_response import Answer
from toolcrib_registry.http.problems import ProblemError, invalid
from toolcrib_registry.http.view_answers import Made, matches, send_view_answer
from toolcrib_registry.identity.authenticator import Asker
from toolcrib_registry.policy import discovery
from toolcrib_registry.policy.state import CallerView
from toolcrib_registry.search.question import Wanted
from toolcrib_registry.search.service import Hit, find

ABSENT: Any = object()
"""The value of a body that is empty."""
_T = TypeVar("_T")
_CALL: TypeAdapter[CallRequest] = TypeAdapter(CallRequest)
_SEARCH: TypeAdapter[SearchRequest] = TypeAdapter(SearchRequest)
_ARGUMENTS: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
_NAME: TypeAdapter[str] = TypeAdapter(Annotated[str, Field(min_length=1, max_length=512)])
_MISSING = {"type": "missing", "msg": "required, but missing"}


@dataclass(slots=True)
class Asked:
    """A request that is let in. `body` is its parsed value, `ABSENT` where there is none; `receive` is what is left of it."""

    deps: Deps
    asker: Asker
    request_id: str
    params: Mapping[str, str]
    body: Any
    scope: Scope
    receive: Receive


class Sendable(Protocol):
    """An answer that sends itself."""

    async def send(self, send: Send) -> None:
        """Send it."""
        ...


Direct = Callable[[Asked], Awaitable[Sendable]]


async def call(asked: Asked) -> Answer:
    """`POST /v1/call`: tool and arguments in the body."""
    errors: list[Any] = []
    body = _valid(_CALL, asked.body, ("body",), errors)
    if errors or body is None:
        raise invalid(errors, CallRequest.model_fields)
    named, answer = await calls.call(asked.deps, asked.asker, body.tool, body.arguments, asked.request_id)
    return call_response.sent(asked.deps, named, call_response.wrapped(named, answer), "application/json")


async def call_by_name(asked: Asked) -> Answer:
    """`POST /tools/{name}`: the body is the arguments, the answer the tool's."""
    errors: list[Any] = []
    name, arguments = asked.params["name"], asked.body
    if not 0 < len(name) <= 512:
        _valid(_NAME, name, ("path", "name"), errors)
    if arguments is ABSENT or arguments is None:
        arguments = {}
    elif type(arguments) is not dict:
        _valid(_ARGUMENTS, arguments, ("body",), errors)
    if errors:
        raise invalid(errors)
    named, answer = await calls.call(asked.deps, asked.asker, name, arguments, asked.request_id)
    return call_response.plain(asked.deps, named, answer)


async def search(asked: Asked) -> Answer:
    """`POST /v1/search`: light hits, best first."""
    errors: list[Any] = []
    body = _valid(_SEARCH, asked.body, ("body",), errors)
    if errors or body is None:
        raise invalid(errors, SearchRequest.model_fields)
    wanted = Wanted(
        query=body.query or "",
        tags=body.tags,
        servers=body.servers,
        namespaces=body.namespaces,
        states=body.states,
        limit=body.limit,
        min_score=body.min_score,
        top_k_servers=body.top_k_servers,
        mode=body.search_mode,
    )
    findings = await find(asked.deps, asked.asker, wanted)
    found = findings.answer
    answer = SearchAnswer(
        revision=findings.caller_view.revision,
        search_mode=found.mode,
        degraded=found.degraded,
        degradation=found.degradation or None,
        tools=tuple(_result(hit, found.mode == "compat") for hit in findings.hits),
    )
    return Answer(answer.model_dump_json().encode(), "application/json")


class _List:
    """The caller's list, from the bytes kept with its view."""

    __slots__ = ("_asked",)

    def __init__(self, asked: Asked) -> None:
        self._asked = asked

    async def send(self, send: Send) -> None:
        """Send it, or nothing but its ETag where the caller has it."""
        asked = self._asked
        deps, asker, scope = asked.deps, asked.asker, asked.scope
        try:
            await send_view_answer(deps, asker, self._made, send, head=scope["method"] == "HEAD")
        except (Failure, ProblemError) as error:
            deps.decisions.refused(Action.LIST, error.code, asker.identity)
            raise

    async def _made(self, caller_view: CallerView) -> Made:
        deps = self._asked.deps
        body, etag = await discovery.answer(deps.state, caller_view, deps.settings)
        held = [value for name, value in self._asked.scope["headers"] if name == b"if-none-match"]
        unchanged = bool(held) and matches(b",".join(held), etag)
        return Made(body, ((b"etag", etag), *PRIVATE), unchanged, self._record)

    def _record(self, seen: CallerView) -> None:
        self._asked.deps.metrics.discovered(seen.identity, "/")
        self._asked.deps.decisions.listed(Action.LIST, seen)


async def discover(asked: Asked) -> Sendable:
    """`GET /`: the tools that the caller may use."""
    return _List(asked)


ROUTES: Mapping[tuple[str, str], Direct] = {
    ("GET", "/"): discover,
    ("HEAD", "/"): discover,
    ("POST", "/v1/call"): call,
    ("POST", "/tools/{name:path}"): call_by_name,
    ("POST", "/v1/search"): search,
}
"""By method and path of their lines in the route table."""


def _valid(model: TypeAdapter[_T], value: Any, where: tuple[str, ...], errors: list[Any]) -> _T | None:
    """The value as its model has it; what is wrong goes to `errors`, as FastAPI says it."""
    if value is ABSENT:
        errors.append({**_MISSING, "loc": where})
        return None
    try:
        return model.validate_python(value, from_attributes=True)
    except ValidationError as error:
        errors.extend(
            {**e, "loc": (*where, *e["loc"])} for e in error.errors(include_url=False, include_input=False)
        )
        return None


def _result(hit: Hit, with_score: bool) -> SearchResult:
    return SearchResult(
        tool_id=hit.tool.tool_id,
        name=hit.name,
        short_desc=short(hit.tool.description),
        server=hit.tool.server,
        confidence=hit.found.confidence,
        score=round(min(1.0, hit.found.score), 6) if with_score else None,
        why=hit.found.why,
        unavailable=hit.unavailable or None,
    )
