"""Arguments of a call, as a command line gives them: `key=value` pairs, or one JSON object."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from toolcrib_cli.errors import CliError, Exit


def ambiguous(pairs: Sequence[str]) -> bool:
    """Whether one of the values could be text or something else: the tool's schema says which."""
    return not all(isinstance(_value(pair.partition("=")[2]), str) for pair in pairs)


def texts(schema: Mapping[str, Any]) -> frozenset[str]:
    """The arguments that a schema takes as text."""
    properties = schema.get("properties", {})
    return frozenset(k for k, v in properties.items() if isinstance(v, dict) and v.get("type") == "string")


def read(pairs: Sequence[str], text: str | None, as_text: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The arguments of these pairs and of a JSON object (`-`: on standard input).

    Raises:
        CliError: one of them cannot be read, or is given twice.
    """
    found: dict[str, Any] = {}
    if text is not None:
        try:
            found = json.loads(sys.stdin.read() if text == "-" else text)
        except ValueError as error:
            raise CliError(
                f"--json: invalid JSON: {error}",
                hint='for example: --json \'{"city": "Oslo"}\'',
                code=Exit.USAGE,
            ) from error
        except RecursionError as error:
            raise CliError(
                "--json: nested too deeply",
                hint="nest fewer lists and objects in each other",
                code=Exit.USAGE,
            ) from error
        if not isinstance(found, dict):
            raise CliError(
                "--json: the arguments are not a JSON object",
                hint='for example: --json \'{"city": "Oslo"}\'',
                code=Exit.USAGE,
            )
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise CliError(
                f"argument {pair!r} is not key=value", hint="for example: city=Oslo", code=Exit.USAGE
            )
        if key in found:
            raise CliError(f"argument {key!r} is specified twice", hint="remove one of them", code=Exit.USAGE)
        found[key] = value if key in as_text else _value(value)
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
