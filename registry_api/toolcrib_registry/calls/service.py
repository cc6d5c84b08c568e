"""A call, from a name to an answer: decided first, then everything else.

The order is fixed: identity (401), decision (403 alike for denied and unknown), the name's ambiguity among visible
tools (409), the policy's age (503), the limits of the bindings that grant it or of the agent (429), room at
its backend (503), and only then arguments and backend.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from typing import Any

import orjson
from starlette.responses import Response

from toolcrib.authorizer import Action, Decision, decide
from toolcrib.identity import Identity
from toolcrib.telemetry import logs, tracing
from toolcrib.view import AmbiguousName
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.audit.log import AuditUnavailable
from toolcrib_registry.calls.errors import CallError
from toolcrib_registry.calls.in_flight import Revoked
from toolcrib_registry.deps import Deps
from toolcrib_registry.http.call_response import CallResponse
from toolcrib_registry.http.problems import ProblemError, unauthenticated
from toolcrib_registry.identity.authenticator import Asker
from toolcrib_registry.policy.state import Sight
from toolcrib_registry.ports import Called

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Named:
    """What a name turned out to mean to a caller."""

    tool: PublishedTool
    listed: str
    sight: Sight
    decision: Decision
    charged: frozenset[str] = frozenset()
    """The UIDs of the bindings that a call was charged to."""


async def find(deps: Deps, asker: Asker, name: str, action: Action) -> Named | None:
    """The visible tool that `name` means, decided and logged. None: unknown or not visible, which is the same.

    Nothing here looks at what the caller does not see: no answer may take longer because of it.

    Raises:
        AmbiguousName: several visible tools share the bare name.
    """
    sight = await deps.state.sight(asker.identity, bad_token=asker.problem is not None)
    try:
        tool = sight.view.resolve(name)
    except AmbiguousName:
        deps.decisions.refused(action.value, "ambiguous_name", sight.identity, name)
        raise
    if tool is None:
        deps.refusals.add(action, sight, name)
        return None
    decision = decide(sight.identity, tool, action, sight.snapshot.policy, deps.clock.now())
    if not decision.allowed:  # the clock has moved on since the view was made
        deps.refusals.add(action, sight, name)
        return None
    deps.metrics.decided(action.value, decision, sight.identity)
    return Named(tool, sight.view.listed_name(tool.tool_id), sight, decision)


def note(
    deps: Deps,
    action: Action,
    identity: Identity | None,
    name: str,
    tool: PublishedTool | None,
    decision: Decision,
    sight: Sight,
    outcome: str | None = None,
    *,
    arguments: dict[str, Any] | None = None,
    seconds: float | None = None,
) -> None:
    """Write one record about one named tool."""
    revision = str(sight.snapshot.revision or "")
    deps.decisions.decided(
        action.value,
        identity,
        name,
        tool,
        decision,
        revision,
        outcome=outcome,
        arguments=arguments,
        seconds=seconds,
    )


def ambiguous(error: AmbiguousName) -> ProblemError:
    """409 with the visible ids."""
    return ProblemError(
        "ambiguous_name",
        f"The name {error.name!r} means several tools; use one of tool_ids.",
        extra={"tool_ids": list(error.tool_ids)},
    )


def not_found(name: str) -> ProblemError:
    """404, the same for hidden and absent."""
    return ProblemError("tool_not_found", f"Tool '{name}' not found")


async def call(
    deps: Deps, asker: Asker, name: str, arguments: dict[str, Any], request_id: str
) -> tuple[Named, Called]:
    """Call the tool that `name` means.

    Raises:
        ProblemError: it was refused or failed; the code says how.
    """
    start = time.perf_counter()
    if asker.identity is None:
        raise unauthenticated(asker.problem)
    try:
        named = await find(deps, asker, name, Action.CALL)
    except AmbiguousName as error:
        deps.metrics.called(asker.identity, None, "ambiguous_name", 0.0)
        raise ambiguous(error) from error
    if named is None:
        deps.metrics.called(asker.identity, None, "not_permitted", 0.0)
        raise ProblemError("not_permitted", "This call is not permitted.")
    outcome = "cancelled"
    try:
        if deps.state.stale:
            raise ProblemError(
                "policy_stale",
                "No leader has been heard for too long; whether this is still granted is not known.",
                headers={"Retry-After": "10"},
            )
        charged = deps.charging.charged(
            asker.identity, named.tool, named.sight.snapshot.policy, named.decision.binding
        )
        # outermost: it looks once more when all else is done, and what waits for a counter or a disk is cut too
        held = deps.in_flight.hold(asker.identity, named.tool, named.decision)
        async with held as hold, charged as by:
            if by.binding is not None:
                decision = named.decision._replace(binding=by.binding)
                named = replace(named, decision=decision, charged=by.uids)
                deps.metrics.charged(by.binding)
                hold.rest_on(by.uids, decision, named.sight.snapshot.policy)
            await _recorded(deps, asker.identity, named, arguments)
            room = deps.bulkheads.room(named.tool, named.decision.binding, asker.identity)
            with tracing.span("call tool", _attributes(named.tool)) as span:
                async with room:
                    answer = await deps.calls.call(named.tool, arguments, request_id, asker.identity)
                outcome = "ok"
                span.set({"toolcrib.outcome": outcome})
    except Revoked as error:
        outcome = "revoked"
        named = replace(named, decision=error.decision)
        raise ProblemError(outcome, "What let this call in was taken back before the answer came.") from error
    except CallError as error:
        outcome = error.code
        raise problem_of(error) from error
    except ProblemError as error:
        outcome = error.code
        raise
    except Exception:
        outcome = "internal"
        raise
    finally:
        seconds = time.perf_counter() - start
        deps.metrics.called(asker.identity, named.tool, outcome, seconds)
        if outcome != "ok":
            told = {"agent": asker.identity.label, "outcome": outcome, "ms": round(seconds * 1000, 1)}
            log.info("call failed: %s", outcome, extra=logs.about_object("Tool", named.tool.tool_id, **told))
        note(
            deps, Action.CALL, asker.identity, name, named.tool, named.decision, named.sight, outcome,
            arguments=arguments, seconds=seconds,
        )  # fmt: skip
    return named, answer


async def _recorded(deps: Deps, identity: Identity, named: Named, arguments: dict[str, Any]) -> None:
    """Where the decision log is strict: go on only once the call's record is on the disk."""
    revision = str(named.sight.snapshot.revision or "")
    try:
        await deps.decisions.begun(identity, named.tool, named.decision, revision, arguments)
    except AuditUnavailable:
        raise ProblemError(
            "audit_unavailable",
            "The decision cannot be recorded now, and this registry makes no call that is not recorded.",
            headers={"Retry-After": "5"},
        ) from None


