"""The operator's metrics, read from its state at each scrape. The names are an API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from toolcrib_operator.state import Leading, State
from toolcrib_operator.world import WATCHED

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


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

    def __init__(self, state: State, propagated: Propagated | None = None) -> None:
        self._state = state
        self._propagated = propagated or Propagated()

    def collect(self) -> Iterator[Any]:
        """Everything; a standby has the first two alone."""
        leads = self._state.role == "leader"
        yield _gauge("toolcrib_operator_leader", "Whether this process leads.", float(leads))
        problems = len(self._state.problems())
        yield _gauge("toolcrib_operator_problems", "What /readyz complains about.", problems)
        if leads and self._state.leading is not None:
            yield from _leading(self._state.leading)
            yield from self._propagated.histogram.collect()


def _leading(parts: Leading) -> Iterator[Any]:
    publisher, counts = parts.publisher, parts.loop.writes.counts
    revision = publisher.revision
    yield _gauge("toolcrib_operator_epoch", "Epoch of this leadership.", publisher.epoch)
    yield _gauge("toolcrib_operator_revision", "Sequence of the revision.", revision.seq if revision else 0)
    yield _gauge("toolcrib_catalog_tools", "Tools that are published.", len(publisher.snapshot.tools))
    yield _gauge(
        "toolcrib_catalog_bindings", "Bindings that are published.", len(publisher.snapshot.bindings)
    )
    links = publisher.links
    current = sum(link.confirmed is not None and link.confirmed == revision for link in links)
    yield _gauge("toolcrib_operator_replicas", "Replicas of the registry that are known.", len(links))
    yield _gauge("toolcrib_operator_replicas_current", "Of those, with the latest revision.", current)
    yield _gauge(
        "toolcrib_operator_index_waiting", "Tools not yet in the search index.", parts.indexing.waiting
    )
    yield _gauge("toolcrib_operator_status_waiting", "Objects to be looked at.", parts.loop.writes.backlog)
    unlisted = GaugeMetricFamily(
        "toolcrib_operator_kind_unlisted",
        "1 where a kind cannot be listed: nothing is published.",
        labels=["kind"],
    )
    for kind in WATCHED:
        unlisted.add_metric([kind], float(kind in parts.world.unlisted or kind in parts.watching.problems))
    yield unlisted
    yield _counter("toolcrib_operator_status_writes", "Statuses written.", counts.statuses)
    yield _counter("toolcrib_operator_finalizer_writes", "Finalizers set or removed.", counts.finalizers)
    yield _counter(
        "toolcrib_operator_write_conflicts", "Writes refused for a newer object.", counts.conflicts
    )
    yield _counter("toolcrib_operator_write_failures", "Writes that failed otherwise.", counts.failures)
    yield _counter("toolcrib_operator_watch_repairs", "Lists that repaired a watch.", parts.watching.repairs)
    if parts.registering is not None:
        created = parts.registering.created
        yield _counter("toolcrib_operator_registrations", "Tools created for registrations.", created)
    yield _counter("toolcrib_operator_events_dropped", "Events not written.", parts.loop.events.dropped)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, value=value)


def exposition(state: State, propagated: Propagated) -> bytes:
    """Prometheus text of a state."""
    registry = CollectorRegistry()
    registry.register(StateCollector(state, propagated))
    return generate_latest(registry)
