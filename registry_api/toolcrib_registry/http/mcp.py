"""`/mcp` and `/mcp/direct`: the Model Context Protocol over HTTP (Streamable HTTP), in both eras.

Each POST stands alone, on any replica: no session is kept, and an `Mcp-Session-Id` is accepted and not looked at. An
answer is JSON; only streams of notices are server-sent events. What refuses a request before its method matters (Host,
Origin, identity, size) is a problem document, as everywhere; the rest is JSON-RPC.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson
from starlette.types import Scope, Send

from toolcrib_registry.calls.backends.port import LEVELS, Logged, Logs, Told
from toolcrib_registry.calls.step_up import InsufficientScope
from toolcrib_registry.http import call_response, mcp_answers
from toolcrib_registry.http.access_log import CODE
from toolcrib_registry.http.bodies import Unreadable
from toolcrib_registry.http.call_response import Answer
from toolcrib_registry.http.direct import ABSENT, Asked, Direct, Sendable
from toolcrib_registry.http.event_stream import ClientGone, EventStream, WhileThere
from toolcrib_registry.http.problems import ProblemError, unrouted
from toolcrib_registry.http.progress_stream import Answered, ProgressStream, Tell, body_only
from toolcrib_registry.http.slices import SLICE
from toolcrib_registry.http.view_answers import Made, send_view_answer
from toolcrib_registry.mcp import dispatch, envelope, messages
from toolcrib_registry.mcp.calling import unknown_tool
from toolcrib_registry.mcp.change_notices import ChangeNotices, event
from toolcrib_registry.mcp.following import Followed
from toolcrib_registry.mcp.messages import MOST_IN_A_BATCH, Id, RpcRequest
from toolcrib_registry.mcp.mirrors import fields_of
from toolcrib_registry.mcp.outcomes import Called, Listening, OfView, Outcome, Plain
from toolcrib_registry.mcp.protocol import (
    ASSUMED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    RpcError,
    is_stateless,
)
from toolcrib_registry.mcp.requests import LOG_LEVEL, PROGRESS_TOKEN, Client, Endpoint
from toolcrib_registry.policy.state import CallerView
from toolcrib_registry.upstream.lists import CHANGING, Kind

_STATUS = {METHOD_NOT_FOUND: 404}
"""Of a refused request; any other is 400."""
_STREAMS = b"text/event-stream"
_LARGEST, _LONGEST = 2**53 - 1, 1_024
"""Of a progress token, which stands in every notice: what JSON readers keep exactly, and characters."""
_TOO_LARGE = RpcError(INTERNAL_ERROR, "The result is too large for a batch. Send this request by itself.")


class Reply(Answer):
    """A whole answer with its status."""

    __slots__ = ("_status",)

    def __init__(self, body: bytes, status: int = 200, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(body, "application/json", *headers)
        self._status = status

    async def send(self, send: Send) -> None:
        """Send it; without a body where it has none."""
        headers = self._headers if self._body else [(b"content-length", b"0")]
        await send({"type": "http.response.start", "status": self._status, "headers": headers})
        await send({"type": "http.response.body", "body": self._body})


class _Nothing:
    """No answer: its client has gone."""

    async def send(self, send: Send) -> None:
        """Send none."""


class _OfView:
    """A result that is sent only while the caller's view is the one that it is made of."""

    def __init__(self, asked: Asked, id_: Id, outcome: OfView) -> None:
        self._asked, self._id, self._outcome = asked, id_, outcome

    async def send(self, send: Send) -> None:
        """Make it and send it."""

        async def make(caller_view: CallerView) -> Made:
            shown = await self._outcome.make(caller_view)
            return Made(messages.answered(self._id, shown.result), record=shown.record)

        try:
            await send_view_answer(self._asked.deps, self._asked.asker, make, send)
        except RpcError as error:
            await _failed(self._asked, self._id, error).send(send)


def routes(endpoints: Iterable[Endpoint]) -> Mapping[tuple[str, str], Direct]:
    """What the edge answers by itself: a POST for each endpoint, and a GET where a list may change."""
    made: dict[tuple[str, str], Direct] = {}
    for endpoint in endpoints:
        made["POST", endpoint.path] = _posted(endpoint)
        if endpoint.changes:
            made["GET", endpoint.path] = _watched(endpoint)
    return made


