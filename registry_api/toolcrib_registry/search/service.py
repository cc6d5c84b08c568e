"""One search for one caller, whatever protocol it came by: of one view, counted, and recorded."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from toolcrib import names
from toolcrib.authorizer import Action
from toolcrib.telemetry import tracing
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.audit.log import DecisionLog
from toolcrib_registry.failures import Failure
from toolcrib_registry.identity.authenticator import Asker
from toolcrib_registry.metrics.recorder import Metrics
from toolcrib_registry.policy.state import CallerView, PolicyState
from toolcrib_registry.search.engine import SearchEngine
from toolcrib_registry.search.errors import ModeUnavailable
from toolcrib_registry.search.question import Wanted
from toolcrib_registry.search.ranking import Ranked
from toolcrib_registry.search.searcher import Answer

TRIES = 4
"""How often a search is made at most: again where the caller's view changed meanwhile. Where it still does, hits that
have gone are left out."""


class Parts(Protocol):
    """What a search needs of the registry (`deps.Deps` has it)."""

    @property
    def state(self) -> PolicyState: ...

    @property
    def search(self) -> SearchEngine: ...

    @property
    def metrics(self) -> Metrics: ...

    @property
    def decisions(self) -> DecisionLog: ...

    @property
    def is_down(self) -> Callable[[PublishedTool], bool]: ...


@dataclass(frozen=True, slots=True)
class Hit:
    """One tool of an answer, as its caller knows it."""

    tool: PublishedTool
    name: str
    """Under which the caller lists and calls it."""
    found: Ranked
    unavailable: bool = False
    """Its backend is down: a call would fail."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The answer to a search, of the view that the caller has when it is sent."""

    caller_view: CallerView
    answer: Answer
    hits: tuple[Hit, ...]

    def within(self, caller_view: CallerView) -> Findings:
        """The same as far as `caller_view` has it."""
        tools = caller_view.view.tools
        return replace(self, hits=tuple(hit for hit in self.hits if hit.tool.tool_id in tools))


async def find(parts: Parts, asker: Asker, wanted: Wanted) -> Findings:
    """The best of what `asker` may see, counted in the metrics and recorded as a search.

    Raises:
        Failure: the mode needs an embedder and none is configured (400).
    """
    start = time.perf_counter()
    with tracing.span("search") as span:
        for attempt in range(1, TRIES + 1):
            caller_view = await parts.state.caller_view(asker.identity, bad_token=asker.problem is not None)
            try:
                answer = await parts.search.search(caller_view, wanted)
            except ModeUnavailable as error:
                raise _mode_problem(error) from error
            # grants may have changed while the index was asked: the answer is of one view, that of the moment it is sent
            now = await parts.state.caller_view(asker.identity, bad_token=asker.problem is not None)
            if now.revision == caller_view.revision or attempt == TRIES:
                break
        span.set({
            "toolcrib.search.mode": answer.mode,
            "toolcrib.search.hits": len(answer.hits),
            "toolcrib.search.degradation": answer.degradation or None,
        })  # fmt: skip
    # what is down comes last; the order is otherwise the ranking's
    hits = tuple(sorted(_visible(now, answer, parts.is_down), key=lambda hit: hit.unavailable))
    parts.metrics.searched(answer.mode, len(hits), time.perf_counter() - start, degraded=answer.degraded)
    parts.decisions.listed(Action.SEARCH, now, found=len(hits), mode=answer.mode)
    return Findings(now, answer, hits)


def _visible(
    caller_view: CallerView, answer: Answer, is_down: Callable[[PublishedTool], bool]
) -> Iterator[Hit]:
    for found in answer.hits:
        if (tool := caller_view.view.tools.get(names.of_candidate(found.tool_id))) is not None:
            yield Hit(tool, caller_view.view.listed_name(tool.tool_id), found, is_down(tool))


def _mode_problem(error: ModeUnavailable) -> Failure:
    message = f"The mode {error.mode} needs an embedder, and this registry has none. Use lexical or hybrid."
    return Failure(
        "invalid_request",
        f"body.search_mode: {message}.",
        extra={"errors": [{"field": "body.search_mode", "message": message}]},
    )
