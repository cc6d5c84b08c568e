"""The task loop: ask the model, execute what it calls, until it answers or a bound is reached.

Errors of tools go back to the model, which may choose another way; a registry that is down is such an error too.
A model endpoint that fails is asked again with growing pauses, and given up after `model_patience` seconds.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from toolcrib import text
from toolcrib.telemetry import logs, tracing
from toolcrib_runner.discovery import DiscoveredTool
from toolcrib_runner.errors import (
    InvalidArguments,
    ModelError,
    ModelUnavailable,
    RegistryUnavailable,
    RunnerError,
    TokenUnavailable,
    ToolError,
    ToolNotFound,
)
from toolcrib_runner.ports import FunctionCall, Model, Observer, Reply
from toolcrib_runner.session import functions
from toolcrib_runner.session.conversation import Session, error_text, result_text

log = logging.getLogger(__name__)

MAX_FUNCTIONS = 128
"""OpenAI's bound on functions in one request."""


class Tools(Protocol):
    """What the loop needs of an agent; every mode's agent has it."""

    name: str
    mode: str

    @property
    def tools(self) -> Mapping[str, DiscoveredTool]:
        """The tools now."""

    def call(self, tool_name: str, arguments: Mapping[str, Any]) -> Any:
        """Call one."""

    def input_schemas(self, names: Sequence[str]) -> Mapping[str, dict[str, Any]]:
        """Full input schemas of some."""


class Outcome(StrEnum):
    """How a task ended."""

    ANSWERED = "answered"
    OUT_OF_TURNS = "out_of_turns"
    OUT_OF_TOKENS = "out_of_tokens"
    OUT_OF_TIME = "out_of_time"
    MODEL_FAILED = "model_failed"
    TOO_MANY_TOOLS = "too_many_tools"
    REGISTRY_AWAY = "registry_away"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where a task ends at the latest."""

    turns: int = 20
    """Requests to the model that were answered."""
    tokens: int = 200_000
    """Prompt and completion tokens together, as the endpoint counts them."""
    seconds: float = 600.0
    """From the first request."""
    calls_per_turn: int = 16
    """Of a reply that asks for more, the rest is refused."""
    model_patience: float = 60.0
    """Seconds for which a failing model endpoint is retried."""
    model_timeout: float = 120.0
    """Seconds for one reply."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One executed call. `outcome` is ok, or the code of the error."""

    tool: str
    outcome: str
    seconds: float


@dataclass
class Report:
    """What came of a task."""

    outcome: Outcome
    answer: str = ""
    error: str = ""
    turns: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    calls: list[CallRecord] = field(default_factory=list)


