"""Answers that wait for each other, such as those of a batch: each is looked at again in the moment in which all are sent."""

from __future__ import annotations

from collections.abc import Sequence

from toolcrib_registry.calls import service as calls
from toolcrib_registry.calls.in_flight import Revoked
from toolcrib_registry.http import call_response
from toolcrib_registry.http.direct import Asked
from toolcrib_registry.http.view_answers import Attempts
from toolcrib_registry.mcp import messages, results
from toolcrib_registry.mcp.calling import unknown_tool
from toolcrib_registry.mcp.messages import Id
from toolcrib_registry.mcp.outcomes import Called, Listening, OfView, Outcome, Plain, Shown
from toolcrib_registry.mcp.protocol import METHOD_NOT_FOUND, RpcError
from toolcrib_registry.policy.state import CallerView


async def in_time(
    asked: Asked, version: str, answers: Sequence[tuple[Id | None, Outcome | RpcError]]
) -> list[bytes]:
    """Messages that took time to come to, each looked at in the moment in which all are sent."""
    state, identity = asked.deps.state, asked.asker.identity
    attempts = Attempts(await state.caller_view(identity))
    while True:
        made: dict[int, Shown | RpcError] = {}
        for number, (_, outcome) in enumerate(answers):
            if isinstance(outcome, OfView):
                try:
                    made[number] = await outcome.make(attempts.shown)
                except RpcError as error:
                    made[number] = error
        if attempts.hold(await state.caller_view(identity)) or not made:
            break
    # nothing is waited for from here on
    return [
        await _at_last(asked, version, id_, outcome, attempts.shown, made.get(number))
        for number, (id_, outcome) in enumerate(answers)
    ]


async def _at_last(
    asked: Asked,
    version: str,
    id_: Id | None,
    outcome: Outcome | RpcError,
    now: CallerView,
    made: Shown | RpcError | None,
) -> bytes:
    deps = asked.deps
    if isinstance(outcome, RpcError):
        return messages.failed(id_, outcome)
    assert id_ is not None
    match outcome:
        case Called():
            named, identity = outcome.named, asked.asker.identity
            assert identity is not None
            try:
                async with deps.in_flight.hold(identity, named.tool, named.decision, named.charged):
                    body = outcome.result
            except Revoked as revoked:
                call_response.note_cut(deps, named, revoked.decision)
                body = results.of_failure(version, "revoked", calls.REVOKED)
        case OfView():
            assert made is not None
            if isinstance(made, RpcError):
                return messages.failed(id_, made)
            made.record(now)
            body = made.result
        case Plain():
            if any(name not in now.view.tools and name not in now.view.names for name in outcome.about):
                return messages.failed(id_, unknown_tool())
            body = outcome.result
        case Listening():
            return messages.failed(id_, RpcError(METHOD_NOT_FOUND, "Method not found."))
    return messages.answered(id_, body)
