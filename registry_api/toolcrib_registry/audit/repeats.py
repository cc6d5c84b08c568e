"""Floods become counts: of equal records only so many a minute are written one by one, the rest as one sum.

So neither a crowd of refused requests nor an agent that lists in a loop can push other records out of the log: what
they can write in a minute is bounded, and nothing is lost but the time of each.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

Record = dict[str, Any]
Key = tuple[object, ...]


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


class Repeats:
    """A bounded table of what repeats. Any thread may use it.

    Args:
        interval: seconds that one sum covers.
        keys: how many different ones are told apart at one time.
        each: how many of them one caller may have.
        fold: what finds no place is counted with others of its action and reason; False: it is written.
    """

    def __init__(
        self, *, interval: float = 60.0, keys: int = 1024, each: int = 64, fold: bool = True
    ) -> None:
        self._interval, self._keys, self._each, self._fold = interval, keys, each, fold
        self._lock = threading.Lock()
        self._table: dict[Key, _Entry] = {}
        self._callers: dict[Key, int] = {}
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
            entry = self._table.get((caller, key)) or self._place(key, caller, record, now, least)
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
            for table in (self._table, self._rest):
                for key, entry in list(table.items()):
                    if not everything and now - entry.opened < self._interval:
                        continue
                    if entry.count:
                        found.append(_sum(entry))
                        entry.opened, entry.count, entry.until = now, 0, 0.0
                        entry.written = entry.least if entry.least == 1 else 0
                    else:
                        self._forget(table, key)
            return found

    def _place(self, key: Key, caller: Key, record: Record, now: float, least: int) -> _Entry | None:
        mine = self._callers.get(caller, 0)
        if len(self._table) < self._keys and mine < self._each:
            self._callers[caller] = mine + 1
            made = self._table[caller, key] = _Entry(dict(record), now, least)
            return made
        if not self._fold:
            return None
        # one caller's surplus stays its own where the table has room, else it is nobody's
        own = mine >= self._each and mine < self._each + 8 and len(self._table) < self._keys + self._keys // 8
        general = {k: record.get(k) for k in ("ts", "replica", "action", "allowed", "reason")} | {
            "tool": None
        }
        if own:
            general |= {k: record.get(k) for k in ("issuer", "subject", "client")}
            place: Key = (caller, ("rest", record.get("action"), record.get("reason")))
            table = self._table
        else:
            place, table = ("rest", record.get("action"), record.get("reason")), self._rest
        entry = table.get(place)
        if entry is None:
            if own:
                self._callers[caller] = mine + 1
            entry = table[place] = _Entry(general, now, 0)
        return entry

    def _forget(self, table: dict[Key, _Entry], key: Key) -> None:
        del table[key]
        if table is self._table:
            caller = key[0]
            assert isinstance(caller, tuple)
            left = self._callers[caller] - 1
            if left:
                self._callers[caller] = left
            else:
                del self._callers[caller]


def _sum(entry: _Entry) -> Record:
    repeated = {"count": entry.count, "since": entry.since, "until": entry.until}
    return {**entry.record, "ts": entry.until, "repeated": repeated}
