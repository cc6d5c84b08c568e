"""Smaller bindings that allow every call of a log: which of their entries none needed. Pure; nothing is applied.

Entries are given up one after the other for as long as every call stays allowed, so what is left is minimal: to give up
one more would refuse a call. Where two bindings allow the same call, one without an end and limits keeps it, else the
narrower.

Kept on purpose: whatever denies, dates, limits, the registry's own powers, and what is younger than the log's period.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from toolcrib.audit.uses import Need, Question, Uses, Way, has_wildcard, names_of, servers_of
from toolcrib.authorizer import Action, Policy, decide, granting
from toolcrib.authorizer.bindings import CompiledBinding
from toolcrib.names import is_reserved_scope
from toolcrib.snapshot import Snapshot
from toolcrib.wire.publish import PublishedBinding, PublishedSubject, PublishedTool

MOST_NAMES = 64
"""Entries of `tools.allow`, the schema's bound."""
FIELDS = ("subjects", "scopes", "servers", "allow")
YOUNGER = "younger than the log's period"
DENIES = "the binding denies, and its denials hold for its subjects"
POWER = "a power of the registry, which no call of a tool shows"


class Entry(NamedTuple):
    """One entry of a binding's lists: of `subjects` by its place, else by its text."""

    uid: str
    field: str
    key: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the log says of an entry.

    Attributes:
        entry: which.
        text: for people.
        times, last: how many calls it allowed, alone or among others, and when last.
        kept: why it stays whether or not a call needs it; empty: calls need it, or it goes.
    """

    entry: Entry
    text: str
    times: int
    last: str
    kept: str = ""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A smaller binding.

    Attributes:
        binding: as it is.
        narrowed: as it would be; None: no call needs it and it denies nothing, so all of it can go.
        gone, left: its entries. Of names used by a wildcard `left` has what it would be replaced by.
    """

    binding: PublishedBinding
    narrowed: PublishedBinding | None
    gone: tuple[Evidence, ...]
    left: tuple[Evidence, ...]


def unchanged(starts: Iterable[Snapshot], end: Snapshot) -> frozenset[str]:
    """UIDs of bindings that are at the end what they were at each start."""
    found = set(end.bindings)
    for start in starts:
        found = {uid for uid in found if _same(start.bindings.get(uid), end.bindings[uid])}
    return frozenset(found)


def _same(before: PublishedBinding | None, after: PublishedBinding) -> bool:
    # which namespaces labels select may change without the binding
    return before is not None and before.model_copy(update={"namespaces": after.namespaces}) == after


def suggest(
    uses: Uses, starts: Iterable[Snapshot], end: Snapshot, only: Iterable[str] | None = None
) -> tuple[Suggestion, ...]:
    """What bindings could be without refusing any of the calls, most entries gone first.

    Args:
        uses: of the whole period.
        starts: what was in effect when it began, by replica.
        end: what is in effect now.
        only: UIDs of bindings to look at; None: all that stayed unchanged for the whole period.
    """
    begun = tuple(starts)
    same = unchanged(begun, end)
    may = same if only is None else same & frozenset(only)
    young = _young(begun, end)
    makers = {uid: _Narrowing(b, young, begun, end) for uid in sorted(may) if (b := end.bindings[uid]).scopes}
    needs = [need for need in uses.needs if any(way.uid in makers for way in need.ways)]
    for need in needs:
        for way in need.ways:
            if way.uid in makers:
                makers[way.uid].used(way, need)
    dropped = _dropped(makers, needs, same)
    found = [made for maker in makers.values() if (made := maker.made(dropped)) is not None]
    return tuple(sorted(found, key=lambda s: (s.narrowed is not None, -len(s.gone), s.binding.ref)))


