"""What checking arguments against a schema may cost, reckoned before the validator holds the process.

A *state* is every subschema that one value is held against, each with how often: branches, references and what
`unevaluated*` tries again are counted. A name or an index leads from state to state, so arguments are reckoned in one
step for each value, however many branches the schema has. Costs are nanoseconds and err on the high side
(`python bench/arguments.py` prints reckoned and measured times side by side).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from toolcrib.schemas.argument_cost import BUDGET, ORDINARY_BITS, Call, TooManyError, Walk, total_of
from toolcrib.schemas.references import REFERENCES, lookup
from toolcrib.schemas.subschemas import KEYWORD, PER_KEY, UNEVALUATED, Key, Subschema

MAX_EXPLORED = 10_000
"""Subschemas and steps looked at when a table is made, about 5 µs each; the rest is looked at when a call leads there."""
ORDINARY_VALUES = 100
ORDINARY_TEXT = 1_000
"""What an ordinary call carries, for the remark at apply."""

_DEEP = 420.0
_TEXT_IN_PAIRS, _NUMBER_IN_PAIRS, _BIT_HASHED = 25.0, 80.0, 1.2
"""Nanoseconds a byte where values are compared in pairs, for a number besides (of some more: `in_pairs`, `TEN_DIGITS`), and a
bit of a number that is hashed."""
_BRANCHES = ("allOf", "anyOf", "oneOf")
_SILENT = frozenset({
    "$comment", "$defs", "$schema", "default", "definitions", "deprecated", "description", "examples", "format",
    "readOnly", "title", "writeOnly",
})  # fmt: skip
_TABLE_BYTES, _STATE_BYTES = 2_048, 800
"""What a table takes, and each subschema and each part of a state."""

_OTHER = "\ud800"
"""Stands for every name that no property has: JSON cannot hold it."""

_HASHED: Key = (-1, False)
"""Stands for hashing whole values, as `uniqueItems` does in long lists: it follows every value below."""
_COMPARED: Key = (-2, False)
"""Stands for comparing whole values in pairs, as `uniqueItems` does in lists of fewer than `HASHED_FROM`."""


class State:
    """All subschemas for one value: the sum of their costs, and the states below, made when first asked for.

    Attributes:
        size: subschemas in it.
        most: the highest cost of one value here or anywhere below.
        boxed: what an object or array costs beyond that.
        fastest: the highest cost of one byte of text.
        widest: the highest cost of one bit of a number.
        hugest: the most comparisons of a long integer.
        sets: the most comparisons of whole values that may hold long integers.
        paired: the most lists in which one value is compared with those of others.
    """

    __slots__ = (
        "_cost", "_members", "_named", "box", "boxed", "explored", "fastest", "huge", "hugest", "key", "key_rate", "known",
        "leads", "most", "names", "number", "obj", "paired", "pairs", "rate", "sets", "size", "string", "unique", "value", "wide",
        "widest",
    )  # fmt: skip

    def __init__(self, cost: SchemaCost, members: dict[Key, float]) -> None:
        self._cost, self._members = cost, members
        self._named: dict[str | int, State] = {}
        self.size = len(members)
        self.known: set[str] = set()
        self.leads = self.explored = False
        self.value = self.string = self.number = self.box = self.obj = self.key = 0.0
        self.rate = self.key_rate = self.huge = self.unique = self.wide = self.pairs = 0.0
        self.most = self.boxed = self.fastest = self.widest = self.hugest = self.sets = self.paired = float(
            "inf"
        )
        self.names: State | None = None
        names: dict[Key, float] = {}
        for (at, marks), times in members.items():
            if at < 0:
                paired = (at, marks) == _COMPARED
                rate = times * (_TEXT_IN_PAIRS if paired else 1.0)
                self.value += times * _DEEP
                self.rate += rate
                self.key_rate += rate
                self.number += times * paired * _NUMBER_IN_PAIRS
                self.pairs += times * paired
                self.wide += times * (not paired) * _BIT_HASHED
                self.leads = True
                continue
            part = cost.parts[at]
            self.leads |= part.leads
            self.value += times * part.value
            self.obj += times * part.obj
            self.key += times * part.key
            self.key_rate += times * part.key_rate
            if part.named:
                self.known.update(part.named)
            if marks:
                continue
            self.string += times * part.string
            self.number += times * part.number
            self.box += times * part.box
            self.rate += times * part.rate
            self.huge += times * part.huge
            self.wide += times * part.wide
            self.unique += times * part.unique
            for to in part.names:
                names[to, False] = names.get((to, False), 0.0) + times
        if names:
            self.names = cost.state(names)

    def unit(self) -> float:
        """The most that one value costs here; its key counts with it."""
        unit = self.value + self.key + max(self.string, self.number)
        return unit + (self.names.value + self.names.string if self.names is not None else 0.0)

    def container(self) -> float:
        return self.obj + self.box

    def text(self) -> float:
        return max(self.rate, self.key_rate + (self.names.rate if self.names is not None else 0.0))

    def prices(self) -> list[float]:
        """What is dearest here or anywhere below, in the order of `_BELOW`."""
        return [self.most, self.boxed, self.fastest, self.widest, self.hugest, self.sets, self.paired]

    def bit(self) -> float:
        return self.wide

    def long(self) -> float:
        return self.huge

    def whole(self) -> float:
        return self.unique + (self.huge if self.box else 0.0)

    def compared(self) -> float:
        return self.pairs

    def below(self, step: str | int) -> State:
        """The state of the value under a name or an index; under ~index in a list of `HASHED_FROM` values or more."""
        if isinstance(step, int):
            longest = self._cost.longest
            step = min(step, longest) if step >= 0 else ~min(~step, longest)
        elif step not in self.known:
            step = _OTHER
        found = self._named.get(step)
        if found is None:
            found = self._named[step] = self._cost.state(self._kernel(step))
        return found

    def _kernel(self, step: str | int) -> dict[Key, float]:
        kernel: dict[Key, float] = {}
        for (at, marks), times in self._members.items():
            if at < 0:
                kernel[at, marks] = kernel.get((at, marks), 0.0) + times
                continue
            for to in self._cost.parts[at].below(step, marks=marks):
                kernel[to, False] = kernel.get((to, False), 0.0) + times
            if self._cost.parts[at].unique and not marks and isinstance(step, int):
                key = _HASHED if step < 0 else _COMPARED
                kernel[key] = kernel.get(key, 0.0) + times
        return kernel

    def forget(self) -> None:
        """Drop the way to states that are not explored."""
        self._named = {step: state for step, state in self._named.items() if state.explored}

    def drop(self) -> None:
        """Refer to no other state."""
        self._named, self.names = {}, None

    def steps(self) -> Iterator[str | int]:
        """Every step that leads somewhere of its own."""
        if not self.leads:
            return
        yield from self.known
        yield _OTHER
        yield from range(self._cost.longest + 1)
        if self.unique:
            yield from range(-self._cost.longest - 1, 0)


_BELOW: tuple[tuple[str, Callable[[State], float]], ...] = (
    ("most", State.unit), ("boxed", State.container), ("fastest", State.text),
    ("widest", State.bit), ("hugest", State.long), ("sets", State.whole), ("paired", State.compared),
)  # fmt: skip


class SchemaCost:
    """The cost table of one schema that `schemas.check` has accepted.

    Args:
        schema: the schema; it is read, and not changed.
        reckon: False where only `nodes` are wanted.

    Raises:
        SchemaUnsafe: a reference leads nowhere.
    """

    def __init__(self, schema: dict[str, Any], *, reckon: bool = True) -> None:
        self.parts: list[Subschema] = []
        self.longest = 0
        self._root = schema
        self._ids: dict[int, int] = {}
        self._states: dict[frozenset[tuple[Key, float]], State] = {}
        self._made = 0
        self._queue: list[tuple[int, dict[str, Any]]] = []
        self.nodes: list[dict[str, Any]] = []
        """Every subschema that a value may be held against."""
        first = self._id(schema)
        while self._queue:
            at, node = self._queue.pop()
            self._fill(self.parts[at], node)
        self._ids.clear()
        self._peak = 0.0
        if reckon:
            self._start = self.state({(first, False): 1.0})
            self._explore(self._start)

    @property
    def size(self) -> int:
        """Estimated bytes; calls may lead to further states."""
        return _TABLE_BYTES + _STATE_BYTES * (self._made + len(self.parts))

    def settle(self) -> None:
        """Let go of the schema, whose objects take more than the table: `nodes` is empty then."""
        self._root, self.nodes = {}, []

    def drop(self) -> None:
        """Take the table apart: its parts refer to each other, up to 10 MB that only a late collection would find."""
        for state in self._states.values():
            state.drop()
        self._states.clear()
        del self._start

    @property
    def is_costly(self) -> bool:
        """Whether a call of 100 values and 1,000 characters may be refused."""
        return self._peak > BUDGET

    def of(self, arguments: Any, text: bytes) -> float:
        """Nanoseconds that the validator may take at most; above `BUDGET`, no more than that it is more.

        Args:
            arguments: parsed JSON.
            text: the same, serialised without blanks.
        """
        boxes = text.count(b"{") + text.count(b"[")
        values = boxes + text.count(b",") + 1
        call = Call(values, boxes, len(text), text)
        if (bound := call.bound(self._start.prices())) <= BUDGET:
            return bound
        if self._made > 3 * MAX_EXPLORED:
            self._forget()
        try:
            return Walk(self._start, call).run(arguments)
        except TooManyError:
            return bound

    def state(self, kernel: dict[Key, float]) -> State:
        """The state in which all of `kernel` holds."""
        key = frozenset(kernel.items())
        found = self._states.get(key)
        if found is None:
            members = self._closed(kernel)
            self._made += 2 + len(members)
            found = self._states[key] = State(self, members)
        return found

    def _closed(self, kernel: dict[Key, float]) -> dict[Key, float]:
        """Everything tried on one value, with how often. What leads to what has no circles (`schema_work`)."""
        if not any(map(self._beside, kernel)):
            return kernel
        order: list[Key] = []
        seen: set[Key] = set()
        stack: list[tuple[Key, bool]] = [(key, False) for key in kernel]
        while stack:
            key, done = stack.pop()
            if done:
                order.append(key)
            elif key not in seen:
                seen.add(key)
                stack.append((key, True))
                stack.extend((to, False) for to in self._beside(key) if to not in seen)
        times = dict.fromkeys(reversed(order), 0.0)
        for key, count in kernel.items():
            times[key] += count
        for key in times:
            for to in self._beside(key):
                times[to] += times[key]
        return times

    def _beside(self, key: Key) -> list[Key]:
        at, marks = key
        if at < 0:
            return []
        return self.parts[at].again if marks else self.parts[at].judge

    def _explore(self, start: State) -> None:
        """Note at each state what the dearest below it costs. Left open where the schema is too large for it."""
        seen, order = {id(start)}, [start]
        above: dict[int, list[State]] = {}
        taken, whole = 0, True
        for state in order:
            state.explored = whole
            if not whole:
                continue
            for step in state.steps():
                taken += 1
                to = state.below(step)
                above.setdefault(id(to), []).append(state)
                if id(to) not in seen:
                    seen.add(id(to))
                    order.append(to)
                whole = taken + self._made <= MAX_EXPLORED
                if not whole:
                    break
        peaks = [max(map(measure, order)) for measure in (State.unit, State.container, State.text)]
        peaks[0] += ORDINARY_BITS * max(state.wide for state in order)
        self._peak = total_of(peaks, ORDINARY_VALUES, ORDINARY_VALUES // 4, ORDINARY_TEXT)
        if not whole:
            return
        for name, measure in _BELOW:
            done: set[int] = set()
            costs = [measure(state) for state in order]
            if min(costs) == max(costs):
                for state in order:
                    setattr(state, name, costs[0])
                continue
            for state in sorted(order, key=measure, reverse=True):
                cost, waiting = measure(state), [state]
                while waiting:
                    one = waiting.pop()
                    if id(one) not in done:
                        done.add(id(one))
                        setattr(one, name, cost)
                        waiting.extend(above.get(id(one), ()))

    def _forget(self) -> None:
        """Drop what calls led to beyond the explored states, so that the table stays small."""
        self._states = {key: state for key, state in self._states.items() if state.explored}
        for state in self._states.values():
            state.forget()
        self._made = sum(2 + state.size for state in self._states.values())

    def _id(self, node: Any) -> int:
        found = self._ids.get(id(node))
        if found is None:
            found = self._ids[id(node)] = len(self.parts)
            self.parts.append(Subschema())
            if isinstance(node, dict):
                self._queue.append((found, node))
                self.nodes.append(node)
        return found

    def _fill(self, part: Subschema, node: dict[str, Any]) -> None:
        words = node.keys() - _SILENT
        part.value += KEYWORD * len(words)
        if words <= {"type"}:
            return
        part.price(node)
        beside: list[tuple[int, bool]] = [
            (self._id(lookup(self._root, "", node[name])), False) for name in REFERENCES if name in node
        ]
        for name in _BRANCHES:
            beside += [(self._id(child), True) for child in node.get(name, ())]
        beside += [(self._id(node[name]), name == "if") for name in ("if", "then", "else") if name in node]
        for name in ("dependentSchemas", "dependencies"):
            given = node.get(name, {}).values()
            beside += [(self._id(child), False) for child in given if isinstance(child, dict | bool)]
        part.judge = [(at, False) for at, _ in beside]
        if "not" in node:
            part.judge.append((self._id(node["not"]), False))
        # what a branch evaluates counts only where it fits, so it is judged again
        part.again = [(at, False) for at, judged in beside if judged] + [(at, True) for at, _ in beside]
        for name in UNEVALUATED:
            if name in node:
                part.judge += part.again
                part.key += PER_KEY * (1 + len(node.get("patternProperties", ())))
        self._lead(part, node)

    def _lead(self, part: Subschema, node: dict[str, Any]) -> None:
        def ids(*names: str) -> list[int]:
            return [self._id(node[name]) for name in names if isinstance(node.get(name), dict | bool)]

        part.named = {name: self._id(child) for name, child in node.get("properties", {}).items()}
        part.every = [self._id(child) for child in node.get("patternProperties", {}).values()]
        part.other = ids("additionalProperties")
        part.beyond = ids("unevaluatedProperties")
        part.names = ids("propertyNames")
        listed = node["items"] if isinstance(node.get("items"), list) else node.get("prefixItems", ())
        part.prefix = [self._id(child) for child in listed]
        part.items = ids("items", "additionalItems")
        part.contains = ids("contains", "unevaluatedItems")
        part.leads = part.unique or any(
            (part.named, part.every, part.other, part.beyond, part.prefix, part.items, part.contains)
        )
        self.longest = max(self.longest, len(part.prefix))
