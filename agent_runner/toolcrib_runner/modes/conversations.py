"""One run's conversation in each mode: what is sent next, and what a reply asks for. Pure: the loop acts.

A run of a discovering mode has two conversations. The DiscoveryAgent's ends with READY; then the ToolExecutor's
begins, which knows the task and the READY tools and nothing of how they were found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

from toolcrib_runner.discovery import DiscoveredTool
from toolcrib_runner.modes import dialects, prompts
from toolcrib_runner.modes.dialects import Step
from toolcrib_runner.modes.kinds import Dialect, Mode
from toolcrib_runner.ports import Function, Message, Reply
from toolcrib_runner.session import functions, prompt
from toolcrib_runner.session.conversation import Session, cut, said
from toolcrib_runner.session.functions import FunctionNames
from toolcrib_runner.session.schemas import Schemas

Tools = Mapping[str, DiscoveredTool]
DISCOVERY_TURNS = 12
"""Replies of the DiscoveryAgent; after them the task is worked on without tools."""


class Phase(StrEnum):
    """Which agent a request is for."""

    DISCOVERY = "discovery"
    EXECUTION = "execution"


class Conversation(Protocol):
    """What the loop needs of every mode. Not thread-safe: one loop owns it."""

    mode: Mode
    phase: Phase

    def unlearned(self, tools: Tools) -> list[DiscoveredTool]:
        """The tools whose full schemas the next request shows and that are not known yet."""

    def learn(self, tools: Iterable[DiscoveredTool], schemas: Mapping[str, dict[str, Any]]) -> None:
        """Take up full schemas."""

    def messages(self, tools: Tools) -> list[Message]:
        """What the model is to read now."""

    def functions(self, tools: Tools) -> list[Function]:
        """What it is offered now."""

    def replied(self, reply: Reply) -> tuple[Step, ...]:
        """Take up the model's reply and say what it asks for; nothing: it is the answer."""

    def answered(self, step: Step, content: str) -> None:
        """Take up what came of a step."""

    def callable(self, name: str) -> str | None:
        """The listed name of the tool that a function's name stands for, if the model was offered it."""

    def cut(self) -> bool:
        """Replace the oldest result by a note; False where none is left."""


class Static:
    """All tools of the view, as functions of the endpoint."""

    mode = Mode.STATIC
    phase = Phase.EXECUTION

    def __init__(
        self, system_prompt: str, task: str, dialect: Dialect = Dialect.NATIVE, *, tool_context: bool = False
    ) -> None:
        self._session = Session(system_prompt, task, tool_context=tool_context)
        self._dialect = dialect

    def unlearned(self, tools: Tools) -> list[DiscoveredTool]:
        """All tools whose schemas are not known."""
        return self._session.unlearned(tools)

    def learn(self, tools: Iterable[DiscoveredTool], schemas: Mapping[str, dict[str, Any]]) -> None:
        """Take up full schemas."""
        self._session.learn(tools, schemas)

    def messages(self, tools: Tools) -> list[Message]:
        """The whole conversation."""
        return self._session.messages(tools)

    def functions(self, tools: Tools) -> list[Function]:
        """Every tool."""
        return self._session.functions(tools)

    def replied(self, reply: Reply) -> tuple[Step, ...]:
        """Calls of tools."""
        self._session.replied(reply)
        return dialects.steps(reply, self._dialect, discovering=False)

    def answered(self, step: Step, content: str) -> None:
        """Take up what came of a call."""
        if step.call is not None:
            self._session.answered(step.call, content)
        else:
            self._session.told(_result(step, content))

    def callable(self, name: str) -> str | None:
        """Every tool that has been offered."""
        return self._session.names.tool(name)

    def cut(self) -> bool:
        """Replace the oldest result by a note."""
        return self._session.cut()


