"""The decision log: one JSON line a decision, written by a thread of its own, never by the event loop.

A list or a search is one record (counts and the view's revision); describe, load and call are one record a tool
named. The queue is bounded: what does not fit is dropped, counted, and leaves a gap in `seq`. The file has mode 0600.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from toolcrib import logs
from toolcrib.authorizer import Decision
from toolcrib.identity import Identity
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.ports import Clock
from toolcrib_registry.state import Sight

log = logging.getLogger(__name__)

Record = dict[str, Any]


class DecisionLog:
    """Writes records to a file; with no file it does nothing.

    Args:
        path: appended to; None for no log.
        clock: gives `ts`.
        dropped: called for each record that the full queue loses.
        capacity: records waiting at most.
    """

    def __init__(
        self,
        path: Path | None,
        clock: Clock,
        *,
        dropped: Callable[[], None] = lambda: None,
        capacity: int = 10_000,
    ) -> None:
        self._clock = clock
        self._dropped = dropped
        self._seq = 0
        self._queue: queue.Queue[Record | None] = queue.Queue(capacity)
        self._thread: threading.Thread | None = None
        self._file: int | None = None
        self._trouble = logs.Trouble(log)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.fchmod(self._file, 0o600)
            self._thread = threading.Thread(target=self._write, name="decision-log", daemon=True)
            self._thread.start()

    @property
    def enabled(self) -> bool:
        """Whether records go anywhere."""
        return self._thread is not None

    def listed(self, action: str, sight: Sight, *, found: int | None = None, mode: str | None = None) -> None:
        """A list or search was answered."""
        if not self.enabled:
            return
        self._put(
            action,
            sight.identity,
            {
                "count": len(sight.view.tools) if found is None else found,
                "view": sight.view.digest,
                "revision": str(sight.snapshot.revision or ""),
                **({"mode": mode} if mode else {}),
            },
        )

    def decided(
        self,
        action: str,
        identity: Identity | None,
        name: str,
        tool: PublishedTool | None,
        decision: Decision,
        revision: str,
        *,
        outcome: str | None = None,
    ) -> None:
        """One tool was named: what was decided and, for a call, how it ended."""
        if not self.enabled:
            return
        binding = decision.binding
        self._put(
            action,
            identity,
            {
                "tool": tool.tool_id if tool else name[:512],
                "digest": tool.digest if tool else None,
                "allowed": decision.allowed,
                "reason": decision.reason.value,
                "binding": {"ref": binding.ref, "uid": binding.uid, "generation": binding.generation}
                if binding
                else None,
                "revision": revision,
                **({"outcome": outcome} if outcome else {}),
            },
        )

    def close(self) -> None:
        """Write what waits and close the file."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(timeout=10)
            self._thread = None
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _put(self, action: str, identity: Identity | None, fields: Record) -> None:
        self._seq += 1
        record = {
            "seq": self._seq,
            "ts": self._clock.now(),
            "action": action,
            "issuer": identity.issuer if identity else None,
            "subject": identity.subject if identity else None,
            "request_id": logs.request_id.get() or None,
            **fields,
        }
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            self._dropped()

    def _write(self) -> None:
        while (record := self._queue.get()) is not None:
            self._write_one(record)

    def _write_one(self, record: Record) -> None:
        if self._file is None:
            return
        record["ts"] = datetime.fromtimestamp(record["ts"], UTC).isoformat(timespec="milliseconds")
        try:
            self._append(self._file, orjson.dumps(record) + b"\n")
        except (OSError, TypeError) as error:
            self._trouble.failed("the decision log cannot be written: %s", error, level=logging.ERROR)
            self._dropped()
        else:
            self._trouble.over("the decision log is written again")

    def _append(self, file: int, line: bytes) -> None:
        """All of `line` or nothing: a full disk takes a part of it, to which the next one would be glued."""
        written = os.write(file, line)
        if written == len(line):
            return
        try:
            while written < len(line):
                written += os.write(file, line[written:])
        except OSError:
            with contextlib.suppress(OSError):  # no file that could be cut: a pipe
                os.ftruncate(file, os.fstat(file).st_size - written)
            raise
