"""Arguments against the tool's schema: no retrieval, linear-time patterns, bounded depth and size."""

from __future__ import annotations

import asyncio
import json
import math
from collections import OrderedDict
from itertools import chain, islice
from typing import Any, Protocol

import jsonschema_rs

from toolcrib.argument_cost import BUDGET
from toolcrib.schema_cost import SchemaCost
from toolcrib.text import escape, truncate
from toolcrib_registry.calls.errors import ArgumentsTooComplex, InvalidArguments, UpstreamProtocol
from toolcrib_registry.calls.limits import CallLimits

CACHED = 4_096
LARGE = 64 * 1024
"""Bytes from which a check is made in parts: parsing, writing and reckoning 900 KB of small numbers take 30 to 50 ms each."""
MANY = 10_000
"""Values from which it is made in parts too."""
MAX_ERRORS = 16
MAX_MESSAGE = 300
_PATTERN_BYTES = 1 << 20
_ALL_ERRORS = 80_000.0
"""Nanoseconds of checking up to which all errors are built: one costs up to a thousand times the check it is about."""
_ALL_ERRORS_BYTES = 64 * 1024
"""Each error holds a copy of the value that it is about."""


class _Validator(Protocol):
    def is_valid(self, instance: Any) -> bool: ...
    def iter_errors(self, instance: Any) -> Any: ...
    def validate(self, instance: Any) -> None: ...


