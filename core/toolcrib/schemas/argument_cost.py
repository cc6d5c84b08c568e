"""What one call's arguments cost, by the cost table of their schema (`cost`): a bound, else a walk over the values.

Costs are nanoseconds and err on the high side.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Protocol

BUDGET = 50e6
"""Nanoseconds that one check may take: what callers of other tools wait at most for it."""
MAX_STEPS = 20_000
"""Values that the estimate itself looks at, about 1 µs each."""
_MEMBER_STEPS = 8
"""What a subschema in a state that is not explored counts among those steps."""
_AT_LEAST = 20_000.0
ORDINARY_BITS = 128
"""The most bits of a number whose text has no exponent; longer integers are counted apart."""
EXACT = 2**53
"""Beyond it integers of any length are compared by their digits, and their hashes collide."""
HASHED_FROM = 16
"""Values of a list of which `uniqueItems` hashes each; those of a shorter one are compared in pairs."""
TEN_DIGITS = 45.0
"""Nanoseconds more where a number of ten digits is compared with another."""
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_SUSPECT = re.compile(rb"[0-9]{16}|[0-9]e[-+]?[0-9]", re.IGNORECASE)
_LONG_NUMBER = re.compile(rb"(?<![0-9.])[0-9]{16,}(?![0-9.eE])")
_EXPONENT = re.compile(rb"[0-9]e[-+]?([0-9]+)", re.IGNORECASE)
_TEN_DIGITS = re.compile(rb"[0-9]{10}")
_FRACTION = re.compile(rb"[.eE](?<=[0-9].)")
"""Not `[0-9]+[.e]`: that looks at each digit of a long row as many times as there are digits before it."""


class TooManyError(Exception):
    """The estimate itself would take too long."""


def total_of(prices: Sequence[float], values: int, boxes: int, size: int) -> float:
    return _AT_LEAST + values * prices[0] + boxes * prices[1] + size * prices[2]


class Call:
    """What the text of one call says of its values."""

    def __init__(self, values: int, boxes: int, size: int, text: bytes) -> None:
        self.values, self.boxes, self.size = values, boxes, size
        self._text = text
        self.count = self.digits = 0
        self.squares, self.bits = 0, ORDINARY_BITS
        if _SUSPECT.search(text) is None:
            return
        bare = _STRING.sub(b"", text)
        lengths = [len(digits) for digits in _LONG_NUMBER.findall(bare)]
        self.count, self.digits = len(lengths), max(lengths, default=0)
        self.squares = sum(length**2 for length in lengths)
        if exponents := [int(exponent[:4]) for exponent in _EXPONENT.findall(bare)]:
            self.bits += 4 * min(max(exponents), 330)

    @cached_property
    def fractions(self) -> int:
        """Numbers with a point or an exponent, at most: texts may hold what looks like some."""
        return len(_FRACTION.findall(self._text))

    @cached_property
    def tens(self) -> int:
        """Numbers of ten digits, at most: longer ones count again, and texts may hold what looks like some."""
        return len(_TEN_DIGITS.findall(self._text))

    def bound(self, prices: Sequence[float]) -> float:
        """Nanoseconds for all that the call holds, were every value in the dearest state (`State.prices`)."""
        _, _, fastest, widest, hugest, sets, paired = prices
        total = total_of(prices, self.values, self.boxes, self.size) + self.values * self.bits * widest
        if paired:
            total += paired * self.tens * (HASHED_FROM - 2) * TEN_DIGITS
            total += paired * self.fractions * in_pairs(self.bits)
        if self.count:
            total += hugest * (2_000.0 * self.count + 0.2 * self.squares) + fastest * 20 * self.count
            total += widest * 3.4 * self.digits * self.count
            total += sets * self.boxes * self.collisions(self.values, self.count) if sets else 0.0
        return total

    def collisions(self, values: int, count: int) -> float:
        """A list that holds `count` long integers: their hashes collide, so all are compared with each other."""
        return count * (values * 200.0 + count * (2_000.0 + 0.2 * self.digits**2))


class State(Protocol):
    """What a value is held against, as a walk sees it; `cost.State` is the one."""

    value: float
    box: float
    obj: float
    key: float
    string: float
    number: float
    rate: float
    key_rate: float
    huge: float
    wide: float
    unique: float
    pairs: float
    size: int
    explored: bool

    @property
    def names(self) -> State | None:
        """What an object's keys are held against."""
        ...

    def prices(self) -> list[float]:
        """What is dearest here or anywhere below."""
        ...

    def below(self, step: str | int) -> State:
        """The state of the value under a name or an index."""
        ...


