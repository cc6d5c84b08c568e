"""One subschema: what its keywords cost for one value, and where it leads. `cost` puts them together.

Costs are nanoseconds and err on the high side.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from toolcrib.schemas.argument_cost import EXACT, bits_of, measured
from toolcrib.schemas.patterns import weight

_VISIT, KEYWORD, _FRACTION = 8.0, 10.0, 1_700.0
_NUMERIC, _MULTIPLE, PER_KEY, _NAME = 30.0, 1_500.0, 60.0, 110.0
_OPTION = 16.0
"""An option that a value of another type is compared with."""
_BIT, _BIT_OF_SCHEMA, _BIT_OF_BOUND = 27.0, 17.0, 0.6
"""Nanoseconds a bit of a number as a ratio, where fractions are compared exactly (`bits_of`)."""
UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
_ASCII_CLASSES = re.compile(r"\\[wd]")

Key = tuple[int, bool]
"""A subschema and why it is tried: False to judge the value, True to find out what it evaluates (`unevaluated*`)."""


def _pattern_rate(pattern: str) -> float:
    """Nanoseconds a byte of text at worst: every state of the automaton alive.

    The validator reads `\\w` and `\\d` as ASCII (ECMA-262), one range each.
    """
    return 60.0 + 8.0 * weight(_ASCII_CLASSES.sub("w", pattern))


class Subschema:
    """One subschema: what it costs for one value, and where it leads."""

    __slots__ = (
        "again", "beyond", "box", "contains", "every", "huge", "items", "judge", "key", "key_rate", "leads", "named",
        "names", "number", "obj", "other", "prefix", "rate", "string", "unique", "value", "wide",
    )  # fmt: skip

    def __init__(self) -> None:
        self.value = _VISIT
        self.string = self.number = self.box = self.obj = self.key = self.rate = self.key_rate = 0.0
        self.huge = 0.0
        """Comparisons of numbers: each costs the square of the digits where the number is long."""
        self.wide = 0.0
        """Nanoseconds for each bit of a number."""
        self.unique = False
        self.judge: list[Key] = []
        """What is tried on the same value when this is judged, and in `again` when its marks are collected."""
        self.again: list[Key] = []
        self.leads = False
        self.named: dict[str, int] = {}
        self.every: list[int] = []
        self.other: list[int] = []
        self.beyond: list[int] = []
        self.names: list[int] = []
        self.prefix: list[int] = []
        self.items: list[int] = []
        self.contains: list[int] = []

    def price(self, node: dict[str, Any]) -> None:
        """Add what the keywords of the subschema cost, all but the subschemas that they hold."""
        for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"):
            if name in node:
                self.huge += 1
                self.number += _MULTIPLE if name == "multipleOf" else _NUMERIC
                if isinstance(node[name], float):
                    self.number += _FRACTION + _BIT_OF_SCHEMA * bits_of(node[name])
                    self.wide += _BIT
                else:
                    self.wide += _BIT_OF_BOUND
        options = [*node["enum"]] if isinstance(node.get("enum"), list) else []
        if "const" in node:
            options.append(node["const"])
        strings = [option for option in options if isinstance(option, str)]
        if len(strings) == len(options) > 10:
            self.string += 100.0  # a hash table
        else:
            self.value += _OPTION * len(options)
            self.string += sum(35.0 + 0.1 * len(option) for option in strings)
        for option in options:
            if isinstance(option, int | float):
                self.huge += 1
                self.wide += _BIT
                self.number += _of_number(option)
            elif isinstance(option, dict | list):
                nodes, numbers = measured(option)
                self.box += 200.0 + 250.0 * nodes + sum(map(_of_number, numbers))
                self.huge += len(numbers)
                self.wide += _BIT * len(numbers)
        if isinstance(node.get("pattern"), str):
            self.string += 150.0
            self.rate += _pattern_rate(node["pattern"])
        if "minLength" in node or "maxLength" in node:
            self.rate += 0.5
        patterns = [_pattern_rate(pattern) for pattern in node.get("patternProperties", ())]
        self.key += PER_KEY * (1 + 3 * len(patterns)) if _has_keys(node) else 0.0
        self.key_rate += sum(patterns) * (3 if any(name in node for name in UNEVALUATED) else 1)
        needed = [
            node.get("required"),
            node.get("dependentRequired"),
            node.get("dependentSchemas"),
            node.get("dependencies"),
        ]
        self.obj += _NAME * sum(len(names) for names in needed if isinstance(names, list | dict))
        for names in (node.get("dependentRequired") or {}, node.get("dependencies") or {}):
            self.obj += _NAME * sum(len(others) for others in names.values() if isinstance(others, list))
        self.obj += 25.0 * min(len(node.get("properties", ())), 64)
        self.unique = node.get("uniqueItems") is True

    def below(self, step: str | int, *, marks: bool) -> Iterator[int]:
        """The subschemas to which a name or an index leads; with `marks`, only what shows what was evaluated."""
        if isinstance(step, str):
            if not marks:
                if step in self.named:
                    yield self.named[step]
                else:
                    yield from self.other
                yield from self.every
            yield from self.beyond
            return
        if not marks:
            step = step if step >= 0 else ~step
            if step < len(self.prefix):
                yield self.prefix[step]
            else:
                yield from self.items
        yield from self.contains


def _of_number(option: float) -> float:
    """What comparing a number with this one costs, besides the bits of the other."""
    cost = 2_500.0 + _BIT_OF_SCHEMA * bits_of(option)
    return cost if abs(option) < EXACT or isinstance(option, float) else cost + 0.2 * len(str(option)) ** 2


def _has_keys(node: dict[str, Any]) -> bool:
    names = (
        "additionalProperties",
        "patternProperties",
        "propertyNames",
        "properties",
        "unevaluatedProperties",
    )
    return any(name in node for name in names)