def _posted(endpoint: Endpoint) -> Direct:
    async def post(asked: Asked) -> Sendable:
        value, fields = asked.body, fields_of(asked.scope["headers"])
        try:
            if value is ABSENT:
                raise RpcError(PARSE_ERROR, "The body is empty.", refused=True)
            if isinstance(value, Unreadable):
                raise RpcError(PARSE_ERROR, value.detail, refused=True)
            client = Client(asked.asker, envelope.version_of(fields), asked.request_id, fields)
            if type(value) is list:
                return await _batch(endpoint, client, asked, value)
            message = messages.read(value)
            if not isinstance(message, RpcRequest):
                return Reply(b"", 202)
            if message.method == "tools/call":
                token, level = _progress_token(message), _log_level(endpoint, client, message)
                if (token is not None or level is not None) and _accepts_streams(asked.scope):
                    return _telling(endpoint, client, asked, message, token, level)
            async with WhileThere(asked.receive):
                outcome = await dispatch.answer(endpoint, client, message)
            if message.method == "initialize" and endpoint.changes:
                # clients in Python read notices only where there is a session; nobody stores it
                session = (b"mcp-session-id", secrets.token_hex(16).encode())
                assert isinstance(outcome, Plain)
                return Reply(messages.answered(message.id, outcome.result), 200, session)
            return _answer(endpoint, client, asked, message.id, outcome)
        except RpcError as error:
            return _failed(asked, messages.id_of(value), error)
        except ClientGone:
            return _Nothing()

    return post


def _watched(endpoint: Endpoint) -> Direct:
    async def get(asked: Asked) -> Sendable:
        fields = fields_of(asked.scope["headers"])
        try:
            version = envelope.version_of(fields)
        except RpcError as error:
            return _failed(asked, None, error)
        if is_stateless(version):
            raise unrouted(("POST",))
        client = Client(asked.asker, version, asked.request_id, fields)
        return _notices(endpoint, client, asked, None, wanted=frozenset(CHANGING))

    return get


def _answer(endpoint: Endpoint, client: Client, asked: Asked, id_: Id, outcome: Outcome) -> Sendable:
    match outcome:
        case Plain():
            return Reply(messages.answered(id_, outcome.result))
        case Called():
            body = messages.answered(id_, outcome.result)
            return call_response.sent(asked.deps, outcome.named, body, "application/json")
        case OfView():
            return _OfView(asked, id_, outcome)
        case Listening():
            return _notices(endpoint, client, asked, id_, wanted=outcome.wanted, uris=outcome.uris)


def _telling(
    endpoint: Endpoint, client: Client, asked: Asked, message: RpcRequest, token: Id | None, level: str | None
) -> ProgressStream:
    """The answer to a call whose client wants to know how far it has come (by `token`), or what is logged (from `level` on)."""

    def notice(told: Told) -> bytes:
        if isinstance(told, Logged):
            said: dict[str, Any] = {
                "level": told.level,
                "logger": told.logger,
                "data": orjson.Fragment(told.data),
            }
            return event(messages.notification("notifications/message", _given(said)))
        said = {"progress": told.progress, "total": told.total, "message": told.message}
        return event(messages.notification("notifications/progress", {PROGRESS_TOKEN: token, **_given(said)}))

    async def work(tell: Tell) -> Answered:
        told = replace(
            client,
            progress=None if token is None else tell,
            logs=None if level is None else Logs(level, tell),
        )
        try:
            outcome: Outcome | RpcError = await dispatch.answer(endpoint, told, message)
        except RpcError as error:
            outcome = error
        return _Called(endpoint, client, asked, message.id, outcome)

    return ProgressStream(work, notice, asked.receive)


def _given(said: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in said.items() if value is not None}


@dataclass(frozen=True, slots=True)
class _Called(Answered):
    """What such a call came to."""

    endpoint: Endpoint
    client: Client
    asked: Asked
    id: Id
    outcome: Outcome | RpcError

    async def send(self, send: Send) -> None:
        """Send it as a whole answer."""
        if isinstance(self.outcome, RpcError):
            await _failed(self.asked, self.id, self.outcome).send(send)
        else:
            await _answer(self.endpoint, self.client, self.asked, self.id, self.outcome).send(send)

    async def send_event(self, send: Send) -> None:
        """Send it as a stream's last event, for as long as the call is granted."""
        (message,) = await mcp_answers.in_time(self.asked, self.client.version, [(self.id, self.outcome)])
        body = event(message)
        if isinstance(self.outcome, Called):
            last = call_response.sent(self.asked.deps, self.outcome.named, body, "application/json")
        else:
            last = Answer(body, "application/json")
        await last.send(body_only(send))


