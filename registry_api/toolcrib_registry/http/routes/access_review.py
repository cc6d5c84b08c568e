"""`/v1/access-review`: what would this subject see or call, who may call this tool, why, and what would bindings change.

For holders of `registry:admin`: its answers hold what is hidden from everybody else.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import ValidationError
from starlette.responses import Response

from toolcrib import names, wording
from toolcrib.access import declared, subjects
from toolcrib.access.answers import AccessReviewRequest, Changes, Explanation, WhatCan, WhoCan, WhoHolds
from toolcrib.access.changes import changes
from toolcrib.access.holders import who_holds
from toolcrib.access.proposals import proposed
from toolcrib.access.review import AccessReview, UnknownTool
from toolcrib.access.subjects import SubjectError, Tokens, Who
from toolcrib.authorizer import Action, Decision, Reason, has_power
from toolcrib.errors import InvalidManifest
from toolcrib.identity import Identity
from toolcrib.snapshot import Snapshot
from toolcrib.view import AmbiguousName
from toolcrib_registry.audit.log import OtherAction
from toolcrib_registry.calls import lookup
from toolcrib_registry.failures import Failure
from toolcrib_registry.http import cursors
from toolcrib_registry.http.documentation import BEARER, BODY, Responses, problems
from toolcrib_registry.http.problems import ProblemError, unauthenticated
from toolcrib_registry.http.requests import AskerOf, DepsOf, ReadRoute
from toolcrib_registry.settings import RegistrySettings

router = APIRouter(route_class=ReadRoute, prefix="/v1", tags=["access review"])
AT_ONCE = 2
"""Reviews that are worked out at one time: each may take a second of a processor at 10,000 tools."""
WAITING = 16
"""Reviews that may wait for that; the next is told to ask again in `AGAIN_SECONDS`."""
AGAIN_SECONDS = 5
_CODES = (
    "unauthenticated", "invalid_token", "not_permitted", "tool_not_found", "ambiguous_name", "invalid_cursor",
    "cursor_stale", "policy_stale", "not_ready",
)  # fmt: skip
Answer = WhatCan | WhoCan | WhoHolds | Explanation | Changes
_EXAMPLES = {
    model.model_fields["question"].default: {"value": model.model_config["json_schema_extra"]["examples"][0]}  # type: ignore[index]
    for model in (WhatCan, WhoCan, WhoHolds, Explanation, Changes)
}
_ANSWERS: Responses = {200: {"content": {"application/json": {"examples": _EXAMPLES}}}}


@router.get(
    "/access-review",
    summary="What may a subject see and call, who may call a tool, and why?",
    openapi_extra=BEARER,
    response_model=Answer,
    responses={**_ANSWERS, **problems(*_CODES)},
)
async def ask(
    deps: DepsOf,
    asker: AskerOf,
    request: Request,
    subject: Annotated[str | None, Query(max_length=512, description=subjects.SYNTAX)] = None,
    tool: Annotated[
        str | None, Query(max_length=512, description="A tool id, or a name that one has.")
    ] = None,
    scope: Annotated[str | None, Query(max_length=128, description="Who holds this scope?")] = None,
    action: Action = Action.CALL,
    namespace: Annotated[str | None, Query(max_length=253, description="Only tools of this one.")] = None,
    issuer: Annotated[str | None, Query(max_length=512, description="Of the subject.")] = None,
    scopes: Annotated[
        str | None,
        Query(max_length=4096, description="What the token carries; absent: whatever bindings ask for."),
    ] = None,
    group: Annotated[list[str] | None, Query(max_length=256, description="Further groups.")] = None,
    client: Annotated[str | None, Query(max_length=256, description="The client of a user's token.")] = None,
    hidden: Annotated[bool, Query(description="What it may not see too, and why not.")] = False,
    limit: Annotated[int, Query(ge=1, le=5_000)] = 500,
    cursor: Annotated[str | None, Query(max_length=1024)] = None,
) -> Response:
    """Who may do what, and why. For `registry:admin`.

    With `subject` its tools, with `tool` its subjects, with both the order step by step, with `scope` who holds it.
    """
    if wrong := _misspelt(request):
        await _admitted(deps, asker, None)
        raise ProblemError("invalid_request", wrong)
    if subject is None and tool is None and scope is None:
        await _admitted(deps, asker, None)
        raise ProblemError("invalid_request", "Specify `subject`, `tool`, both, or `scope`.")
    try:
        asked = AccessReviewRequest(
            subject=subject, tool=tool, scope=scope, action=action, namespace=namespace, issuer=issuer,
            scopes=None if scopes is None else tuple(scopes.split()), groups=tuple(group or ()), client=client,
            hidden=hidden, limit=limit, cursor=cursor,
        )  # fmt: skip
    except ValidationError as error:
        await _admitted(deps, asker, None)
        first = error.errors(include_input=False, include_url=False)[0]
        raise ProblemError("invalid_request", f"{first['loc'][0]}: {wording.said(first)}") from None
    return await _review(deps, asker, request, asked)


@router.post(
    "/access-review",
    summary="The same, with bindings as if applied or deleted",
    openapi_extra=BEARER,
    response_model=Answer,
    responses={**_ANSWERS, **problems(*_CODES, *BODY)},
)
async def ask_with(deps: DepsOf, asker: AskerOf, request: Request, body: AccessReviewRequest) -> Response:
    """With neither `subject` nor `tool`: what the bindings would change, for whom. For `registry:admin`."""
    return await _review(deps, asker, request, body)


async def _review(deps: DepsOf, asker: AskerOf, request: Request, asked: AccessReviewRequest) -> Response:
    await _admitted(deps, asker, asked)
    _fresh(deps)
    if asked.scope is not None and (asked.subject is not None or asked.tool is not None):
        raise ProblemError(
            "invalid_request",
            "Specify `scope` without `subject` and `tool`. For the scopes of a token, specify `scopes`.",
        )
    named = (asked.subject, asked.tool, asked.scope)
    if named == (None, None, None) and not (asked.bindings or asked.delete):
        raise ProblemError("invalid_request", "Specify `subject`, `tool`, `scope`, `bindings` or `delete`.")
    async with _turns(request).taken():
        # while it waited, the power may have gone, and the snapshot be another
        await _admitted(deps, asker, asked)
        _fresh(deps)
        snapshot, now = deps.state.snapshot, deps.clock.now()
        try:
            # seconds of work at ten thousand tools: off the event loop, discovery goes on meanwhile
            question, body = await asyncio.to_thread(_worked_out, snapshot, deps, asked, now)
        except (ProblemError, Failure):
            await _admitted(deps, asker, asked)  # it may name what is hidden, too
            raise
    identity = await _admitted(deps, asker, asked)
    _record(deps, identity, asked, snapshot, Decision(True, Reason.GRANTED), question)
    return Response(body, media_type="application/json")


def _fresh(deps: DepsOf) -> None:
    if deps.state.stale:
        raise ProblemError(
            "policy_stale",
            "The policy is stale: no operator heartbeat for too long. Current grants are unknown.",
            headers={"Retry-After": "10"},
        )


def _worked_out(
    snapshot: Snapshot, deps: DepsOf, asked: AccessReviewRequest, now: float
) -> tuple[str, bytes]:
    """The question that was answered, and the answer; or a ProblemError or Failure that says why there is none."""
    try:
        answer = _answer(snapshot, deps.settings, asked, now)
        if deps.declared is not None:
            answer = declared.told(answer, deps.declared())
        return answer.question, answer.model_dump_json(by_alias=True).encode()
    except SubjectError as error:
        raise ProblemError("invalid_request", f"subject: {error}") from error
    except UnknownTool as error:
        raise ProblemError("tool_not_found", f"{error}.", extra={"close": list(error.close)}) from error
    except AmbiguousName as error:
        raise lookup.ambiguous(error) from error
    except InvalidManifest as error:
        found = [{"field": f.field, "message": f.message, "hint": f.hint} for f in error.findings[:20]]
        raise ProblemError(
            "invalid_request", f"{error.findings[0]}"[:500], extra={"errors": found}
        ) from error


def _misspelt(request: Request) -> str | None:
    """What is wrong with the names of parameters: one that is passed over would leave an answer to a wider question."""
    known = {parameter.alias: parameter for parameter in request.scope["route"].dependant.query_params}
    given = request.query_params
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]}?" if close else f"Parameters are {', '.join(known)}."
            return f"Unknown parameter {name[:64]!r}: {hint}"
        if len(given.getlist(name)) > 1 and name != "group":
            return f"The parameter {name} appears more than once."
    return None


async def _admitted(deps: DepsOf, asker: AskerOf, asked: AccessReviewRequest | None) -> Identity:
    if asker.identity is None:
        raise unauthenticated(asker.problem)
    snapshot = deps.state.snapshot
    if not has_power(asker.identity, names.SCOPE_ADMIN, snapshot.policy, deps.clock.now()):
        refused = Decision(False, Reason.SCOPE_NOT_GRANTED)
        _record(deps, asker.identity, asked, snapshot, refused, None)
        raise ProblemError("not_permitted", "Access reviews require the scope registry:admin.")
    return asker.identity


def _record(
    deps: DepsOf,
    identity: Identity,
    asked: AccessReviewRequest | None,
    snapshot: Snapshot,
    decision: Decision,
    question: str | None,
) -> None:
    """One record and one count: who asked, about whom and what, and which question was answered."""
    parts = () if asked is None else (asked.subject, asked.tool, asked.scope)
    about = " ".join(part for part in parts if part)
    deps.metrics.decided(OtherAction.ACCESS_REVIEW.value, decision, identity)
    deps.decisions.decided(
        OtherAction.ACCESS_REVIEW,
        identity,
        about,
        None,
        decision,
        str(snapshot.revision or ""),
        question=question,
    )


class _Turns:
    """`AT_ONCE` work, `WAITING` wait; used from one event loop only."""

    def __init__(self) -> None:
        self._working = asyncio.Semaphore(AT_ONCE)
        self._there = 0

    @contextlib.asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """One turn; ProblemError where too many wait for theirs."""
        if self._there >= AT_ONCE + WAITING:
            raise ProblemError(
                "not_ready",
                f"{WAITING} access reviews are already waiting. Retry shortly.",
                headers={"Retry-After": str(AGAIN_SECONDS)},
            )
        self._there += 1
        try:
            async with self._working:
                yield
        finally:
            self._there -= 1


def _turns(request: Request) -> _Turns:
    state = request.app.state
    if not hasattr(state, "access_reviews"):
        state.access_reviews = _Turns()
    turns: _Turns = state.access_reviews
    return turns


def _answer(snapshot: Snapshot, settings: RegistrySettings, asked: AccessReviewRequest, now: float) -> Answer:
    revision = str(snapshot.revision or "")
    after = "" if asked.cursor is None else cursors.decode(asked.cursor, revision)
    tokens = _tokens(settings, asked)
    who = None if asked.subject is None else subjects.parse(asked.subject, asked.issuer)
    applied = AccessReview(snapshot, now, tokens, asked.action, revision)
    review = applied
    if asked.bindings or asked.delete:
        would, changed = proposed(
            snapshot, asked.bindings, asked.delete, tokens, () if who is None else (who,)
        )
        review = AccessReview(would, now, tokens, asked.action, revision, changed, True, snapshot)
    answer = _asked_of(review, applied, asked, who, after)
    more = None if isinstance(answer, Explanation) else answer.next_cursor
    return (
        answer if more is None else answer.model_copy(update={"next_cursor": cursors.encode(revision, more)})
    )


def _asked_of(
    review: AccessReview, applied: AccessReview, asked: AccessReviewRequest, who: Who | None, after: str
) -> Answer:
    if who is not None:
        who = subjects.settled(who, review.snapshot, review.tokens)
    if asked.scope is not None:
        return who_holds(review, asked.scope, namespace=asked.namespace, after=after, limit=asked.limit)
    if asked.tool is None and who is None:
        return changes(applied, review, start=after, limit=asked.limit)
    if asked.tool is None:
        assert who is not None
        return review.what_can(
            who, hidden=asked.hidden, namespace=asked.namespace, after=after, limit=asked.limit
        )
    tool = review.find(asked.tool, who)
    if who is None:
        return review.who_can(tool, after=after, limit=asked.limit)
    return review.explain(who, tool)


def _tokens(settings: RegistrySettings, asked: AccessReviewRequest) -> Tokens:
    return Tokens(
        cluster_issuer=next((i.issuer for i in settings.issuers if i.cluster), ""),
        policies={i.issuer: i.scopes for i in settings.issuers},
        scopes=None if asked.scopes is None else frozenset(asked.scopes),
        groups=frozenset(asked.groups),
        client=asked.client,
        closed=True,
    )
