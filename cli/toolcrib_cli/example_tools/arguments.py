"""The JSON arguments of one call: parsed strictly, read by name and type, nothing left over."""

import json
import math
from collections.abc import Collection, Mapping
from typing import Final, NoReturn

from toolcrib_cli.example_tools.problems import invalid_argument

DEEPEST_BODY: Final = 64


class Arguments:
    """The arguments object of a call. Every reader raises `ToolError` (400) with a clear detail."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self.values = values

    @classmethod
    def parse(cls, body: bytes) -> "Arguments":
        """Read a request body: one JSON object that can be written as JSON again.

        No duplicate keys, no numbers beyond a double, no halves of surrogate pairs, at most 64 levels deep.
        """
        try:
            values = json.loads(
                body, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite
            )
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise invalid_argument(f"The body is not JSON: {error}.") from error
        except RecursionError as error:
            raise invalid_argument("The body is nested too deeply.") from error
        except ValueError as error:
            # Python refuses integers of more than 4,300 digits.
            raise invalid_argument("The body holds a number that is too long.") from error
        if not isinstance(values, dict):
            raise invalid_argument("The body must be a JSON object of arguments.")
        if _depth(values) > DEEPEST_BODY:
            raise invalid_argument("The body is nested too deeply.")
        try:
            json.dumps(values, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise invalid_argument("The body holds half of a surrogate pair.") from error
        return cls(values)

    def expect(self, names: Collection[str]) -> None:
        """Refuse arguments that the tool does not have."""
        unknown = sorted(set(self.values) - set(names))
        if unknown:
            known = ", ".join(sorted(names))
            raise invalid_argument(f"Unknown argument {unknown[0][:64]!r}; this tool takes: {known}.")

    def text(self, name: str, *, longest: int, default: str | None = None) -> str:
        """A string of 1 to `longest` characters that is not blank; required where there is no default."""
        value = self.values.get(name, default)
        if not isinstance(value, str):
            required = "must" if name in self.values else "is required and must"
            raise invalid_argument(f"The argument {name!r} {required} be a string.")
        if not value.strip():
            raise invalid_argument(f"The argument {name!r} is empty.")
        if len(value) > longest:
            raise invalid_argument(f"The argument {name!r} is longer than {longest} characters.")
        return value

    def integer(self, name: str, *, default: int | None = None, least: int, most: int) -> int:
        """A whole number within bounds; as in JSON Schema `10.0` is one and `true` is not. Required without a default."""
        value = self.values.get(name, default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            required = "must" if name in self.values else "is required and must"
            raise invalid_argument(f"The argument {name!r} {required} be a whole number.")
        if not least <= value <= most:
            raise invalid_argument(f"The argument {name!r} must be between {least} and {most}.")
        return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise invalid_argument("The body names one key twice.")
    return values


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise invalid_argument("The body holds a number that is too large.")
    return value


def _depth(value: object) -> int:
    """Levels of nesting, counted without recursion."""
    level, depth = [value], 0
    while level:
        depth += 1
        level = [
            child
            for parent in level
            if isinstance(parent, dict | list)
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
    return depth


def _no_constant(name: str) -> NoReturn:
    raise invalid_argument(f"The body holds {name}, which is not JSON.")
