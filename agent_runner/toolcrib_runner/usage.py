"""What an agent has used: a count for each tool that outlives any rediscovery."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any


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
    """

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._lock = threading.Lock()
        self._calls: Counter[str] = Counter()

    def count(self, tool: str) -> None:
        """One more call of the tool."""
        with self._lock:
            self._calls[tool] += 1

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
