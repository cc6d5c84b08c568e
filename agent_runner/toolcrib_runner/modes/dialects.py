"""What a reply asks for, in each dialect, and the functions that are offered. Pure.

The functions of the discovering modes are constant over a run: providers keep a prompt's prefix only while the list of
functions stays as it is.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from toolcrib_runner.modes.kinds import Dialect
from toolcrib_runner.ports import Function, FunctionCall, Reply

MAX_STEPS = 64
"""Of one reply; a model that asks for more repeats itself."""
MAX_READ = 256 * 1024
"""Characters of a reply's text that are read for commands."""


class Kind(StrEnum):
    """What a model may ask for."""

    SEARCH = "search"
    DESCRIBE = "describe"
    READY = "ready"
    CALL = "call"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a reply asks for.

    `names`: queries of a search, functions' names otherwise. `arguments`: of a call, as the model wrote them.
    `call`: the function call that it came as, which the answer has to name; None: it stood in the text.
    """

    kind: Kind
    names: tuple[str, ...]
    arguments: str = ""
    call: FunctionCall | None = None


def _function(name: str, description: str, /, **properties: Any) -> Function:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


_NAMES = {"type": "array", "items": {"type": "string"}}
FUNCTIONS: tuple[Function, ...] = (
    _function("search_tools", "Find tools. Several needs: separate them with ;", query={"type": "string"}),
    _function("describe_tool", "Get the schemas of tools.", names=_NAMES),
    _function("ready", "Choose the tools for the task; an empty list if none fits.", names=_NAMES),
    _function("call_tool", "Call a tool.", name={"type": "string"}, arguments={"type": "object"}),
)
"""What a model is offered while it discovers, in this order, from the first request of a run to the last."""
_OF_FUNCTION = {
    "search_tools": Kind.SEARCH,
    "describe_tool": Kind.DESCRIBE,
    "ready": Kind.READY,
    "call_tool": Kind.CALL,
}
_LINE = re.compile(r"^[ \t*`>-]*(SEARCH|GET_SCHEMA|READY|CALL)[ \t]*:[ \t]*", re.MULTILINE)
_OF_LINE = {
    "SEARCH": Kind.SEARCH, "GET_SCHEMA": Kind.DESCRIBE, "READY": Kind.READY, "CALL": Kind.CALL,
}  # fmt: skip
_NOTHING = frozenset({"", "none", "nothing", "[]"})
_DECODER = json.JSONDecoder()


def steps(reply: Reply, dialect: Dialect, *, discovering: bool) -> tuple[Step, ...]:
    """What the reply asks for, in its order; empty: it is an answer.

    `discovering`: the functions offered are `FUNCTIONS`, not the tools themselves.
    """
    if reply.calls and dialect is not Dialect.TEXT:
        return tuple(_of_call(call) if discovering else _direct(call) for call in reply.calls)
    if dialect is Dialect.NATIVE:
        return ()
    read = reply.text[:MAX_READ]
    found = tuple(itertools.islice(_of_lines(read), MAX_STEPS))
    if not found and dialect is Dialect.LENIENT:
        found = tuple(itertools.islice(_of_json(read), MAX_STEPS))
    return found


def _direct(call: FunctionCall) -> Step:
    return Step(Kind.CALL, (call.name,), call.arguments, call)


def _of_call(call: FunctionCall) -> Step:
    kind = _OF_FUNCTION.get(call.name)
    if kind is None:
        # a model that calls a tool by its own name is understood; whether it may is not decided here
        return _direct(call)
    try:
        written = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        written = None
    unnamed = not isinstance(written, dict) or (written and not written.keys() & {"names", "name"})
    if kind is Kind.READY and unnamed:
        # what cannot be read is no empty choice: it is refused as a name that does not exist
        return Step(kind, (call.arguments,), call=call)
    return _step(kind, written if isinstance(written, dict) else {}, call)


def _step(kind: Kind, written: Mapping[str, Any], call: FunctionCall | None) -> Step:
    if kind is Kind.CALL:
        given = written.get("arguments", {})
        # some models write the arguments as text, as functions' arguments are
        arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
        return Step(kind, (str(written.get("name", "")),), arguments, call)
    if kind is Kind.SEARCH:
        return Step(kind, _split(str(written.get("query", "")), ";"), call=call)
    names = written.get("names", written.get("name", []))
    listed = names if isinstance(names, list) else _split(str(names), ",")
    return Step(kind, tuple(n for name in listed if (n := str(name).strip())), call=call)


def _split(written: str, separator: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in written.split(separator) if part.strip())


def _of_lines(text: str) -> Iterator[Step]:
    """The commands of a text; one starts a line."""
    end = 0
    for match in _LINE.finditer(text):
        if match.start() < end:
            continue  # it stands inside the arguments of a call
        kind = _OF_LINE[match[1]]
        if kind is Kind.CALL:
            step, end = _called(text, match.end())
            yield step
            continue
        rest = text[match.end() :].split("\n", 1)[0].strip().strip("`*")
        if kind is Kind.SEARCH:
            yield Step(kind, _split(rest, ";"))
        else:
            listed = () if rest.strip(" .").lower() in _NOTHING else _split(rest.strip("[]"), ",")
            yield Step(kind, tuple(n for name in listed if (n := name.strip(" .`'\"*"))))


def _called(text: str, start: int) -> tuple[Step, int]:
    """`NAME {…}` at `start`, and where it ends. Arguments that are no JSON are passed on as written, to be refused."""
    line_end = text.find("\n", start)
    line_end = len(text) if line_end < 0 else line_end
    brace = text.find("{", start)
    if brace < 0 or (
        brace > line_end and text[line_end:brace].strip("` \t\r\n").removeprefix("json").strip()
    ):
        return Step(Kind.CALL, (text[start:line_end].strip(" `'\"*()\t\r"),), "{}"), line_end
    name = text[start:brace].strip().removesuffix("json").strip(" `'\"*()\t\r\n")
    try:
        _, end = _DECODER.raw_decode(text, brace)
    except (ValueError, RecursionError):
        end = line_end if line_end > brace else len(text)
    return Step(Kind.CALL, (name,), text[brace:end]), end


def _of_json(text: str) -> Iterator[Step]:
    """Calls that a small model wrote as JSON: `{"name": …, "arguments": {…}}`, bare, fenced or within tags."""
    at, tries = text.find("{"), 0
    while at >= 0 and tries < MAX_STEPS:
        tries += 1
        try:
            written, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            end, written = at + 1, None
        step = _written(written)
        if step is not None:
            yield step
        at = text.find("{", end)


def _written(written: Any) -> Step | None:
    if not isinstance(written, dict):
        return None
    about = written.get("function", written)
    about = about if isinstance(about, dict) else {**written, "name": about}
    name, given = about.get("name"), about.get("arguments", about.get("parameters"))
    if not isinstance(name, str) or not isinstance(given, dict | str):
        return None
    kind = _OF_FUNCTION.get(name)
    if kind is None:
        return _step(Kind.CALL, {"name": name, "arguments": given}, None)
    try:
        given = json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError):
        return None
    return _step(kind, given if isinstance(given, dict) else {}, None)
