"""A call, from a name to an answer: decided first, then everything else.

The order is fixed: identity (401), decision (403 alike for denied and unknown), the name's ambiguity among visible
tools (409), the policy's age (503), the limits of the bindings that grant it or of the agent (429), room at
its backend (503), and only then arguments, a person's confirmation (409) where the tool asks for one, and backend.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

from toolcrib import fallbacks
from toolcrib.authorizer import Action
from toolcrib.identity import Identity
from toolcrib.telemetry import logs, tracing
from toolcrib.view import AmbiguousName
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.audit.log import AuditUnavailable
from toolcrib_registry.calls.backends.breaking import has_answered, is_down
from toolcrib_registry.calls.backends.port import NO_EXCHANGE, Exchange, ToolAnswer
from toolcrib_registry.calls.bulkheads import Room
from toolcrib_registry.calls.confirmations import Given
from toolcrib_registry.calls.errors import ToolError, UpstreamTimeout
from toolcrib_registry.calls.in_flight import Revoked
from toolcrib_registry.calls.lookup import Named, Parts, ambiguous, find, note
from toolcrib_registry.clock import whole_milliseconds
from toolcrib_registry.failures import Failure, Unauthenticated
from toolcrib_registry.identity.authenticator import Asker

log = logging.getLogger(__name__)
_T = TypeVar("_T")
_REVOKED = "revoked"
REVOKED = "The grant was revoked while the call was in progress."
INPUT_REQUIRED = "input_required"
"""The outcome of a call that the tool has answered with a question."""


async def call(
    parts: Parts,
    asker: Asker,
    name: str,
    arguments: dict[str, Any],
    request_id: str,
    exchange: Exchange | Callable[[Named], Exchange] = NO_EXCHANGE,
) -> tuple[Named, ToolAnswer]:
    """Call the tool that `name` means. `exchange` may depend on the tool; then it is made once the call is decided.

    Raises:
        Failure: it was refused or failed; the code says how.
    """
    start = time.perf_counter()
    if asker.identity is None:
        raise Unauthenticated(asker.problem)
    try:
        named = await find(parts, asker, name, Action.CALL)
    except AmbiguousName as error:
        parts.metrics.called(asker.identity, None, "ambiguous_name", 0.0)
        raise ambiguous(error) from error
    if named is None:
        parts.metrics.called(asker.identity, None, "not_permitted", 0.0)
        raise Failure("not_permitted", "This call is not permitted.")
    identity = asker.identity
    until: float | None = None
    """By the event loop's clock: when the time of the tool that was named is over; None: nothing falls back on another."""

    confirmation: dict[str, str] = {}

    async def ask(named: Named) -> ToolAnswer:
        nonlocal until
        checked = await parts.arguments.checked(named.tool, arguments, asker.account)
        carried = exchange(named) if callable(exchange) else exchange
        if named.tool.confirm:
            given = Given(checked, carried.responses, carried.state)
            confirmed = await parts.confirmations.admit(identity, named.tool, given)
            confirmation.update(confirmation=confirmed.id, confirmed_by=confirmed.by)
        backend = named.tool.backend
        if backend is not None and backend.exchanges:
            carried = replace(carried, token=asker.token)
        if named.tool.fallback and named.asked is None and backend is not None and not carried.continues:
            until = asyncio.get_running_loop().time() + backend.timeout
        return await parts.backend.call(named.tool, checked, request_id, identity, carried)

    try:
        return await governed(
            parts, identity, named, ask, _outcome, arguments, start, confirmation=confirmation
        )
    except Failure as error:
        if until is None or not is_down(error):
            raise
        answered = await _by_fallback(parts, asker, named.tool, ask, arguments, until)
        if answered is None:
            raise
        return answered


async def _by_fallback(
    parts: Parts,
    asker: Asker,
    asked: PublishedTool,
    ask: Callable[[Named], Awaitable[ToolAnswer]],
    arguments: dict[str, Any],
    until: float,
) -> tuple[Named, ToolAnswer] | None:
    """What the first fallback of `asked` says that the caller may call and whose backend is there; None: there is none.

    Each is found, decided, limited, recorded and cut as any call. Those that the caller does not see are passed over.

    Raises:
        Failure: the fallback's backend refused the call, or its grant was revoked meanwhile.
    """
    # a person confirms one tool, and no other in its place
    for tool_id in asked.fallback if asked.repeatable and not asked.confirm else ():
        if asyncio.get_running_loop().time() >= until:
            break
        caller_view = await parts.state.caller_view(asker.identity)
        tool = caller_view.view.tools.get(tool_id)
        if tool is None or fallbacks.problem(asked, tool_id, caller_view.snapshot.tools, tool):
            continue
        named = await find(parts, asker, tool_id, Action.CALL)
        if named is None or asker.identity is None or named.tool != tool or tool.confirm:
            continue
        named = replace(named, asked=asked)
        try:
            answered = await governed(parts, asker.identity, named, ask, _outcome, arguments, until=until)
        except Failure as error:
            if has_answered(error) or error.code == _REVOKED:
                raise
            continue
        if answered[1].input_required is None:  # what it asks could not be given back to it
            return answered
    return None


