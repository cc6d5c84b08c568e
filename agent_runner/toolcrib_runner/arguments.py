"""Whether arguments fit a tool's discovered parameters, before any request is made. Pure.

The types are JSON schema's (draft 2020-12, validation §6.1.1): `integer` takes 3 and 3.0, never a boolean. A type
the runner does not know says nothing, and the listing does not say where null is allowed: both are left to the
registry, which validates against the full schema.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from toolcrib import text
from toolcrib_runner.discovery import DiscoveredTool, Parameter
from toolcrib_runner.errors import InvalidArguments

MAX_DEPTH = 32
"""The registry refuses arguments that are nested deeper (DESIGN §5)."""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_FITS: Mapping[str, Callable[[Any], bool]] = {
    "string": lambda v: isinstance(v, str),
    "integer": lambda v: _is_number(v) and (isinstance(v, int) or v.is_integer()),
    "number": _is_number,
    "boolean": lambda v: isinstance(v, bool),
    "array": lambda v: isinstance(v, list | tuple),
    "object": lambda v: isinstance(v, Mapping),
    "null": lambda v: v is None,
}


def check(tool: DiscoveredTool, arguments: Mapping[str, Any]) -> None:
    """Refuse arguments that are unknown, missing, of the wrong type, or that JSON cannot carry.

    Raises:
        InvalidArguments: with every problem at once.
    """
    known = {p.name: p for p in tool.parameters}
    problems = [f"missing argument {_shown(p.name)}" for p in tool.parameters if _is_missing(p, arguments)]
    for name, value in arguments.items():
        parameter = known.get(name)
        if parameter is None:
            problems.append(f"unknown argument {_shown(name)}{_known_names(known)}")
            continue
        unfit = _unfit(value, MAX_DEPTH)
        if unfit:
            problems.append(f"argument {_shown(name)} {unfit}")
        elif not _fits(parameter, value):
            wanted = " or ".join(_shown(t) for t in parameter.types)
            problems.append(f"argument {_shown(name)} must be {wanted}, not {_kind(value)}")
    if problems:
        raise InvalidArguments.of(tool.name, problems)


def _is_missing(parameter: Parameter, arguments: Mapping[str, Any]) -> bool:
    return parameter.required and parameter.name not in arguments


def _fits(parameter: Parameter, value: Any) -> bool:
    if value is None or not parameter.types or any(t not in _FITS for t in parameter.types):
        return True
    return any(_FITS[t](value) for t in parameter.types)


def _unfit(value: Any, depth: int) -> str:
    """Why JSON cannot carry the value; empty where it can."""
    if depth < 0:
        return f"is nested deeper than {MAX_DEPTH}"
    if isinstance(value, float) and not math.isfinite(value):
        return "must be a finite number"
    if isinstance(value, str) and not _is_unicode(value):
        return "is not valid Unicode"
    if value is None or isinstance(value, str | int | float | bool):
        return ""
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            return "has keys that are not strings"
        if not all(map(_is_unicode, value)):
            return "has keys that are not valid Unicode"
        return next((w for v in value.values() if (w := _unfit(v, depth - 1))), "")
    if isinstance(value, list | tuple):
        return next((w for v in value if (w := _unfit(v, depth - 1))), "")
    return f"is a {type(value).__name__}, which JSON cannot carry"


def _is_unicode(text: str) -> bool:
    """Whether it has no lone surrogates, which UTF-8 cannot carry."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind(value: Any) -> str:
    for name in ("boolean", "integer", "number", "string", "array", "object", "null"):
        if _FITS[name](value):
            return name
    return type(value).__name__


def _shown(name: str) -> str:
    return text.truncate(text.escape(name), 64)


def _known_names(known: Mapping[str, Parameter]) -> str:
    if not known:
        return ": the tool takes none"
    return ": the tool takes " + text.truncate(", ".join(_shown(name) for name in known), 256)