class Walk:
    """One estimate: the states that the values of one call are in."""

    def __init__(self, start: State, call: Call) -> None:
        self._start, self._call = start, call
        self._skips: dict[int, bool] = {}
        self._skipped = [0.0] * len(start.prices())
        self._met: set[int] = set()
        self._steps = 0

    def run(self, arguments: Any) -> float:
        total = 0.0
        stack: list[tuple[State, Any, int]] = [(self._start, arguments, 0)]
        while stack:
            state, value, others = stack.pop()
            if isinstance(value, dict | list):
                if self._skip(state):
                    continue
                total += self._container(state, value)
                self._descend(stack, state, value, others)
            else:
                total += self._scalar(state, value, others)
            if total > BUDGET:
                break
        return total + self._call.bound(self._skipped)

    def _skip(self, state: State) -> bool:
        """Whether everything below such states together stays so cheap that nobody needs to look."""
        known = self._skips.get(id(state))
        if known is None:
            prices = state.prices()
            known = self._skips[id(state)] = self._call.bound(prices) <= BUDGET / 4
            if known:
                self._skipped = list(map(max, self._skipped, prices))
        return known

    def _container(self, state: State, value: Any) -> float:
        cost = state.value + state.box
        if isinstance(value, dict):
            cost += state.obj + state.key * len(value)
            if state.key_rate or state.names is not None:
                text = sum(map(_bytes, value))
                cost += state.key_rate * text
                if state.names is not None:
                    cost += len(value) * (state.names.value + state.names.string) + state.names.rate * text
        elif state.unique and self._call.count:
            nodes, numbers = measured(value)
            self._take(nodes)
            count = sum(isinstance(number, int) and abs(number) >= EXACT for number in numbers)
            cost += state.unique * self._call.collisions(nodes, count)
        if state.box:
            cost += state.wide * self._call.bits
            if self._call.count:
                cost += state.huge * (2_000.0 + 0.2 * self._call.digits**2)
                cost += state.wide * 3.4 * self._call.digits
        return cost

    def _take(self, steps: int) -> None:
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise TooManyError

    def _descend(self, stack: list[tuple[State, Any, int]], state: State, value: Any, others: int) -> None:
        """Look at what a value holds; each of it is compared with at most `others` in one list (`in_pairs`)."""
        self._take(len(value))
        pairs: Iterable[tuple[str | int, Any]]
        if isinstance(value, dict):
            pairs = value.items()
        elif state.unique and len(value) >= HASHED_FROM:
            pairs = ((~index, child) for index, child in enumerate(value))
        else:
            pairs = enumerate(value)
            if state.unique:
                others = max(others, len(value) - 1)
        for step, child in pairs:
            to = state.below(step)
            if not to.explored and id(to) not in self._met:
                self._met.add(id(to))
                self._take(_MEMBER_STEPS * (2 + to.size))
            stack.append((to, child, others))

    @staticmethod
    def _scalar(state: State, value: Any, others: int) -> float:
        if isinstance(value, str):
            return state.value + state.string + state.rate * _bytes(value)
        if isinstance(value, int | float):
            cost = (
                state.value
                + state.number
                + state.rate * 20
                + state.wide * (bits_of(value) if state.wide else 0.0)
            )
            if state.pairs and isinstance(value, float):
                cost += state.pairs * in_pairs(bits_of(value), others)
            if state.pairs and abs(value) >= 10**9:
                cost += state.pairs * others * TEN_DIGITS
            if isinstance(value, int) and abs(value) >= EXACT:
                digits = value.bit_length() / 3.32
                cost += state.huge * (2_000.0 + 0.2 * digits**2) + state.rate * digits
            return cost
        return state.value


def in_pairs(bits: float, others: int = HASHED_FROM - 2) -> float:
    """Nanoseconds for a fraction that is compared with so many others: two fractions share what they cost."""
    return (others + 2) / 2 * (7_700.0 + 47.0 * bits)


def bits_of(number: float) -> int:
    """Bits of a number as a ratio of two integers."""
    if isinstance(number, int):
        return number.bit_length() + 1
    over, under = number.as_integer_ratio()
    return over.bit_length() + under.bit_length()


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else 4 * len(text)


def measured(value: Any) -> tuple[int, list[float]]:
    """Nodes, and the numbers among them."""
    nodes, numbers = 0, []
    stack = [value]
    while stack:
        node = stack.pop()
        nodes += 1
        if isinstance(node, int | float):
            numbers.append(node)
        if isinstance(node, dict | list):
            stack.extend(node.values() if isinstance(node, dict) else node)
    return nodes, numbers
