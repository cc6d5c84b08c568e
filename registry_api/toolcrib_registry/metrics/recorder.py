"""What the registry counts. Names are an API; labels come from verified identities and published objects alone.

Agents with a binding, published tools and bindings have series of their own, each within a budget. All else counts
as `other`, so that nobody can make series at will and no observation is lost. Of tools that a caller does not see they
tell what the caller was told, unless `full`: anyone who may scrape could tell a hidden tool from none otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from toolcrib import process
from toolcrib.authorizer import Decision, Order, Reason
from toolcrib.identity import Identity
from toolcrib.snapshot import Snapshot
from toolcrib.telemetry import exposition
from toolcrib.telemetry.metric import Metric
from toolcrib.version import __version__
from toolcrib.wire.probes import ProbeOutcome
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.metrics import table
from toolcrib_registry.metrics.decision_log import AuditCounts
from toolcrib_registry.metrics.grants import GrantMetrics
from toolcrib_registry.metrics.grants import rule as rule_of
from toolcrib_registry.metrics.series import OTHER, Budget, Series
from toolcrib_registry.metrics.servers import ServerCounts

_PROCESS = ProcessCollector(registry=None)
ANONYMOUS = "anonymous"
CLOSED = ("handshake", "headers", "header_bytes", "body", "answer", "connections", "connections_per_peer")
"""Why a connection is closed that would have gone on: what took too long or was too much."""
NOT_PERMITTED = "not_permitted"
"""The reason of a denial as its caller was told: hidden, disabled, denied or not there."""


class Metrics:
    """All series, on the given collector registry.

    Args:
        registry: where the series are.
        agents, tools, grants: how many of each have series of their own (servers: as many as tools).
        pairs: how many combinations of agent and tool, or of agent and deciding rule, have; a fifth as many of tool
            and outcome have a histogram.
        full: denials of tools that the caller does not see carry their reason and rule.
        snapshot: what is published; it says who has a binding and what is gone.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        agents: int = 1000,
        tools: int = 5000,
        grants: int = 2000,
        pairs: int = 10_000,
        full: bool = False,
        snapshot: Callable[[], Snapshot] = Snapshot,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.registry = registry
        self.full = full
        self._snapshot, self._clock = snapshot, clock
        folded = table.METRICS_FOLDED.on(registry)
        self._agent = Budget(agents, folded.labels("agent").inc)
        self._tool = Budget(tools, folded.labels("tool").inc)
        self._server = Budget(tools, folded.labels("server").inc)
        self._grant = Budget(grants, folded.labels("grant").inc)
        self._identities: dict[str, Identity] = {}
        self._pairs: set[tuple[str, str]] = set()
        self._rules: set[tuple[str, str]] = set()
        self._timed: set[tuple[str, str]] = set()
        self._most_pairs = pairs
        self._ends: dict[tuple[str, str, str | None, str], tuple[Counter, Histogram]] = {}
        """By agent, tool id, server and outcome what counts and times a call, where both have places; all forgotten by `sweep`."""
        self._discoveries = Series(table.DISCOVERIES.on(registry))
        self._denials = Series(table.DENIALS.on(registry))
        self.grants = GrantMetrics(registry, self._grant, pairs, clock)
        self.counter_errors = table.COUNTER_STORE_ERRORS.on(registry)
        self._decisions = Series(table.DECISIONS.on(registry))
        self._calls = Series(table.CALLS.on(registry))
        self._call_seconds = Series(table.CALL_DURATION_SECONDS.on(registry))
        self._cut = table.CALLS_CUT.on(registry)
        self._confirmations = table.CALL_CONFIRMATIONS.on(registry)
        for outcome in table.CONFIRMATION_OUTCOMES:
            self._confirmations.labels(outcome)
        self._search_seconds = table.SEARCH_DURATION_SECONDS.on(registry)
        self._empty = table.SEARCHES_EMPTY.on(registry)
        self._degraded = table.SEARCHES_DEGRADED.on(registry)
        self._refused = table.AUTHENTICATIONS_REFUSED.on(registry)
        self._sessions_ignored = table.SESSION_CLAIMS_IGNORED.on(registry)
        self.validators_evicted = table.VALIDATOR_EVICTIONS.on(registry)
        self._streams = table.WATCH_STREAMS.on(registry)
        self.open_streams = 0
        self._watch_events = table.WATCH_EVENTS.on(registry)
        self._dropped_streams = table.WATCH_STREAMS_DROPPED.on(registry)
        self.audit = AuditCounts(registry)
        self.servers = ServerCounts(registry)
        self._publishes = table.PUBLISHES.on(registry)
        self.query_embedded = table.QUERIES_EMBEDDED.on(registry)
        self.query_reused = table.QUERIES_REUSED.on(registry)
        self.indexed = table.INDEX_TOOLS.on(registry)
        self.index_lag = table.INDEX_LAG_TOOLS.on(registry)
        self.index_embedded = table.INDEX_EMBEDDED_TOOLS.on(registry)
        self.index_reused = table.INDEX_REUSED_TOOLS.on(registry)
        self.index_written = table.INDEX_WRITTEN_TOOLS.on(registry)
        self.index_healthy = table.INDEX_HEALTHY.on(registry)
        self._index_write = table.INDEX_LAST_WRITE_TIMESTAMP_SECONDS.on(registry)
        self._probes = table.BACKEND_PROBE_DURATION_SECONDS.on(registry)
        self.breaker_opened = table.BACKEND_BREAKER_OPENINGS.on(registry)
        self._fallback_calls = table.FALLBACK_CALLS.on(registry)
        self._token_requests = table.TOKEN_REQUESTS.on(registry)
        for outcome in table.TOKEN_OUTCOMES:
            self._token_requests.labels(outcome)
        self._backends = table.BACKENDS.on(registry)
        self._embed_failures = table.EMBED_FAILURES.on(registry)
        for purpose in ("query", "document"):
            self._embed_failures.labels(purpose)
        self._certificates = table.CERTIFICATE_EXPIRY_TIMESTAMP_SECONDS.on(registry)
        self._connections = table.CONNECTIONS.on(registry)
        self._closed_connections = table.CONNECTIONS_CLOSED.on(registry)
        info = table.BUILD_INFO.on(registry)
        info.labels(__version__).set(1)
        registry.register(_OfProcess())

    def observe_state(
        self,
        *,
        catalog: Callable[[], float],
        bindings: Callable[[], float],
        epoch: Callable[[], float],
        seq: Callable[[], float],
        age: Callable[[], float],
    ) -> None:
        """Gauges that are read when scraped. `age` gives NaN while no leader has been heard."""
        self._read(table.CATALOG_TOOLS, catalog)
        self._read(table.SNAPSHOT_BINDINGS, bindings)
        self._read(table.POLICY_EPOCH, epoch)
        self._read(table.POLICY_SEQ, seq)
        self._read(table.POLICY_AGE_SECONDS, age)

    def observe_calls(self, *, in_progress: Callable[[], float], waiting: Callable[[], float]) -> None:
        """Calls to backends, read when scraped."""
        self._read(table.BACKEND_CALLS_IN_PROGRESS, in_progress)
        self._read(table.BACKEND_CALLS_WAITING, waiting)

    def observe_confirmations(self, waiting: Callable[[], float]) -> None:
        """Read at each scrape: how many calls wait for a person."""
        self._read(table.CALLS_AWAITING_CONFIRMATION, waiting)

    def confirmation(self, outcome: str) -> None:
        """A call that a person confirms came so far: one of `table.CONFIRMATION_OUTCOMES`."""
        self._confirmations.labels(outcome).inc()

    def observe_breakers(self, opened: Callable[[], float]) -> None:
        """Backends that are left alone, read when scraped."""
        self._read(table.BACKEND_BREAKERS_OPEN, opened)

    def token_requested(self, outcome: str) -> None:
        """An access token for a backend was asked for; `outcome` is one of `TOKEN_OUTCOMES`."""
        self._token_requests.labels(outcome).inc()

    def observe_backends(self, counts: Callable[[], Mapping[ProbeOutcome, int]]) -> None:
        """Backends by the outcome of their last probe, read when scraped."""
        for outcome in ProbeOutcome:
            self._backends.labels(outcome.value).set_function(partial(_count, counts, outcome))

    def probed(self, outcome: ProbeOutcome, seconds: float) -> None:
        """A backend was probed."""
        self._probes.labels(outcome.value).observe(seconds)

    def observe_held(self, *, staged: Callable[[], float], validators: Callable[[], float]) -> None:
        """Gauges of bounded memory that are read when scraped."""
        self._read(table.SNAPSHOT_STAGED_BYTES, staged)
        self._read(table.VALIDATOR_BYTES, validators)

    def _read(self, metric: Metric[Gauge], value: Callable[[], float]) -> None:
        metric.on(self.registry).set_function(value)

    def observe_certificate(self, listener: str, expiry: Callable[[], float]) -> None:
        """The expiry of the certificate that a listener serves, read when scraped."""
        self._certificates.labels(listener).set_function(expiry)

    def observe_door(self, listener: str, read: Callable[[], float]) -> Callable[[str], None]:
        """The connections of a listener, read when scraped; what counts one that is refused or closed."""
        self._connections.labels(listener).set_function(read)
        counters = {reason: self._closed_connections.labels(listener, reason) for reason in CLOSED}
        return lambda reason: counters[reason].inc()

    def agent(self, identity: Identity | None) -> str:
        """The label of an identity: `namespace/name`, `issuer:subject`, `other`, or `anonymous` without one."""
        if identity is None:
            return ANONYMOUS
        label = identity.label
        if label in self._identities:
            return label
        if not self._snapshot().policy.of(identity):
            return self._agent.fold()
        if (admitted := self._agent(label)) is not OTHER:
            self._identities[label] = identity
        return admitted

    def discovered(self, identity: Identity | None, route: str) -> None:
        """A list was answered."""
        self._discoveries(self.agent(identity), route).inc()

    def decided(self, action: str, decision: Decision, identity: Identity | None) -> None:
        """A decision about one tool."""
        self._decisions(action, "true" if decision.allowed else "false", decision.reason.value).inc()
        if decision.allowed:
            return
        agent = self.agent(identity)
        rule = "" if decision.binding is None else self._grant(rule_of(decision.binding))
        if rule not in ("", OTHER) and not _within((agent, rule), self._rules, self._most_pairs):
            rule = self._grant.fold()
        self._denials(agent, action, decision.reason.value, rule).inc()

    def refused(self, action: str, identity: Identity | None) -> None:
        """A decision about a name that means nothing to its caller: what it means is not told."""
        if identity is None:
            reason = Reason.NO_IDENTITY.value
        else:  # about the caller, whatever the name
            suspended = self._snapshot().policy.suspension(identity) is not None
            reason = Reason.AGENT_SUSPENDED.value if suspended else NOT_PERMITTED
        self._decisions(action, "false", reason).inc()
        self._denials(self.agent(identity), action, reason, "").inc()

    def fell_back(self, asked: PublishedTool, outcome: str) -> None:
        """A call in the place of `asked` ended."""
        self._fallback_calls.labels(self._tool(asked.tool_id), outcome).inc()

    def called(
        self, identity: Identity | None, tool: PublishedTool | None, outcome: str, seconds: float
    ) -> None:
        """A call ended. `tool` is None where the caller may not know of it: then names stay out."""
        key = (
            (identity.label, tool.tool_id, tool.server, outcome)
            if identity is not None and tool is not None
            else None
        )
        if key is not None and (known := self._ends.get(key)) is not None:
            known[0].inc()
            known[1].observe(seconds)
            return
        agent, name, server = self.agent(identity), "", ""
        timer: Histogram | None = None
        if tool is not None:
            folded = OTHER, OTHER if tool.server else ""
            if (name := self._tool(tool.tool_id)) == OTHER:
                # `other` by server would be series beyond the pairs
                server = self._server.fold() if tool.server else ""
            elif tool.server:
                server = self._server(tool.server)
            # a histogram is 17 series
            apart = name == OTHER or _within((name, outcome), self._timed, self._most_pairs // 5)
            labels = (name, server) if apart else folded
            timer = self._call_seconds(*labels, outcome)
            timer.observe(seconds)
            if name != OTHER and not _within((agent, name), self._pairs, self._most_pairs):
                name, server = folded
                self._tool.fold()
                if server:
                    self._server.fold()
        counter = self._calls(agent, name, server, outcome)
        counter.inc()
        # what is counted as other is so each time, and folded
        if key is not None and timer is not None and apart and OTHER not in (agent, name, server):
            self._ends[key] = counter, timer

    def cut(self, decision: Decision) -> None:
        """A call in flight was cut because of `decision`: its caller does not see the tool any more."""
        told = self.full or decision.reason.step is Order.IDENTITY  # about the caller, whatever the tool
        self._cut.labels(decision.reason.value if told else NOT_PERMITTED).inc()

    def searched(self, mode: str, found: int, seconds: float, *, degraded: bool) -> None:
        """A search was answered."""
        self._search_seconds.labels(mode).observe(seconds)
        if not found:
            self._empty.labels(mode).inc()
        if degraded:
            self._degraded.inc()

    def index_changed(self) -> None:
        """The search index took a write or a removal."""
        self._index_write.set(self._clock())

    def embed_failed(self, purpose: str) -> None:
        """The embedder brought no vectors, for `query` or `document`."""
        self._embed_failures.labels(purpose).inc()

    def refused_token(self) -> None:
        """A request came with a bad token."""
        self._refused.inc()

    def ignored_session(self) -> None:
        """A request's session is none, and is not recorded."""
        self._sessions_ignored.inc()

    def stream_opened(self) -> None:
        """A watch stream begins."""
        self.open_streams += 1
        self._streams.set(self.open_streams)

    def stream_closed(self) -> None:
        """A watch stream has ended."""
        self.open_streams -= 1
        self._streams.set(self.open_streams)

    def watch_event(self, kind: str, count: int = 1) -> None:
        """Events were sent on a watch stream."""
        self._watch_events.labels(kind).inc(count)

    def watch_dropped(self) -> None:
        """A slow reader's stream was closed."""
        self._dropped_streams.inc()

    def published(self, result: str) -> None:
        """A publish was applied or refused."""
        self._publishes.labels(result).inc()

    def exposition(self) -> bytes:
        """All series in the text format; may run in a thread of its own."""
        return exposition.render([*self.registry.collect(), *_PROCESS.collect()])

    def sweep(self) -> None:
        """Forget the series of agents, tools and bindings that have been gone for long; before each exposition."""
        self._ends.clear()
        snapshot, now = self._snapshot(), self._clock()
        policy, tools = snapshot.policy, snapshot.tools
        agents = self._agent.sweep(lambda label: bool(policy.of(self._identities[label])), now)
        ids = self._tool.sweep(tools.__contains__, now)
        servers = self._server.sweep({t.server for t in tools.values()}.__contains__, now)
        rules = self._grant.sweep({rule_of(b) for b in snapshot.bindings.values()}.__contains__, now)
        if agents:
            for label in agents:
                del self._identities[label]
            self._discoveries.forget(lambda k: k[0] in agents)
            self._denials.forget(lambda k: k[0] in agents)
            self._calls.forget(lambda k: k[0] in agents)
        if ids:
            self._calls.forget(lambda k: k[1] in ids)
            self._call_seconds.forget(lambda k: k[0] in ids)
        if servers:
            self._calls.forget(lambda k: k[2] in servers)
            self._call_seconds.forget(lambda k: k[1] in servers)
        if rules:
            self._denials.forget(lambda k: k[3] in rules)
        self.grants.sweep(rules, lambda tool_id: snapshot.governed(tool_id) is not None)
        self._pairs = {p for p in self._pairs if p[0] not in agents and p[1] not in ids}
        self._rules = {p for p in self._rules if p[0] not in agents and p[1] not in rules}
        self._timed = {p for p in self._timed if p[0] not in ids}


def _count(counts: Callable[[], Mapping[ProbeOutcome, int]], outcome: ProbeOutcome) -> float:
    return counts().get(outcome, 0)


class _OfProcess(Collector):
    """What held the event loop, and what garbage collections cost."""

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        for one in process.series():
            made = CounterMetricFamily if one.kind == "counter" else GaugeMetricFamily
            family = made(one.name, one.text, labels=one.labels)
            for labels, value in one.values.items():
                family.add_metric(labels, value)
            yield family


def _within(pair: tuple[str, str], known: set[tuple[str, str]], size: int) -> bool:
    """Whether the pair has a place, or gets one."""
    if pair in known:
        return True
    if len(known) >= size:
        return False
    known.add(pair)
    return True
