"""Allowlists of agents by name: {"agent": {"allow": ["github:*"], "deny": [...], "servers": [...]}}. Pure.

The program that reads such a file adds its entry `default` to the entry of every agent: `allow` and `deny` are joined, and
`servers` of `default` count where the agent has none. An agent without `allow` may use nothing; without `servers`, any server.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolcrib import names

_FIELDS = {"allow": names.PATTERN, "deny": names.PATTERN, "servers": names.SERVER_NAME}
_LIMIT = 63  # of an account's name
_MOST = {"allow": 64, "deny": 64, "servers": 32}
_DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Allowlist:
    """What one agent may see.

    Attributes:
        agent: its name in the source.
        account: the name of its ServiceAccount; None: it is about every account.
        allow, deny: patterns of tools; None: none are named.
        servers: names of servers; None: any.
        notes: what a reviewer has to know.
        left_out: why there can be no manifest; empty: there is one.
    """

    agent: str
    account: str | None = None
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] | None = None
    servers: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    left_out: str = ""


def is_allowlists(document: Any) -> bool:
    """Whether each value is an object of allow, deny and servers, and not all are empty; MCP servers are objects themselves."""
    if not isinstance(document, dict) or not all(isinstance(entry, dict) for entry in document.values()):
        return False
    fields = [field for entry in document.values() for field in entry.items()]
    return bool(fields) and all(name in _FIELDS and not isinstance(given, dict) for name, given in fields)


def of_document(document: Mapping[str, Any]) -> Iterator[Allowlist]:
    """One for each agent, in the document's order, then those for everybody else.

    Only agents by name get a grant. If a denial for everybody cannot be written, nobody gets one.
    """
    shared = {name: entry for name, entry in document.items() if _is_shared(name)}
    agents = {name: entry for name, entry in document.items() if name not in shared}
    problems = {name: why for name, entry in shared.items() if (why := _problem(entry))}
    if problems:
        for name in document:
            why = problems.get(name) or f"{', '.join(problems)}, which applies to every agent, is left out"
            yield Allowlist(name, left_out=why)
        return
    default = document.get(_DEFAULT, {})
    denials = _join(*(entry.get("deny", ()) for entry in shared.values()))
    accounts = Counter(names.slug(name, _LIMIT) for name in agents)
    for name, entry in agents.items():
        account = names.slug(name, _LIMIT)
        why = _problem(entry) or _account_problem(name, account, accounts)
        yield Allowlist(name, left_out=why) if why else _combine(name, account, entry, default, denials)
    yield from _for_everybody(shared, denials)


def _is_shared(name: str) -> bool:
    """Return True for `default`, what could be meant by it, and patterns of names."""
    return "*" in name or "?" in name or names.slug(name) == _DEFAULT


def _combine(
    agent: str, account: str, entry: Mapping[str, Any], default: Mapping[str, Any], denials: tuple[str, ...]
) -> Allowlist:
    allow = _join(entry.get("allow", ()), default.get("allow", ()))
    deny = _join(entry.get("deny", ()), denials)
    servers = _join(entry.get("servers") or default.get("servers", ()))
    if why := _too_many("allow", allow) or _too_many("deny", deny):
        return Allowlist(agent, left_out=f"with the entries that apply to every agent, {why}")
    if not allow and not deny:
        why = (
            "allow is empty or missing, so it allows nothing; without a binding the agent sees nothing either"
        )
        return Allowlist(agent, left_out=why)
    notes = []
    if default.get("allow") or denials:
        notes.append("It includes the entries that apply to every agent.")
    if servers and not allow:
        notes.append("servers is left out: a denial holds on every server.")
    if entry.get("servers") == [] and not servers:
        notes.append("servers is empty in the source, which means any server.")
    return Allowlist(
        agent, account, allow or None, deny or None, (servers or None) if allow else None, tuple(notes)
    )


def _for_everybody(shared: Mapping[str, Any], denials: tuple[str, ...]) -> Iterator[Allowlist]:
    for name, entry in shared.items():
        if entry.get("allow"):
            whom = "the agents that have no entry" if name == _DEFAULT else "agents that have no name here"
            why = f"a binding cannot grant its allow to {whom} without granting it to every account; add an entry for each"
            yield Allowlist(name, left_out=why)
    if denials:
        name = ", ".join(name for name, entry in shared.items() if entry.get("deny"))
        yield Allowlist(name, deny=denials, left_out=_too_many("deny", denials) or "")


def _join(*lists: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one for each in lists for one in each))


def _account_problem(agent: str, account: str, accounts: Mapping[str, int]) -> str | None:
    if accounts[account] > 1:
        return f"other agents of the file would have its account, {account}, too; rename all but one of them"
    if not re.search("[a-z0-9]", agent.lower()):
        return "no name of an account can be made of it; rename it with letters a to z"
    return None


def _too_many(field: str, listed: Sequence[str]) -> str | None:
    if len(listed) <= _MOST[field]:
        return None
    return f"{field} has {len(listed)} entries; a binding holds at most {_MOST[field]}: split it"


def _problem(entry: Mapping[str, Any]) -> str | None:
    for field, pattern in _FIELDS.items():
        listed = entry.get(field, [])
        if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
            return f"{field} is not a list of strings"
        if problem := _too_many(field, listed):
            return problem
        if len(set(listed)) < len(listed):
            return f"{field} names an entry twice"
        for one in listed:
            if re.fullmatch(pattern, one) is None:
                return f"{field} holds {one!r}, which is not a name, server:name or glob of both"
    return None
