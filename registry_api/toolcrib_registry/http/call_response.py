"""Answers that pass FastAPI by.

A tool's, on its way to the caller: a large one goes in slices, for as long as the call is granted.

A small one is handed to the server whole, in the moment in which the call was looked at last. A reader may take its
time with a large one: what has not been handed over when the grant ends is not, and the connection is closed.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, Literal

import orjson
from starlette.types import Message, Send

from toolcrib.authorizer import Action, Decision
from toolcrib_registry.calls import lookup
from toolcrib_registry.calls import service as calls
from toolcrib_registry.calls.backends.port import Binary, Text, ToolAnswer
from toolcrib_registry.calls.bounds import CallBounds
from toolcrib_registry.calls.errors import ToolError
from toolcrib_registry.calls.in_flight import Hold, Revoked
from toolcrib_registry.deps import Deps
from toolcrib_registry.failures import Failure
from toolcrib_registry.http.slices import SLICE, send_all_but_last
from toolcrib_registry.mcp import results

_NO_STORE = (b"cache-control", b"no-store")
MediaType = Literal["application/json", "text/plain", "application/octet-stream"]
_TYPES: dict[MediaType, bytes] = {
    "application/json": b"application/json",
    "text/plain": b"text/plain; charset=utf-8",
    "application/octet-stream": b"application/octet-stream",
}


class Answer:
    """A whole answer, 200."""

    __slots__ = ("_body", "_headers")

    def __init__(self, body: bytes, media_type: MediaType, *headers: tuple[bytes, bytes]) -> None:
        self._body = body
        self._headers = [
            *headers,
            (b"content-length", b"%d" % len(body)),
            (b"content-type", _TYPES[media_type]),
        ]

    async def send(self, send: Send) -> None:
        """Send it."""
        await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        await send({"type": "http.response.body", "body": self._body})


class CallAnswer(Answer):
    """What a tool answered: never as anything that a browser would run.

    Args:
        body, media_type, headers: what is sent.
        hold: makes the call's time in flight.
        on_cut: told why the answer was cut.
        sending: its time of being sent, which ends where too much waits to be read.
    """

    __slots__ = ("_hold", "_on_cut", "_sending")

    def __init__(
        self,
        body: bytes,
        media_type: MediaType,
        *headers: tuple[bytes, bytes],
        hold: Callable[[], Hold],
        on_cut: Callable[[Decision], None],
        sending: Callable[[int], AbstractAsyncContextManager[None]],
    ) -> None:
        super().__init__(body, media_type, _NO_STORE, *headers)
        self._hold, self._on_cut, self._sending = hold, on_cut, sending

    async def send(self, send: Send) -> None:
        """Send it, or the beginning of it."""
        body = self._body
        if len(body) <= SLICE:
            await super().send(send)
            return
        start: Message = {"type": "http.response.start", "status": 200, "headers": self._headers}
        try:
            async with self._sending(len(body)), self._hold():
                last = await send_all_but_last(send, start, body)
        except Revoked as revoked:
            self._on_cut(revoked.decision)
            return  # without the end, which makes the server close the connection
        except TimeoutError:
            return
        await send({"type": "http.response.body", "body": last})


def plain(deps: Deps, named: lookup.Named, answer: ToolAnswer) -> Answer:
    """The tool's answer as it came, as JSON or as text."""
    _refuse_errors(answer)
    if answer.is_json:
        return sent(deps, named, answer.raw or b"null", "application/json")
    if _is_many(answer):
        return sent(deps, named, orjson.dumps(results.content(answer)), "application/json")
    return sent(deps, named, answer.raw, "text/plain" if _is_text(answer) else "application/octet-stream")


def wrapped(named: lookup.Named, answer: ToolAnswer) -> bytes:
    """The answer of `/v1/call`: JSON goes in as it came, since its objects may take 30 times as much memory."""
    _refuse_errors(answer)
    made = {
        "tool_id": named.tool.tool_id,
        **({} if named.asked is None else {"fallback_for": named.asked.tool_id}),
        "content_type": "application/json" if _is_many(answer) else answer.media_type,
        "result": _result(answer),
        "elapsed": round(answer.elapsed, 6),
    }
    if answer.is_json and answer.blocks:
        made["content"] = results.content(answer)
    return orjson.dumps(made)


def _refuse_errors(answer: ToolAnswer) -> None:
    """What a tool says of its failure is a problem document, as where it refuses by its status; so is a question.

    Raises:
        Failure: the answer says that the tool failed, or asks for something that this protocol cannot carry.
    """
    if answer.input_required is not None:
        methods = sorted({str(asked.get("method")) for asked in answer.input_required.requests.values()})
        raise Failure(
            calls.INPUT_REQUIRED,
            f"The tool asks for input ({', '.join(methods) or 'none named'}). Call it over MCP, revision 2026-07-28.",
        )
    if answer.is_error:
        said = orjson.dumps(_result(answer))
        shown = {} if len(said) > CallBounds().error_bytes else {"upstream": orjson.loads(said)}
        raise ToolError("the tool refused the call", extra=shown)


def _is_many(answer: ToolAnswer) -> bool:
    """Whether only content blocks, as MCP has them, say all that the tool answered."""
    if answer.is_json or answer.blocks is None:
        return False
    return len(answer.blocks) > 1 or any(not isinstance(each, Text | Binary) for each in answer.blocks)


def _is_text(answer: ToolAnswer) -> bool:
    return all(isinstance(block, Text) for block in answer.content)


def _result(answer: ToolAnswer) -> Any:
    if answer.is_json:
        return orjson.Fragment(answer.raw or b"null")
    if _is_many(answer):
        return results.content(answer)
    return answer.raw.decode() if _is_text(answer) else base64.b64encode(answer.raw).decode()


def sent(deps: Deps, named: lookup.Named, body: bytes, media_type: MediaType) -> Answer:
    """An answer to the call of `named`: cut where it is not granted any more while it is being sent."""
    identity = named.caller_view.identity
    assert identity is not None
    return CallAnswer(
        body,
        media_type,
        *(() if named.asked is None else ((b"toolcrib-fallback", named.tool.tool_id.encode()),)),
        hold=lambda: deps.in_flight.hold(identity, named.tool, named.decision, named.charged),
        on_cut=lambda decision: note_cut(deps, named, decision),
        sending=lambda size: deps.large.sending(identity.account, size),
    )


def note_cut(deps: Deps, named: lookup.Named, decision: Decision) -> None:
    """Record that an answer to the call of `named` was not sent, or not whole; `decision` says why."""
    lookup.note(deps, Action.CALL, replace(named, decision=decision, at=None), "revoked")
