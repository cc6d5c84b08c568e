"""What could not be recorded, counted by why and what, until a record of the chain tells of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toolcrib.audit import chain as audit_chain


@dataclass(slots=True)
class _Loss:
    records: int = 0
    requests: int = 0
    since: float = 0.0
    until: float = 0.0


class Losses:
    """Counts by reason and action. The owner holds a lock."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], _Loss] = {}

    def add(self, record: dict[str, Any], reason: str, requests: int = 1) -> None:
        """A record, which stands for so many requests, is lost."""
        loss = self._of.setdefault((reason, str(record["action"])), _Loss(since=record["ts"]))
        loss.records += 1
        loss.requests += requests
        loss.since, loss.until = min(loss.since, record["ts"]), max(loss.until, record["ts"])

    def told(self) -> list[dict[str, Any]]:
        """What stands in `lost` of the record that tells of it; empty where nothing is lost."""
        return [
            {"reason": reason, "action": action, "count": loss.records, "requests": loss.requests,
             "since": audit_chain.timestamp(loss.since), "until": audit_chain.timestamp(loss.until)}
            for (reason, action), loss in sorted(self._of.items())
        ]  # fmt: skip