class _Compiled:
    """A validator, what it costs, and a second one that names the first error without trying every branch."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        self._validator = compiled(schema)
        self.cost = SchemaCost(schema)
        self._teller: _Validator | None = None

    def is_valid(self, arguments: dict[str, Any]) -> bool:
        return self._validator.is_valid(arguments)

    def errors(self, arguments: dict[str, Any], *, cost: float, size: int) -> list[dict[str, str]]:
        """What does not fit: all of it where that is cheap, else the first error."""
        if self._teller is None:
            self._teller = self._without_branches()
        found: list[dict[str, str]] = []
        if cost <= _ALL_ERRORS and size <= _ALL_ERRORS_BYTES:
            found = [_problem(e) for e in islice(self._teller.iter_errors(arguments), MAX_ERRORS)]
        else:
            try:
                self._teller.validate(arguments)
            except jsonschema_rs.ValidationError as error:
                found = [_problem(error)]
        return found or [{"pointer": "", "message": "the arguments do not fit"}]

    def _without_branches(self) -> _Validator:
        """The same schema, but a failed `anyOf` or `oneOf` does not list every error of every branch.

        A double `not` has the same verdict and builds no errors within. It hides what the branches evaluate, so a
        schema with branches loses `unevaluated*` here: where nothing else fails, no place is named.
        """
        schema = json.loads(json.dumps(self._schema))
        nodes = SchemaCost(schema, reckon=False).nodes
        if not any("anyOf" in node or "oneOf" in node for node in nodes):
            return self._validator
        for node in nodes:
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


class Arguments:
    """Validators by tool digest, compiled once with their cost tables, the least recently used forgotten."""

    def __init__(self, limits: CallLimits, *, cached: int = CACHED) -> None:
        self._limits = limits
        self._cached = cached
        self._validators: OrderedDict[str, _Compiled] = OrderedDict()

    def check(self, digest: str, schema: dict[str, Any], arguments: dict[str, Any]) -> bytes:
        """The arguments in our own serialisation, if they fit.

        Args:
            digest: the tool's digest; it covers the schema.
            schema: the tool's input schema, already judged by `toolcrib.schemas`.
            arguments: parsed JSON.

        Raises:
            InvalidArguments: with a pointer and a message for the first problem, for more where that is cheap;
                values are not repeated.
            ArgumentsTooComplex: the check may take longer than `argument_cost.BUDGET`; it was not begun.
        """
        self._looked_through(arguments)
        body = self._written(arguments)
        validator, cost = self._reckon(digest, schema, arguments, body)
        _judge(validator, arguments, body, cost)
        return body

    async def check_in_turns(self, digest: str, schema: dict[str, Any], arguments: dict[str, Any]) -> bytes:
        """The same; between two parts of a large check others have their turn."""
        if self._looked_through(arguments) > MANY:
            await asyncio.sleep(0)
        body = self._written(arguments)
        if len(body) < LARGE:
            validator, cost = self._reckon(digest, schema, arguments, body)
        else:
            await asyncio.sleep(0)
            validator, cost = self._reckon(digest, schema, arguments, body)
            await asyncio.sleep(0)
        _judge(validator, arguments, body, cost)
        return body

    def _looked_through(self, arguments: Any) -> int:
        if not isinstance(arguments, dict):
            raise InvalidArguments("arguments are a JSON object")
        return check_depth(arguments, self._limits.argument_depth)

    def _written(self, arguments: dict[str, Any]) -> bytes:
        body = serialised(arguments)
        if len(body) > self._limits.argument_bytes:
            raise InvalidArguments(f"the arguments are larger than {self._limits.argument_bytes} bytes")
        return body

    def _reckon(
        self, digest: str, schema: dict[str, Any], arguments: dict[str, Any], body: bytes
    ) -> tuple[_Compiled, float]:
        validator = self._validator(digest, schema)
        cost = validator.cost.of(arguments, body)
        if cost > BUDGET:
            raise ArgumentsTooComplex(
                f"Checking these arguments may take longer than {BUDGET / 1e6:.0f} ms."
                " Send fewer or shorter values in one call."
            )
        return validator, cost

    def _validator(self, digest: str, schema: dict[str, Any]) -> _Compiled:
        found = self._validators.get(digest)
        if found is None:
            found = _Compiled(schema)
            self._validators[digest] = found
            if len(self._validators) > self._cached:
                self._validators.popitem(last=False)
        else:
            self._validators.move_to_end(digest)
        return found


def _judge(validator: _Compiled, arguments: dict[str, Any], body: bytes, cost: float) -> None:
    try:
        if not validator.is_valid(arguments):
            errors = validator.errors(arguments, cost=cost, size=len(body))
            raise InvalidArguments("the arguments do not fit the tool's input schema", errors)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidArguments("the arguments hold a value that cannot be compared") from error


def compiled(schema: dict[str, Any]) -> _Validator:
    """A validator that fetches nothing and matches patterns in linear time.

    Raises:
        UpstreamProtocol: the schema is broken in a way that publishing did not see; the tool cannot be called.
    """
    try:
        validator: _Validator = jsonschema_rs.validator_for(
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


def serialised(arguments: dict[str, Any]) -> bytes:
    """Arguments as they are sent: compact UTF-8 JSON in the caller's key order.

    Raises:
        InvalidArguments: NaN, infinities or lone surrogates, which have no JSON form.
    """
    try:
        return json.dumps(arguments, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidArguments("the arguments hold what JSON cannot carry (NaN, lone surrogates)") from error


def check_depth(value: Any, limit: int) -> int:
    """Refuse values nested deeper than `limit`, level by level, without recursion; how many values there are.

    Raises:
        InvalidArguments: it is deeper, or holds NaN or an infinity.
    """
    level, count = [value], 0
    for _ in range(limit):
        inner = list(chain.from_iterable(v.values() if isinstance(v, dict) else v for v in level))
        level = [node for node in inner if isinstance(node, dict | list)]
        if not all(map(math.isfinite, [node for node in inner if type(node) is float])):
            raise InvalidArguments("NaN and infinities are no JSON numbers")
        count += len(inner)
        if not level:
            return count
    raise InvalidArguments(f"the arguments are nested deeper than {limit} levels")


def _problem(error: Any) -> dict[str, str]:
    message = str(error.message)
    if message.startswith('{"not":{"'):
        message = "the value fits none of the alternatives, or too many"
    steps = [str(step).replace("~", "~0").replace("/", "~1") for step in error.instance_path]
    pointer = "".join(f"/{step}" for step in steps)
    return {
        "pointer": truncate(escape(pointer), MAX_MESSAGE),
        "message": truncate(escape(message), MAX_MESSAGE),
    }
