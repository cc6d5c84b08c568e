"""Arguments against the tool's schema: no retrieval, linear-time patterns, bounded depth and size."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import dataclass, field
from typing import Any

import orjson

from toolcrib.schemas.argument_cost import BUDGET
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.calls.bounds import CallBounds
from toolcrib_registry.calls.errors import ArgumentsTooComplex, InvalidArguments, UpstreamProtocol
from toolcrib_registry.calls.validators import Compiled, Validators
from toolcrib_registry.limits.large_requests import LARGE, LargeRequests

MANY = 10_000
"""Values from which a check is made in parts, as from `LARGE` bytes: writing and estimating 900 KB of small numbers take 30 to 50 ms each."""
_WRITE = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
Schema = dict[str, Any]
"""A tool's input schema, already judged by `toolcrib.schemas.safety`."""


@dataclass(frozen=True, slots=True)
class CheckedArguments:
    """Arguments that fit the tool's schema, and their own serialisation."""

    value: dict[str, Any]
    body: bytes = field(repr=False)


class Arguments:
    """Checks arguments by compiled schemas, which it keeps.

    Args:
        limits: bounds of a call.
        validators: where these are kept.
        large: whose turn it is to be checked.
    """

    def __init__(
        self,
        limits: CallBounds | None = None,
        validators: Validators | None = None,
        large: LargeRequests | None = None,
    ) -> None:
        self._limits = limits or CallBounds()
        self._large = LargeRequests() if large is None else large
        self._validators = Validators() if validators is None else validators

    async def checked(self, tool: PublishedTool, arguments: dict[str, Any], account: str) -> CheckedArguments:
        """The arguments of a call of `tool`, if they fit; large ones when it is the turn of `account`.

        Raises:
            InvalidArguments, ArgumentsTooComplex: see `check`.
            UpstreamProtocol: the schema cannot be evaluated.
        """
        digest, text = tool.digest, tool.packed_input
        validator = await self._validators.prepare(
            digest, text, lambda: tool.input_schema, lambda: self._large.turn(account)
        )
        return CheckedArguments(arguments, await self.check_in_turns(digest, validator, arguments, account))

    async def mistakes_of_output(self, tool: PublishedTool, value: Any, account: str) -> list[dict[str, str]]:
        """Where what a tool answered does not fit its output schema, as pointers and messages.

        None are told where the check would take longer than `argument_cost.BUDGET`, nor of an answer that may be no object and is none.
        """
        text, schema = tool.packed_output, tool.output_schema
        if text is None or schema is None:
            return []
        if not isinstance(value, dict):
            wrong = schema.get("type") == "object"
            return [{"pointer": "", "message": "must be an object"}] if wrong else []
        digest = f"{tool.digest}>"
        try:
            validator = await self._validators.prepare(
                digest, text, lambda: schema, lambda: self._large.turn(account)
            )
            await self.check_in_turns(digest, validator, value, account)
        except InvalidArguments as error:
            return list(error.extra.get("errors") or ())
        except (ArgumentsTooComplex, UpstreamProtocol):
            pass
        return []

    def check(self, digest: str, schema: Schema, arguments: dict[str, Any]) -> bytes:
        """The arguments in our own serialisation, if they fit.

        Args:
            digest: the tool's digest; it covers the schema.
            schema: its input schema.
            arguments: parsed JSON.

        Raises:
            InvalidArguments: with a pointer and a message for the first problem, for more where that is cheap;
                values are not repeated.
            ArgumentsTooComplex: the check may take longer than `argument_cost.BUDGET`; it was not begun.
        """
        self._looked_through(arguments)
        body = self._written(arguments)
        validator = self._validators.of(digest, lambda: schema)
        _judge(validator, arguments, body, self._reckon(digest, validator, arguments, body))
        return body

    async def check_in_turns(
        self, digest: str, validator: Compiled, arguments: dict[str, Any], account: str
    ) -> bytes:
        """The same; one large check at a time, and between two parts of it others have their turn."""
        if self._looked_through(arguments) > MANY:
            await asyncio.sleep(0)
        body = self._written(arguments)
        if len(body) < LARGE:
            _judge(validator, arguments, body, self._reckon(digest, validator, arguments, body))
            return body
        async with self._large.turn(account):
            await asyncio.sleep(0)
            cost = self._reckon(digest, validator, arguments, body)
            await asyncio.sleep(0)
            _judge(validator, arguments, body, cost)
            return body

    def _looked_through(self, arguments: Any) -> int:
        if not isinstance(arguments, dict):
            raise InvalidArguments("arguments must be a JSON object")
        return check_depth(arguments, self._limits.argument_depth)

    def _written(self, arguments: dict[str, Any]) -> bytes:
        body = serialised(arguments)
        if len(body) > self._limits.argument_bytes:
            raise InvalidArguments(f"the arguments are larger than {self._limits.argument_bytes} bytes")
        return body

    def _reckon(self, digest: str, validator: Compiled, arguments: dict[str, Any], body: bytes) -> float:
        cost = validator.cost.of(arguments, body)
        self._validators.weigh(digest)
        if cost > BUDGET:
            raise ArgumentsTooComplex(
                f"Checking these arguments may take longer than {BUDGET / 1e6:.0f} ms."
                " Send fewer or shorter values in one call."
            )
        return cost


def _judge(validator: Compiled, arguments: dict[str, Any], body: bytes, cost: float) -> None:
    try:
        if not validator.is_valid(arguments):
            errors = validator.errors(arguments, cost=cost, size=len(body))
            raise InvalidArguments("the arguments do not match the tool's input schema", errors)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidArguments("the arguments hold a value that cannot be compared") from error


def serialised(arguments: dict[str, Any]) -> bytes:
    """Arguments as they are sent: compact UTF-8 JSON in the caller's key order.

    Raises:
        InvalidArguments: NaN, infinities or lone surrogates, which have no JSON form.
    """
    try:
        body = orjson.dumps(arguments)
    except TypeError:  # integers beyond 64 bits, lone surrogates
        pass
    else:
        # it writes what is no number as null, too
        if b"null" not in body:
            return body
    try:
        return _WRITE(arguments).encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidArguments(
            "the arguments hold values that JSON cannot carry (NaN, lone surrogates)"
        ) from error


def check_depth(value: Any, limit: int) -> int:
    """Refuse values nested deeper than `limit`, level by level, without recursion; how many values there are.

    Raises:
        InvalidArguments: it is deeper, or holds NaN or an infinity.
    """
    level, count = [value], 0
    for _ in range(limit):
        below = []
        for node in level:
            values = node.values() if type(node) is dict else node
            count += len(values)
            for each in values:
                kind = type(each)
                if kind is dict or kind is list:
                    below.append(each)
                elif kind is float and not math.isfinite(each):
                    raise InvalidArguments("NaN and infinities are not JSON numbers")
        if not below:
            return count
        level = below
    raise InvalidArguments(f"the arguments are nested deeper than {limit} levels")