class _Narrowing:
    """One binding's entries, with what is known of each."""

    def __init__(
        self,
        binding: PublishedBinding,
        young: Iterable[PublishedTool],
        starts: tuple[Snapshot, ...],
        end: Snapshot,
    ) -> None:
        self.binding, self._compiled = binding, CompiledBinding.of(binding)
        self.counts: dict[Entry, int] = {}
        self.lasts: dict[Entry, str] = {}
        self.kept: dict[Entry, str] = {}
        for field, keys in self._listed().items():
            for key in keys:
                self.counts[Entry(binding.uid, field, key)] = 0
        self._keep(young, starts, end)

    def _listed(self) -> dict[str, list[str]]:
        b = self.binding
        return {
            "subjects": [str(i) for i in range(len(b.subjects))],
            "scopes": list(b.scopes),
            "servers": list(b.servers or ()),
            "allow": [text for text in b.allow or () if not has_wildcard(text)],
        }

    def _keep(self, young: Iterable[PublishedTool], starts: tuple[Snapshot, ...], end: Snapshot) -> None:
        b, uid = self.binding, self.binding.uid
        powers = [scope for scope in b.scopes if is_reserved_scope(scope)]
        self.kept |= {Entry(uid, "scopes", scope): POWER for scope in powers}
        for i, subject in enumerate(b.subjects):
            why = (
                DENIES if b.denies else POWER if powers else YOUNGER if _is_new(subject, starts, end) else ""
            )
            if why:
                self.kept[Entry(uid, "subjects", str(i))] = why
        for tool in young:
            given = self._compiled.scopes.intersection(tool.scopes)
            if given and self._compiled.in_namespaces(tool) and self._compiled.in_servers(tool):
                if not self._compiled.allows(tool):
                    continue
                entries = [("scopes", s) for s in given]
                entries += [("servers", s) for s in servers_of(self._compiled, tool) or ()]
                entries += [("allow", name) for name in names_of(self._compiled, tool) or ()]
                for field, key in entries:
                    self.kept.setdefault(Entry(uid, field, key), YOUNGER)
        for entry in self.kept:
            self.counts.setdefault(entry, 0)

    def used(self, way: Way, need: Need) -> None:
        """Calls needed one of these entries."""
        for entry in _entries(way):
            self.counts[entry] = self.counts.get(entry, 0) + need.times
            self.lasts[entry] = max(self.lasts.get(entry, ""), need.last)

    def made(self, dropped: frozenset[Entry]) -> Suggestion | None:
        """The binding without them; None: it stays as it is."""
        b = self.binding
        left = {field: [e for e in self.counts if e.field == field and e not in dropped] for field in FIELDS}
        names = [e.key for e in left["allow"]]
        wild = [text for text in b.allow or () if has_wildcard(text)]
        if b.allow is not None and len(names) > MOST_NAMES:
            names, wild = list(b.allow), []
        nobody = not left["subjects"] or not left["scopes"]
        nothing = (
            nobody or (b.servers is not None and not left["servers"]) or (b.allow is not None and not names)
        )
        if nothing and not b.denies:
            return Suggestion(b, None, self._told(self.counts), ())
        fields: dict[str, object] = {
            "subjects": tuple(b.subjects[int(e.key)] for e in left["subjects"]),
            "scopes": tuple(s for s in b.scopes if Entry(b.uid, "scopes", s) not in dropped),
        }
        if b.servers is not None:
            fields["servers"] = tuple(s for s in b.servers if Entry(b.uid, "servers", s) not in dropped)
        if b.allow is not None and (wild or len(names) < len(b.allow)):
            fields["allow"] = tuple(names)
        if nothing:  # it only denies from now on
            fields |= {"scopes": (), "servers": None, "allow": None}
        narrowed = b.model_copy(update=fields)
        if narrowed == b:
            return None
        gone = [e for e in self.counts if e in dropped]
        told = [*self._told(gone), *(Evidence(Entry(b.uid, "allow", text), text, 0, "") for text in wild)]
        return Suggestion(b, narrowed, tuple(told), self._told(e for e in self.counts if e not in dropped))

    def _told(self, entries: Iterable[Entry]) -> tuple[Evidence, ...]:
        return tuple(
            Evidence(
                entry,
                named(self.binding.subjects[int(entry.key)]) if entry.field == "subjects" else entry.key,
                self.counts[entry],
                self.lasts.get(entry, ""),
                self.kept.get(entry, ""),
            )
            for entry in sorted(entries, key=lambda e: (FIELDS.index(e.field), _place(e)))
        )


