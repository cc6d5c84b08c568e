"""The tools that tasks were worked on with, for the mode `cached`: by caller, view and words of the task.

A set is found for an hour, and only while the caller's view is the one it was made from: after any change it is
forgotten. It grants nothing: what is offered and called is held against the live view all the same.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

log = logging.getLogger(__name__)

TTL = 3600.0
"""Seconds."""
MAX_SETS = 1000
"""The oldest go first."""
Caller = tuple[str, str]
"""Issuer and subject."""


class ReadySets:
    """READY sets by (issuer, subject, view digest, task signature); safe to share between threads.

    With `file` they outlive the process: a JSON file that is replaced as a whole. One that cannot be read is empty.
    """

    def __init__(self, file: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._clock = clock
        self._lock = threading.Lock()
        self._sets: dict[tuple[str, str, str, str], tuple[float, tuple[str, ...]]] = {}
        if file is not None:
            self._sets = _read(file)

    def find(self, caller: Caller, view: str, task: str) -> tuple[str, ...] | None:
        """The set of a task in a view; None where there is none. Sets of other views of the caller are dropped."""
        with self._lock:
            self._drop(caller, view)
            found = self._sets.get((*caller, view, task))
            return None if found is None else found[1]

    def keep(self, caller: Caller, view: str, task: str, tools: Sequence[str]) -> None:
        """Remember the set."""
        with self._lock:
            self._drop(caller, view)
            self._sets.pop((*caller, view, task), None)
            self._sets[(*caller, view, task)] = (self._clock() + TTL, tuple(tools))
            while len(self._sets) > MAX_SETS:
                del self._sets[next(iter(self._sets))]
            if self._file is not None:
                self._save(self._file)

    def _drop(self, caller: Caller, view: str) -> None:
        now = self._clock()
        self._sets = {
            key: kept
            for key, kept in self._sets.items()
            # a clock that was put back must not make a set live longer
            if now < kept[0] <= now + TTL and (key[:2] != caller or key[2] == view)
        }

    def _save(self, file: Path) -> None:
        beside = file.with_suffix(".new")
        entries = [[*key, ends, list(tools)] for key, (ends, tools) in self._sets.items()]
        try:
            beside.write_text(json.dumps({"sets": entries}), encoding="utf-8")
            beside.replace(file)
        except OSError as error:
            log.warning("the READY sets cannot be saved: %s", error)


def _read(file: Path) -> dict[tuple[str, str, str, str], tuple[float, tuple[str, ...]]]:
    try:
        entries = json.loads(file.read_bytes())["sets"]
        return {
            (str(issuer), str(subject), str(view), str(task)): (float(ends), tuple(map(str, tools)))
            for issuer, subject, view, task, ends, tools in entries
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, LookupError, TypeError) as error:
        log.warning("the READY sets in %s cannot be read (%s); starting without", file, error)
        return {}
