"""Entries of servers' lists as they are passed on: known members alone, within bounds. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from toolcrib_registry.upstream import uris
from toolcrib_registry.upstream.lists import Kind
from toolcrib_registry.upstream.protocol import foreign

MOST_NAME = 256
"""Characters of a prompt's name."""
MOST_BYTES = 64 << 10
"""Of one entry."""
MOST_DEPTH = 16
KEYS: Mapping[Kind, str] = {Kind.RESOURCES: "uri", Kind.TEMPLATES: "uriTemplate", Kind.PROMPTS: "name"}
"""The member that an entry is asked for by."""
SERVER_META = "toolcrib.dev/server"
"""In an entry's `_meta`: whose it is, `namespace/name`."""
_TEXTS = ("title", "description", "mimeType")


@dataclass(frozen=True, slots=True)
class Entry:
    """A resource, a template of resources, or a prompt.

    Attributes:
        key: its URI, template or name at its server.
        rest: its other members.
    """

    key: str
    rest: bytes = field(repr=False)

    def shown(self, kind: Kind, key: str) -> bytes:
        """The entry as it is listed, asked for by `key`."""
        return b'{"%b":%b,%b' % (KEYS[kind].encode(), orjson.dumps(key), self.rest[1:])


def entries(kind: Kind, listed: Iterable[Any], server: str) -> tuple[Entry, ...]:
    """The usable ones, each key once; what is not usable is left out.

    Args:
        kind: of what.
        listed: what the server sent.
        server: `namespace/name`.
    """
    found: dict[str, Entry] = {}
    for each in listed:
        entry = _entry(kind, each, server)
        if entry is not None:
            found.setdefault(entry.key, entry)
    return tuple(found.values())


def _entry(kind: Kind, value: Any, server: str) -> Entry | None:
    if type(value) is not dict or _is_deep(value):
        return None
    key, name = value.get(KEYS[kind]), value.get("name")
    if type(key) is not str or type(name) is not str or not _usable(kind, key):
        return None
    rest: dict[str, Any] = {} if kind is Kind.PROMPTS else {"name": name}
    rest |= {member: value[member] for member in _TEXTS if type(value.get(member)) is str}
    if kind is Kind.PROMPTS:
        rest.pop("mimeType", None)
        rest["arguments"] = _arguments(value.get("arguments"))
    if type(value.get("size")) is int and kind is Kind.RESOURCES:
        rest["size"] = value["size"]
    if type(value.get("annotations")) is dict and kind is not Kind.PROMPTS:
        rest["annotations"] = value["annotations"]
    if type(icons := value.get("icons")) is list and all(type(icon) is dict for icon in icons):
        rest["icons"] = icons
    rest["_meta"] = {**meta_of(value), SERVER_META: server}
    try:
        text = orjson.dumps(rest)
    except TypeError:  # text that is no Unicode, or an integer that JSON readers cannot hold
        return None
    return Entry(key, text) if len(text) + len(key) <= MOST_BYTES else None


def meta_of(value: Mapping[str, Any]) -> dict[str, Any]:
    """What a server says of something besides, the protocol's and our own left out."""
    meta = value.get("_meta")
    return foreign(meta) if type(meta) is dict else {}


def _usable(kind: Kind, key: str) -> bool:
    if kind is Kind.PROMPTS:
        return 0 < len(key) <= MOST_NAME and key.isprintable()
    return uris.unusable(key) is None


def _arguments(value: Any) -> list[dict[str, Any]]:
    if type(value) is not list:
        return []
    found = []
    for each in value:
        if type(each) is dict and type(each.get("name")) is str:
            shown = {
                member: each[member]
                for member in ("name", "title", "description")
                if type(each.get(member)) is str
            }
            found.append({**shown, "required": each.get("required") is True})
    return found


def _is_deep(value: Any) -> bool:
    stack = [(value, 1)]
    while stack:
        node, depth = stack.pop()
        inner = node.values() if type(node) is dict else node if type(node) is list else ()
        if inner and depth > MOST_DEPTH:
            return True
        stack.extend((child, depth + 1) for child in inner)
    return False
