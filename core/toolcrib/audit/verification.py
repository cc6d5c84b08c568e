"""Whether decision logs are whole: every line in its place, none altered, nothing missing; with anchors, no end cut.

One `Verification` takes the lines of any number of replicas, each replica's in their order, and says what is wrong:

    check = Verification([key], anchors)
    for file in files: for number, raw in enumerate(lines, 1): check.line(file, number, raw)
    report = check.finish()
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from toolcrib.audit import chain as audit_chain
from toolcrib.audit.anchors import Anchor
from toolcrib.audit.chain import AuditKey, Head, Line, position, replica_of

_SHOWN = 12
"""Hexadecimal digits of a hash in a message."""


class LogFinding(NamedTuple):
    """One thing that is wrong. `where` is `file:line`, or a replica where nothing is left to point at.

    `kind` is one of: malformed, altered, unknown_key, missing, reordered, broken_link, cut_tail, rewritten,
    missing_chain, missing_replica, missing_start.
    """

    where: str
    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class Report:
    """What a verification found. Without findings the log is what was written, as far as the anchors reach."""

    findings: tuple[LogFinding, ...]
    records: int
    replicas: dict[str, Head]
    """Each replica's last line."""
    chains: int
    first: str
    last: str
    """Times of the first and the last record."""
    lost: dict[str, int]
    """What the log itself says it has not: records by reason, from its `audit.gap` lines."""
    interrupted: int
    """Runs that were followed by another without having ended: killed, or the machine stopped."""
    anchors: int
    unanchored: tuple[str, ...]
    """Replicas of which an end may have been cut unseen, since no anchor of that run was given: the last run, or, in a
    stream, an earlier one that did not end by itself."""
    unkeyed: bool


@dataclass(slots=True)
class _Replica:
    """What is known of one replica while its lines go by."""

    last: Line | None = None
    where: str = ""
    opening: tuple[str, Line] | None = None
    """The first line, where something stood before it."""
    retired: list[Head] = field(default_factory=list)
    """Ends of the files that retention has deleted, as the log says."""
    first: dict[str, int] = field(default_factory=dict)
    final: dict[str, int] = field(default_factory=dict)
    """The first and the last number seen of each chain."""
    open: bool = False
    """A run before the last may have been cut unseen: of a stream, not ended, and not anchored."""


