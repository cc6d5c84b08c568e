"""Arguments against the tool's schema: no retrieval, linear-time patterns, bounded depth and size."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from itertools import islice
from typing import Any, Protocol

import jsonschema_rs

from toolcrib.text import escape, truncate
from toolcrib_registry.calls.errors import InvalidArguments, UpstreamProtocol
from toolcrib_registry.calls.limits import CallLimits

CACHED = 4_096
MAX_ERRORS = 16
MAX_MESSAGE = 300
_PATTERN_BYTES = 1 << 20


class _Validator(Protocol):
    def is_valid(self, instance: Any) -> bool: ...
    def iter_errors(self, instance: Any) -> Any: ...


class Arguments:
    """Validators by tool digest, compiled once, the least recently used forgotten."""

    def __init__(self, limits: CallLimits, *, cached: int = CACHED) -> None:
        self._limits = limits
        self._cached = cached
        self._validators: OrderedDict[str, _Validator] = OrderedDict()

    def check(self, digest: str, schema: dict[str, Any], arguments: dict[str, Any]) -> bytes:
        """The arguments in our own serialisation, if they fit.

        Args:
            digest: the tool's digest; it covers the schema.
            schema: the tool's input schema, already judged by `toolcrib.schemas`.
            arguments: parsed JSON.

        Raises:
            InvalidArguments: with a pointer and a message for each problem; values are not repeated.
        """
        if not isinstance(arguments, dict):
            raise InvalidArguments("arguments are a JSON object")
        check_depth(arguments, self._limits.argument_depth)
        body = serialised(arguments)
        if len(body) > self._limits.argument_bytes:
            raise InvalidArguments(f"the arguments are larger than {self._limits.argument_bytes} bytes")
        validator = self._validator(digest, schema)
        try:
            if not validator.is_valid(arguments):
                errors = [_problem(e) for e in islice(validator.iter_errors(arguments), MAX_ERRORS)]
                raise InvalidArguments("the arguments do not fit the tool's input schema", errors)
        except (ValueError, TypeError, OverflowError) as error:
            raise InvalidArguments("the arguments hold a value that cannot be compared") from error
        return body

    def _validator(self, digest: str, schema: dict[str, Any]) -> _Validator:
        found = self._validators.get(digest)
        if found is None:
            found = compiled(schema)
            self._validators[digest] = found
            if len(self._validators) > self._cached:
                self._validators.popitem(last=False)
        else:
            self._validators.move_to_end(digest)
        return found


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


def check_depth(value: Any, limit: int) -> None:
    """Refuse values nested deeper than `limit`, without recursion.

    Raises:
        InvalidArguments: it is deeper.
    """
    stack = [(value, 1)]
    while stack:
        node, depth = stack.pop()
        if isinstance(node, dict | list):
            if depth > limit:
                raise InvalidArguments(f"the arguments are nested deeper than {limit} levels")
            stack.extend((child, depth + 1) for child in (node.values() if isinstance(node, dict) else node))
        elif isinstance(node, float) and not math.isfinite(node):
            raise InvalidArguments("NaN and infinities are no JSON numbers")


def _problem(error: Any) -> dict[str, str]:
    steps = [str(step).replace("~", "~0").replace("/", "~1") for step in error.instance_path]
    pointer = "".join(f"/{step}" for step in steps)
    return {
        "pointer": truncate(escape(pointer), MAX_MESSAGE),
        "message": truncate(escape(str(error.message)), MAX_MESSAGE),
    }
