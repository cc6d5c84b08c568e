"""The thread that chains records and writes them. The event loop only hands over, and is never held up by a disk.

What cannot be written yet is kept and tried again; what does not fit into the queue meanwhile is counted, and the
counts are a record of the chain (`audit.gap`) as soon as there is room.
"""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import orjson

from toolcrib.audit import chain as audit_chain
from toolcrib.audit import policy_records
from toolcrib.audit.chain import AuditKey, Head
from toolcrib.authorizer import DECIDER_VERSION
from toolcrib.identity import Issuer
from toolcrib.snapshot import Snapshot
from toolcrib.telemetry import logs
from toolcrib.version import __version__
from toolcrib_registry.audit import files
from toolcrib_registry.audit.evidence import Evidence
from toolcrib_registry.audit.files import Target
from toolcrib_registry.audit.losses import Losses

log = logging.getLogger(__name__)

Record = dict[str, Any]
Durable = Callable[[], None]

AT_A_TIME = 128
"""Records of one write."""
TOGETHER = 0.02
"""Seconds for which records are collected when nobody waits for them and they do not fill a write."""
TICK = 0.5
"""Seconds between two looks at what is due, at the disk and at the file's place; and until a failed write is tried again."""
SYNC = 1.0
"""Seconds after which what was written is brought to the disk where nobody waits for it."""
CLOSING = 10.0
POLICIES = 16
"""Snapshots that wait to be stated, those of failed writes included; of more only the latest is."""


class Counts(Protocol):
    """What is counted; called from the writer's thread, and from that of the caller that hands over."""

    def written(self, records: int, seq: int) -> None:
        """So many records were written, those that explain others not counted; the last one's number."""
        ...

    def lost(self, records: int) -> None:
        """So many were lost."""
        ...

    def failed(self) -> None:
        """A write failed."""
        ...