class Verification:
    """Checks lines one after the other, in memory that does not grow with their number.

    Args:
        keys: those that the log may be chained with; none: only logs without a key can be verified.
        anchors: heads that were kept elsewhere.
        replicas: only these; None: all.
    """

    def __init__(
        self,
        keys: Iterable[AuditKey] = (),
        anchors: Iterable[Anchor] = (),
        replicas: Iterable[str] | None = None,
    ) -> None:
        self._keys = {audit_chain.UNKEYED: audit_chain.NO_KEY} | {key.kid: key for key in keys}
        self._may_lack_key = len(self._keys) == 1
        self._only = None if replicas is None else set(replicas)
        self._anchors: dict[tuple[str, int], Anchor] = {
            (a.chain, a.seq): a for a in anchors if self._only is None or replica_of(a.chain) in self._only
        }
        self._anchored = len(self._anchors)
        self._anchored_chains = {chain for chain, _ in self._anchors}
        self._states: defaultdict[str, _Replica] = defaultdict(_Replica)
        self._findings: list[LogFinding] = []
        self._records = self._interrupted = 0
        self._lost: Counter[str] = Counter()
        self._times: tuple[str, str] = ("", "")
        self._unkeyed = False

    def line(self, file: str, number: int, raw: bytes) -> None:
        """The next line of a file, without its end."""
        where = f"{file}:{number}"
        line = audit_chain.read_line(raw)
        if line is None:
            self._find(
                where, "malformed", "this line is not a record of a decision log: altered, or never one"
            )
            return
        if self._only is not None and line.replica not in self._only:
            return
        self._records += 1
        genuine = self._closed(where, raw, line)
        state = self._states[line.replica]
        details = _details(raw) if line.action.startswith("audit.") else {}
        self._tied(where, state, line, details)
        if genuine:
            self._note(state, line, details)
        anchor = self._anchors.pop((line.chain, line.seq), None)
        if anchor is not None and anchor.hash != line.hash:
            self._find(
                where,
                "rewritten",
                f"the chain was rewritten: seq {line.seq} of {line.chain} has the hash {line.hash[:_SHOWN]}…, but "
                f"{anchor.hash[:_SHOWN]}… was anchored at {anchor.time}",
            )
        state.first.setdefault(line.chain, line.seq)
        state.final[line.chain] = max(line.seq, state.final.get(line.chain, 0))
        state.last, state.where = line, where
        self._times = (min(self._times[0] or line.ts, line.ts), max(self._times[1], line.ts))

    def torn(self, file: str, number: int, size: int) -> None:
        """A file's last line has no end: it was cut in the middle, or is being written now."""
        self._find(f"{file}:{number}", "malformed", f"the last line is cut after {size} bytes")

    def finish(self) -> Report:
        """Everything that was found, once all lines have been given."""
        for name, state in sorted(self._states.items()):
            self._opening(name, state)
        for chain, anchors in self._left().items():
            self._absent(chain, anchors)
        heads = {n: s.last.head for n, s in sorted(self._states.items()) if s.last is not None}
        return Report(
            findings=tuple(self._findings),
            records=self._records,
            replicas=heads,
            chains=sum(len(s.final) for s in self._states.values()),
            first=self._times[0],
            last=self._times[1],
            lost=dict(self._lost),
            interrupted=self._interrupted,
            anchors=self._anchored,
            unanchored=tuple(
                name
                for name, head in heads.items()
                if head.chain not in self._anchored_chains or self._states[name].open
            ),
            unkeyed=self._unkeyed,
        )

    def _find(self, where: str, kind: str, message: str) -> None:
        self._findings.append(LogFinding(where, kind, message))

    def _closed(self, where: str, raw: bytes, line: Line) -> bool:
        key = self._keys.get(line.kid)
        if key is None or (not key.keyed and not self._may_lack_key):
            given = ", ".join(k for k in self._keys if k != audit_chain.UNKEYED)
            said = "no key" if line.kid == audit_chain.UNKEYED else f"the key {line.kid}"
            why = (
                f"which is not given (given: {given}): the wrong key, or a forgery"
                if given
                else "and none is given"
            )
            message = f"seq {line.seq} is chained with {said}, {why}"
            if not any(f.kind == "unknown_key" and said in f.message for f in self._findings):
                self._find(where, "unknown_key", message)
            return False
        self._unkeyed |= not key.keyed
        if audit_chain.closes(key, raw, line):
            return True
        self._find(
            where,
            "altered",
            f"seq {line.seq} of {line.chain} was altered: its hash is not that of its content",
        )
        return False

    def _tied(self, where: str, state: _Replica, line: Line, details: dict[str, Any]) -> None:
        last = state.last
        if last is None:
            if line.seq != 1 or line.prev != audit_chain.GENESIS:
                state.opening = (where, line)
            return
        if line.chain != last.chain:
            self._next_run(where, state, last, line, details)
        elif line.seq > last.seq + 1:
            gone = f"seq {last.seq + 1}" + (f" to {line.seq - 1}" if line.seq > last.seq + 2 else "")
            self._find(where, "missing", f"{gone} of {line.chain} missing between {state.where} and here")
        elif line.seq <= last.seq:
            self._find(
                where,
                "reordered",
                f"seq {line.seq} of {line.chain} stands after seq {last.seq}: moved or repeated",
            )
        elif line.prev != last.hash:
            self._find(
                where,
                "broken_link",
                f"seq {line.seq} of {line.chain} does not continue the line before ({state.where})",
            )

    def _next_run(self, where: str, state: _Replica, last: Line, line: Line, details: dict[str, Any]) -> None:
        if line.action == audit_chain.BEGIN and line.seq == 1 and line.prev == last.hash:
            self._interrupted += last.action != audit_chain.END
            return
        if (
            line.action == audit_chain.BEGIN
            and line.seq == 1
            and line.prev == audit_chain.GENESIS
            and details.get("stream")
        ):
            # a stream cannot look back: what ended the run before is only known to the anchors, its time to its name
            if line.chain < last.chain or line.chain in state.final:
                self._find(
                    where,
                    "reordered",
                    f"the run {line.chain} stands after {last.chain} ({state.where}): moved or repeated, "
                    "or its machine's clock was set back",
                )
                return
            self._interrupted += last.action != audit_chain.END
            state.open |= last.action != audit_chain.END and last.chain not in self._anchored_chains
            return
        self._find(
            where,
            "missing",
            f"{line.chain} does not continue {last.chain}, whose last line here is seq {last.seq} ({state.where}): "
            "an end was cut off, or a file is missing",
        )

    def _note(self, state: _Replica, line: Line, details: dict[str, Any]) -> None:
        """What the log says of itself."""
        if line.action == audit_chain.GAP:
            lost = details.get("lost")
            for entry in lost if isinstance(lost, list) else ():
                # without a key anybody can write lines that are genuine and say anything
                if isinstance(entry, dict) and isinstance(count := entry.get("count"), int):
                    self._lost[str(entry.get("reason"))] += count
        elif line.action == audit_chain.RETIRED and (head := _head(details.get("last"))) is not None:
            state.retired.append(head)

    def _opening(self, name: str, state: _Replica) -> None:
        if state.opening is None:
            return
        where, line = state.opening
        # a replica that was given another name goes on where the old one ended
        known = [s.last.hash for s in self._states.values() if s.last is not None and s is not state]
        known += [head.hash for head in state.retired]
        if line.prev in known:
            return
        self._find(
            where,
            "missing_start",
            f"what stood before seq {line.seq} of {line.chain} is missing, and no record says that retention deleted it",
        )

    def _left(self) -> dict[str, list[Anchor]]:
        """Anchors that met no line, by chain; those of what retention has deleted do not count."""
        left: defaultdict[str, list[Anchor]] = defaultdict(list)
        for anchor in sorted(self._anchors.values(), key=lambda a: (a.chain, a.seq)):
            state = self._states.get(replica_of(anchor.chain))
            gone = max(map(position, state.retired), default=None) if state is not None else None
            if gone is None or (anchor.chain, anchor.seq) > gone:
                left[anchor.chain].append(anchor)
        return left

    def _absent(self, chain: str, anchors: list[Anchor]) -> None:
        name, last = replica_of(chain), anchors[-1]
        state = self._states.get(name)
        known = f"seq {last.seq} of {chain} was anchored at {last.time}"
        if state is None:
            self._find(name, "missing_replica", f"there is no log of the replica {name}, but {known}")
        elif chain not in state.final:
            self._find(
                name, "missing_chain", f"the whole run {chain} of the replica {name} is missing: {known}"
            )
        elif last.seq > state.final[chain]:
            where = state.where if state.last is not None and state.last.chain == chain else name
            message = (
                f"the end of {chain} was cut off: its last line here is seq {state.final[chain]}, but {known}"
            )
            self._find(where, "cut_tail", message)
        else:
            self._find(name, "missing", f"{known}, and is not here")


def _details(raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _head(found: Any) -> Head | None:
    if not isinstance(found, dict):
        return None
    try:
        return Head(str(found["chain"]), int(found["seq"]), str(found["hash"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def order(firsts: Iterable[tuple[str, bytes | None]]) -> list[str]:
    """Names of files in the order of their content: by replica, run and number of each one's first line.

    A file whose first line cannot be read stands at the end, by name.
    """

    def place(item: tuple[str, bytes | None]) -> tuple[int, str, str, int, str]:
        name, raw = item
        line = audit_chain.read_line(raw) if raw is not None else None
        if line is None:
            return 1, "", "", 0, name
        return 0, line.replica, line.chain, line.seq, name

    return [name for name, _ in sorted(firsts, key=place)]
