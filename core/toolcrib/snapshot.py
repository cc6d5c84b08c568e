"""The immutable state a replica answers from, and the step from one revision to the next.

A snapshot is swapped whole: a request sees exactly one revision and takes no lock (DESIGN §6, The snapshot).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from toolcrib.authorizer import Policy
from toolcrib.errors import EpochFenced, RevisionMismatch
from toolcrib.wire.publish import (
    HASH_MODULUS,
    Publish,
    PublishedAccount,
    PublishedBinding,
    PublishedTool,
    Revision,
    fingerprint,
    hash_text,
)


@dataclass(frozen=True)
class Snapshot:
    """Tools, bindings and lookup tables of one revision.

    `by_scope` maps (namespace, scope) to tool ids and `by_name` a lower-case tool name to tool ids: supersets to
    decide over, never decisions. `namespaces` are those that hold a tool.
    """

    revision: Revision | None = None
    tools: Mapping[str, PublishedTool] = field(default_factory=dict)
    bindings: Mapping[str, PublishedBinding] = field(default_factory=dict)
    policy: Policy = field(default_factory=Policy)
    by_scope: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    by_name: Mapping[str, frozenset[str]] = field(default_factory=dict)
    namespaces: frozenset[str] = frozenset()
    active_tools: int = 0
    total: int = field(default=0, repr=False)
    prints: Mapping[str, int] = field(default_factory=dict, repr=False)
    accounts: Mapping[str, PublishedAccount] | None = None
    """Bound ServiceAccounts by `namespace/name`; None: the leader does not know them, none is checked."""

    @property
    def hash(self) -> str:
        """Equal on two replicas exactly when they hold the same tools, bindings and accounts."""
        return hash_text(self.total)

    def fingerprint(self, tool_id: str) -> int:
        """Changes whenever anything of the tool changes; KeyError if it is not here."""
        return self.prints["t:" + tool_id]

    def apply(self, publish: Publish) -> Snapshot:
        """The snapshot after `publish`; this one stays as it is.

        Raises:
            EpochFenced: the publish's epoch is lower than the snapshot's.
            RevisionMismatch: the publish continues another revision, or would go back.
        """
        if self.revision is not None:
            if publish.to.epoch < self.revision.epoch:
                raise EpochFenced(f"epoch {publish.to.epoch} is over: {self.revision.epoch} leads")
            if publish.to == self.revision and publish.base is not None:
                return self  # a repeated delivery
            if publish.to < self.revision:
                raise RevisionMismatch(f"{publish.to} is older than {self.revision}")
        if publish.base is None:
            return Snapshot(policy=Policy(anonymous_list=self.policy.anonymous_list))._with(publish)
        if publish.base != self.revision:
            raise RevisionMismatch(f"continues {publish.base}, but {self.revision or 'nothing'} is here")
        return self._with(publish)

    def _with(self, publish: Publish) -> Snapshot:
        tools, bindings, prints = dict(self.tools), dict(self.bindings), dict(self.prints)
        total, index = self.total, _Index(self)
        for tool_id in publish.removed.tools:
            if (gone := tools.pop(tool_id, None)) is not None:
                total -= prints.pop("t:" + tool_id)
                index.remove(gone)
        for uid in publish.removed.bindings:
            if bindings.pop(uid, None) is not None:
                total -= prints.pop("b:" + uid)
        for tool in publish.tools:
            if (old := tools.get(tool.tool_id)) is not None:
                index.remove(old)
            tools[tool.tool_id] = tool
            index.add(tool)
            total += _replace(prints, "t:" + tool.tool_id, fingerprint(tool))
        for binding in publish.bindings:
            bindings[binding.uid] = binding
            total += _replace(prints, "b:" + binding.uid, fingerprint(binding))
        accounts, counted = _accounts(self, publish, prints)
        total += counted
        policy = self.policy
        if publish.bindings or publish.removed.bindings or publish.base is None:
            policy = Policy.compile(
                bindings.values(), anonymous_list=policy.anonymous_list, accounts=_uids(accounts)
            )
        elif accounts is not self.accounts:
            policy = replace(policy, accounts=_uids(accounts))  # they come and go more often than bindings
        return Snapshot(
            revision=publish.to,
            tools=tools,
            bindings=bindings,
            policy=policy,
            by_scope=index.by_scope,
            by_name=index.by_name,
            namespaces=frozenset(ns for ns, _ in index.by_scope),
            active_tools=index.active,
            total=total % HASH_MODULUS,
            prints=prints,
            accounts=accounts,
        )

    def candidates(self, scopes: Iterable[str], namespaces: frozenset[str] | None) -> set[str]:
        """Ids of tools that carry one of `scopes` in one of `namespaces` (None: all)."""
        found: set[str] = set()
        for namespace in self.namespaces if namespaces is None else namespaces:
            for scope in scopes:
                found |= self.by_scope.get((namespace, scope), frozenset())
        return found


def _replace(prints: dict[str, int], key: str, value: int) -> int:
    before = prints.get(key, 0)
    prints[key] = value
    return value - before


def _accounts(
    before: Snapshot, publish: Publish, prints: dict[str, int]
) -> tuple[Mapping[str, PublishedAccount] | None, int]:
    """The accounts after `publish`, and by how much they change the total; the same object where nothing changed."""
    if publish.accounts is None and not publish.removed.accounts:
        return (before.accounts if publish.base is not None else None), 0
    accounts, total = dict(before.accounts or {}), 0
    for key in publish.removed.accounts:
        if accounts.pop(key, None) is not None:
            total -= prints.pop("a:" + key)
    for account in publish.accounts or ():
        accounts[account.key] = account
        total += _replace(prints, "a:" + account.key, fingerprint(account))
    return accounts, total


def _uids(accounts: Mapping[str, PublishedAccount] | None) -> dict[tuple[str, str], str] | None:
    return None if accounts is None else {(a.namespace, a.name): a.uid for a in accounts.values()}


class _Index:
    """The lookup tables while they are being changed; only touched sets are copied."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._scopes: dict[tuple[str, str], set[str] | frozenset[str]] = dict(snapshot.by_scope)
        self._names: dict[str, set[str] | frozenset[str]] = dict(snapshot.by_name)
        self._open_scopes: set[tuple[str, str]] = set()
        self._open_names: set[str] = set()
        self.active = snapshot.active_tools

    def add(self, tool: PublishedTool) -> None:
        for scope in tool.scopes:
            self._scope(tool.namespace, scope).add(tool.tool_id)
        self._name(tool.name).add(tool.tool_id)
        self.active += tool.active

    def remove(self, tool: PublishedTool) -> None:
        for scope in tool.scopes:
            self._scope(tool.namespace, scope).discard(tool.tool_id)
        self._name(tool.name).discard(tool.tool_id)
        self.active -= tool.active

    def _scope(self, namespace: str, scope: str) -> set[str]:
        key = (namespace, scope)
        return _opened(self._scopes, self._open_scopes, key)

    def _name(self, name: str) -> set[str]:
        return _opened(self._names, self._open_names, name.lower())

    @property
    def by_scope(self) -> dict[tuple[str, str], frozenset[str]]:
        return {k: frozenset(v) for k, v in self._scopes.items() if v}

    @property
    def by_name(self) -> dict[str, frozenset[str]]:
        return {k: frozenset(v) for k, v in self._names.items() if v}


def _opened(table: dict[Any, set[str] | frozenset[str]], opened: set[Any], key: Any) -> set[str]:
    if key not in opened:
        table[key] = set(table.get(key, ()))
        opened.add(key)
    found = table[key]
    assert isinstance(found, set)
    return found
