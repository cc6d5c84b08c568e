"""Floods become counts: of equal records only so many a minute are written one by one, the rest as one sum.

So neither a crowd of refused requests nor an agent that lists in a loop can push other records out of the log: what
they can write in a minute is bounded, and nothing is lost but the time of each. What has no place of its own is summed
by caller, action and reason; only where the callers are too many for that, by action and reason.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

Record = dict[str, Any]
Key = tuple[object, ...]
_GENERAL = ("ts", "replica", "action", "allowed", "reason")
_OF_CALLER = ("issuer", "subject", "client")
"""What a sum without names still says."""
_OF_ONE = ("who", "after", "token", "charged")
"""What is true of the first one alone: the others were decided at other moments."""


@dataclass(slots=True)
class _Entry:
    record: Record
    """What a sum of them says besides the count."""
    opened: float
    least: int
    written: int = 0
    count: int = 0
    since: float = 0.0
    until: float = 0.0


class Folding:
    """A bounded table of what repeats. Any thread may use it.

    Args:
        interval: seconds that one sum covers.
        keys: how many different ones are told apart at one time.
        each: how many of them one caller may have; where repeats are folded, an eighth of it once half of the places
                are taken.
        sums: how many callers' sums there are at one time, by action and reason.
        fold: what finds no place is counted; False: it is written.
    """

    def __init__(
        self,
        *,
        interval: float = 60.0,
        keys: int = 1024,
        each: int = 64,
        sums: int = 2048,
        fold: bool = True,
    ) -> None:
        self._interval, self._fold = interval, fold
        self._lock = threading.Lock()
        self._named = _Table(keys, each, max(1, each // 8) if fold else each)
        self._sums = _Table(sums, 16, 2)
        self._rest: dict[Key, _Entry] = {}

    def admit(self, key: Key, caller: Key, record: Record, now: float, *, least: int = 1) -> bool:
        """Whether a record is to be written by itself; otherwise it has been counted.

        Args:
            key: equal ones repeat each other.
            caller: whose it is.
            record: what is true of all of them; `ts` is the time of this one.
            now: seconds by a clock that never jumps.
            least: how many an interval are written one by one.
        """
        with self._lock:
            entry = self._named.entries.get((caller, key)) or self._place(key, caller, record, now, least)
            if entry is None:
                return True
            if entry.written < entry.least:
                entry.written += 1
                return True
            moment = record["ts"]
            entry.since = moment if entry.count == 0 else min(entry.since, moment)
            entry.until = max(entry.until, moment)
            entry.count += 1
            return False

    def due(self, now: float, *, everything: bool = False) -> list[Record]:
        """Sums of the intervals that are over, each with `repeated: {count, since, until}` in the log's own clock."""
        with self._lock:
            found = []
            for table, forget in (
                (self._named.entries, self._named.forget),
                (self._sums.entries, self._sums.forget),
                (self._rest, self._rest.pop),
            ):
                for key, entry in list(table.items()):
                    if not everything and now - entry.opened < self._interval:
                        continue
                    if entry.count:
                        found.append(_sum(entry))
                        entry.opened, entry.count, entry.until = now, 0, 0.0
                        entry.written = entry.least if entry.least == 1 else 0
                    else:
                        forget(key)
            return found

    def _place(self, key: Key, caller: Key, record: Record, now: float, least: int) -> _Entry | None:
        if self._named.has_room(caller):
            return self._named.add(caller, key, _Entry(dict(record), now, least))
        if not self._fold:
            return None
        kind: Key = (record.get("action"), record.get("allowed"), record.get("reason"))
        general = {k: record.get(k) for k in (*_GENERAL, *_OF_CALLER) if k in record} | {"tool": None}
        if (entry := self._sums.entries.get((caller, kind))) is not None:
            return entry
        if self._sums.has_room(caller):
            return self._sums.add(caller, kind, _Entry(general, now, 0))
        nobody = {k: v for k, v in general.items() if k not in _OF_CALLER}
        return self._rest.setdefault(kind, _Entry(nobody, now, 0))


class _Table:
    """Entries by caller and key.

    Args:
        places: how many there are.
        each: how many of them one caller may have.
        crowded: the same once half of them are taken, so that a few callers cannot take all of them.
    """

    def __init__(self, places: int, each: int, crowded: int) -> None:
        self.entries: dict[Key, _Entry] = {}
        self._places, self._each, self._crowded = places, each, crowded
        self._callers: dict[Key, int] = {}

    def has_room(self, caller: Key) -> bool:
        """Whether the caller may have one more."""
        taken = len(self.entries)
        share = self._each if taken < self._places // 2 else self._crowded
        return taken < self._places and self._callers.get(caller, 0) < share

    def add(self, caller: Key, key: Key, entry: _Entry) -> _Entry:
        """Keep it."""
        self._callers[caller] = self._callers.get(caller, 0) + 1
        self.entries[caller, key] = entry
        return entry

    def forget(self, place: Key) -> None:
        """Let it go."""
        del self.entries[place]
        caller = place[0]
        assert isinstance(caller, tuple)
        self._callers[caller] -= 1
        if not self._callers[caller]:
            del self._callers[caller]


def _sum(entry: _Entry) -> Record:
    repeated = {"count": entry.count, "since": entry.since, "until": entry.until}
    told = {k: v for k, v in entry.record.items() if k not in _OF_ONE}
    return {**told, "ts": entry.until, "repeated": repeated}
