"""The policy as the records of one replica's log state it, revision by revision: what `policy_records` wrote, read back."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

from toolcrib import names
from toolcrib.audit import policy_records as told
from toolcrib.authorizer import Policy
from toolcrib.resources.tools import ScopeMatch, ToolState
from toolcrib.snapshot import Draft, Snapshot
from toolcrib.wire.publish import (
    Candidate,
    PublishedAccount,
    PublishedBinding,
    PublishedServer,
    PublishedTool,
    Removed,
    Revision,
)

KEPT = 32
"""Revisions that are kept: calls are recorded when they end, by the revision that let them in."""


class StatedPolicy:
    """Takes `policy.*` records in their order and gives the snapshot of a revision.

    Attributes:
        decider: the version of what decided, as the latest start says; None: nothing is stated.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Something is missing: nothing is known until the next start."""
        self.decider: int | None = None
        self._snapshots: OrderedDict[str, Snapshot] = OrderedDict()
        self._latest: Snapshot | None = None
        self._awaited = 0
        self._pending: list[Mapping[str, Any]] = []
        self._bindings: dict[str, PublishedBinding] = {}
        self._selected: dict[str, set[str]] = {}

    def take(self, record: Mapping[str, Any]) -> None:
        """A `policy.*` record.

        Raises:
            KeyError, TypeError, ValueError: it is not as this version writes them.
        """
        if record["action"] == told.START:
            self._begin(record)
            return
        if self._latest is None:
            return  # what it changes is not known
        if self._pending and self._pending[-1]["revision"] != record["revision"]:
            self._settle()
        self._pending.append(record)
        if self._awaited:
            self._awaited -= 1

    def at(self, revision: str) -> Snapshot | None:
        """What was in effect at `revision`; None: not stated, or too long ago."""
        self._settle()
        return self._snapshots.get(revision)

    @property
    def stated(self) -> bool:
        """Whether a whole policy is known."""
        return self._latest is not None and not self._awaited

    @property
    def latest(self) -> Snapshot | None:
        """What is in effect after all records so far; None: not stated."""
        self._settle()
        return self._latest if self.stated else None

    def _begin(self, record: Mapping[str, Any]) -> None:
        self._settle()
        before = self._snapshots
        self.forget()
        self.decider = int(record["decider"])
        self._snapshots = before  # calls that began before this are yet to be recorded
        self._latest = Snapshot(
            policy=Policy(
                anonymous_list=bool(record["anonymous_list"]), accounts={} if record["accounts"] else None
            ),
            accounts={} if record["accounts"] else None,
        )
        self._awaited = int(record["records"])

    def _settle(self) -> None:
        """Apply the records of one revision, all of them together."""
        if not self._pending or self._latest is None or self._awaited:
            return
        pending, self._pending = self._pending, []
        made = self._applied(self._latest, pending)
        self._latest = made
        revision = str(pending[-1]["revision"])
        self._snapshots[revision] = made
        self._snapshots.move_to_end(revision)
        while len(self._snapshots) > KEPT:
            self._snapshots.popitem(last=False)

    def _applied(self, before: Snapshot, records: list[Mapping[str, Any]]) -> Snapshot:
        gone: dict[str, list[str]] = {told.TOOL: [], told.BINDING: [], told.ACCOUNT: [], told.NAMESPACE: []}
        tools: list[PublishedTool] = []
        accounts: list[PublishedAccount] = []
        changed: set[str] = set()
        for record in records:
            action = record["action"]
            if action in gone:
                gone[action] += map(str, record.get("ended", ()))
            if action == told.TOOL:
                tools += [t for group in record.get("groups", ()) for t in _tools(group)]
            elif action == told.ACCOUNT:
                accounts += map(PublishedAccount.model_validate, record.get("accounts", ()))
            elif action == told.NAMESPACE:
                for group in record.get("groups", ()):
                    for namespace in group["namespaces"]:
                        changed |= self._select(str(namespace), set(map(str, group["selected_by"])))
            elif action == told.BINDING:
                for entry in record.get("bindings", ()):
                    binding = _binding(entry)
                    self._bindings[binding.uid] = binding
                    changed.add(binding.uid)
        for namespace in gone[told.NAMESPACE]:
            changed |= self._select(namespace, set())
        for uid in gone[told.BINDING]:
            self._bindings.pop(uid, None)
        draft, servers = Draft(before), _servers(before, tools, gone[told.TOOL])
        removed = Removed(
            tools=tuple(gone[told.TOOL]),
            servers=tuple(server.server_id for server in servers if not server.parts),
            bindings=tuple(gone[told.BINDING]),
            accounts=tuple(gone[told.ACCOUNT]),
        )
        draft.remove(removed)
        draft.add(
            [tool for tool in tools if not names.is_part(tool.tool_id)],
            [self._whole(u) for u in sorted(changed) if u in self._bindings],
            accounts or None,
            [server for server in servers if server.parts],
        )
        return draft.made(_revision(str(records[-1]["revision"])))

    def _select(self, namespace: str, uids: set[str]) -> set[str]:
        """Only these bindings select the namespace from now on; those for which that is new."""
        before = self._selected.get(namespace, set())
        if uids:
            self._selected[namespace] = uids
        else:
            self._selected.pop(namespace, None)
        return before ^ uids

    def _whole(self, uid: str) -> PublishedBinding:
        binding = self._bindings[uid]
        if not told.selects(binding):
            return binding
        found = tuple(sorted(n for n, uids in self._selected.items() if uid in uids))
        return binding.model_copy(update={"namespaces": found})


def _binding(entry: Mapping[str, Any]) -> PublishedBinding:
    known = {key: value for key, value in entry.items() if key in told.BINDING_FIELDS}
    return PublishedBinding.model_validate({"namespaces": ()} | known if entry.get("selects") else known)


def _tools(group: Mapping[str, Any]) -> list[PublishedTool]:
    return [
        _with_candidate(tool, entry["candidate"]) if "candidate" in entry else tool
        for entry, tool in zip(group["tools"], _alone(group), strict=True)
    ]


def _with_candidate(tool: PublishedTool, entry: Mapping[str, Any]) -> PublishedTool:
    made = {"digest": entry["digest"], "route_digest": entry["route_digest"], "trial": entry["canary"]}
    trial = Candidate.model_validate({**entry, "tool": tool.model_copy(update=made)})
    return tool.model_copy(update={"candidate": trial})


def _alone(group: Mapping[str, Any]) -> list[PublishedTool]:
    return [
        PublishedTool(
            tool_id=entry["tool"],
            uid=entry["uid"],
            generation=entry["generation"],
            namespace=group["namespace"],
            name=entry.get("name", names.named_by(entry["tool"])),
            server=group["server"],
            scopes=tuple(group["scopes"]),
            scope_match=ScopeMatch(group["match"]),
            state=ToolState(group["state"]),
            replaced_by=entry.get("replaced_by"),
            message=entry.get("message"),
            digest=entry["digest"],
            route_digest=entry["route_digest"],
            quarantined=entry.get("quarantined", False),
        )
        for entry in group["tools"]
    ]


def _servers(before: Snapshot, tools: Iterable[PublishedTool], gone: Iterable[str]) -> list[PublishedServer]:
    """The servers whose resources or prompts are others now; without parts where none are left."""
    of: dict[str, dict[str, PublishedTool]] = {}

    def parts(part_id: str) -> dict[str, PublishedTool]:
        server_id = names.server_of_part(part_id)
        if server_id not in of:
            known = before.servers.get(server_id)
            of[server_id] = {} if known is None else {part.tool_id: part for part in known.parts}
        return of[server_id]

    for part_id in filter(names.is_part, gone):
        parts(part_id).pop(part_id, None)
    for part in tools:
        if names.is_part(part.tool_id):
            parts(part.tool_id)[part.tool_id] = part
    return [PublishedServer(server_id=key, parts=tuple(found.values())) for key, found in of.items()]


def _revision(text: str) -> Revision:
    epoch, _, seq = text.partition(".")
    return Revision(epoch=int(epoch), seq=int(seq))
