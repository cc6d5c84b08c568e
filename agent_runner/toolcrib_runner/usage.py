"""What an agent has used: a count for each tool that outlives any rediscovery, and with a file any restart."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class UsageStats:
    """An agent's use of tools up to now. `most_used_tool` is None before the first call; of equals, the first by name."""

    agent: str
    total_tools_available: int
    total_tool_calls: int
    usage_by_tool: dict[str, int]
    most_used_tool: str | None

    def as_dict(self) -> dict[str, Any]:
        """The five fields, ready for JSON."""
        return asdict(self)


class Usage:
    """Counts calls by tool; safe to share between threads.

    A call counts once the registry has let it through to the tool, whether the tool then succeeded or failed.
    Calls that were refused (arguments, grants, limits) or that found no registry are no use of a tool.

    With `state`, a folder, the counts stand in a file there that is replaced as a whole after each call; one process
    an agent. A file that cannot be read is renamed, and counting starts from zero.

    Raises:
        OSError: `state` cannot be made.
    """

    def __init__(self, agent: str, state: Path | None = None) -> None:
        self._agent = agent
        self._lock = threading.Lock()
        self._calls: Counter[str] = Counter()
        self._file: Path | None = None
        if state is not None:
            state.mkdir(parents=True, exist_ok=True)
            self._file = state / f"{quote(agent, safe='')}.usage.json"
            self._calls.update(_read(self._file))

    def count(self, tool: str) -> None:
        """One more call of the tool."""
        with self._lock:
            self._calls[tool] += 1
            if self._file is not None:
                self._save(self._file)

    def _save(self, file: Path) -> None:
        beside = file.with_suffix(".new")
        try:
            with beside.open("w", encoding="utf-8") as out:
                json.dump({"calls": self._calls}, out)
                out.flush()
                os.fsync(out.fileno())
            beside.replace(file)
        except OSError as error:
            # the call was made: it is no reason to fail it
            log.warning("the counts of calls cannot be saved: %s", error)

    def stats(self, tools_available: int) -> UsageStats:
        """The counts now."""
        with self._lock:
            calls = dict(sorted(self._calls.items()))
        return UsageStats(
            agent=self._agent,
            total_tools_available=tools_available,
            total_tool_calls=sum(calls.values()),
            usage_by_tool=calls,
            most_used_tool=max(calls, key=lambda tool: calls[tool]) if calls else None,
        )


def _read(file: Path) -> dict[str, int]:
    try:
        calls = json.loads(file.read_bytes())["calls"]
        if all(type(count) is int and count >= 0 for count in calls.values()):
            return dict(calls)
        raise ValueError("a count is not a number")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        aside = file.with_suffix(".broken")
        log.warning("the counts of calls in %s cannot be read (%s); counting starts from zero", file, error)
        try:
            file.replace(aside)
        except OSError as also:
            log.warning("%s could not be moved aside: %s", file, also)
        return {}
