"""Tools as functions of a chat completion: names, schemas, and arguments on the way back. Pure.

Function names are the names for models that core makes (`toolcrib.model_names`): the same in every adapter. A name
given to a tool stays its own for the whole session, also when the tool goes away and comes back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from toolcrib import model_names, text
from toolcrib_runner.discovery import DiscoveredTool, Parameter
from toolcrib_runner.errors import InvalidArguments
from toolcrib_runner.ports import Function

MAX_DESCRIPTION = 1024
"""OpenAI's bound on a function's description."""
MAX_SCHEMA = 16 * 1024
"""Characters of one tool's schema that a model is shown; above it, what the listing says has to do."""
MAX_DEPTH = 40
MAX_ARGUMENTS = 512 * 1024
"""Characters of a call's arguments."""
_TYPES = {"string", "integer", "number", "boolean", "array", "object", "null"}


class FunctionNames:
    """The functions of one session and the tools they stand for: one to one, and never changed again."""

    def __init__(self) -> None:
        self._function_of: dict[str, str] = {}
        self._tool_of: dict[str, str] = {}

    def assign(self, tools: Iterable[DiscoveredTool]) -> None:
        """Give each tool that has none a function name. The result does not depend on the order of `tools`."""
        new = {tool.name: tool.tool_id for tool in tools if tool.name not in self._function_of}
        for listed, name in model_names.model_names(new, self._tool_of.keys()).items():
            self._function_of[listed] = name
            self._tool_of[name] = listed

    def function(self, tool: str) -> str:
        """The tool's function name; it must have been assigned."""
        return self._function_of[tool]

    def tool(self, function: str) -> str | None:
        """The tool behind a function name; None where there is none."""
        return self._tool_of.get(function)


def function(tool: DiscoveredTool, name: str, schema: Mapping[str, Any] | None = None) -> Function:
    """The tool as an entry of a chat completion's `tools`; with its full input schema, if known and fit to show."""
    described = text.truncate(text.escape(tool.description.strip(), keep_newlines=True), MAX_DESCRIPTION)
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": described,
            "parameters": (schema and _fit(schema)) or _listed(tool),
        },
    }


def _fit(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The schema with its texts made safe to show; None where it is no object's, too large or too deep."""
    if schema.get("type") != "object" or len(json.dumps(schema)) > MAX_SCHEMA:
        return None
    try:
        shown: dict[str, Any] = _escaped(schema, MAX_DEPTH)
    except RecursionError:
        return None
    for member in ("$schema", "$id"):
        shown.pop(member, None)
    shown.setdefault("properties", {})
    return shown


def _escaped(node: Any, depth: int) -> Any:
    if depth < 0:
        raise RecursionError
    if isinstance(node, Mapping):
        return {
            key: text.truncate(text.escape(value, keep_newlines=True), MAX_DESCRIPTION)
            if key in ("description", "title") and isinstance(value, str)
            else _escaped(value, depth - 1)
            for key, value in node.items()
        }
    return [_escaped(item, depth - 1) for item in node] if isinstance(node, list) else node


def _listed(tool: DiscoveredTool) -> dict[str, Any]:
    """What the listing says of the parameters, as a schema."""
    return {
        "type": "object",
        "properties": {p.name: _schema(p) for p in tool.parameters},
        "required": [p.name for p in tool.parameters if p.required],
    }


def _schema(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    types = parameter.types
    if types and all(t in _TYPES for t in types):
        schema["type"] = types[0] if len(types) == 1 else list(types)
        if "array" in types:
            # Some endpoints refuse an array that says nothing about its items.
            schema["items"] = {}
    if parameter.description:
        schema["description"] = text.truncate(
            text.escape(parameter.description, keep_newlines=True), MAX_DESCRIPTION
        )
    return schema


def arguments(tool: str, written: str) -> dict[str, Any]:
    """What a model wrote as arguments, parsed strictly. Nothing written means no arguments.

    Raises:
        InvalidArguments: no JSON object, or one that names a member twice, or too large.
    """
    if len(written) > MAX_ARGUMENTS:
        raise InvalidArguments.of(
            tool, [f"the arguments have {len(written)} characters; the most is {MAX_ARGUMENTS}"]
        )
    try:
        parsed = json.loads(written or "{}", object_pairs_hook=_without_duplicates, parse_constant=_refuse)
    except RecursionError:
        raise InvalidArguments.of(tool, ["the arguments are nested too deeply"]) from None
    except ValueError as error:
        raise InvalidArguments.of(tool, [f"the arguments are not valid JSON: {error}"]) from None
    if not isinstance(parsed, dict):
        raise InvalidArguments.of(tool, ["the arguments must be a JSON object"])
    return parsed


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a member appears twice")
    return found


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not valid JSON")
