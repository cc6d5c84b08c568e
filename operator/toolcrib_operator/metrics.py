"""The operator's metrics, read from its state at each scrape. The names are an API."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from toolcrib import process
from toolcrib_operator.counts.grants import Labels, Rows
from toolcrib_operator.kinds.quotas import Quotas
from toolcrib_operator.replicas.anchoring import Anchoring
from toolcrib_operator.state import Leading, State

_PROCESS = ProcessCollector(registry=None)
NAMESPACES = 100
"""Namespaces with a series of their own."""
PROPAGATION_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Propagated:
    """The histogram of how long changes take to be in force on every replica."""

    def __init__(self) -> None:
        self.histogram = Histogram(
            "toolcrib_propagation_seconds",
            "From a change being seen until every replica of the registry has it in force.",
            buckets=PROPAGATION_BUCKETS,
            registry=None,
        )

    def observe(self, seconds: float) -> None:
        """Count one revision."""
        self.histogram.observe(seconds)


class StateCollector(Collector):
    """Metrics of one State."""

    def __init__(
        self, state: State, propagated: Propagated | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._state = state
        self._propagated = propagated or Propagated()
        self._clock = clock

    def collect(self) -> Iterator[Any]:
        """Everything; a standby has the first two and those of its process alone."""
        leads = self._state.role == "leader"
        yield _gauge("toolcrib_operator_leader", "Whether this process leads.", float(leads))
        problems = len(self._state.problems())
        yield _gauge("toolcrib_operator_problems", "What /readyz complains about.", problems)
        yield from _of_process()
        if leads and self._state.leading is not None:
            yield from _leading(self._state.leading)
            yield from _grants(self._state.leading.loop.grants.rows(self._clock()))
            yield from self._propagated.histogram.collect()


def _leading(parts: Leading) -> Iterator[Any]:
    publisher, counts = parts.publisher, parts.loop.status_writer.counts
    revision = publisher.revision
    yield _gauge("toolcrib_operator_epoch", "Epoch of this leadership.", publisher.epoch)
    yield _gauge("toolcrib_operator_revision", "Sequence of the revision.", revision.seq if revision else 0)
    yield _gauge(
        "toolcrib_catalog_tools",
        "Tools that are published, whatever their state; the registry's series of this name has the active ones.",
        len(publisher.snapshot.tools),
    )
    yield _gauge(
        "toolcrib_catalog_bindings", "Bindings that are published.", len(publisher.snapshot.bindings)
    )
    links = publisher.links
    current = sum(link.confirmed is not None and link.confirmed == revision for link in links)
    yield _gauge("toolcrib_operator_replicas", "Replicas of the registry that are known.", len(links))
    yield _gauge("toolcrib_operator_replicas_current", "Of those, with the latest revision.", current)
    yield _gauge(
        "toolcrib_operator_index_waiting", "Tools not yet in the search index.", parts.index_sync.waiting
    )
    yield _gauge(
        "toolcrib_index_lag_seconds",
        "For how long the oldest published tool has not been in the search index as it is; 0 if all are.",
        parts.index_sync.lag,
    )
    yield _gauge(
        "toolcrib_operator_status_waiting", "Objects to be looked at.", parts.loop.status_writer.backlog
    )
    yield _gauge(
        "toolcrib_operator_oldest_waiting_seconds",
        "Age of the oldest thing to be assessed, published or written; 0 if there is none.",
        parts.loop.oldest_waiting,
    )
    yield from _quotas(parts.loop.assessor.facts.quotas)
    unlisted = GaugeMetricFamily(
        "toolcrib_operator_kind_unlisted",
        "1 where a kind cannot be listed: nothing is published.",
        labels=["kind"],
    )
    for kind in parts.world.watched:
        unlisted.add_metric([kind], float(kind in parts.world.unlisted or kind in parts.resync.problems))
    yield unlisted
    yield _counter("toolcrib_operator_status_writes", "Statuses written.", counts.statuses)
    yield _counter("toolcrib_operator_finalizer_writes", "Finalizers set or removed.", counts.finalizers)
    yield _counter(
        "toolcrib_operator_write_conflicts", "Writes refused for a newer object.", counts.conflicts
    )
    yield _counter("toolcrib_operator_write_failures", "Writes that failed otherwise.", counts.failures)
    yield _counter("toolcrib_operator_watch_repairs", "Lists that repaired a watch.", parts.resync.repairs)
    if not (admitted := parts.loop.policies.admitted).external:
        yield _gauge(
            "toolcrib_admission_policy_intact",
            "Whether the admission policies are in place, unaltered; while they are not, no new grant takes effect.",
            float(admitted.problem is None),
        )
    if parts.intake is not None:
        created = parts.intake.created
        yield _counter("toolcrib_operator_registrations", "Tools created for registrations.", created)
    if parts.anchoring is not None:
        yield from _anchors(parts.anchoring)
    yield _counter("toolcrib_operator_events_dropped", "Events not written.", parts.loop.events.dropped)


def _quotas(quotas: Quotas) -> Iterator[GaugeMetricFamily]:
    """Which namespaces have more tools than they may: the first by number, the others together."""
    refused = sorted(
        ((use.refused, name) for name, (use, _) in quotas.over().items()), key=lambda r: (-r[0], r[1])
    )
    rows: dict[Labels, float] = {(name,): float(count) for count, name in refused[:NAMESPACES]}
    if rest := sum(count for count, _ in refused[NAMESPACES:]):
        rows[("other",)] = float(rest)
    yield _family(
        "toolcrib_quota_refused_tools", "Tools that the older tools of their namespace leave no room.", ("tool_namespace",), rows
    )  # fmt: skip
    yield _gauge(
        "toolcrib_quota_used_ratio",
        "Share of its quota that the tools of the fullest namespace come to; over 1: some are refused.",
        quotas.fullest,
    )


def _of_process() -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
    """What held the event loops, and what garbage collections cost."""
    for one in process.series():
        made = CounterMetricFamily if one.kind == "counter" else GaugeMetricFamily
        family = made(one.name, one.text, labels=one.labels)
        for labels, value in one.values.items():
            family.add_metric(labels, value)
        yield family


def _anchors(anchoring: Anchoring) -> Iterator[Any]:
    times = GaugeMetricFamily(
        "toolcrib_audit_anchor_timestamp_seconds",
        "When the head of a replica's decision log was last found among the anchors, or put there.",
        labels=["replica"],
    )
    for replica, moment in sorted(anchoring.anchored.items()):
        times.add_metric([replica], moment)
    yield times
    yield _counter(
        "toolcrib_audit_regressions",
        "Decision logs that went back behind what was anchored, and anchors that were altered or deleted.",
        anchoring.regressions,
    )
    yield _counter(
        "toolcrib_audit_anchor_failures",
        "Attempts to keep the anchors of decision logs that failed; they are made again.",
        anchoring.failures,
    )


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, value=value)


def _grants(rows: Rows) -> Iterator[GaugeMetricFamily]:
    """Who is granted what, until when, and how far it reaches."""
    folded: Mapping[Labels, float] = {(metric,): count for metric, count in rows.folded.items()}
    for name, text, labels, found in (
        (
            "toolcrib_grant_info",
            "Always 1: a binding grants a scope to a subject; no scope: it only denies.",
            ("kind", "grant", "subject", "scope"),
            rows.grant_info,
        ),
        (
            "toolcrib_grant_expiry_timestamp_seconds",
            "When a binding ends or has ended; only of those that do.",
            ("kind", "grant"),
            rows.grant_expiry,
        ),
        (
            "toolcrib_grant_matched_tools",
            "Active tools that a binding grants, or denies where it only denies.",
            ("kind", "grant"),
            rows.grant_matched,
        ),
        (
            "toolcrib_tool_info",
            "Always 1: a tool that is published, with its state.",
            ("tool", "server", "state"),
            rows.tool_info,
        ),
        (
            "toolcrib_tool_grants",
            "Bindings that grant a tool, whatever their dates.",
            ("tool", "server"),
            rows.tool_grants,
        ),
        (
            "toolcrib_operator_series_folded",
            "Series left out of a metric because its budget is spent.",
            ("metric",),
            folded,
        ),
    ):
        yield _family(name, text, labels, found)


def _family(name: str, text: str, labels: Iterable[str], found: Mapping[Labels, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=list(labels))
    for values, value in found.items():
        family.add_metric(list(values), value)
    return family


def families(state: State, propagated: Propagated) -> list[Any]:
    """Everything that there is to tell of a state now, for `toolcrib.telemetry.exposition.render`."""
    return [*StateCollector(state, propagated).collect(), *_PROCESS.collect()]