class TaskLoop:
    """Runs one task for an agent with a model. `stop` ends it early, between two steps."""

    def __init__(
        self,
        agent: Tools,
        model: Model,
        *,
        bounds: Bounds = Bounds(),
        observer: Observer | None = None,
        stop: threading.Event | None = None,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        first_pause: float = 0.5,
        max_functions: int = MAX_FUNCTIONS,
        tool_context: bool = False,
    ) -> None:
        self._agent = agent
        self._model = model
        self._bounds = bounds
        self._observer = observer or Observer()
        self._stop = stop or threading.Event()
        self._clock = clock
        self._chance = chance
        self._first_pause = first_pause
        self._max_functions = max_functions
        self._tool_context = tool_context
        self.report = Report(Outcome.STOPPED)
        """What has come of the task so far; it outlives an interruption."""
        self._id = ""

    def run(self, task: str, system_prompt: str = "") -> Report:
        """Work on the task until there is an answer or a bound is reached; never raises a RunnerError."""
        conversation = Session(system_prompt, task, tool_context=self._tool_context)
        report = self.report = Report(Outcome.STOPPED)
        ends = self._clock() + self._bounds.seconds
        about = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": self._agent.name}
        with (
            logs.working_on(logs.new_request_id("task-")) as self._id,
            tracing.span("task", {**about, "toolcrib.request_id": self._id}) as span,
        ):
            try:
                report.outcome = self._converse(conversation, report, ends)
            except ModelError as error:
                report.outcome = Outcome.MODEL_FAILED
                report.error = str(error)
                span.failed(error.code)
            span.set({
                "toolcrib.outcome": report.outcome.value,
                "toolcrib.turns": report.turns,
                "gen_ai.usage.input_tokens": report.prompt_tokens,
                "gen_ai.usage.output_tokens": report.completion_tokens,
            })  # fmt: skip
        return report

    def _converse(self, conversation: Session, report: Report, ends: float) -> Outcome:
        while True:
            if ended := self._ended(report, ends):
                return ended
            if (count := len(self._agent.tools)) > self._max_functions:
                report.error = (
                    f"{self._agent.name} sees {count} tools, but a model takes at most {self._max_functions}. "
                    "Narrow its bindings, or let it search: the registry's MCP endpoint /mcp has a few tools "
                    "that find and call all others."
                )
                return Outcome.TOO_MANY_TOOLS
            reply = self._ask(conversation, ends)
            if reply is None:
                # why is found out above: the task was stopped, its time is over, or there are too many tools now
                continue
            report.turns += 1
            report.prompt_tokens += reply.prompt_tokens
            report.completion_tokens += reply.completion_tokens
            if reply.text:
                report.answer = reply.text
            conversation.replied(reply)
            if not reply.calls:
                # A reply that was cut off is no answer, but there is nothing to go on with either.
                return Outcome.OUT_OF_TOKENS if reply.finish_reason == "length" else Outcome.ANSWERED
            for number, call in enumerate(reply.calls):
                if self._stop.is_set():
                    return Outcome.STOPPED
                allowed = number < self._bounds.calls_per_turn and self._clock() < ends
                conversation.answered(call, self._execute(conversation, call, report, allowed))

    def _ended(self, report: Report, ends: float) -> Outcome | None:
        if self._stop.is_set():
            return Outcome.STOPPED
        if report.turns >= self._bounds.turns:
            return Outcome.OUT_OF_TURNS
        if report.prompt_tokens + report.completion_tokens >= self._bounds.tokens:
            return Outcome.OUT_OF_TOKENS
        return Outcome.OUT_OF_TIME if self._clock() >= ends else None

    def _ask(self, conversation: Session, ends: float) -> Reply | None:
        """The model's reply; None where time ran out, the loop was stopped, or there came too many tools."""
        gives_up = min(ends, self._clock() + self._bounds.model_patience)
        pause = self._first_pause
        while not self._stop.is_set() and (left := ends - self._clock()) > 0:
            # Tools may have come or gone, also while the endpoint was away: what it is told is always current.
            tools = self._agent.tools
            if len(tools) > self._max_functions:
                return None
            self._learn(conversation, tools)
            offered = conversation.functions(tools)
            started = self._clock()
            try:
                with tracing.span("model request", {"gen_ai.operation.name": "chat"}, kind="client") as span:
                    reply = self._model.complete(
                        conversation.messages(tools), offered, min(left, self._bounds.model_timeout)
                    )
                    span.set({
                        "gen_ai.response.model": reply.model or None,
                        "gen_ai.usage.input_tokens": reply.prompt_tokens,
                        "gen_ai.usage.output_tokens": reply.completion_tokens,
                    })  # fmt: skip
            except ModelError as error:
                self._replied(error.code, started, None)
                wait = pause * (0.5 + self._chance() / 2)
                if isinstance(error, ModelUnavailable):
                    wait = max(wait, error.retry_after or 0.0)
                if not isinstance(error, ModelUnavailable) or self._clock() + wait > gives_up:
                    raise
                log.warning("%s; retrying in %.1f s", error, wait)
                self._stop.wait(wait)
                pause = min(pause * 2, 15.0)
                continue
            self._replied("ok", started, reply)
            return reply
        return None

    def _learn(self, conversation: Session, tools: Mapping[str, DiscoveredTool]) -> None:
        """Get the full schemas of tools that are new to the conversation; without them the listing has to do."""
        wanted = conversation.unlearned(tools)
        if not wanted:
            return
        try:
            conversation.learn(wanted, self._agent.input_schemas([tool.name for tool in wanted]))
        except (RegistryUnavailable, TokenUnavailable) as error:
            log.info("full schemas are not available now: %s", error)
        except RunnerError as error:
            conversation.learn(wanted, {})
            log.info("this registry gives no full schemas: %s", error)

    def _replied(self, outcome: str, started: float, reply: Reply | None) -> None:
        self._observer.replied(self._agent.name, self._agent.mode, outcome, self._clock() - started, reply)

    def _execute(self, conversation: Session, call: FunctionCall, report: Report, allowed: bool) -> str:
        """Execute one call and return what the model is told about it."""
        # an id of its own for each call: a backend may answer the same id with the same answer
        with logs.working_on(f"{self._id}-{len(report.calls) + 1}"):
            return self._carry_out(conversation, call, report, allowed)

    def _carry_out(self, conversation: Session, call: FunctionCall, report: Report, allowed: bool) -> str:
        shown = text.truncate(text.escape(call.name), 128)
        tool = conversation.names.tool(call.name)
        started, outcome = self._clock(), "ok"
        about = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool or "unknown"}
        try:
            if tool is None:
                raise ToolNotFound(shown, f"there is no function {shown}")
            if not allowed:
                raise ToolError(
                    tool, "not called: too many calls in one turn, or no time left", code="not_executed"
                )
            with tracing.span("tool call", {**about, "toolcrib.request_id": logs.request_id.get()}):
                told = result_text(self._agent.call(tool, functions.arguments(tool, call.arguments)))
        except RunnerError as error:
            outcome = error.code
            told = error_text(error)
            # what is wrong with arguments may quote them: that is for the model alone
            said = (
                f"{tool or shown}: see the model's answer" if isinstance(error, InvalidArguments) else error
            )
            log.warning("%s: %s", outcome, said, extra=logs.about(agent=self._agent.name, tool=tool))
        record = CallRecord(tool or shown, outcome, self._clock() - started)
        report.calls.append(record)
        ms = round(record.seconds * 1000, 1)
        log.info(
            "called %s: %s in %.0f ms", record.tool, record.outcome, ms,
            extra=logs.about(agent=self._agent.name, tool=tool, outcome=outcome, ms=ms),
        )  # fmt: skip
        return told
