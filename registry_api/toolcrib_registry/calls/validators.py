"""Compiled schemas: what checks a call's arguments and reckons that check, the least recently used forgotten.

A validator keeps the interpreter while it is compiled, in a thread too. So each compiles in at most `compile_time.BUDGET`
(`schemas.safety` refuses the others at apply), and one schema at a time.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from itertools import islice
from typing import Any, Protocol

import jsonschema_rs

from toolcrib.errors import SchemaUnsafe
from toolcrib.schemas import compile_time
from toolcrib.schemas.cost import SchemaCost
from toolcrib.schemas.patterns import weight
from toolcrib.text import escape, truncate
from toolcrib_registry.calls.errors import UpstreamProtocol

BYTES = 64 << 20
MAX_ERRORS = 16
MAX_MESSAGE = 300
_PATTERN_BYTES = 1 << 20
_ALL_ERRORS = 80_000.0
"""Nanoseconds of checking up to which all errors are built: one costs up to a thousand times the check it is about."""
_ALL_ERRORS_BYTES = 64 * 1024
"""Each error holds a copy of the value that it is about."""
_EACH, _BYTE, _SUBSCHEMA, _PATTERN, _PATTERN_WEIGHT = 2_048, 13, 700, 24 * 1024, 64
"""Estimated bytes: of a validator, of each byte and subschema of its schema, of each pattern and its weight."""

Schema = dict[str, Any]


class Validator(Protocol):
    """What jsonschema-rs makes of a schema."""

    def is_valid(self, instance: Any) -> bool: ...
    def iter_errors(self, instance: Any) -> Any: ...
    def validate(self, instance: Any) -> None: ...


class Compiled:
    """A validator, what it costs, and a second one that names the first error without trying every branch.

    Raises:
        UpstreamProtocol: the schema cannot be evaluated, or not fast enough: publishing did not see it.
    """

    def __init__(self, schema: Schema) -> None:
        try:
            self.cost = SchemaCost(schema)
            nodes = self.cost.nodes
            compile_time.check(schema, nodes)
        except (SchemaUnsafe, AttributeError, TypeError, ValueError) as error:
            raise UpstreamProtocol("the tool's input schema cannot be evaluated") from error
        self._validator = compiled(schema)
        self._branches = any("anyOf" in node or "oneOf" in node for node in nodes)
        self._text = json.dumps(schema, separators=(",", ":"), ensure_ascii=False).encode(
            "utf-8", "surrogatepass"
        )
        one = _EACH + _BYTE * len(self._text) + _SUBSCHEMA * len(nodes) + sum(map(_pattern_bytes, nodes))
        self._bytes = one * (1 + self._branches) + len(self._text)
        self.cost.settle()
        # at once, since it takes as long: an invalid call would wait for it on the event loop
        self._teller = _without_branches(self._text) if self._branches else self._validator

    @property
    def size(self) -> int:
        """Estimated bytes, of the second validator too; a call may lead to more states of the cost table."""
        return self._bytes + self.cost.size

    def is_valid(self, arguments: Schema) -> bool:
        """Whether they fit."""
        return self._validator.is_valid(arguments)

    def errors(self, arguments: Schema, *, cost: float, size: int) -> list[dict[str, str]]:
        """What does not fit: all of it where that is cheap, else the first error."""
        found: list[dict[str, str]] = []
        if cost <= _ALL_ERRORS and size <= _ALL_ERRORS_BYTES:
            found = [_problem(e) for e in islice(self._teller.iter_errors(arguments), MAX_ERRORS)]
        else:
            try:
                self._teller.validate(arguments)
            except jsonschema_rs.ValidationError as error:
                found = [_problem(error)]
        return found or [{"pointer": "", "message": "the arguments do not match"}]


class Validators:
    """Compiled schemas by tool digest, within a bound of estimated bytes. Used from one event loop only.

    Args:
        most: bytes of all together; the latest is kept even if it alone is larger.
        on_evicted: called for each that is forgotten.
    """

    def __init__(self, most: int = BYTES, on_evicted: Callable[[], object] = lambda: None) -> None:
        self._most, self._on_evicted = most, on_evicted
        self._known: OrderedDict[str, tuple[Compiled, int]] = OrderedDict()
        self._making: set[asyncio.Task[Compiled]] = set()
        self.size = 0

    def __len__(self) -> int:
        return len(self._known)

    async def prepare(
        self,
        digest: str,
        text: bytes,
        schema: Callable[[], Schema],
        turn: Callable[[], AbstractAsyncContextManager[None]],
    ) -> Compiled:
        """What is compiled of the schema of `digest`: in a thread, when `turn` has come, where that may take long.

        Args:
            digest: of the tool; it covers the schema.
            text: the schema as it is published.
            schema: reads it.
            turn: what is entered meanwhile.

        Raises:
            UpstreamProtocol: it cannot be evaluated.
        """
        if digest in self._known or compile_time.is_short(text):
            return self.of(digest, schema)
        making = asyncio.create_task(self._make(digest, schema, turn))
        # of its own: the thread keeps the turn although its caller has gone
        self._making.add(making)
        making.add_done_callback(self._made)
        return await asyncio.shield(making)

    async def _make(
        self,
        digest: str,
        schema: Callable[[], Schema],
        turn: Callable[[], AbstractAsyncContextManager[None]],
    ) -> Compiled:
        async with turn():
            if digest not in self._known:
                made = await asyncio.to_thread(lambda: Compiled(schema()))
                self._keep(digest, made)
                return made
        return self.of(digest, schema)

    def _made(self, making: asyncio.Task[Compiled]) -> None:
        self._making.discard(making)
        if not making.cancelled():
            making.exception()  # its caller has it, or has gone

    def of(self, digest: str, schema: Callable[[], Schema]) -> Compiled:
        """What is compiled of `schema`, which `digest` covers.

        Raises:
            UpstreamProtocol: it cannot be evaluated.
        """
        found = self._known.get(digest)
        if found is None:
            made = Compiled(schema())
            self._keep(digest, made)
            return made
        self._known.move_to_end(digest)
        return found[0]

    def weigh(self, digest: str) -> None:
        """Look at the size of a compiled schema again: a call may have led further than any before."""
        found = self._known.get(digest)
        if found is not None and found[0].size != found[1]:
            self._keep(digest, found[0])

    def _keep(self, digest: str, made: Compiled) -> None:
        _, before = self._known.pop(digest, (made, 0))
        now = made.size
        self.size += now - before
        self._known[digest] = made, now
        while self.size > self._most and len(self._known) > 1:
            _, (_, gone) = self._known.popitem(last=False)
            self.size -= gone
            self._on_evicted()


def _without_branches(text: bytes) -> Validator:
    """Of the schema that is written in `text`, but a failed `anyOf` or `oneOf` does not list every error of every branch.

    A double `not` has the same verdict and builds no errors within. It hides what the branches evaluate, so a
    schema with branches loses `unevaluated*` here: where nothing else fails, no place is named.
    """
    schema = json.loads(text.decode("utf-8", "surrogatepass"))
    for node in SchemaCost(schema, reckon=False).nodes:
        branches = {name: node.pop(name) for name in ("anyOf", "oneOf") if name in node}
        for name in ("unevaluatedProperties", "unevaluatedItems"):
            node.pop(name, None)
        if branches:
            wrapped = [{"not": {"not": {name: branch}}} for name, branch in branches.items()]
            node["allOf"] = [*node.get("allOf", ()), *wrapped]
    try:
        return compiled(schema)
    except UpstreamProtocol:
        # a reference led into a branch
        return compiled({})


def compiled(schema: Schema) -> Validator:
    """A validator that fetches nothing and matches patterns in linear time.

    Raises:
        UpstreamProtocol: the schema is broken in a way that publishing did not see; the tool cannot be called.
    """
    try:
        validator: Validator = jsonschema_rs.validator_for(
            schema,
            pattern_options=jsonschema_rs.RegexOptions(
                size_limit=_PATTERN_BYTES, dfa_size_limit=_PATTERN_BYTES
            ),
            validate_formats=False,
            offline=True,
            mask="the value",
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError, TypeError) as error:
        raise UpstreamProtocol("the tool's input schema cannot be evaluated") from error
    return validator


def _pattern_bytes(node: Mapping[str, Any]) -> int:
    own = [node["pattern"]] if isinstance(node.get("pattern"), str) else []
    return sum(_PATTERN + _PATTERN_WEIGHT * weight(p) for p in (*own, *node.get("patternProperties", ())))


def _problem(error: Any) -> dict[str, str]:
    message = str(error.message)
    if message.startswith('{"not":{"'):
        message = "matches none of the alternatives, or too many"
    steps = [str(step).replace("~", "~0").replace("/", "~1") for step in error.instance_path]
    pointer = "".join(f"/{step}" for step in steps)
    return {
        "pointer": truncate(escape(pointer), MAX_MESSAGE),
        "message": truncate(escape(message), MAX_MESSAGE),
    }
