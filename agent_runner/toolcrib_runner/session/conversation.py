"""One conversation with a model: its messages, and which functions stand for which tools. Pure.

The messages go out in a fixed order: the system prompt, then the tool context as it is now where it is asked for,
then the conversation.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from toolcrib import text
from toolcrib_runner.discovery import DiscoveredTool
from toolcrib_runner.errors import (
    InvalidArguments,
    LimitReached,
    RegistryError,
    RunnerError,
    ToolError,
    ToolFailed,
)
from toolcrib_runner.ports import Function, FunctionCall, Message, Reply
from toolcrib_runner.session import functions, prompt
from toolcrib_runner.session.functions import FunctionNames
from toolcrib_runner.session.schemas import Schemas

MAX_RESULT = 64 * 1024
"""Characters of a tool's answer that a model is shown."""
CUT = "[cut: removed to stay within the context limit]"
"""What stands for a result that was cut."""


class Session:
    """The state of one conversation. Not thread-safe: one loop owns it."""

    def __init__(self, system_prompt: str, task: str, *, tool_context: bool = False) -> None:
        """`tool_context`: list the tools in a system message too, which costs their tokens a second time."""
        self.names = FunctionNames()
        self._system_prompt = system_prompt
        self._tool_context = tool_context
        self._schemas = Schemas()
        self._conversation: list[Message] = [{"role": "user", "content": task}]

    def functions(self, tools: Mapping[str, DiscoveredTool]) -> list[Function]:
        """The tools as functions; their names are fixed from here on."""
        offered = _sorted(tools)
        self.names.assign(offered)
        return [
            functions.function(tool, self.names.function(tool.name), self._schemas.of(tool))
            for tool in offered
        ]

    def unlearned(self, tools: Mapping[str, DiscoveredTool]) -> list[DiscoveredTool]:
        """The tools whose full schema has not been learned, or not since they changed."""
        return self._schemas.unlearned(_sorted(tools))

    def learn(self, tools: Iterable[DiscoveredTool], schemas: Mapping[str, dict[str, Any]]) -> None:
        """Take up full schemas; a tool that is not among them is offered as the listing describes it."""
        self._schemas.learn(tools, schemas)

    def messages(self, tools: Mapping[str, DiscoveredTool]) -> list[Message]:
        """Everything the model is to read now."""
        leading: list[Message] = []
        if self._system_prompt:
            leading.append({"role": "system", "content": self._system_prompt})
        if self._tool_context:
            offered = _sorted(tools)
            self.names.assign(offered)
            context = prompt.tool_context(offered, self.names.function)
            leading.append({"role": "system", "content": context})
        return leading + self._conversation

    def replied(self, reply: Reply) -> None:
        """Take up the model's reply."""
        self._conversation.append(said(reply))

    def answered(self, call: FunctionCall, content: str) -> None:
        """Take up the answer to one of the model's calls."""
        self._conversation.append({"role": "tool", "tool_call_id": call.id, "content": content})

    def told(self, content: str) -> None:
        """Take up an answer to something that the model wrote as text."""
        self._conversation.append({"role": "user", "content": content})

    def cut(self) -> bool:
        """Replace the oldest result that still stands by a note; False where none is left."""
        return cut(self._conversation)


def said(reply: Reply, *, as_text: bool = False) -> Message:
    """The model's reply as a message of the conversation; `as_text`: without its function calls."""
    message: Message = {"role": "assistant", "content": reply.text or None}
    if reply.calls and not as_text:
        message["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": _kept(c.arguments)}}
            for c in reply.calls
        ]
    elif message["content"] is None:
        message["content"] = ""
    return message


def _kept(arguments: str) -> str:
    """Arguments that are refused for their size are not sent back with every further request."""
    return (
        arguments if len(arguments) <= functions.MAX_ARGUMENTS else '{"cut": "the arguments were too large"}'
    )


def cut(conversation: list[Message]) -> bool:
    """Replace the oldest result in a conversation by a note, in place; False where none is left. The first message stays."""
    for message in conversation[1:]:
        if message["role"] in ("tool", "user") and message["content"] != CUT:
            message["content"] = CUT
            return True
    return False


def _sorted(tools: Mapping[str, DiscoveredTool]) -> list[DiscoveredTool]:
    return [tools[name] for name in sorted(tools)]


def result_text(result: Any) -> str:
    """A tool's answer as the model reads it: text as it is, anything else as JSON; bounded."""
    shown = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
    return text.truncate(shown, MAX_RESULT)


def error_text(error: RunnerError) -> str:
    """An error as the model reads it: a stable code, what happened, and whether trying again may help."""
    about: dict[str, Any] = {"code": error.code, "message": str(error)}
    if isinstance(error, InvalidArguments) and error.problems:
        about["problems"] = list(error.problems)
    if isinstance(error, ToolFailed) and error.answer is not None:
        about["answer"] = error.answer
    if isinstance(error, ToolError | RegistryError) and error.retry_after is not None:
        about["retry_after_seconds"] = error.retry_after
    if error.request_id is not None:
        about["request_id"] = error.request_id
    about["retry"] = isinstance(error, LimitReached | InvalidArguments | RegistryError)
    return text.truncate(json.dumps({"error": about}, ensure_ascii=False), MAX_RESULT)