class Waiting(NamedTuple):
    """A record on its way; `durable` is called in the writer's thread once it outlasts the machine."""

    record: Record | None
    durable: Durable | None = None
    policy: Snapshot | None = None
    """What decides from here on, to be stated."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """The first `items` of what is held, as lines. Made once for all tries: stating thousands of tools takes long."""

    items: int
    data: bytes
    head: Head
    records: int  # those that explain others not counted
    stated: int
    since: int
    before: Snapshot | None  # the latest policy that was stated before


class Writer:
    """Owns the target from the moment it is made until `close`.

    Args:
        target: where lines go.
        key: closes them.
        replica: whose they are.
        now: seconds since the epoch.
        counts: told of what happens.
        due: gives sums that are to be written; True: all of them, it is the end.
        settings: what the first record says of how the log is kept.
        issuers: whose tokens are taken, and what their scopes count for.
        capacity: records waiting at most.
        elapsed: monotonic seconds; a stream states the policy by them.
    """

    def __init__(
        self,
        target: Target,
        key: AuditKey,
        replica: str,
        now: Callable[[], float],
        counts: Counts,
        due: Callable[[bool], list[Record]],
        *,
        settings: Record,
        issuers: Iterable[Issuer] = (),
        capacity: int = 10_000,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        self.replica = audit_chain.safe_replica(replica)
        self._target, self._key, self._now, self._counts, self._due = target, key, now, counts, due
        self._capacity = capacity
        self._queue: deque[Waiting] = deque()
        self._ready = threading.Condition()
        self._stop = threading.Event()
        self._losses = Losses()
        self._evidence = Evidence(self._own, issuers, stream=target.stream, elapsed=elapsed)
        self._policies = 0
        self._late: Snapshot | None = None
        self._stated = self._since = 0
        self._held: list[Waiting] = [Waiting(self._begin(settings))]
        self._batch: _Batch | None = None
        self._retired: list[Path] = []
        self._unsynced: list[Durable] = []
        self._synced: Head | None = None
        self._dirty = False
        self._synced_at = time.monotonic()
        self._looked_at = 0.0
        self._busy_since: float | None = None
        self._trouble = logs.Trouble(log)
        self._thread = threading.Thread(target=self._run, name="decision-log", daemon=True)
        self._thread.start()

    @property
    def head(self) -> Head | None:
        """The last line that is on the disk (of a stream: that was taken)."""
        return self._synced

    def stuck(self, seconds: float) -> bool:
        """Whether nothing could be written for longer than that, although there is something to be written."""
        since = self._busy_since
        return since is not None and time.monotonic() - since > seconds

    def put(self, record: Record, durable: Durable | None = None, *, requests: int = 1) -> bool:
        """Take a record; False: the queue is full, and the loss has been counted.

        Args:
            record: its first members are `ts` (seconds since the epoch), `replica` and `action`.
            durable: called once it is on the disk. Such a record is not counted where it does not fit: who waits for
                it is told.
            requests: for how many of them it stands.
        """
        with self._ready:
            if len(self._queue) + len(self._held) < self._capacity:
                self._queue.append(Waiting(record, durable))
                if len(self._queue) == 1 or durable is not None:
                    self._ready.notify()
                return True
        if durable is None:
            self.lose(record, "queue_full", requests)
        return False

    def lose(self, record: Record, reason: str, requests: int = 1) -> None:
        """Count a record that does not come, which stands for so many requests."""
        with self._ready:
            self._losses.add(record, reason, requests)
        self._counts.lost(1)

    def state(self, policy: Snapshot) -> None:
        """What decides from here on: it is stated before the records that are put later."""
        with self._ready:
            if self._late is None and self._policies < POLICIES:
                self._policies += 1
                self._queue.append(Waiting(None, policy=policy))
                self._ready.notify()
                return
            self._late = policy
            lost = {"ts": self._now(), "action": audit_chain.LOST_POLICY}
            self._losses.add(lost, "queue_full", requests=0)

    def close(self) -> None:
        """Write what waits and the end of the chain; a disk that hangs is given up after `CLOSING` seconds."""
        with self._ready:
            self._stop.set()
            self._ready.notify()
        self._thread.join(timeout=CLOSING)
        if self._thread.is_alive():
            log.error(
                "the decision log could not be closed: its disk does not respond",
                extra=logs.about(waiting=len(self._queue)),
            )
            return
        self._target.close()

    def _begin(self, settings: Record) -> Record:
        found, target = self._target.found, self._target
        last = found.last
        started = self._now()
        if last is not None:
            with contextlib.suppress(ValueError):
                started = max(started, _started(last.chain) + 0.001)
        self._head = Head(
            audit_chain.chain_id(self.replica, started, secrets.token_hex(4)),
            0,
            last.hash if last else audit_chain.GENESIS,
        )
        said: Record = {
            "stream": target.stream,
            "version": __version__,
            "decider": DECIDER_VERSION,
            "previous": files.place_of(last),
            "clean": last is None or last.action == audit_chain.END,
            **settings,
        }
        if found.torn:
            said["recovered"] = {"bytes": found.torn, "sha256": found.torn_hash}
        return self._own(audit_chain.BEGIN, said)

    def _own(self, action: str, fields: Record) -> Record:
        return {"ts": self._now(), "replica": self.replica, "action": action, **fields}

    def _gap(self) -> Waiting | None:
        with self._ready:
            losses, self._losses = self._losses, Losses()
        told = losses.told()
        return Waiting(self._own(audit_chain.GAP, {"lost": told})) if told else None

    def _run(self) -> None:
        while True:
            last = self._collect()
            if self._held:
                if self._write():
                    continue
                if self._stop.is_set():
                    self._give_up()
                    return
                self._stop.wait(TICK)
            elif last:
                self._held = [Waiting(self._own(audit_chain.END, {}))]
                self._write()
                self._sync(True)
                return

    def _give_up(self) -> None:
        with self._ready:
            lost = sum(item.record is not None for item in (*self._held, *self._queue))
            self._queue.clear()
        self._counts.lost(lost)
        log.error("the decision log could not be closed", extra=logs.about(lost=lost))

    def _collect(self) -> bool:
        """Fill `_held`; whether the end has come. While writes fail it only grows to its size."""
        held, fresh = self._held, not self._held
        with self._ready:
            if not self._queue and fresh and not self._stop.is_set():
                self._ready.wait(TICK)
            can_wait = len(self._queue) < AT_A_TIME and all(item.durable is None for item in self._queue)
            if fresh and can_wait and not self._stop.is_set():
                self._ready.wait(TOGETHER)
            while self._queue and len(held) < AT_A_TIME:
                held.append(self._queue.popleft())
            last = self._stop.is_set() and not self._queue
            late = None
            if fresh and not self._queue:
                late, self._late = self._late, None
                self._policies += late is not None
        if fresh:
            held += [Waiting(record) for record in self._due(last)]
            if (gap := self._gap()) is not None:
                held.append(gap)
            if late is not None:
                held.append(Waiting(None, policy=late))
        self._look()
        return last

    def _look(self) -> None:
        """Whether the file is still where it was; once a tick."""
        if time.monotonic() - self._looked_at < TICK:
            return
        self._looked_at = time.monotonic()
        try:
            if self._target.moved():
                self._target.sync()
                self._target.reopen()
                if self._batch is not None:  # the new file has to be enough alone
                    self._evidence.undo(self._batch.before)
                    self._batch = None
                previous = {"previous": files.place_of(self._head)}
                self._held.insert(0, Waiting(self._own(audit_chain.REOPENED, previous)))
        except OSError as error:
            self._failed(error)
        if not self._held:
            self._sync(False)

    def _rotate(self) -> None:
        """Begin the next file, and say in it what became of the last one and of those that are too many."""
        try:
            away = self._target.rotate()
        except OSError as error:
            self._failed(error)
            return
        said = [self._own(audit_chain.ROTATED, {"file": away.name, "last": files.place_of(self._head)})]
        self._retired = self._target.surplus()
        for file in self._retired:
            with contextlib.suppress(OSError):
                first, last = files.first_line(file), files.last_line(file)
                of_it = {"file": file.name, "first": files.place_of(first), "last": files.place_of(last)}
                said.append(self._own(audit_chain.RETIRED, of_it))
        self._held[:0] = map(Waiting, said)

    def _write(self) -> bool:
        """Chain and write all that is held; whether it is written."""
        if self._busy_since is None:
            self._busy_since = time.monotonic()
        batch = self._batch
        if batch is None:
            # a file that holds less than it states would be all policy, and push out older evidence
            if self._target.due() and self._head.seq and self._since >= self._stated:
                self._rotate()
            batch = self._batch = self._sealed()
        try:
            self._target.append(batch.data)
        except OSError as error:
            self._failed(error)
            return False
        written, self._held, self._batch = self._held[: batch.items], self._held[batch.items :], None
        self._head, self._dirty, self._stated, self._since = batch.head, True, batch.stated, batch.since
        self._counts.written(batch.records, batch.head.seq)
        self._unsynced += [item.durable for item in written if item.durable is not None]
        with self._ready:  # what could not be written yet counts as waiting
            self._policies -= sum(item.policy is not None for item in written)
        self._sync(bool(self._unsynced or self._retired))
        return True

    def _sealed(self) -> _Batch:
        """All that is held, chained, with what explains it."""
        head, lines, before, told = self._head, [], self._evidence.policy, 0
        stated, since, left = self._stated, self._since, 0
        for record in self._evidence.of((item.record, item.policy) for item in self._held):
            line, head = audit_chain.sealed(self._key, head, encoded(record))
            lines.append(line)
            told += not audit_chain.is_evidence(record["action"])
            if record["action"] == policy_records.START:
                stated, since, left = 0, 0, record["records"] + 1
            stated, since = (stated + len(line), since) if left else (stated, since + len(line))
            left = max(0, left - 1)
        return _Batch(len(self._held), b"\n".join(lines) + b"\n", head, told, stated, since, before)

    def _sync(self, now: bool) -> None:
        if self._dirty and (now or self._target.stream or time.monotonic() - self._synced_at >= SYNC):
            try:
                self._target.sync()
                self._synced_at = time.monotonic()
                for file in self._retired:
                    file.unlink(missing_ok=True)
            except OSError as error:
                self._failed(error)
                return
            self._dirty, self._synced, self._retired = False, self._head, []
            waiting, self._unsynced = self._unsynced, []
            for durable in waiting:
                durable()
        self._busy_since = None
        self._trouble.over("the decision log can be written again")

    def _failed(self, error: OSError) -> None:
        self._counts.failed()
        self._trouble.failed("the decision log cannot be written: %s", error, level=logging.ERROR)


def encoded(record: Record) -> bytes:
    """A record as JSON, its times as text. What JSON cannot hold is written as text."""
    record = {**record, "ts": audit_chain.timestamp(record["ts"])}
    if (caller := record.get("who")) is not None:
        record["who"] = caller.digest
    if (repeated := record.get("repeated")) is not None:
        since, until = audit_chain.timestamp(repeated["since"]), audit_chain.timestamp(repeated["until"])
        record["repeated"] = {"count": repeated["count"], "since": since, "until": until}
    try:
        return orjson.dumps(record)
    except TypeError:
        return json.dumps(record, default=str, separators=(",", ":")).encode()


def _started(chain: str) -> float:
    text = chain.rpartition("@")[2].partition("-")[0]
    return datetime.strptime(text, "%Y%m%dT%H%M%S.%fZ").replace(tzinfo=UTC).timestamp()
