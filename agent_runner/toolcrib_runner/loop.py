"""The task loop: ask the model, do what it asks for, until it answers or a bound is reached.

Errors of tools go back to the model, which may choose another way; a registry that is down is such an error too.
A model endpoint that fails is asked again with growing pauses, and given up after `model_patience` seconds.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from toolcrib import text
from toolcrib.telemetry import logs, tracing
from toolcrib_runner import tasks
from toolcrib_runner.discovery import DiscoveredTool
from toolcrib_runner.errors import (
    InvalidArguments,
    ModelError,
    ModelUnavailable,
    NotOffered,
    RegistryUnavailable,
    RunnerError,
    TokenUnavailable,
    ToolError,
    ToolNotFound,
)
from toolcrib_runner.modes import estimates, kinds, signatures
from toolcrib_runner.modes.conversations import Conversation, Discovering, Static
from toolcrib_runner.modes.dialects import Kind, Step
from toolcrib_runner.modes.kinds import Dialect, Mode
from toolcrib_runner.ports import Function, Message, Model, Observer, Reply
from toolcrib_runner.ready_sets import Caller
from toolcrib_runner.session import functions
from toolcrib_runner.session.conversation import error_text, result_text
from toolcrib_runner.tasks import Bounds, CallRecord, Outcome, Report, Toolbox, Way

log = logging.getLogger(__name__)

MAX_FUNCTIONS = 128
"""OpenAI's bound on functions in one request."""


_STATIC = Way()
_BOUNDS = Bounds()


