"""What the decision log holds of the policy: all that decides, at the start of a file, and then each change.

`start` states a whole snapshot, `changes` what leads from one to the next. Each record names the revision at which what
it holds took effect, or what stands in `ended` ended. No descriptions, schemas, addresses, credentials or limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from toolcrib import names
from toolcrib.audit import chain as audit_chain
from toolcrib.authorizer import DECIDER_VERSION
from toolcrib.identity import Issuer
from toolcrib.snapshot import Snapshot
from toolcrib.view import message_mark
from toolcrib.wire.publish import PublishedAccount, PublishedBinding, PublishedTool

Record = tuple[str, dict[str, Any]]
"""The action of a record and its other members."""

START, ISSUERS, REVISION = "policy.start", "policy.issuers", "policy.revision"
TOOL, BINDING, NAMESPACE, ACCOUNT = "policy.tool", "policy.binding", "policy.namespace", "policy.account"

LONGEST_NAME = 128
"""Characters of a name that means no tool, in a record; a longer one is cut, and not decided again."""
NOT_REPLAYED = ("limits", "backends")
"""What outcomes depend on besides, and a replay does not decide: counts of limits, and the state of backends."""
BYTES = 62 * 1024
"""What one record holds; with the chain's members it has 64 KiB at most, unless one object alone takes more."""
BINDING_FIELDS = frozenset({
    "uid", "generation", "kind", "namespace", "name", "subjects", "namespaces", "lists_namespaces", "scopes", "allow",
    "deny", "deny_scopes", "servers", "not_before", "expires_at", "suspends",
})  # fmt: skip
"""What is recorded of a binding: all that decides. `limits` are not replayed."""


def start(snapshot: Snapshot, issuers: Iterable[Issuer]) -> list[Record]:
    """The whole policy of a snapshot, after what says how many records follow."""
    revision = str(snapshot.revision or "")
    told: list[Record] = [(ISSUERS, {"revision": revision, "issuers": [_issuer(i) for i in issuers]})]
    told += _differences(Snapshot(), snapshot, revision)
    said = {
        "revision": revision,
        "decider": DECIDER_VERSION,
        "records": len(told),
        "not_replayed": list(NOT_REPLAYED),
        "anonymous_list": snapshot.policy.anonymous_list,
        "accounts": snapshot.accounts is not None,
    }
    return [(START, said), *told]


def changes(before: Snapshot, after: Snapshot) -> list[Record] | None:
    """What decides otherwise in `after`, or that nothing does; None: state all of it."""
    if (before.accounts is None) != (after.accounts is None):
        return None
    revision = str(after.revision or "")
    return _differences(before, after, revision) or [(REVISION, {"revision": revision})]


def selects(binding: PublishedBinding) -> bool:
    """Whether labels of namespaces, not a list, say which namespaces a binding reaches."""
    return binding.namespace is None and binding.namespaces is not None and not binding.lists_namespaces


def _differences(before: Snapshot, after: Snapshot, revision: str) -> list[Record]:
    found: list[Record] = []
    bindings = _changed(before.bindings, after.bindings, _binding)
    for action, key, entries, ended in (
        (NAMESPACE, "groups", *_namespaces(before, after)),
        (ACCOUNT, "accounts", *_changed(before.accounts or {}, after.accounts or {}, _account)),
        (BINDING, "bindings", *bindings),
    ):
        found += [(action, {"revision": revision, key: part}) for part in _parts(entries)]
        found += [(action, {"revision": revision, "ended": part}) for part in _parts(ended)]
    tools, gone = _changed(before.tools, after.tools, _tool)
    parts, left = _changed(before.parts, after.parts, _tool)
    tools, gone = tools + parts, gone + left
    found += [(TOOL, {"revision": revision, "groups": part}) for part in _grouped(tools)]
    return found + [(TOOL, {"revision": revision, "ended": part}) for part in _parts(gone)]


def _changed(before: Mapping[str, Any], after: Mapping[str, Any], told: Any) -> tuple[list[Any], list[str]]:
    """What is told of the items that are new or decide otherwise, and the keys of those that are gone."""
    found = []
    for key, item in after.items():
        old = before.get(key)
        if old is item:
            continue
        entry = told(item)
        if old is None or told(old) != entry:
            found.append(entry)
    return found, [key for key in before if key not in after]


