"""Loaded tools in the shapes that model providers take, and what models' calls came to. Pure.

The names are those of `/mcp/direct`: letters, digits, `_` and `-`, at most 48.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from toolcrib_client import errors
from toolcrib_client.results import LoadedTool

MOST_TEXT = 300
"""Characters of what other people wrote, in a line for a model."""
UNMENDABLE = (errors.Unauthorized, errors.TokenUnavailable, errors.RegistryAnswerInvalid)
"""For the program, not the model: nothing that a model does helps."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call came to. `failed`: `value` is text that tells a model why; `mendable`: other arguments may help."""

    value: Any
    failed: bool = False
    mendable: bool = False

    def text(self) -> str:
        """The value for a model."""
        return self.value if isinstance(self.value, str) else as_json(self.value)


@dataclass(frozen=True, slots=True)
class Use:
    """A call that a model wants: the id that its provider gave it, the function's name, the arguments."""

    id: str
    name: str
    arguments: Mapping[str, Any] | str


MISTAKES = (errors.ToolcribError, ValueError, TypeError, KeyError, RecursionError)
"""What a call that a model wrote may end in."""


def arguments(written: Mapping[str, Any] | str) -> Mapping[str, Any]:
    """Arguments as a model gave them, or as its JSON.

    Raises:
        ValueError, RecursionError: they are no object.
    """
    given = json.loads(written or "{}") if isinstance(written, str) else written
    if not isinstance(given, Mapping):
        raise ValueError("they are not an object")
    return given


def failed(error: Exception) -> Answer:
    """A failed call as text for the model that wanted it.

    Raises:
        ToolcribError: the error itself, where no model can mend it.
    """
    if isinstance(error, UNMENDABLE):
        raise error
    if isinstance(error, errors.InvalidArguments):
        said = [f"{e.get('pointer') or '/'}: {e.get('message', '')}" for e in error.errors] or [error.detail]
        mistakes = line("; ".join(said))
        return Answer(f"The arguments are refused: {mistakes}. Correct them and call again.", True, True)
    if isinstance(error, errors.ToolcribError):
        upstream = error.problem.get("upstream")
        parts = [error.detail, error.hint or "", as_json(upstream) if upstream else ""]
        return Answer(line(" ".join(filter(None, parts)), errors.MOST_DETAIL), failed=True)
    return Answer(f"The arguments cannot be used: {error}.", failed=True, mendable=True)


def line(text: str, most: int = MOST_TEXT) -> str:
    """Other people's text: one line without control characters."""
    return "".join(c for c in " ".join(text.split()) if c.isprintable())[:most]


def as_json(value: Any) -> str:
    """Compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=dict)


def openai(tools: Iterable[LoadedTool]) -> list[dict[str, Any]]:
    """Entries of `tools` in chat completions."""
    return [
        {
            "type": "function",
            "function": {
                "name": t.model_name,
                "description": t.description,
                "parameters": dict(t.input_schema),
            },
        }
        for t in tools
    ]


def anthropic(tools: Iterable[LoadedTool]) -> list[dict[str, Any]]:
    """Entries of `tools` in Anthropic's messages."""
    return [
        {"name": t.model_name, "description": t.description, "input_schema": dict(t.input_schema)}
        for t in tools
    ]


def openai_use(call: Any) -> Use:
    """An entry of `tool_calls`, as the SDK's object or as a dict.

    Raises:
        TypeError: it is none.
    """
    function = _field(call, "function")
    return Use(_field(call, "id"), _field(function, "name"), _field(function, "arguments"))


def anthropic_use(block: Any) -> Use:
    """A block of type `tool_use`, as the SDK's object or as a dict.

    Raises:
        TypeError: it is none.
    """
    return Use(_field(block, "id"), _field(block, "name"), _field(block, "input"))


def openai_message(use: Use, answer: Answer) -> dict[str, Any]:
    """The message that answers a call in chat completions."""
    return {"role": "tool", "tool_call_id": use.id, "content": answer.text()}


def anthropic_block(use: Use, answer: Answer) -> dict[str, Any]:
    """The block that answers a call in Anthropic's messages."""
    told = {"type": "tool_result", "tool_use_id": use.id, "content": answer.text()}
    return told | ({"is_error": True} if answer.failed else {})


def _field(value: Any, name: str) -> Any:
    found = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    if found is None:
        raise TypeError(f"a model's call has {name!r}, and this one has none")
    return found