async def governed(
    parts: Parts,
    identity: Identity,
    named: Named,
    ask: Callable[[Named], Awaitable[_T]],
    outcome_of: Callable[[_T], str],
    arguments: dict[str, Any],
    start: float | None = None,
    until: float | None = None,
    confirmation: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Named, _T]:
    """What `ask` gets of the backend of what was found: limited, recorded, counted, and cut when the grant ends.

    Args:
        parts: of the registry.
        identity: who asks.
        named: what was found and decided.
        ask: asks the backend.
        outcome_of: the word for an answer that came.
        arguments: for the record.
        start: of `time.perf_counter()`, when it began.
        until: of the event loop's clock: when the backend's answer has to be there; None: the backend itself bounds it.
        confirmation: for the record, once `ask` knows who confirmed the call.

    Raises:
        Failure: it was refused or failed; the code says how.
    """
    start = time.perf_counter() if start is None else start
    outcome = "cancelled"
    try:
        if parts.state.stale:
            raise Failure(
                "policy_stale",
                "The policy is stale: no operator heartbeat for too long. Calls are refused.",
                retry_after=10,
            )
        charged = parts.limits.charged(
            identity, named.tool, named.caller_view.snapshot.policy, named.decision.binding, named.replacement
        )
        # outermost: it looks once more when all else is done, and what waits for a counter or a disk is cut too
        decided = None if named.at is None else (named.caller_view.snapshot, named.caller_view.until)
        held = parts.in_flight.hold(identity, named.tool, named.decision, decided=decided)
        async with held as hold, charged as by:
            if by.binding is not None:
                named = named.charged_to(by.binding, by.uids)
                parts.metrics.grants.charged(by.binding, named.tool)
                hold.rest_on(by.uids, named.decision, named.caller_view.snapshot.policy)
            if parts.decisions.strict:
                await _recorded(parts, identity, named, arguments)
            room = parts.bulkheads.room(named.tool, named.decision.binding, identity)
            with tracing.span("call tool", _attributes(named.tool) if tracing.is_on() else None) as span:
                async with room if until is None else _within(room, until):
                    answer = await ask(named)
                outcome = outcome_of(answer)
                span.set({"toolcrib.outcome": outcome})
    except Revoked as error:
        outcome = _REVOKED
        named = replace(named, decision=error.decision, at=None)
        raise Failure(outcome, REVOKED) from error
    except Failure as error:
        outcome = error.code
        if "confirmation" in error.extra:
            confirmation = {"confirmation": error.extra["confirmation"]}
        raise
    except Exception:
        outcome = "internal"
        raise
    finally:
        seconds = time.perf_counter() - start
        parts.metrics.called(identity, named.tool, outcome, seconds)
        parts.canaries.called(identity, named.tool, outcome)
        if named.asked is not None:
            parts.metrics.fell_back(named.asked, outcome)
        if outcome != "ok":
            told = {"agent": identity.label, "outcome": outcome, "ms": round(seconds * 1000, 1)}
            log.info("call failed: %s", outcome, extra=logs.about_object("Tool", named.tool.tool_id, **told))
        record = partial(
            note, parts, Action.CALL, named, outcome,
            arguments=arguments, seconds=seconds, confirmation=confirmation, at=whole_milliseconds(parts.clock.now()),
        )  # fmt: skip
        # nobody waits for the record of a call that went well, and the answer goes out before it
        if outcome == "ok":
            parts.decisions.later(record)
        else:
            record()
    return named, answer


def _outcome(answer: ToolAnswer) -> str:
    if answer.input_required is not None:
        return INPUT_REQUIRED
    return ToolError.code if answer.is_error else "ok"


@contextlib.asynccontextmanager
async def _within(room: Room, until: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout_at(until), room:
            yield
    except TimeoutError:
        raise UpstreamTimeout("the time of the call was over before the fallback answered") from None


async def _recorded(parts: Parts, identity: Identity, named: Named, arguments: dict[str, Any]) -> None:
    """Go on only once the call's record is on the disk."""
    try:
        await parts.decisions.begun(
            identity,
            named.tool,
            named.decision,
            named.revision,
            arguments,
            named.basis,
            named.fallback_for,
        )
    except AuditUnavailable:
        raise Failure(
            "audit_unavailable",
            "The call cannot be recorded now, and this registry records every call before it makes "
            "it. Retry later.",
            retry_after=5,
        ) from None


def _attributes(tool: PublishedTool) -> dict[str, str | None]:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool.name,
        "toolcrib.tool.id": tool.tool_id,
        "toolcrib.server": tool.server,
    }
