"""What no HTTP backend can answer, for the conformance suite: content of all kinds, progress, questions.

It stands behind the product's port in front of the product's own HTTP backend, which answers every other tool.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from toolcrib.identity import Identity
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.calls.arguments import CheckedArguments
from toolcrib_registry.calls.backends.port import (
    NO_EXCHANGE,
    Binary,
    Block,
    Embedded,
    Exchange,
    InputRequired,
    Logged,
    Progress,
    Text,
    ToolAnswer,
    ToolBackend,
)

_PNG = b"\x89PNG\r\n\x1a\n"
_WAV = b"RIFF\x24\x00\x00\x00WAVEfmt "
Request = Mapping[str, Any]
Behaviour = Callable[[Exchange], Awaitable[ToolAnswer]]


class SuiteBackend:
    """Answers the suite's tools by their names, and passes on the calls of all others."""

    def __init__(self, others: ToolBackend) -> None:
        self._others = others

    async def call(
        self,
        tool: PublishedTool,
        arguments: CheckedArguments,
        request_id: str,
        caller: Identity,
        exchange: Exchange = NO_EXCHANGE,
    ) -> ToolAnswer:
        """The tool's answer, or what it asks."""
        if behaviour := BEHAVIOURS.get(tool.name):
            return await behaviour(exchange)
        return await self._others.call(tool, arguments, request_id, caller, exchange)


def _content(*blocks: Block) -> Behaviour:
    async def behave(_: Exchange) -> ToolAnswer:
        return _answer(*blocks)

    return behave


async def _progress(exchange: Exchange) -> ToolAnswer:
    if exchange.progress is not None:
        for done in (0, 50, 100):
            await exchange.progress(Progress(done, 100))
    return _answer(Text("done"))


async def _logging(exchange: Exchange) -> ToolAnswer:
    if exchange.logs is not None:
        for said in ("started", "processing data", "completed"):
            await exchange.logs.tell(Logged("info", json.dumps(f"Tool execution {said}").encode()))
    return _answer(Text("done"))


@dataclass(frozen=True)
class _Asking:
    """A tool that asks before it answers, in one round or more; with `states`, each round has one to be given back."""

    rounds: tuple[Mapping[str, Request], ...]
    states: tuple[str, ...] = ()

    async def __call__(self, exchange: Exchange) -> ToolAnswer:
        """Ask, ask again where an answer is missing, or answer."""
        turn = self.states.index(exchange.state) if exchange.state is not None else 0
        if _answered(self.rounds[turn], exchange.responses) and (
            exchange.state is not None or not self.states
        ):
            turn += 1
        if turn == len(self.rounds):
            return _answer(Text("state-ok" if self.states else json.dumps(exchange.responses)))
        state = self.states[turn] if self.states else None
        return ToolAnswer(b"", "", is_json=False, input_required=InputRequired(self.rounds[turn], state))


async def _by_capability(exchange: Exchange) -> ToolAnswer:
    """Asks for what its caller can answer, and for nothing else."""
    asked = {"question": _SAMPLING} if "sampling" in exchange.capabilities else {"question": _CONFIRM}
    return await _Asking((asked,))(exchange)


def _answered(asked: Mapping[str, Request], responses: Mapping[str, Any] | None) -> bool:
    given = responses or {}
    return all(isinstance(given.get(name), Mapping) for name in asked)


def _answer(*blocks: Block) -> ToolAnswer:
    return ToolAnswer(b"", "", is_json=False, blocks=blocks)


def _elicitation(message: str, **properties: Any) -> Request:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


_NAME = _elicitation("What is your name?", name={"type": "string"})
_COLOUR = _elicitation("What is your favorite color?", color={"type": "string"})
_CONFIRM = _elicitation("Please confirm", ok={"type": "boolean"})
_ROOTS: Request = {"method": "roots/list", "params": {}}
_SAMPLING: Request = {
    "method": "sampling/createMessage",
    "params": {
        "messages": [{"role": "user", "content": {"type": "text", "text": "What is the capital of France?"}}],
        "maxTokens": 100,
    },
}
_IMAGE = Binary(_PNG, "image/png")
_MIXED = Embedded("test://mixed-content-resource", '{"test":"data","value":123}', "application/json")

BEHAVIOURS: Mapping[str, Behaviour] = {
    "test_audio_content": _content(Binary(_WAV, "audio/wav")),
    "test_elicitation": _Asking(({"name": _NAME},)),
    "test_elicitation_sep1034_defaults": _Asking(({"name": _NAME},)),
    "test_elicitation_sep1330_enums": _Asking(({"name": _NAME},)),
    "test_embedded_resource": _content(
        Embedded("test://embedded-resource", "an embedded resource", "text/plain")
    ),
    "test_image_content": _content(_IMAGE),
    "test_input_required_result_capabilities": _by_capability,
    "test_input_required_result_elicitation": _Asking(({"user_name": _NAME},)),
    "test_input_required_result_list_roots": _Asking(({"client_roots": _ROOTS},)),
    "test_input_required_result_multi_round": _Asking(({"step1": _NAME}, {"step2": _COLOUR}), ("one", "two")),
    "test_input_required_result_multiple_inputs": _Asking(
        ({"user_name": _NAME, "greeting": _SAMPLING, "client_roots": _ROOTS},), ("all",)
    ),
    "test_input_required_result_request_state": _Asking(({"confirm": _CONFIRM},), ("kept",)),
    "test_input_required_result_sampling": _Asking(({"capital_question": _SAMPLING},)),
    "test_input_required_result_tampered_state": _Asking(({"confirm": _CONFIRM},), ("kept",)),
    "test_missing_capability": _Asking(({"question": _SAMPLING},)),
    "test_multiple_content_types": _content(Text("Multiple content types test:"), _IMAGE, _MIXED),
    "test_sampling": _Asking(({"question": _SAMPLING},)),
    "test_streaming_elicitation": _Asking(({"user_name": _NAME},)),
    "test_tool_with_logging": _logging,
    "test_tool_with_progress": _progress,
}
