"""The operator's metrics, read from its state at each scrape.

Names and labels are an API: `tests/contract/metrics.txt` lists them.

What a process says of itself (`toolcrib.process`, prometheus_client's ProcessCollector) comes beside them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from toolcrib import process
from toolcrib.telemetry.metric import Metric
from toolcrib.wire.imports import ServerOutcome
from toolcrib_operator.counts.canaries import CanaryRows
from toolcrib_operator.counts.canaries import rows as canary_rows
from toolcrib_operator.counts.grants import Labels, Rows
from toolcrib_operator.kinds.quotas import Quotas
from toolcrib_operator.replicas.anchoring import Anchoring
from toolcrib_operator.replicas.imports import Imports
from toolcrib_operator.state import Leading, State

_PROCESS = ProcessCollector(registry=None)
NAMESPACES = 100
"""Namespaces with a series of their own."""
PROPAGATION_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
OUTCOMES = ("created", "exists", "absent", "full", "refused", "failed")
DECISION_BUCKETS = (60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 86400.0, 3 * 86400.0, 7 * 86400.0)
_Family = GaugeMetricFamily | CounterMetricFamily

# fmt: off
LEADER = Metric(GaugeMetricFamily, "toolcrib_operator_leader", (), "Whether this process leads.")
PROBLEMS = Metric(GaugeMetricFamily, "toolcrib_operator_problems", (), "Problems that /readyz lists.")
PROPAGATION_SECONDS = Metric(Histogram, "toolcrib_propagation_seconds", (),
    "From a change being seen until it is in effect on every replica of the registry.", PROPAGATION_BUCKETS)
EPOCH = Metric(GaugeMetricFamily, "toolcrib_operator_epoch", (), "Epoch of this leadership.")
REVISION = Metric(GaugeMetricFamily, "toolcrib_operator_revision", (), "Sequence of the revision.")
TOOLS_QUARANTINED = Metric(GaugeMetricFamily, "toolcrib_tools_quarantined", (),
    "Tools that need approval and are not what was approved: not listed, not callable.")
CATALOG_TOOLS = Metric(GaugeMetricFamily, "toolcrib_catalog_tools", (),
    "Tools that are published, whatever their state; the registry's series of this name has the active ones.")
CATALOG_BINDINGS = Metric(GaugeMetricFamily, "toolcrib_catalog_bindings", (), "Bindings that are published.")
AGENTS_SUSPENDED = Metric(GaugeMetricFamily, "toolcrib_agents_suspended", (), "Agents that are suspended.")
REPLICAS = Metric(GaugeMetricFamily, "toolcrib_operator_replicas", (), "Registry replicas that the operator has found.")
REPLICAS_CURRENT = Metric(GaugeMetricFamily, "toolcrib_operator_replicas_current", (),
    "Registry replicas that have confirmed the latest revision.")
INDEX_WAITING = Metric(GaugeMetricFamily, "toolcrib_operator_index_waiting", (), "Tools not yet in the search index.")
INDEX_LAG_SECONDS = Metric(GaugeMetricFamily, "toolcrib_index_lag_seconds", (),
    "Seconds for which the longest-waiting published tool has been missing or out of date in the search index; 0: none is.")
BACKENDS_REPORTED_TIMESTAMP_SECONDS = Metric(GaugeMetricFamily, "toolcrib_operator_backends_reported_timestamp_seconds", (),
    "When a replica last reported which backends can be reached; 0: not yet.")
IMPORT_SERVERS = Metric(GaugeMetricFamily, "toolcrib_import_servers", ("outcome",),
    "ToolServers that are watched, by what became of the last look at each.")
IMPORT_FAILING = Metric(GaugeMetricFamily, "toolcrib_import_failing", (), "ToolServers whose tools could not be written; the operator retries.")
IMPORT_TOOLS_LEFT_OUT = Metric(GaugeMetricFamily, "toolcrib_import_tools_left_out", (),
    "Tools of servers that no Tool is written for; the condition Imported of the ToolServer says why.")
IMPORT_WRITES = Metric(CounterMetricFamily, "toolcrib_import_writes", (), "Tools of servers written.")
IMPORT_DELETIONS = Metric(CounterMetricFamily, "toolcrib_import_deletions", (), "Tools of servers deleted.")
IMPORT_REPORTED_TIMESTAMP_SECONDS = Metric(GaugeMetricFamily, "toolcrib_import_reported_timestamp_seconds", (),
    "When a replica last reported what servers have; 0: not yet.")
STATUS_WAITING = Metric(GaugeMetricFamily, "toolcrib_operator_status_waiting", (), "Objects whose status may have to be written.")
OLDEST_WAITING_SECONDS = Metric(GaugeMetricFamily, "toolcrib_operator_oldest_waiting_seconds", (),
    "Age of the oldest object that waits to be assessed, published or written; 0: none waits.")
QUOTA_REFUSED_TOOLS = Metric(GaugeMetricFamily, "toolcrib_quota_refused_tools", ("tool_namespace",),
    "Tools that are refused because the older tools of their namespace fill its quota.")
QUOTA_USED_RATIO = Metric(GaugeMetricFamily, "toolcrib_quota_used_ratio", (),
    "Share of its quota that the fullest namespace uses; above 1: some of its tools are refused.")
KIND_UNLISTED = Metric(GaugeMetricFamily, "toolcrib_operator_kind_unlisted", ("kind",),
    "1 where a kind cannot be listed: nothing is published.")
STATUS_WRITES = Metric(CounterMetricFamily, "toolcrib_operator_status_writes", (), "Statuses written.")
FINALIZER_WRITES = Metric(CounterMetricFamily, "toolcrib_operator_finalizer_writes", (), "Finalizers set or removed.")
WRITE_CONFLICTS = Metric(CounterMetricFamily, "toolcrib_operator_write_conflicts", (), "Writes refused because the object had changed.")
WRITE_FAILURES = Metric(CounterMetricFamily, "toolcrib_operator_write_failures", (), "Writes that failed for another reason.")
WATCH_REPAIRS = Metric(CounterMetricFamily, "toolcrib_operator_watch_repairs", (), "Lists that repaired a watch.")
ADMISSION_POLICY_INTACT = Metric(GaugeMetricFamily, "toolcrib_admission_policy_intact", (),
    "Whether the admission policies are in place, unaltered; while they are not, no new grant takes effect.")
ACCESS_REQUESTS = Metric(CounterMetricFamily, "toolcrib_access_requests", ("outcome",),
    "Access requests of agents: created, exists (asked again), absent (no such tool may be asked for), full, refused, failed.")
ACCESS_REQUESTS_OPEN = Metric(GaugeMetricFamily, "toolcrib_access_requests_open", (), "Access requests that nobody has decided.")
ACCESS_DECISION_SECONDS = Metric(Histogram, "toolcrib_access_decision_seconds", ("outcome",),
    "From an access request to its end: approved, rejected or expired.", DECISION_BUCKETS)
REGISTRATIONS = Metric(CounterMetricFamily, "toolcrib_operator_registrations", (), "Tools created for registrations.")
AUDIT_ANCHOR_TIMESTAMP_SECONDS = Metric(GaugeMetricFamily, "toolcrib_audit_anchor_timestamp_seconds", ("replica",),
    "When the head of a replica's decision log was last written to the anchors, or found there.")
AUDIT_REGRESSIONS = Metric(CounterMetricFamily, "toolcrib_audit_regressions", (),
    "Decision logs that regressed behind their anchor, and anchors that were altered or deleted.")
AUDIT_ANCHOR_FAILURES = Metric(CounterMetricFamily, "toolcrib_audit_anchor_failures", (),
    "Failed attempts to write the anchors of decision logs; the operator retries.")
EVENTS_DROPPED = Metric(CounterMetricFamily, "toolcrib_operator_events_dropped", (), "Events not written.")
GRANT_INFO = Metric(GaugeMetricFamily, "toolcrib_grant_info", ("kind", "grant", "subject", "scope"),
    "Always 1: a binding grants a scope to a subject; no scope: it only denies.")
GRANT_EXPIRY_TIMESTAMP_SECONDS = Metric(GaugeMetricFamily, "toolcrib_grant_expiry_timestamp_seconds", ("kind", "grant"),
    "When a binding ends or has ended; absent without an end.")
GRANT_MATCHED_TOOLS = Metric(GaugeMetricFamily, "toolcrib_grant_matched_tools", ("kind", "grant"),
    "Active tools that a binding grants, or denies where it only denies.")
TOOL_INFO = Metric(GaugeMetricFamily, "toolcrib_tool_info", ("tool", "server", "state"),
    "Always 1: a tool that is published, with its state.")
AGENT_SUSPENDED = Metric(GaugeMetricFamily, "toolcrib_agent_suspended", ("agent",), "Always 1: an Agent that is suspended.")
CANARY_INFO = Metric(GaugeMetricFamily, "toolcrib_canary_info", ("canary", "tool", "state"),
    "Always 1: a ToolCanary, with the state of its trial.")
CANARY_SHARE_RATIO = Metric(GaugeMetricFamily, "toolcrib_canary_share_ratio", ("canary",),
    "Share of the callers that get the candidate now; 0 while it is not served.")
CANARY_CALLS = Metric(CounterMetricFamily, "toolcrib_canary_calls", ("canary", "side"), "Calls of a tool under trial.")
CANARY_FAILURES = Metric(CounterMetricFamily, "toolcrib_canary_failures", ("canary", "side"),
    "Those of them that count as failed when the trial is looked at.")
TOOL_GRANTS = Metric(GaugeMetricFamily, "toolcrib_tool_grants", ("tool", "server"),
    "Bindings that grant a tool, whatever their dates.")
SERIES_FOLDED = Metric(GaugeMetricFamily, "toolcrib_operator_series_folded", ("metric",),
    "Series left out of a metric because its budget is used up.")
# fmt: on


class Propagated:
    """The histograms: how long changes take to be in effect on every replica, and access requests to be decided."""

    def __init__(self) -> None:
        self.histogram = PROPAGATION_SECONDS.on(None)
        self.decisions = ACCESS_DECISION_SECONDS.on(None)
        for outcome in ("approved", "rejected", "expired"):
            self.decisions.labels(outcome)

    def observe(self, seconds: float) -> None:
        """Count one revision."""
        self.histogram.observe(seconds)

    def decided(self, outcome: str, seconds: float) -> None:
        """Count one access request."""
        self.decisions.labels(outcome).observe(seconds)


class StateCollector(Collector):
    """Metrics of one State."""

    def __init__(
        self,
        state: State,
        propagated: Propagated | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._state = state
        self._propagated = propagated or Propagated()
        self._clock = clock

    def collect(self) -> Iterator[Any]:
        """Everything; a standby has the first two and those of its process alone."""
        leads = self._state.role == "leader"
        yield _one(LEADER, float(leads))
        yield _one(PROBLEMS, len(self._state.problems()))
        yield from _of_process()
        if leads and self._state.leading is not None:
            yield from _leading(self._state.leading)
            loop = self._state.leading.loop
            trials = canary_rows(loop.assessor.facts)
            yield from _grants(loop.grants.rows(self._clock()), trials.left_out)
            yield from _canaries(trials)
            yield from self._propagated.histogram.collect()
            yield from self._propagated.decisions.collect()


def _leading(parts: Leading) -> Iterator[_Family]:
    publisher, writer, world = parts.publisher, parts.loop.status_writer, parts.world
    revision, links, counts = publisher.revision, publisher.links, writer.counts
    yield _one(EPOCH, publisher.epoch)
    yield _one(REVISION, revision.seq if revision else 0)
    tools = publisher.snapshot.tools
    yield _one(CATALOG_TOOLS, len(tools))
    yield _one(TOOLS_QUARANTINED, sum(tool.quarantined for tool in tools.values()))
    bindings = publisher.snapshot.bindings
    suspended = sum(binding.suspends for binding in bindings.values())
    yield _one(CATALOG_BINDINGS, len(bindings) - suspended)
    yield _one(AGENTS_SUSPENDED, suspended)
    yield _one(REPLICAS, len(links))
    yield _one(
        REPLICAS_CURRENT, sum(link.confirmed is not None and link.confirmed == revision for link in links)
    )
    yield _one(INDEX_WAITING, parts.index_sync.waiting)
    yield _one(INDEX_LAG_SECONDS, parts.index_sync.lag)
    if parts.probes is not None:
        yield _one(BACKENDS_REPORTED_TIMESTAMP_SECONDS, parts.probes.reported_at or 0.0)
    if parts.imports is not None:
        yield from _imports(parts.imports)
    yield _one(STATUS_WAITING, writer.backlog)
    yield _one(OLDEST_WAITING_SECONDS, parts.loop.oldest_waiting)
    yield from _quotas(parts.loop.assessor.facts.quotas)
    unlisted = {*world.unlisted, *parts.resync.problems}
    yield _of(KIND_UNLISTED, {(kind,): float(kind in unlisted) for kind in world.watched})
    yield _one(STATUS_WRITES, counts.statuses)
    yield _one(FINALIZER_WRITES, counts.finalizers)
    yield _one(WRITE_CONFLICTS, counts.conflicts)
    yield _one(WRITE_FAILURES, counts.failures)
    yield _one(WATCH_REPAIRS, parts.resync.repairs)
    if not (admitted := parts.loop.policies.admitted).external:
        yield _one(ADMISSION_POLICY_INTACT, float(admitted.problem is None))
    if parts.intake is not None:
        yield _one(REGISTRATIONS, parts.intake.created)
    if parts.desk is not None:
        yield _one(ACCESS_REQUESTS_OPEN, parts.desk.open)
        outcomes = parts.desk.outcomes
        yield _of(ACCESS_REQUESTS, {(outcome,): float(outcomes[outcome]) for outcome in OUTCOMES})
    if parts.anchoring is not None:
        yield from _anchors(parts.anchoring)
    yield _one(EVENTS_DROPPED, parts.loop.events.dropped)


def _quotas(quotas: Quotas) -> Iterator[_Family]:
    """Which namespaces have more tools than they may: the first by number, the others together."""
    refused = sorted(
        ((use.refused, name) for name, (use, _) in quotas.over().items()), key=lambda r: (-r[0], r[1])
    )
    rows: dict[Labels, float] = {(name,): float(count) for count, name in refused[:NAMESPACES]}
    if rest := sum(count for count, _ in refused[NAMESPACES:]):
        rows[("other",)] = float(rest)
    yield _of(QUOTA_REFUSED_TOOLS, rows)
    yield _one(QUOTA_USED_RATIO, quotas.fullest)


def _imports(imports: Imports) -> Iterator[_Family]:
    """How the tools of servers come here."""
    outcomes = Counter(seen.outcome for seen in imports.reports.seen.values())
    yield _of(IMPORT_SERVERS, {(outcome.value,): float(outcomes[outcome]) for outcome in ServerOutcome})
    yield _one(IMPORT_FAILING, len(imports.failing))
    yield _one(IMPORT_TOOLS_LEFT_OUT, imports.left_out)
    yield _one(IMPORT_WRITES, imports.applied)
    yield _one(IMPORT_DELETIONS, imports.deleted)
    yield _one(IMPORT_REPORTED_TIMESTAMP_SECONDS, imports.reports.reported_at or 0.0)


def _of_process() -> Iterator[_Family]:
    """What held the event loops, and what garbage collections cost."""
    for one in process.series():
        made = CounterMetricFamily if one.kind == "counter" else GaugeMetricFamily
        yield _of(Metric(made, one.name, one.labels, one.text), one.values)


def _anchors(anchoring: Anchoring) -> Iterator[_Family]:
    yield _of(
        AUDIT_ANCHOR_TIMESTAMP_SECONDS, {(r,): moment for r, moment in sorted(anchoring.anchored.items())}
    )
    yield _one(AUDIT_REGRESSIONS, anchoring.regressions)
    yield _one(AUDIT_ANCHOR_FAILURES, anchoring.failures)


def _canaries(rows: CanaryRows) -> Iterator[_Family]:
    """How the trials of definitions go."""
    yield _of(CANARY_INFO, rows.info)
    yield _of(CANARY_SHARE_RATIO, rows.share)
    yield _of(CANARY_CALLS, rows.calls)
    yield _of(CANARY_FAILURES, rows.failures)


def _grants(rows: Rows, folded: Mapping[str, int]) -> Iterator[_Family]:
    """Who is granted what, until when, and how far it reaches; who is suspended."""
    yield _of(GRANT_INFO, rows.grant_info)
    yield _of(GRANT_EXPIRY_TIMESTAMP_SECONDS, rows.grant_expiry)
    yield _of(GRANT_MATCHED_TOOLS, rows.grant_matched)
    yield _of(TOOL_INFO, rows.tool_info)
    yield _of(TOOL_GRANTS, rows.tool_grants)
    yield _of(AGENT_SUSPENDED, rows.agent_suspended)
    yield _of(SERIES_FOLDED, {(metric,): float(count) for metric, count in {**rows.folded, **folded}.items()})


def _one(metric: Metric[Any], value: float) -> _Family:
    """A metric without labels."""
    return _of(metric, {(): value})


def _of(metric: Metric[Any], found: Mapping[Any, float]) -> _Family:
    """A metric as it is told at a scrape: its values by their labels."""
    family: _Family = metric.kind(metric.name, metric.text, labels=metric.labels)
    for values, value in found.items():
        family.add_metric(values, value)
    return family


def families(state: State, propagated: Propagated) -> list[Any]:
    """Everything that there is to tell of a state now, for `toolcrib.telemetry.exposition.render`."""
    return [*StateCollector(state, propagated).collect(), *_PROCESS.collect()]
