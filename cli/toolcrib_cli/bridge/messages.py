"""JSON-RPC messages as lines: what a line from the client is, and the lines that answer it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

MAX_LINE = 16 * 1024 * 1024
"""Bytes of one message; a longer line is answered with an error and skipped."""

PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32602, -32603
REFUSED = -32000
"""The registry refused the message, or could not be reached. Of the range that JSON-RPC leaves to implementations."""
HEADER_MISMATCH = -32020

_META_PREFIX = "io.modelcontextprotocol/"
VERSION_KEY = f"{_META_PREFIX}protocolVersion"
SUBSCRIPTION_KEY = f"{_META_PREFIX}subscriptionId"

_SPLITTERS = {"\n": " ", "\r": " ", "\u0085": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_IN_LINES = [(old.encode(), new.encode()) for old, new in _SPLITTERS.items()]

Id = int | str
Key = tuple[type, Id]
"""An id with its type: the requests 1 and "1" are two."""


class Kind(StrEnum):
    """What a message is."""

    REQUEST = "request"
    NOTIFICATION = "notification"
    RESPONSE = "response"
    BATCH = "batch"


@dataclass(frozen=True, slots=True)
class Message:
    """One line from the client."""

    raw: bytes
    kind: Kind
    method: str = ""
    id: Id | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    version: str | None = None
    """The protocol version that the message itself names, as all messages of the stateless era do."""
    asked: tuple[Id, ...] = ()
    """The ids that want an answer: several for a batch."""

    @property
    def meta(self) -> Mapping[str, Any]:
        """Its `params._meta`."""
        return _mapping(self.params.get("_meta"))

    @property
    def key(self) -> Key | None:
        """Its id with the id's type; None where it wants no answer."""
        return key_of(self.id)


class NotJsonRpc(ValueError):
    """A line that is no JSON-RPC message."""

    def __init__(self, code: int, why: str, answer_to: Id | None = None) -> None:
        self.code = code
        self.answer_to = answer_to
        super().__init__(why)


def key_of(value: object) -> Key | None:
    """`value` as the key of a request, if it can be an id."""
    return (type(value), value) if isinstance(value, int | str) and not isinstance(value, bool) else None


def read(line: bytes) -> Message:
    """The message in a line.

    Raises:
        NotJsonRpc: it is not JSON, or no message of JSON-RPC 2.0.
    """
    try:
        parsed = json.loads(line.decode())
    except (ValueError, RecursionError):
        raise NotJsonRpc(PARSE_ERROR, "Parse error: the line is not JSON") from None
    if isinstance(parsed, list):
        if not parsed or not all(isinstance(one, dict) for one in parsed):
            raise NotJsonRpc(INVALID_REQUEST, "Invalid request: an empty batch, or not one of messages")
        asked = tuple(one["id"] for one in parsed if key_of(one.get("id")) and "method" in one)
        return Message(line, Kind.BATCH, asked=asked)
    if not isinstance(parsed, dict):
        raise NotJsonRpc(INVALID_REQUEST, "Invalid request: a message is a JSON object")
    given = parsed.get("id")
    own = given if key_of(given) else None
    if parsed.get("jsonrpc") != "2.0":
        raise NotJsonRpc(INVALID_REQUEST, 'Invalid request: "jsonrpc" is not "2.0"', own)
    method = parsed.get("method")
    if method is None and ("result" in parsed or "error" in parsed):
        return Message(line, Kind.RESPONSE, id=own)
    if not isinstance(method, str) or ("id" in parsed and own is None):
        raise NotJsonRpc(
            INVALID_REQUEST, "Invalid request: no method, or an id that is neither text nor integer", own
        )
    params = _mapping(parsed.get("params"))
    version = _mapping(params.get("_meta")).get(VERSION_KEY)
    return Message(
        line,
        Kind.REQUEST if own is not None else Kind.NOTIFICATION,
        method,
        own,
        params,
        version if isinstance(version, str) else None,
        (own,) if own is not None else (),
    )


def one_line(body: bytes) -> bytes:
    """A JSON text as one line, with every number and escape as it came: outside of strings JSON's line breaks are blanks.

    Other characters at which some clients break lines can stand in strings only, so they become escapes.
    """
    body = body.strip()
    for old, new in _IN_LINES:
        if old in body:
            body = body.replace(old, new)
    return body


def line_of(message: Mapping[str, Any]) -> bytes:
    """A message of our own as a line, without its end."""
    return json.dumps(message, separators=(",", ":")).encode()


def error_line(answer_to: Id | None, code: int, text: str, data: Mapping[str, Any] | None = None) -> bytes:
    """An error as a line."""
    error: dict[str, Any] = {"code": code, "message": text}
    if data:
        error["data"] = data
    return line_of({"jsonrpc": "2.0", "id": answer_to, "error": error})


def decoded(body: bytes) -> dict[str, Any] | list[Any] | None:
    """A JSON text from the registry, if it is a message or a batch; else None."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if isinstance(parsed, list):
        return parsed
    return parsed if isinstance(parsed, dict) and parsed.get("jsonrpc") == "2.0" else None


def answers(message: object, request: Id | None) -> bool:
    """Whether a message from the registry is the answer to the request; an error may leave the id out."""
    if not isinstance(message, dict) or "method" in message:
        return False
    return ("result" in message or "error" in message) and message.get("id") in (request, None)


def error_code(message: object) -> int | None:
    """The code of an error message; None for anything else."""
    code = _mapping(_mapping(message).get("error")).get("code")
    return code if isinstance(code, int) else None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
