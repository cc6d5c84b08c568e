"""Anchors: heads of the replicas' decision logs, kept where the registry cannot write.

Held as one JSON document, `{"v": 1, "chains": {chain: [[seq, time, hash], …]}}`, oldest first. It is bounded: every
anchor of the last hour, then one an hour for 30 days; of each chain the last one stays as long as there is room.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from toolcrib.audit.chain import timestamp
from toolcrib.wire.publish import AuditHead

MOST_BYTES = 900_000
"""A ConfigMap holds a mebibyte at most, its metadata included."""
_ALL, _HOURLY = timedelta(hours=1), timedelta(days=30)
_MOST_SEQ = 10**18
"""Numbers of lines are below: 18 digits at most (`toolcrib.audit.chain`)."""
_CHAIN = re.compile(r"[A-Za-z0-9._@-]{1,400}")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|\+00:00)")
_HASH = re.compile(r"[0-9a-f]{64}")


class AnchorsError(ValueError):
    """A document that holds no anchors."""


class Anchor(NamedTuple):
    """One head as it was seen at a time (RFC 3339, UTC)."""

    chain: str
    seq: int
    time: str
    hash: str


class Regression(NamedTuple):
    """A replica reports less than it did before, or something else in its place: its log was cut or rewritten."""

    chain: str
    known: Anchor
    reported: AuditHead

    def __str__(self) -> str:
        if self.reported.seq == self.known.seq:
            return f"{self.chain}: seq {self.known.seq} has another hash than at {self.known.time}"
        return f"{self.chain}: the end is seq {self.reported.seq}, but was seq {self.known.seq} at {self.known.time}"


def read(text: str) -> list[Anchor]:
    """The anchors of a document; an empty one has none.

    Raises:
        AnchorsError: it is something else, or one of its entries could not have been written here.
    """
    if not text.strip():
        return []
    try:
        found: Any = json.loads(text)
        anchors = [
            Anchor(chain, seq, time, made)
            for chain, entries in found["chains"].items()
            for seq, time, made in entries
        ]
        sound = all(map(_sound, anchors))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise AnchorsError("this file holds no anchors of a decision log") from error
    if not sound:
        raise AnchorsError("this file holds no anchors of a decision log")
    return anchors


def _sound(anchor: Anchor) -> bool:
    """Whether it is of the types and the syntax of what `write` writes; may raise ValueError or TypeError otherwise."""
    chain, seq, time, made = anchor
    if type(seq) is not int or not 1 <= seq < _MOST_SEQ:
        return False
    if not (_CHAIN.fullmatch(chain) and _TIME.fullmatch(time) and _HASH.fullmatch(made)):
        return False
    datetime.fromisoformat(time)
    return True


def write(anchors: Iterable[Anchor]) -> str:
    """The document."""
    chains: dict[str, list[list[object]]] = {}
    for anchor in sorted(anchors, key=lambda a: (a.chain, a.seq)):
        chains.setdefault(anchor.chain, []).append([anchor.seq, anchor.time, anchor.hash])
    return json.dumps({"v": 1, "chains": chains}, separators=(",", ":"))


def added(
    anchors: Iterable[Anchor], heads: Mapping[str, AuditHead], now: float
) -> tuple[list[Anchor], list[Regression]]:
    """The anchors with these heads (by chain) as of `now`, and which of the heads contradict what was there.

    A head that contradicts is not taken in: what is anchored stays. Neither is one with a number that no line can have:
    a registry could make the document unreadable with it.
    """
    known = list(anchors)
    last = {a.chain: a for a in sorted(known, key=lambda a: a.seq)}
    regressions = []
    for chain, head in sorted(heads.items()):
        if not 1 <= head.seq < _MOST_SEQ:
            continue
        before = last.get(chain)
        if before is not None and (
            head.seq < before.seq or (head.seq == before.seq and head.hash != before.hash)
        ):
            regressions.append(Regression(chain, before, head))
        elif before is None or head.seq > before.seq:
            known.append(Anchor(chain, head.seq, timestamp(now), head.hash))
    return known, regressions


def thinned(anchors: Iterable[Anchor], now: float, most: int = MOST_BYTES) -> list[Anchor]:
    """What is kept of them at `now`, in at most `most` bytes as a document."""
    moment = datetime.fromtimestamp(now, UTC)
    kept: dict[tuple[str, str], Anchor] = {}
    final: dict[str, Anchor] = {}
    for anchor in sorted(anchors, key=lambda a: (a.chain, a.seq)):
        final[anchor.chain] = anchor
        age = moment - datetime.fromisoformat(anchor.time)
        if age <= _ALL:
            kept[anchor.chain, anchor.time] = anchor
        elif age <= _HOURLY:
            kept.setdefault((anchor.chain, anchor.time[:13]), anchor)
    for anchor in final.values():
        kept[anchor.chain, ""] = anchor
    return _fitting(
        sorted(set(kept.values()), key=lambda a: (a.time, a.chain, a.seq)), set(final.values()), most
    )


def restored(
    stored: Iterable[Anchor], remembered: Iterable[Anchor], now: float
) -> tuple[list[Anchor], list[Anchor]]:
    """The anchors of a document, completed by what its writer remembers; and which of them it lacked at `now`.

    Where they differ about one line the memory counts. What only the document has stays: another writer may have
    put it there.
    """
    stored = list(stored)
    there, ours = set(stored), {(a.chain, a.seq): a for a in remembered}
    if there.issuperset(ours.values()):
        return stored, []
    together = [*ours.values(), *(a for a in stored if (a.chain, a.seq) not in ours)]
    lacking = [a for a in thinned(together, now) if a not in there]
    return (together, lacking) if lacking else (stored, [])


def _fitting(anchors: list[Anchor], lasts: set[Anchor], most: int) -> list[Anchor]:
    """Without room the oldest go: first those that are not the last of their chain, then whole chains."""
    while anchors and len(write(anchors)) > most:
        spare = [a for a in anchors if a not in lasts] or anchors
        gone = set(spare[: max(1, len(spare) // 10)])
        anchors = [a for a in anchors if a not in gone]
    return anchors
