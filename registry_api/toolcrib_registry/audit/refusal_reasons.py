"""Why a name that its caller does not see was refused: found out after the answer, never before it.

An answer must not take longer because a hidden tool has the name that was asked for. So a request does the same for a
hidden tool as for none, call for call, and leaves the question here. A moment later it is decided what the name means
and why it was refused, for the decision log, and for the metrics where `metrics.reasons` is `full`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass

from toolcrib.authorizer import Action, decide
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.audit.basis import Basis
from toolcrib_registry.audit.log import DecisionLog
from toolcrib_registry.clock import Clock, whole_milliseconds
from toolcrib_registry.metrics.recorder import Metrics
from toolcrib_registry.policy.state import CallerView

LATER = 0.02
"""Seconds until refusals are looked into: many at once, so that no answer waits for its own."""
AT_A_TIME = 200
"""Refusals that are looked into before other work of the loop goes on: about 3 ms."""
MOST = 4096
"""Refusals that wait at one time; where there are more, some of them are looked into at once."""


@dataclass(frozen=True, slots=True)
class _Refused:
    action: Action
    caller_view: CallerView
    name: str
    at: float
    """Seconds since the epoch."""
    context: Context
    """Of the request: its id, its token."""


class RefusalReasons:
    """Takes refusals and accounts for them later. Used from one event loop only.

    Args:
        metrics: count them, without a reason at once, or with it (`metrics.full`).
        decisions: record them with what was really decided.
        clock: tells when they were refused.
    """

    def __init__(self, metrics: Metrics, decisions: DecisionLog, clock: Clock) -> None:
        self._metrics, self._decisions, self._clock = metrics, decisions, clock
        self._waiting: deque[_Refused] = deque()
        self._due: asyncio.Handle | None = None

    def add(self, action: Action, caller_view: CallerView, name: str) -> None:
        """`action` with what `name` means was refused: there is no such tool in `caller_view`."""
        if not self._metrics.full:
            self._metrics.refused(action.value, caller_view.identity)
            if not self._decisions.enabled:
                return
        self._waiting.append(
            _Refused(action, caller_view, name, whole_milliseconds(self._clock.now()), copy_context())
        )
        if len(self._waiting) >= MOST:
            self._some_of_them()
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(LATER, self._some)

    def settle(self) -> None:
        """Account for all that wait, now: before a scrape and before the decision log is closed."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        while self._waiting:
            self._next()

    def _some_of_them(self) -> None:
        for _ in range(min(AT_A_TIME, len(self._waiting))):
            self._next()

    def _some(self) -> None:
        self._due = None
        self._some_of_them()
        if self._waiting:
            self._due = asyncio.get_running_loop().call_soon(self._some)

    def _next(self) -> None:
        refused = self._waiting.popleft()
        refused.context.run(self._account, refused)

    def _account(self, refused: _Refused) -> None:
        caller_view = refused.caller_view
        tool = _meant(caller_view, refused.name)
        decision = decide(caller_view.identity, tool, refused.action, caller_view.snapshot.policy, refused.at)
        if self._metrics.full:
            self._metrics.decided(refused.action.value, decision, caller_view.identity)
        self._decisions.decided(
            refused.action,
            caller_view.identity,
            refused.name,
            tool,
            decision,
            str(caller_view.snapshot.revision or ""),
            at=refused.at,
            basis=Basis(caller_view, refused.at),
        )


def _meant(caller_view: CallerView, name: str) -> PublishedTool | None:
    """The tool that a refused name means, seen or hidden, for the reason alone; never for an answer."""
    snapshot = caller_view.snapshot
    if (exact := snapshot.governed(caller_view.view.names.get(name, name))) is not None:
        return exact
    several: Sequence[str] = sorted(snapshot.by_name.get(name.lower(), ()))
    home = caller_view.identity.namespace if caller_view.identity else None
    own = [i for i in several if snapshot.tools[i].namespace == home]
    found = own or several
    return snapshot.tools[found[0]] if found else None
