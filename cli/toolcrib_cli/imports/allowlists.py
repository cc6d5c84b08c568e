"""Allowlists of agents by name: {"agent": {"allow": ["github:*"], "deny": [...], "servers": [...]}}. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from toolcrib import names

_FIELDS = {"allow": names.PATTERN, "deny": names.PATTERN, "servers": names.SERVER_NAME}
_MOST = {"allow": 64, "deny": 64, "servers": 32}


@dataclass(frozen=True, slots=True)
class Allowlist:
    """What one agent may see.

    Attributes:
        agent: its name in the source.
        allow, deny: patterns of tools; None: none are named.
        servers: names of servers; None: none are named.
        left_out: why there can be no manifest; empty: there is one.
    """

    agent: str
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] | None = None
    servers: tuple[str, ...] | None = None
    left_out: str = ""


def is_allowlists(document: Any) -> bool:
    """Whether each value is an object of allow, deny and servers, and not all are empty; MCP servers are objects themselves."""
    if not isinstance(document, dict) or not all(isinstance(entry, dict) for entry in document.values()):
        return False
    fields = [field for entry in document.values() for field in entry.items()]
    return bool(fields) and all(name in _FIELDS and not isinstance(given, dict) for name, given in fields)


def of_document(document: Mapping[str, Any]) -> Iterator[Allowlist]:
    """One for each agent, in the document's order."""
    for agent, entry in document.items():
        if (problem := _problem(entry)) is not None:
            yield Allowlist(agent, left_out=problem)
            continue
        given = {field: tuple(entry.get(field) or ()) or None for field in _FIELDS}
        yield Allowlist(agent, given["allow"], given["deny"], given["servers"])


def _problem(entry: Mapping[str, Any]) -> str | None:
    for field, pattern in _FIELDS.items():
        listed = entry.get(field, [])
        if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
            return f"{field} is not a list of strings"
        if field in entry and not listed and field != "deny":
            return f"{field} is empty, so it allows nothing; without a binding the agent sees nothing either"
        if len(listed) > _MOST[field]:
            return f"{field} has {len(listed)} entries; a binding holds at most {_MOST[field]}: split it"
        if len(set(listed)) < len(listed):
            return f"{field} names an entry twice"
        for one in listed:
            if re.fullmatch(pattern, one) is None:
                return f"{field} holds {one!r}, which is not a name, server:name or glob of both"
    return None