def _issuer(issuer: Issuer) -> dict[str, Any]:
    return {"issuer": issuer.issuer, "scopes": issuer.scopes.value, "cluster": issuer.cluster}


def _account(account: PublishedAccount) -> dict[str, Any]:
    return {"namespace": account.namespace, "name": account.name, "uid": account.uid}


def _binding(binding: PublishedBinding) -> dict[str, Any]:
    """Without the namespaces that its selector finds: those have records of their own."""
    entry = binding.model_dump(mode="json", include=set(BINDING_FIELDS), exclude_defaults=True)
    if selects(binding):
        del entry["namespaces"]
        entry["selects"] = True
    return entry


def _tool(tool: PublishedTool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What tools have in common, and what is a tool's own."""
    own: dict[str, Any] = {"tool": tool.tool_id, "uid": tool.uid, "generation": tool.generation}
    if tool.name != names.named_by(tool.tool_id):
        own["name"] = tool.name
    own |= {"digest": tool.digest, "route_digest": tool.route_digest}
    if tool.replaced_by is not None:
        own["replaced_by"] = tool.replaced_by
    if tool.message is not None:
        own["message"] = message_mark(tool.message)
    if tool.quarantined:
        own["quarantined"] = True
    if (trial := tool.candidate) is not None:
        own["candidate"] = {
            **trial.model_dump(include={"canary", "share", "replacement"}, exclude_none=True),
            "digest": trial.tool.digest,
            "route_digest": trial.tool.route_digest,
        }
    return (tool.namespace, tool.server, tool.scopes, tool.scope_match.value, tool.state.value), own


def _namespaces(before: Snapshot, after: Snapshot) -> tuple[list[dict[str, Any]], list[str]]:
    """Which bindings select a namespace by its labels, where that has changed."""
    one, other = ({b.uid: b for b in s.bindings.values() if selects(b)} for s in (before, after))
    if one.keys() == other.keys() and all(one[uid] is other[uid] for uid in one):
        return [], []  # a thousand namespaces of hundreds of bindings are not gone through at each publish
    old, new = _selected(one.values()), _selected(other.values())
    groups: dict[tuple[str, ...], list[str]] = {}
    for namespace, uids in sorted(new.items()):
        if old.get(namespace) != uids:
            groups.setdefault(tuple(sorted(uids)), []).append(namespace)
    found = []
    for by, selected in groups.items():
        for part in _parts(selected, BYTES // 4):
            found.append({"selected_by": list(by), "namespaces": part})
    return found, sorted(old.keys() - new.keys())


def _selected(selecting: Iterable[PublishedBinding]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for binding in selecting:
        for namespace in binding.namespaces or ():
            found.setdefault(namespace, set()).add(binding.uid)
    return found


def _parts(entries: Iterable[Any], most: int = BYTES) -> Iterator[list[Any]]:
    """The entries in lists of at most so many bytes."""
    part: list[Any] = []
    size = 0
    for entry in entries:
        more = _size(entry)
        if part and size + more > most:
            yield part
            part, size = [], 0
        part.append(entry)
        size += more
    if part:
        yield part


def _grouped(tools: Iterable[tuple[tuple[Any, ...], dict[str, Any]]]) -> Iterator[list[dict[str, Any]]]:
    """The tools by what they have in common, in lists of at most `BYTES`."""
    shared: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for common, own in tools:
        shared.setdefault(common, []).append(own)
    part: list[dict[str, Any]] = []
    size = 0
    for (namespace, server, scopes, match, state), several in shared.items():
        head = {
            "namespace": namespace,
            "server": server,
            "scopes": list(scopes),
            "match": match,
            "state": state,
        }
        heading = _size(head) + 12
        held: list[dict[str, Any]] | None = None
        for own in several:
            more = _size(own)
            if part and size + more + (0 if held else heading) > BYTES:
                yield part
                part, size, held = [], 0, None
            if held is None:
                held = []
                part.append({**head, "tools": held})
                size += heading
            held.append(own)
            size += more
    if part:
        yield part


def _size(entry: Any) -> int:
    return len(audit_chain.canonical(entry)) + 1
