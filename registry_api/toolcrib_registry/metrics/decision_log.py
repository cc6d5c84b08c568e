"""What is counted of the decision log itself."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class AuditCounts:
    """The log's series, on the given collector registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._written = Counter(
            "toolcrib_audit_records", "Records of the decision log that were written.", registry=registry
        )
        self._lost = Counter(
            "toolcrib_decision_log_dropped_records",
            "Decision records lost to a full queue, or not written when the registry stopped.",
            registry=registry,
        )
        self._errors = Counter(
            "toolcrib_audit_write_errors",
            "Writes of the decision log that failed; the records wait and are tried again.",
            registry=registry,
        )
        self._head = Gauge(
            "toolcrib_audit_head_seq",
            "Number of the decision log's last record in its chain.",
            registry=registry,
        )

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