def _attributes(tool: PublishedTool) -> dict[str, str | None]:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool.name,
        "toolcrib.tool.id": tool.tool_id,
        "toolcrib.server": tool.server,
    }


def problem_of(error: CallError) -> ProblemError:
    """The same as a problem document."""
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    return ProblemError(error.code, error.detail, status=error.status, headers=headers, extra=error.extra)


def plain(deps: Deps, named: Named, answer: Called) -> Response:
    """The tool's answer as it came, as JSON or as text."""
    if isinstance(answer.value, str) and not answer.content_type.endswith("json"):
        return sent(deps, named, answer.value, "text/plain")
    return sent(deps, named, answer.raw or b"null", "application/json")


def wrapped(named: Named, answer: Called) -> bytes:
    """The answer of `/v1/call`: JSON goes in as it came, since its objects may take 30 times as much memory."""
    kept = isinstance(answer.value, str) or not answer.raw
    made = {
        "tool_id": named.tool.tool_id,
        "content_type": answer.content_type,
        "result": answer.value if kept else orjson.Fragment(answer.raw),
        "elapsed": round(answer.elapsed, 6),
    }
    return orjson.dumps(made)


def sent(deps: Deps, named: Named, body: bytes | str, media_type: str) -> Response:
    """An answer to the call of `named`: cut where it is not granted any more while it is being sent."""
    identity = named.sight.identity
    assert identity is not None

    def on_cut(decision: Decision) -> None:
        note(deps, Action.CALL, identity, named.listed, named.tool, decision, named.sight, "revoked")

    return CallResponse(
        body,
        media_type,
        hold=lambda: deps.in_flight.hold(identity, named.tool, named.decision, named.charged),
        on_cut=on_cut,
        sending=lambda size: deps.large.sending(f"{identity.issuer} {identity.subject}", size),
    )