class Discovering:
    """Dynamic, cached, batched and hybrid, and static where a dialect has no functions.

    `core`: listed names of tools shown from the first request on. `ready`: listed names to begin the execution with;
    None begins with discovery.
    """

    def __init__(
        self,
        mode: Mode,
        dialect: Dialect,
        system_prompt: str,
        task: str,
        *,
        core: Sequence[str] = (),
        ready: Sequence[str] | None = None,
        tool_context: bool = False,
    ) -> None:
        self.mode = mode
        self._everything = mode is Mode.STATIC
        self.phase = Phase.DISCOVERY if ready is None and not self._everything else Phase.EXECUTION
        self._dialect = dialect
        self._system_prompt = system_prompt
        self._task: Message = {"role": "user", "content": task}
        self._core = tuple(core)
        self._ready = tuple(ready or ())
        self._tool_context = tool_context
        self._names = FunctionNames()
        self._schemas = Schemas()
        self._conversation: list[Message] = [dict(self._task)]
        self._shown: set[str] = set()
        self._described: set[str] = set()
        self._turns = 0
        self._reminded = False

    @property
    def ready_tools(self) -> tuple[str, ...]:
        """Listed names of the READY tools."""
        return self._ready

    def _offered(self, tools: Tools) -> tuple[str, ...]:
        if self._everything:
            return tuple(sorted(tools))
        return self._core if self.phase is Phase.DISCOVERY else self._ready

    def unlearned(self, tools: Tools) -> list[DiscoveredTool]:
        """The core, or the READY tools, whose schemas are not known."""
        return self.lacking(tools, self._offered(tools))

    def lacking(self, tools: Tools, names: Iterable[str]) -> list[DiscoveredTool]:
        """Those of some tools whose schemas are not known."""
        return self._schemas.unlearned(tools[name] for name in names if name in tools)

    def learn(self, tools: Iterable[DiscoveredTool], schemas: Mapping[str, dict[str, Any]]) -> None:
        """Take up full schemas."""
        self._schemas.learn(tools, schemas)

    def _as_functions(self, tools: Tools, names: Iterable[str]) -> list[Function]:
        """Those of the tools that are in the view, with names and schemas for the model."""
        self._assign(tools)
        there = [tools[name] for name in names if name in tools]
        return [functions.function(t, self._names.function(t.name), self._schemas.of(t)) for t in there]

    def _assign(self, tools: Tools) -> None:
        self._names.assign(tools[name] for name in sorted(tools))

    def messages(self, tools: Tools) -> list[Message]:
        """The system texts for the phase, then the phase's conversation."""
        shown = self._as_functions(tools, self._offered(tools))
        told = prompts.execution(self._dialect, shown)
        if self.phase is Phase.DISCOVERY:
            told = prompts.discovery(self.mode, self._dialect, shown)
        leading = "\n\n".join(part for part in (self._system_prompt, told) if part)
        made: list[Message] = [{"role": "system", "content": leading}]
        if self._tool_context:
            listed = [tools[name] for name in sorted(tools)]
            made.append({"role": "system", "content": prompt.tool_context(listed, self._names.function)})
        return made + self._conversation

    def functions(self, tools: Tools) -> list[Function]:
        """The same list over the whole run; none in plain text."""
        return [] if self._dialect is Dialect.TEXT else list(dialects.FUNCTIONS)

    def replied(self, reply: Reply) -> tuple[Step, ...]:
        """What the reply asks for. After so many turns, discovery ends and what was asked for is not done."""
        found = dialects.steps(reply, self._dialect, discovering=True)
        self._conversation.append(said(reply, as_text=self._dialect is Dialect.TEXT))
        if self.phase is Phase.DISCOVERY:
            self._turns += 1
        return found

    def reminds(self, reply: Reply) -> bool:
        """Whether the model, which asked for nothing while it discovers in text, is told once how to ask."""
        if self.phase is Phase.EXECUTION or self._reminded or self._dialect is Dialect.NATIVE:
            return False
        self._reminded = True
        self._conversation.append({"role": "user", "content": prompts.REMIND})
        return True

    @property
    def searched_enough(self) -> bool:
        """Whether the DiscoveryAgent has had its turns."""
        return self.phase is Phase.DISCOVERY and self._turns >= DISCOVERY_TURNS

    def answered(self, step: Step, content: str) -> None:
        """Take up what came of a step."""
        if step.call is not None:
            self._conversation.append({"role": "tool", "tool_call_id": step.call.id, "content": content})
        else:
            self._conversation.append({"role": "user", "content": _result(step, content)})

    def callable(self, name: str) -> str | None:
        """The core while discovering, then the READY tools."""
        listed = self._names.tool(name)
        return listed if self._everything or listed in self._offered({}) else None

    def best(self, hits: Sequence[Sequence[str]]) -> list[str]:
        """Of each query's hits, the one whose schema is shown with it; none in the mode dynamic."""
        return [] if self.mode is Mode.DYNAMIC else [names[0] for names in hits if names]

    def found(self, tools: Tools, queries: Sequence[str], hits: Sequence[Sequence[str]]) -> str:
        """The text of a search's answer. `hits`: listed names a query. No tool is offered a second time."""
        self._assign(tools)
        best, again, answers = set(self.best(hits)), [], []
        for names in hits:
            lines = []
            # several needs at a time: the best of each, so that the answer does not grow with their number
            for name in names if len(hits) == 1 else names[:1]:
                if name not in tools:
                    continue
                with_schema = name in best and name not in self._described
                if name in self._shown and not with_schema:
                    again.append(self._names.function(name))
                    continue
                (tool,) = self._as_functions(tools, (name,))
                lines.append(prompts.schema(tool) if with_schema else prompts.line(tool))
                self._shown.add(name)
                if with_schema:
                    self._described.add(name)
            answers.append(lines)
        return prompts.found(queries, answers, list(dict.fromkeys(again)))

    def wanted(self, tools: Tools, names: Sequence[str]) -> list[str]:
        """Listed names of the functions' names that are in the view."""
        self._assign(tools)
        found = (self._names.tool(name) for name in names)
        return [name for name in found if name is not None and name in tools]

    def described(self, tools: Tools, names: Sequence[str]) -> str:
        """The text of a GET_SCHEMA's answer."""
        listed = self.wanted(tools, names)
        refused = [name for name in names if self._names.tool(name) not in tools]
        self._shown.update(listed)
        self._described.update(listed)
        parts = [prompts.listed(self._as_functions(tools, listed))] if listed else []
        return "\n".join(parts + ([prompts.not_among(refused)] if refused or not listed else []))

    def ready(self, tools: Tools, names: Sequence[str]) -> str | None:
        """Begin the execution with these functions; else why not: unknown and denied names are refused alike."""
        if self.phase is Phase.EXECUTION:
            return "Refused: the tools are chosen already."
        listed = list(dict.fromkeys(self.wanted(tools, names)))
        refused = [name for name in names if self._names.tool(name) not in tools]
        if refused:
            return prompts.not_among(refused)
        self.execute(listed)
        return None

    def execute(self, ready: Sequence[str]) -> None:
        """Begin the execution, in a fresh conversation, with the core and these tools (listed names)."""
        self.phase = Phase.EXECUTION
        self._ready = tuple(dict.fromkeys((*self._core, *ready)))
        self._conversation = [dict(self._task)]

    def cut(self) -> bool:
        """Replace the oldest result by a note. What it showed may be shown again."""
        self._shown.clear()
        self._described.clear()
        return cut(self._conversation)


def _result(step: Step, content: str) -> str:
    """What came of something that was asked for in text."""
    return (
        prompts.RESULT.format(name=step.names[0], content=content)
        if step.kind is dialects.Kind.CALL
        else content
    )
