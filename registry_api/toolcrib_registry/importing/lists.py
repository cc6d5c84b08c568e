"""From what a server lists to what is kept and handed to the operator: pure.

A tool is kept in MCP's own words, fields that MCP does not define left out. What is not a tool by MCP's rules is named with
a reason, so that one bad entry costs the others nothing.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from toolcrib import digest
from toolcrib_registry.calls.echoed_secrets import Secrets
from toolcrib_registry.upstream.lists import Listed

MOST_DEPTH = 64
"""Levels of a definition; readers of JSON give up at some hundred."""
MOST_BYTES = 512 << 10
"""Of one definition: an object of the API server holds no more."""
_SHOWN = 128
_TEXTS = ("title", "description")
_OBJECTS = ("outputSchema", "annotations", "_meta")


@dataclass(frozen=True, slots=True)
class HeldList:
    """A whole list, as it is handed on.

    Attributes:
        set_digest: names its content: all definitions, whatever their order, and the server's instructions.
        tools: entries of the list.
        packed: the body of `ServerList`, compressed.
    """

    set_digest: str
    tools: int
    packed: bytes = field(repr=False)

    @property
    def body(self) -> bytes:
        """`ServerList` as JSON."""
        return zlib.decompress(self.packed)


class CredentialRepeated(Exception):
    """The list repeats what authenticates to its server: it must not become what models read."""


def held(server: str, listed: Listed, secrets: tuple[str, ...] = ()) -> HeldList:
    """The server's list as a replica keeps it. It takes processor time in proportion to the list: run it in a thread.

    Raises:
        CredentialRepeated: the list repeats one of `secrets`.
    """
    usable, unusable = list[bytes](), list[dict[str, str]]()
    for entry in listed.entries:
        found = _definition(entry)
        if isinstance(found, bytes):
            usable.append(found)
        else:
            unusable.append({"name": _name(entry), "reason": found})
    instructions = _clean(listed.facts.instructions)
    left_out = orjson.dumps(unusable)
    digests = sorted(hashlib.sha256(each).digest() for each in usable)
    about = hashlib.sha256(orjson.dumps(instructions) + left_out).digest()
    set_digest = f"sha256:{hashlib.sha256(about + b''.join(digests)).hexdigest()}"
    body = b'{"server":%b,"set_digest":%b,"instructions":%b,"tools":[%b],"unusable":%b}' % (
        orjson.dumps(server),
        orjson.dumps(set_digest),
        orjson.dumps(instructions),
        b",".join(usable),
        left_out,
    )
    # what the server says of itself is told and shown, too
    info = (text for text in listed.facts.info.values() if type(text) is str)
    if Secrets.of(secrets).repeated_in(b"\n".join((body, *(_clean(text).encode() for text in info)))):
        raise CredentialRepeated
    return HeldList(set_digest, len(listed.entries), zlib.compress(body, 1))


def _definition(entry: Any) -> bytes | str:
    """The definition as canonical JSON, or why it is none."""
    if type(entry) is not dict:
        return "The entry is not an object."
    fields = {"name": entry.get("name"), "inputSchema": entry.get("inputSchema")}
    if type(fields["name"]) is not str or not fields["name"]:
        return "The tool has no name."
    if type(fields["inputSchema"]) is not dict:
        return "inputSchema is not an object."
    for key in (*_TEXTS, *_OBJECTS, "icons"):
        if (value := entry.get(key)) is not None:
            if not _fits(key, value):
                return f"{key} has the wrong type."
            fields[key] = value
    if _deeper(fields, MOST_DEPTH):
        return f"The definition is nested deeper than {MOST_DEPTH} levels."
    try:
        text = _canonical(fields)
    except (ValueError, RecursionError):
        return "The definition holds a number or text that JSON cannot carry."
    if len(text) > MOST_BYTES:
        return f"The definition is larger than {MOST_BYTES >> 10} KiB."
    return text


def _fits(key: str, value: Any) -> bool:
    if key == "icons":
        return type(value) is list and all(type(each) is dict for each in value)
    return type(value) is (str if key in _TEXTS else dict)


def _canonical(fields: Mapping[str, Any]) -> bytes:
    """JSON with sorted keys.

    Raises:
        ValueError: there is none.
    """
    try:
        return orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # integers beyond 64 bits, or half a character
        digest.canonical(fields)
        return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _deeper(value: Any, limit: int) -> bool:
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > limit:
            return True
        level = [
            child
            for node in level
            for child in (node.values() if type(node) is dict else node)
            if type(child) in (dict, list)
        ]
    return False


def _name(entry: Any) -> str:
    name = entry.get("name") if type(entry) is dict else None
    return _clean(name)[:_SHOWN] if type(name) is str else ""


def _clean(text: str) -> str:
    """The text with `?` for halves of characters."""
    return text.encode(errors="replace").decode()
