"""What is counted of the decision log itself."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from toolcrib_registry.metrics import table


class AuditCounts:
    """The log's series, on the given collector registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._written = table.AUDIT_RECORDS.on(registry)
        self._lost = table.DECISION_LOG_DROPPED_RECORDS.on(registry)
        self._errors = table.AUDIT_WRITE_ERRORS.on(registry)
        self._head = table.AUDIT_HEAD_SEQ.on(registry)

    def written(self, records: int, seq: int) -> None:
        """So many records were written; the last one's number."""
        self._written.inc(records)
        self._head.set(seq)

    def lost(self, records: int) -> None:
        """So many were lost."""
        self._lost.inc(records)

    def failed(self) -> None:
        """A write failed."""
        self._errors.inc()