def _place(entry: Entry) -> tuple[int, str]:
    return (int(entry.key), "") if entry.field == "subjects" else (0, entry.key)


def _dropped(makers: Mapping[str, _Narrowing], needs: list[Need], same: frozenset[str]) -> frozenset[Entry]:
    """Entries that can go together: each is tried once, in the order of `_width`."""
    by_entry: defaultdict[Entry, list[Need]] = defaultdict(list)
    for need in needs:
        for way in need.ways:
            if way.uid in makers:
                for entry in _entries(way):
                    by_entry[entry].append(need)
    candidates = [e for maker in makers.values() for e in maker.counts if e not in maker.kept]
    widths = {uid: _width(maker.binding) for uid, maker in makers.items()}
    candidates.sort(
        key=lambda e: (widths[e.uid], e.uid, makers[e.uid].counts[e], FIELDS.index(e.field), _place(e))
    )
    gone: set[Entry] = set()
    for entry in candidates:
        gone.add(entry)
        if not all(_allowed(need, gone, same) for need in by_entry.get(entry, ())):
            gone.discard(entry)
    return frozenset(gone)


def _width(b: PublishedBinding) -> tuple[bool, bool, bool, int]:
    """What gives up first: what ends or has limits, then the widest: of the cluster, without names, by subjects and scopes."""
    lasts = b.expires_at is None and b.limits is None
    open_ended = b.allow is None or any(map(has_wildcard, b.allow))
    return lasts, b.namespace is not None, not open_ended, -len(b.subjects) * len(b.scopes)


def _allowed(need: Need, gone: set[Entry], same: frozenset[str]) -> bool:
    """Whether bindings that stayed the same would still allow the calls, if they did."""
    together: set[str] = set()
    there = False
    for way in need.ways:
        if way.uid not in same:
            continue
        there = True
        scopes = {s for s in way.scopes if Entry(way.uid, "scopes", s) not in gone}
        if not scopes or not all(_one_left(way, field, gone) for field in ("subjects", "servers", "allow")):
            continue
        if need.all_of is None:
            return True
        together |= scopes
    if not there:
        return True  # only bindings that are others now allowed them: nothing depends on what is given up
    return need.all_of is not None and together >= need.all_of


def _one_left(way: Way, field: str, gone: set[Entry]) -> bool:
    keys = _keys(way, field)
    return keys is None or any(Entry(way.uid, field, key) not in gone for key in keys)


def _keys(way: Way, field: str) -> Iterable[str] | None:
    if field == "subjects":
        return [str(i) for i in way.subjects]
    return way.servers if field == "servers" else way.names


def _entries(way: Way) -> list[Entry]:
    found = [Entry(way.uid, "scopes", scope) for scope in way.scopes]
    for field in ("subjects", "servers", "allow"):
        found += [Entry(way.uid, field, key) for key in _keys(way, field) or ()]
    return found


def _young(starts: tuple[Snapshot, ...], end: Snapshot) -> tuple[PublishedTool, ...]:
    """Tools that were not there at the start, or had another name or other scopes."""

    def same(tool: PublishedTool, start: Snapshot) -> bool:
        before = start.tools.get(tool.tool_id)
        return before is not None and (before.scopes, before.name, before.server) == (
            tool.scopes,
            tool.name,
            tool.server,
        )

    return tuple(t for t in end.tools.values() if not all(same(t, start) for start in starts))


def _is_new(subject: PublishedSubject, starts: tuple[Snapshot, ...], end: Snapshot) -> bool:
    """Whether it is a ServiceAccount that was not there at the start, or another one of that name."""
    if subject.issuer is not None or end.accounts is None:
        return False
    key = f"{subject.namespace}/{subject.name}"
    now = end.accounts.get(key)
    return now is not None and any((s.accounts or {}).get(key) != now for s in starts)


def named(subject: PublishedSubject) -> str:
    """`ServiceAccount/namespace/name`, `OAuthClient/id`, as the command line names subjects."""
    name = subject.client_id or subject.name or ""
    return "/".join(filter(None, (subject.kind.value, subject.namespace, name)))


