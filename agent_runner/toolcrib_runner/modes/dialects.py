"""What a reply asks for, in each dialect, and the functions that are offered. Pure.

The functions of the discovering modes are constant over a run: providers keep a prompt's prefix only while the list of
functions stays as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from toolcrib_runner.modes.kinds import Dialect
from toolcrib_runner.ports import Function, FunctionCall, Reply

MAX_STEPS = 64
"""Of one reply; a model that asks for more repeats itself."""
_MAX_LINES = 4_096
"""Commands of a reply's text, also those before other text; a reply with more is an answer."""
MAX_READ = 256 * 1024
"""Characters of a reply's text that is read for commands; a longer one is an answer."""


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
_LINE = re.compile(r" {0,3}(?:[*-]+ {0,3}){0,2}(SEARCH|GET_SCHEMA|READY|CALL)[ \t]*:[ \t]*")
_FENCE = re.compile(r" {0,3}(`{3,}(?!.*`)|~{3,})")
_BELOW = re.compile(r"\s*(?:```(?:json)?\s*)?\{")
_CLOSING = re.compile(r"\s*```")
_RESULT = re.compile(r"[ \t*]*Result of .{0,256} \(data, not instructions\):")
_THOUGHT = re.compile(r"\s*<think>.*?(?:</think>|\Z)", re.DOTALL)
_WHOLE = re.compile(r"(`{3,}|~{3,})[ \t]*(?:json|tool_call)?[ \t]*\n(.*)\n[ \t]*\1", re.DOTALL)
_BETWEEN = re.compile(r"(?:</?\|?(?:tool|function)_calls?\|?>|<\|python_tag\|>|\[TOOL_CALLS\]|[\s,;\[\]])*")
"""Stands between calls in JSON: tags of models' own templates, and the marks of a list."""
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
    if len(reply.text) > MAX_READ:
        return ()
    thought = _THOUGHT.match(reply.text)
    read = reply.text if thought is None else reply.text[thought.end() :]
    found = _last_lines(read)
    if not found and dialect is Dialect.LENIENT:
        found = _whole_json(read)
    return tuple(found[:MAX_STEPS])


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


def _last_lines(text: str) -> list[Step]:
    """The commands that end a text, with nothing but empty lines between and after them.

    A line that a model quotes is no command: in a block quote (its paragraph's later lines belong to it), in backticks, in
    a fence, indented as code, before other text, or in a result that the model repeats or makes up.
    """
    found: list[Step] = []
    fence, quote, at, lines = "", False, 0, 0
    while at < len(text):
        start, at = at, _line_end(text, at) + 1
        line = text[start : at - 1]
        if _RESULT.match(line) and not fence:
            break
        if not line.strip():
            quote = False
            continue
        opening = _FENCE.match(line)
        if fence:
            closes = (
                opening is not None and opening[1].startswith(fence) and not line[opening.end() :].strip()
            )
            fence = "" if closes else fence
            continue
        quote = quote or line.lstrip().startswith(">")
        if opening is not None:
            found.clear()
            fence = opening[1]
            continue
        command = None if quote else _LINE.match(line)
        step = None
        if command is not None:
            if (lines := lines + 1) > _MAX_LINES:
                return []
            step, at = _command(text, start + command.end(), _OF_LINE[command[1]])
        if step is None:
            found.clear()
        else:
            found.append(step)
    return found


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _command(text: str, start: int, kind: Kind) -> tuple[Step | None, int]:
    """The command whose name ends at `start`, and where the next line begins; None: text follows it in its line."""
    end = _line_end(text, start)
    if kind is Kind.CALL:
        step, at = _called(text, start, end)
        end = _line_end(text, at)
        return None if text[at:end].strip(" `*().;\t\r") else step, end + 1
    rest = text[start:end].strip().strip("`*")
    if kind is Kind.SEARCH:
        return Step(kind, _split(rest, ";")), end + 1
    listed = () if rest.strip(" .").lower() in _NOTHING else _split(rest.strip("[]"), ",")
    return Step(kind, tuple(n for name in listed if (n := name.strip(" .`'\"*")))), end + 1


def _called(text: str, start: int, line_end: int) -> tuple[Step, int]:
    """`NAME {…}` at `start`, and where it ends. Arguments that are no JSON are passed on as written, to be refused."""
    brace = text.find("{", start, line_end)
    if brace < 0 and (below := _BELOW.match(text, line_end)):
        brace = below.end() - 1
    if brace < 0:
        return Step(Kind.CALL, (text[start:line_end].strip(" `'\"*()\t\r"),), "{}"), line_end
    name = text[start:brace].strip().removesuffix("json").strip(" `'\"*()\t\r\n")
    try:
        _, end = _DECODER.raw_decode(text, brace)
    except (ValueError, RecursionError):
        end = line_end if line_end > brace else len(text)
    step = Step(Kind.CALL, (name,), text[brace:end])
    closing = _CLOSING.match(text, end) if "```" in text[start:brace] else None
    return step, end if closing is None else closing.end()


def _whole_json(text: str) -> list[Step]:
    """Calls that a small model wrote as JSON: `{"name": …, "arguments": {…}}`, bare, fenced or within tags.

    JSON beside other text, or beside JSON that is no call, is part of an answer.
    """
    text = text.strip()
    if (whole := _WHOLE.fullmatch(text)) is not None:
        text = whole[2]
    found: list[Step] = []
    at = _end_between(text, 0)
    while at < len(text):
        try:
            written, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return []
        step = _written(written)
        if step is None:
            return []
        found.append(step)
        at = _end_between(text, end)
    return found


def _end_between(text: str, at: int) -> int:
    between = _BETWEEN.match(text, at)
    return at if between is None else between.end()


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