def _failed(asked: Asked, id_: Id | None, error: RpcError) -> Reply:
    asked.scope[CODE] = f"rpc {error.code}"
    status = _STATUS.get(error.code, 400) if error.refused else 200
    return Reply(messages.failed(id_, error), status)


def _notices(
    endpoint: Endpoint,
    client: Client,
    asked: Asked,
    id_: Id | None,
    *,
    wanted: frozenset[Kind],
    uris: Sequence[str] = (),
) -> Sendable:
    if not _accepts_streams(asked.scope):
        raise ProblemError("not_acceptable", "The response is a stream. Send Accept: text/event-stream.")

    async def digest(caller_view: CallerView) -> str:
        return await endpoint.digest(caller_view, client.version)

    followed = endpoint.sessions.of(client).followed if id_ is None else Followed()

    async def follow() -> None:
        beginnings = (endpoint.offered.follow(client, uri, followed) for uri in uris)
        for problem in await asyncio.gather(*beginnings, return_exceptions=True):
            if problem is not None and not isinstance(problem, RpcError):
                raise problem

    deps, identity = asked.deps, client.identity
    tokens = [value for name, value in asked.scope["headers"] if name == b"authorization"]
    stream = ChangeNotices(
        deps,
        identity,
        deps.resources[endpoint.path].agents,
        tokens,
        digest=digest,
        wanted=wanted if endpoint.changes else frozenset(),
        followed=followed,
        follow=follow if uris else None,
        offered=endpoint.offered,
        subscription=id_,
        version=client.version,
    )
    return EventStream(stream, deps.streams.place(identity), asked.receive)


async def _batch(endpoint: Endpoint, client: Client, asked: Asked, values: list[Any]) -> Sendable:
    """The answers to several messages at one time: only in the revision that has batches."""
    if client.version != ASSUMED:
        raise messages.invalid("This revision has no batches. Send one message.")
    if not 0 < len(values) <= MOST_IN_A_BATCH:
        raise messages.invalid(f"A batch must have 1 to {MOST_IN_A_BATCH} messages.")

    async def one(value: Any) -> tuple[Id | None, Outcome | RpcError] | None:
        try:
            message = messages.read(value)
            if not isinstance(message, RpcRequest):
                return None
            if message.method == "initialize":
                raise messages.invalid("initialize must not be part of a batch.")
            return message.id, await dispatch.answer(endpoint, client, message)
        except RpcError as error:
            return messages.id_of(value), error
        except InsufficientScope:
            return messages.id_of(value), unknown_tool()  # a status is of all messages

    async with WhileThere(asked.receive):
        working = [asyncio.ensure_future(one(value)) for value in values]
        try:
            found = await asyncio.gather(*working)
        finally:
            for each in working:
                each.cancel()  # where one broke, nobody gets the answers of the others
        answers = [each for each in found if each is not None]
        bodies = await mcp_answers.in_time(asked, client.version, answers)
    if not answers:
        return Reply(b"", 202)
    whole = (
        body if len(body) <= SLICE else messages.failed(id_, _TOO_LARGE)
        for (id_, _), body in zip(answers, bodies, strict=True)
    )
    return Reply(b"[%b]" % b",".join(whole))


def _log_level(endpoint: Endpoint, client: Client, message: RpcRequest) -> str | None:
    """From which level on the client of a call is told what is logged; None: it is told nothing."""
    if not is_stateless(client.version):
        return endpoint.sessions.level(client)
    meta = message.params.get("_meta")
    level = meta.get(LOG_LEVEL) if type(meta) is dict else None
    return level if type(level) is str and level in LEVELS else None


def _progress_token(message: RpcRequest) -> Id | None:
    """By which the client of a call knows notices of its progress; None: it wants none."""
    meta = message.params.get("_meta")
    token = meta.get(PROGRESS_TOKEN) if type(meta) is dict else None
    if (type(token) is int and abs(token) > _LARGEST) or (type(token) is str and len(token) > _LONGEST):
        raise RpcError(
            INVALID_PARAMS,
            f"progressToken must be at most {_LONGEST} characters, or within 53 bits.",
            refused=True,
        )
    return token if type(token) in (int, str) else None


def _accepts_streams(scope: Scope) -> bool:
    accepted = [value.lower() for name, value in scope["headers"] if name == b"accept"]
    return not accepted or any(
        _STREAMS in value or b"*/*" in value or b"text/*" in value for value in accepted
    )