def otherwise(suggestions: Iterable[Suggestion], questions: Iterable[Question]) -> list[Question]:
    """The questions that the authorizer decides otherwise with these suggestions: none, if they are right."""
    by_uid = {s.binding.uid: s for s in suggestions}
    policies: dict[tuple[int, ...], Policy] = {}
    found = []
    for q in questions:
        key = tuple(map(id, q.bindings))
        if key not in policies:
            policies[key] = Policy.compile(
                after for b in q.bindings if (after := _after(b, by_uid)) is not None
            )
        if _differs(q, policies[key]):
            found.append(q)
    return found


def _differs(q: Question, policy: Policy) -> bool:
    if decide(q.identity, q.tool, Action.CALL, policy, q.now).allowed == q.decided:
        return False
    # who was refused for what no binding says, such as an account that is gone, is not refused by bindings alone
    return q.decided or not decide(q.identity, q.tool, Action.CALL, Policy.compile(q.bindings), q.now).allowed


def _after(b: PublishedBinding, by_uid: Mapping[str, Suggestion]) -> PublishedBinding | None:
    s = by_uid.get(b.uid)
    if s is None or b.generation != s.binding.generation:
        return b
    return None if s.narrowed is None else s.narrowed.model_copy(update={"namespaces": b.namespaces})


def operations(suggestion: Suggestion) -> list[tuple[dict[str, object], Evidence | None]]:
    """What makes the binding so, as operations of a JSON Patch (RFC 6902), each with the entry that it removes.

    Each removal tests first that the entry is still what it was. Nothing for a binding that can go as a whole.
    """
    b, narrowed = suggestion.binding, suggestion.narrowed
    if narrowed is None:
        return []
    of = {(e.entry.field, e.entry.key): e for e in suggestion.gone}
    found: list[tuple[dict[str, object], Evidence | None]] = []
    for i in reversed(range(len(b.subjects))):
        if (evidence := of.get(("subjects", str(i)))) is not None:
            member = "clientId" if b.subjects[i].client_id else "name"
            value = b.subjects[i].client_id or b.subjects[i].name
            found.append(({"op": "test", "path": f"/spec/subjects/{i}/{member}", "value": value}, None))
            found.append(({"op": "remove", "path": f"/spec/subjects/{i}"}, evidence))
    for field, listed, left in (
        ("scopes", b.scopes, narrowed.scopes or None),
        ("servers", b.servers, narrowed.servers),
    ):
        if listed is None or listed == left:
            continue
        if left is None:
            found.append(({"op": "remove", "path": f"/spec/{field}"}, None))
            continue
        for i in reversed(range(len(listed))):
            if (evidence := of.get((field, listed[i]))) is not None:
                found.append(({"op": "test", "path": f"/spec/{field}/{i}", "value": listed[i]}, None))
                found.append(({"op": "remove", "path": f"/spec/{field}/{i}"}, evidence))
    if b.allow is not None and b.allow != narrowed.allow:
        found.append(({"op": "test", "path": "/spec/tools/allow", "value": list(b.allow)}, None))
        if narrowed.allow is None:
            found.append(({"op": "remove", "path": "/spec/tools/allow"}, None))
        else:
            whole: dict[str, object] = {
                "op": "replace",
                "path": "/spec/tools/allow",
                "value": list(narrowed.allow),
            }
            found.append((whole, next((e for e in suggestion.gone if e.entry.field == "allow"), None)))
    return found


def idle(uses: Uses, end: Snapshot) -> list[tuple[str, int]]:
    """Active tools that several subjects are granted and nobody called, with how many subjects, most first."""
    called = {need.tool for need in uses.needs}
    subjects: defaultdict[str, set[PublishedSubject]] = defaultdict(set)
    for binding in end.bindings.values():
        grants, listed = granting(binding), end.namespaces
        for namespace in listed if binding.namespaces is None else binding.namespaces:
            for scope in binding.scopes:
                for tool_id in end.by_scope.get((namespace, scope), ()):
                    tool = end.tools[tool_id]
                    if tool_id not in called and tool.active and grants(tool):
                        subjects[tool_id].update(binding.subjects)
    found = [(tool_id, len(several)) for tool_id, several in subjects.items() if len(several) > 1]
    return sorted(found, key=lambda each: (-each[1], each[0]))
