"""The immutable state a replica answers from, and the step from one revision to the next.

A snapshot is swapped whole: a request sees exactly one revision and takes no lock (DESIGN §6, The snapshot).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

from toolcrib import names
from toolcrib.authorizer import Policy
from toolcrib.errors import EpochFenced, RevisionMismatch
from toolcrib.wire.publish import (
    HASH_MODULUS,
    Publish,
    PublishedAccount,
    PublishedBinding,
    PublishedServer,
    PublishedTool,
    Removed,
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
    servers: Mapping[str, PublishedServer] = field(default_factory=dict)
    """ToolServers that offer resources or prompts."""
    parts: Mapping[str, PublishedTool] = field(default_factory=dict)
    """What stands for their resources and prompts, by id."""
    bindings: Mapping[str, PublishedBinding] = field(default_factory=dict)
    policy: Policy = field(default_factory=Policy)
    by_scope: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    by_name: Mapping[str, frozenset[str]] = field(default_factory=dict)
    namespaces: frozenset[str] = frozenset()
    active_tools: int = 0
    trials: Mapping[str, PublishedTool] = field(default_factory=dict)
    """The definitions on trial, by their ids in the search index."""
    total: int = field(default=0, repr=False)
    prints: Mapping[str, int] = field(default_factory=dict, repr=False)
    accounts: Mapping[str, PublishedAccount] | None = None
    """Bound ServiceAccounts by `namespace/name`; None: the leader does not know them, none is checked."""

    @property
    def hash(self) -> str:
        """Equal on two replicas exactly when they hold the same tools, servers, bindings and accounts."""
        return hash_text(self.total)

    @cached_property
    def indexed(self) -> Mapping[str, PublishedTool]:
        """All that is searched, by the ids of the search index: tools and candidates."""
        return {**self.tools, **self.trials} if self.trials else self.tools

    def fingerprint(self, index_id: str) -> int:
        """Changes whenever anything of the tool changes; KeyError if it is not here."""
        return self.prints["t:" + names.of_candidate(index_id)]

    def governed(self, tool_id: str) -> PublishedTool | None:
        """The tool, or what stands for resources or prompts, of this id."""
        found = self.tools.get(tool_id)
        return self.parts.get(tool_id) if found is None else found

    def apply(self, publish: Publish) -> Snapshot:
        """The snapshot after `publish`; this one stays as it is.

        Raises:
            EpochFenced: the publish's epoch is lower than the snapshot's.
            RevisionMismatch: the publish continues another revision, or would go back.
        """
        if publish.base is not None and publish.to == self.revision:
            return self  # a repeated delivery
        if publish.base is None:
            draft = self.draft()
            draft.add(publish.tools, publish.bindings, publish.accounts, publish.servers)
            return self.replaced(draft, publish.to)
        self._check(publish.to)
        if publish.base != self.revision:
            raise RevisionMismatch(
                f"continues {publish.base}, but this replica holds {self.revision or 'nothing'}"
            )
        draft = Draft(self)
        draft.remove(publish.removed)
        draft.add(publish.tools, publish.bindings, publish.accounts, publish.servers)
        return draft.made(publish.to)

    def draft(self) -> Draft:
        """An empty draft of what may replace this snapshot."""
        return Draft(Snapshot(policy=Policy(anonymous_list=self.policy.anonymous_list)))

    def replaced(self, draft: Draft, to: Revision) -> Snapshot:
        """The full snapshot of `draft`, in the place of this one.

        Raises:
            EpochFenced, RevisionMismatch: this one is later.
        """
        self._check(to)
        return draft.made(to)

    def _check(self, to: Revision) -> None:
        if self.revision is None:
            return
        if to.epoch < self.revision.epoch:
            raise EpochFenced(f"epoch {to.epoch} has ended: {self.revision.epoch} leads")
        if to < self.revision:
            raise RevisionMismatch(f"{to} is older than {self.revision}")

    def candidates(self, scopes: Iterable[str], namespaces: frozenset[str] | None) -> set[str]:
        """Ids of tools that carry one of `scopes` in one of `namespaces` (None: all)."""
        found: set[str] = set()
        for namespace in self.namespaces if namespaces is None else namespaces:
            for scope in scopes:
                found |= self.by_scope.get((namespace, scope), frozenset())
        return found


class Draft:
    """A snapshot that is being put together, in one step or in many; `before` stays as it is."""

    def __init__(self, before: Snapshot) -> None:
        self._before = before
        self._tools, self._bindings = dict(before.tools), dict(before.bindings)
        self._trials = dict(before.trials)
        self._servers: dict[str, PublishedServer] | None = None
        self._prints, self._total, self._index = dict(before.prints), before.total, _Index(before)
        self._accounts: dict[str, PublishedAccount] | None = None
        self._rebound = before.revision is None

    def remove(self, removed: Removed) -> None:
        """Take these away."""
        for tool_id in removed.tools:
            if (gone := self._tools.pop(tool_id, None)) is not None:
                self._trials.pop(names.candidate_id(tool_id), None)
                self._total -= self._prints.pop("t:" + tool_id)
                self._index.remove(gone)
        if removed.servers:
            servers = self._known_servers()
            for server_id in removed.servers:
                if servers.pop(server_id, None) is not None:
                    self._total -= self._prints.pop("s:" + server_id)
        for uid in removed.bindings:
            self._rebound = True
            if self._bindings.pop(uid, None) is not None:
                self._total -= self._prints.pop("b:" + uid)
        if removed.accounts:
            accounts = self._known_accounts()
            for key in removed.accounts:
                if accounts.pop(key, None) is not None:
                    self._total -= self._prints.pop("a:" + key)

    def add(
        self,
        tools: Iterable[PublishedTool],
        bindings: Iterable[PublishedBinding],
        accounts: Iterable[PublishedAccount] | None,
        servers: Iterable[PublishedServer] = (),
    ) -> None:
        """Add these, in the place of earlier ones; `accounts` None: nothing is known of more accounts."""
        for tool in tools:
            self._index.put(self._tools.get(tool.tool_id), tool)
            self._tools[tool.tool_id] = tool
            self._trials.pop(names.candidate_id(tool.tool_id), None)
            if tool.candidate is not None:
                self._trials[tool.candidate.tool.index_id] = tool.candidate.tool
            self._count("t:" + tool.tool_id, fingerprint(tool))
        for server in servers:
            self._known_servers()[server.server_id] = server
            self._count("s:" + server.server_id, fingerprint(server))
        for binding in bindings:
            self._rebound = True
            self._bindings[binding.uid] = binding
            self._count("b:" + binding.uid, fingerprint(binding))
        if accounts is not None:
            known = self._known_accounts()
            for account in accounts:
                known[account.key] = account
                self._count("a:" + account.key, fingerprint(account))

    def made(self, revision: Revision) -> Snapshot:
        """The snapshot, as of `revision`. The draft must not be used again."""
        policy, accounts = self._before.policy, self._before.accounts
        if self._accounts is not None:
            accounts = self._accounts
        if self._rebound:
            policy = Policy.compile(
                self._bindings.values(), anonymous_list=policy.anonymous_list, accounts=_uids(accounts)
            )
        elif self._accounts is not None:
            policy = replace(policy, accounts=_uids(accounts))  # they come and go more often than bindings
        index, servers, parts = self._index.made(), self._before.servers, self._before.parts
        if self._servers is not None:
            servers = self._servers
            parts = {part.tool_id: part for server in servers.values() for part in server.parts}
        return Snapshot(
            revision=revision,
            tools=self._tools,
            servers=servers,
            parts=parts,
            bindings=self._bindings,
            policy=policy,
            by_scope=index.by_scope,
            by_name=index.by_name,
            namespaces=index.namespaces,
            active_tools=index.active_tools,
            trials=self._trials,
            total=self._total % HASH_MODULUS,
            prints=self._prints,
            accounts=accounts,
        )

    def _known_accounts(self) -> dict[str, PublishedAccount]:
        if self._accounts is None:
            self._accounts = dict(self._before.accounts or {})
        return self._accounts

    def _known_servers(self) -> dict[str, PublishedServer]:
        if self._servers is None:
            self._servers = dict(self._before.servers)
        return self._servers

    def _count(self, key: str, value: int) -> None:
        self._total += value - self._prints.get(key, 0)
        self._prints[key] = value


def _uids(accounts: Mapping[str, PublishedAccount] | None) -> dict[tuple[str, str], str] | None:
    return None if accounts is None else {(a.namespace, a.name): a.uid for a in accounts.values()}


class _Index:
    """The lookup tables while they are being changed; what is not touched is shared with those before."""

    def __init__(self, before: Snapshot) -> None:
        self._before = before
        self._scopes: _Table[tuple[str, str]] = _Table(before.by_scope)
        self._names: _Table[str] = _Table(before.by_name)
        self._active = before.active_tools

    def put(self, old: PublishedTool | None, new: PublishedTool) -> None:
        """`new` is there, in the place of `old`."""
        if old is not None and _places(old) == _places(new):
            self._active += new.active - old.active
            return
        if old is not None:
            self.remove(old)
        for scope in new.scopes:
            self._scopes.open((new.namespace, scope)).add(new.tool_id)
        self._names.open(new.name.lower()).add(new.tool_id)
        self._active += new.active

    def remove(self, tool: PublishedTool) -> None:
        """It is gone."""
        for scope in tool.scopes:
            self._scopes.open((tool.namespace, scope)).discard(tool.tool_id)
        self._names.open(tool.name.lower()).discard(tool.tool_id)
        self._active -= tool.active

    def made(self) -> _Tables:
        """The tables. Nothing must be put or removed afterwards."""
        by_scope = self._scopes.made()
        same = by_scope is self._before.by_scope
        namespaces = self._before.namespaces if same else frozenset(ns for ns, _ in by_scope)
        return _Tables(by_scope, self._names.made(), namespaces, self._active)


class _Tables(NamedTuple):
    """The lookup tables of a snapshot."""

    by_scope: Mapping[tuple[str, str], frozenset[str]]
    by_name: Mapping[str, frozenset[str]]
    namespaces: frozenset[str]
    active_tools: int


def _places(tool: PublishedTool) -> tuple[str, str, frozenset[str]]:
    """Where the lookup tables have it."""
    return tool.namespace, tool.name.lower(), frozenset(tool.scopes)


_Key = TypeVar("_Key")


class _Table(Generic[_Key]):
    """Sets by key, of which a few are changed."""

    def __init__(self, before: Mapping[_Key, frozenset[str]]) -> None:
        self._before = before
        self._open: dict[_Key, set[str]] = {}

    def open(self, key: _Key) -> set[str]:
        """The set of a key, which may be changed."""
        found = self._open.get(key)
        if found is None:
            found = self._open[key] = set(self._before.get(key, ()))
        return found

    def made(self) -> Mapping[_Key, frozenset[str]]:
        """All that are not empty."""
        if not self._open:
            return self._before
        table = dict(self._before)
        for key, changed in self._open.items():
            if changed:
                table[key] = frozenset(changed)
            else:
                table.pop(key, None)
        return table