class TaskLoop:
    """Runs one task for an agent with a model. `stop` ends it early, between two steps."""

    def __init__(
        self,
        agent: Toolbox,
        model: Model,
        *,
        way: Way = _STATIC,
        bounds: Bounds = _BOUNDS,
        observer: Observer | None = None,
        stop: threading.Event | None = None,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        first_pause: float = 0.5,
        max_functions: int = MAX_FUNCTIONS,
    ) -> None:
        self._agent = agent
        self._model = model
        self._way = way
        self._bounds = bounds
        self._observer = observer or Observer()
        self._stop = stop or threading.Event()
        self._clock = clock
        self._chance = chance
        self._first_pause = first_pause
        self._max_functions = max_functions
        self.report = Report(Outcome.STOPPED)
        """What has come of the task so far; it outlives an interruption."""
        self._id = ""
        self._ends = 0.0
        self._estimator = estimates.Estimator()
        self._asked: list[tuple[Kind, tuple[str, ...], str]] = []
        self._remember: tuple[Caller, str, str] | None = None

    def run(self, task: str, system_prompt: str = "") -> Report:
        """Work on the task until there is an answer or a bound is reached; never raises a RunnerError."""
        report = self.report = Report(Outcome.STOPPED)
        self._ends = self._clock() + self._bounds.seconds
        self._asked, self._remember = [], None
        about = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": self._agent.name}
        with (
            logs.working_on(logs.new_request_id("task-")) as self._id,
            tracing.span("task", {**about, "toolcrib.request_id": self._id}) as span,
        ):
            try:
                report.outcome = self._converse(task, system_prompt)
            except ModelError as error:
                report.outcome = Outcome.MODEL_FAILED
                report.error = str(error)
                span.failed(error.code)
            span.set({
                "toolcrib.outcome": report.outcome.value,
                "toolcrib.mode": report.mode or None,
                "toolcrib.turns": report.turns,
                "gen_ai.usage.input_tokens": report.prompt_tokens,
                "gen_ai.usage.output_tokens": report.completion_tokens,
            })  # fmt: skip
        return report

    # ---- which mode ----

    def _begin(self, task: str, system_prompt: str) -> Conversation:
        """The conversation to begin with."""
        way, tools = self._way, self._agent.tools
        static = Static(system_prompt, task, way.dialect, tool_context=way.tool_context)
        mode = way.mode
        if mode is Mode.AUTO:
            mode = Mode.BATCHED
            if len(tools) <= self._max_functions:
                self._learn(static, static.unlearned(tools))
                mode = kinds.settled(
                    Mode.AUTO, self._estimator.tokens(estimates.size(static.functions(tools)))
                )
        self.report.mode = mode.value
        if mode is Mode.STATIC and way.dialect is not Dialect.TEXT:
            return static
        ready: tuple[str, ...] | None = None
        if mode is Mode.CACHED and way.ready_sets is not None:
            key = (way.caller(), signatures.view_digest(tools), signatures.task_signature(task))
            self._remember = key
            ready = way.ready_sets.find(*key)
        self.report.ready = ready or ()
        core = self._core(tools) if mode is Mode.HYBRID else ()
        return Discovering(
            mode, way.dialect, system_prompt, task, core=core, ready=ready, tool_context=way.tool_context
        )

    def _core(self, tools: Mapping[str, DiscoveredTool]) -> tuple[str, ...]:
        if self._way.core:
            names = functions.FunctionNames()
            names.assign(tools[name] for name in sorted(tools))
            return tuple(
                dict.fromkeys(name if name in tools else names.tool(name) or name for name in self._way.core)
            )
        used = self._agent.usage_stats().usage_by_tool
        there = sorted((name for name in used if name in tools), key=lambda name: (-used[name], name))
        return tuple(there[: tasks.CORE])

    # ---- turns ----

    def _converse(self, task: str, system_prompt: str) -> Outcome:
        conversation, report = self._begin(task, system_prompt), self.report
        while True:
            if ended := self._ended():
                return ended
            if isinstance(conversation, Discovering) and conversation.searched_enough:
                log.warning("no tools were chosen in %d turns; going on without", report.turns)
                conversation.execute(())
            reply = self._ask(conversation)
            if isinstance(reply, Outcome):
                return reply
            if reply is None:
                # why is found out above: the task was stopped, or its time is over
                continue
            report.turns += 1
            report.prompt_tokens += reply.prompt_tokens
            report.completion_tokens += reply.completion_tokens
            if reply.text:
                report.answer = reply.text
            steps = conversation.replied(reply)
            if not steps:
                if reply.finish_reason == "length":
                    # A reply that was cut off is no answer, but there is nothing to go on with either.
                    report.error = "the model's reply was cut off at the most tokens of a completion"
                    return Outcome.OUT_OF_TOKENS
                if isinstance(conversation, Discovering) and conversation.reminds(reply):
                    continue
                return Outcome.ANSWERED
            if ended := self._do(conversation, steps):
                return ended

    def _do(self, conversation: Conversation, steps: Sequence[Step]) -> Outcome | None:
        """Do what a reply asks for; the outcome where the run ends with it."""
        for number, step in enumerate(steps):
            if self._stop.is_set():
                return Outcome.STOPPED
            allowed = number < self._bounds.calls_per_turn and self._clock() < self._ends
            if allowed and self._repeats(step):
                name = text.truncate(text.escape(", ".join(step.names)), 128)
                self.report.error = (
                    f"{tasks.EQUAL_CALLS} equal calls in a row: {step.kind} {name}. "
                    "Give the task other words, or use another model."
                )
                return Outcome.LOOPING
            phase = conversation.phase
            told = self._execute(conversation, step, allowed)
            if conversation.phase is not phase:
                # what else the reply asked for was for a conversation that is over
                return None
            conversation.answered(step, told)
        return None

    def _repeats(self, step: Step) -> bool:
        self._asked = [*self._asked[1 - tasks.EQUAL_CALLS :], (step.kind, step.names, step.arguments)]
        return len(self._asked) == tasks.EQUAL_CALLS and len(set(self._asked)) == 1

    def _ended(self) -> Outcome | None:
        report, bounds = self.report, self._bounds
        if self._stop.is_set():
            report.error = "the task was stopped"
            return Outcome.STOPPED
        if report.turns >= bounds.turns:
            report.error = f"no answer in {bounds.turns} turns: raise --max-turns"
            return Outcome.OUT_OF_TURNS
        if (used := report.prompt_tokens + report.completion_tokens) >= bounds.tokens:
            report.error = f"{used} of {bounds.tokens} tokens are used: raise --max-tokens"
            return Outcome.OUT_OF_TOKENS
        if self._clock() >= self._ends:
            report.error = f"no answer in {bounds.seconds:g} s: raise --max-seconds"
            return Outcome.OUT_OF_TIME
        return None

    # ---- the model ----

    def _ask(self, conversation: Conversation) -> Reply | Outcome | None:
        """The model's reply, or how the run ends without one; None where time ran out or the loop was stopped."""
        gives_up = min(self._ends, self._clock() + self._bounds.model_patience)
        pause = self._first_pause
        while not self._stop.is_set() and (left := self._ends - self._clock()) > 0:
            # Tools may have come or gone, also while the endpoint was away: what it is told is always current.
            made = self._request(conversation)
            if isinstance(made, Outcome):
                return made
            messages, offered, size = made
            started = self._clock()
            try:
                with tracing.span("model request", {"gen_ai.operation.name": "chat"}, kind="client") as span:
                    reply = self._model.complete(messages, offered, min(left, self._bounds.model_timeout))
                    span.set({
                        "gen_ai.response.model": reply.model or None,
                        "gen_ai.usage.input_tokens": reply.prompt_tokens,
                        "gen_ai.usage.output_tokens": reply.completion_tokens,
                    })  # fmt: skip
            except ModelError as error:
                self._replied(conversation, error.code, started, None)
                wait = pause * (0.5 + self._chance() / 2)
                if isinstance(error, ModelUnavailable):
                    wait = max(wait, error.retry_after or 0.0)
                if not isinstance(error, ModelUnavailable) or self._clock() + wait > gives_up:
                    raise
                log.warning("%s; retrying in %.1f s", error, wait)
                self._stop.wait(wait)
                pause = min(pause * 2, 15.0)
                continue
            self._estimator.counted(size, reply.prompt_tokens)
            self._replied(conversation, "ok", started, reply)
            return self._estimator.complete(size, reply)
        return None

    def _request(self, conversation: Conversation) -> tuple[list[Message], list[Function], int] | Outcome:
        """Messages and functions within the context limit, and their bytes; the outcome where they cannot be."""
        tools, most = self._agent.tools, self._bounds.context
        if conversation.mode is Mode.STATIC and (count := len(tools)) > self._max_functions:
            return self._too_many(f"{count} tools, but a model takes at most {self._max_functions}")
        self._learn(conversation, conversation.unlearned(tools))
        while True:
            messages, offered = conversation.messages(tools), conversation.functions(tools)
            size = estimates.size(messages, offered)
            if (tokens := self._estimator.tokens(size)) <= most:
                return messages, offered, size
            if conversation.cut():
                log.info("about %d tokens do not fit into %d: the oldest result is cut", tokens, most)
                continue
            if conversation.mode is Mode.STATIC:
                return self._too_many(
                    f"{len(tools)} tools of about {tokens} tokens with the task, but a request takes at most {most}"
                )
            self.report.error = (
                f"the task and its tools take about {tokens} tokens; a request takes at most {most}: "
                "raise --max-context if the model's context allows it"
            )
            return Outcome.CONTEXT_FULL

    def _too_many(self, what: str) -> Outcome:
        self.report.error = (
            f"{self._agent.name} sees {what}. Let it search: --mode auto. "
            "Or narrow its bindings, or use the registry's MCP endpoint /mcp."
        )
        return Outcome.TOO_MANY_TOOLS

    def _learn(self, conversation: Conversation, wanted: Sequence[DiscoveredTool]) -> None:
        """Get the full schemas of tools that are new to the conversation; without them the listing has to do."""
        if not wanted:
            return
        try:
            conversation.learn(wanted, self._agent.input_schemas([tool.name for tool in wanted]))
        except (RegistryUnavailable, TokenUnavailable) as error:
            log.info("full schemas are not available now: %s", error)
        except RunnerError as error:
            conversation.learn(wanted, {})
            log.info("this registry gives no full schemas: %s", error)

    def _replied(self, conversation: Conversation, outcome: str, started: float, reply: Reply | None) -> None:
        self._observer.replied(
            self._agent.name,
            conversation.mode.value,
            conversation.phase.value,
            outcome,
            self._clock() - started,
            reply,
        )

    # ---- what it asks for ----

    def _execute(self, conversation: Conversation, step: Step, allowed: bool) -> str:
        """Do one thing that the model asks for and return what it is told about it."""
        # an id of its own for each call: a backend may answer the same id with the same answer
        with logs.working_on(f"{self._id}-{len(self.report.calls) + 1}"):
            if step.kind is Kind.CALL:
                return self._call(conversation, step, allowed)
            try:
                if not isinstance(conversation, Discovering):
                    raise ToolNotFound(step.kind, "there is nothing to search: all tools are shown")
                if not allowed:
                    raise _not_executed(step.kind)
                return self._discover(conversation, step)
            except RunnerError as error:
                log.warning("%s: %s", error.code, error, extra=logs.about(agent=self._agent.name))
                return error_text(error)

    def _discover(self, conversation: Discovering, step: Step) -> str:
        tools = self._agent.tools
        if step.kind is Kind.SEARCH:
            queries = step.names[: tasks.SEARCHES] or ("",)
            if conversation.mode is Mode.DYNAMIC:
                queries = ("; ".join(queries),)
            hits = [list(self._agent.search(query[:1000], tasks.HITS)) if query else [] for query in queries]
            self._learn(conversation, conversation.lacking(tools, conversation.best(hits)))
            return conversation.found(tools, queries, hits)
        if step.kind is Kind.DESCRIBE:
            names = step.names[: 1 if conversation.mode is Mode.DYNAMIC else tasks.SCHEMAS]
            self._learn(conversation, conversation.lacking(tools, conversation.wanted(tools, names)))
            return conversation.described(tools, names)
        refused = conversation.ready(tools, step.names[: self._max_functions])
        if refused is not None:
            return refused
        self.report.ready = conversation.ready_tools
        log.info(
            "ready with %d tools", len(self.report.ready),
            extra=logs.about(agent=self._agent.name, tools=len(self.report.ready)),
        )  # fmt: skip
        if self._remember is not None and self._way.ready_sets is not None and self.report.ready:
            caller, view, task = self._remember
            # a set that was chosen from another view than the run began with is not remembered for that one
            if signatures.view_digest(tools) == view:
                self._way.ready_sets.keep(caller, view, task, self.report.ready)
        return ""

    def _call(self, conversation: Conversation, step: Step, allowed: bool) -> str:
        (name,) = step.names
        shown = text.truncate(text.escape(name), 128)
        tool = conversation.callable(name)
        started, outcome = self._clock(), "ok"
        about = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool or "unknown"}
        try:
            if tool is None and isinstance(conversation, Discovering):
                raise NotOffered(shown, f"{shown} is not among the chosen tools; only those can be called")
            if tool is None:
                raise ToolNotFound(shown, f"there is no function {shown}")
            if not allowed:
                raise _not_executed(tool)
            with tracing.span("tool call", {**about, "toolcrib.request_id": logs.request_id.get()}):
                told = result_text(self._agent.call(tool, functions.arguments(tool, step.arguments)))
        except RunnerError as error:
            outcome = error.code
            told = error_text(error)
            # what is wrong with arguments may quote them: that is for the model alone
            said = (
                f"{tool or shown}: see the model's answer" if isinstance(error, InvalidArguments) else error
            )
            log.warning("%s: %s", outcome, said, extra=logs.about(agent=self._agent.name, tool=tool))
        record = CallRecord(tool or shown, outcome, self._clock() - started)
        self.report.calls.append(record)
        ms = round(record.seconds * 1000, 1)
        log.info(
            "called %s: %s in %.0f ms", record.tool, record.outcome, ms,
            extra=logs.about(agent=self._agent.name, tool=tool, outcome=outcome, ms=ms),
        )  # fmt: skip
        return told


def _not_executed(what: str) -> ToolError:
    return ToolError(what, "not called: too many calls in one turn, or no time left", code="not_executed")
