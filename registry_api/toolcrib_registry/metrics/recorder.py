"""What the registry counts. Names are an API; labels come from verified identities and published objects alone.

Agents with a binding, published tools and bindings have series of their own, each within a budget. All else counts
as `other`, so that nobody can make series at will and no observation is lost. Of tools that a caller does not see they
tell what the caller was told, unless `full`: whoever may scrape could tell a hidden tool from none otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from toolcrib import process
from toolcrib.authorizer import Decision, Order, Reason
from toolcrib.identity import Identity
from toolcrib.snapshot import Snapshot
from toolcrib.telemetry import exposition
from toolcrib.version import __version__
from toolcrib.wire.publish import PublishedBinding, PublishedTool
from toolcrib_registry.metrics.decision_log import AuditCounts
from toolcrib_registry.metrics.series import OTHER, Budget, Series

_PROCESS = ProcessCollector(registry=None)
ANONYMOUS = "anonymous"
CLOSED = ("handshake", "headers", "header_bytes", "body", "answer", "connections", "connections_per_peer")
"""Why a connection is closed that would have gone on: what took too long or was too much."""
NOT_PERMITTED = "not_permitted"
"""The reason of a denial as its caller was told: hidden, disabled, denied or not there."""
_LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


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
        folded = Counter(
            "toolcrib_metrics_folded",
            "Observations that count as other: an agent without a binding, or a label beyond its budget.",
            ["label"],
            registry=registry,
        )
        self._agent = Budget(agents, folded.labels("agent").inc)
        self._tool = Budget(tools, folded.labels("tool").inc)
        self._server = Budget(tools, folded.labels("server").inc)
        self._grant = Budget(grants, folded.labels("grant").inc)
        self._identities: dict[str, Identity] = {}
        self._pairs: set[tuple[str, str]] = set()
        self._rules: set[tuple[str, str]] = set()
        self._timed: set[tuple[str, str]] = set()
        self._most_pairs = pairs
        self._discoveries = Series(
            Counter(
                "toolcrib_discoveries",
                "Lists answered, by agent and route.",
                ["agent", "route"],
                registry=registry,
            )
        )
        self._denials = Series(
            Counter(
                "toolcrib_denials",
                "Refused decisions about single tools, by agent, action, reason and deciding binding (rule). Of tools that "
                "the agent does not see the reason is not_permitted, without a rule, unless metrics.reasons is full.",
                ["agent", "action", "reason", "rule"],
                registry=registry,
            )
        )
        self._uses = Series(
            Counter(
                "toolcrib_grant_uses",
                "Calls let through on the strength of a binding; of several that grant only together, the first.",
                ["kind", "grant"],
                registry=registry,
            )
        )
        self._last_used = Series(
            Gauge(
                "toolcrib_grant_last_used_timestamp_seconds",
                "When this replica last let a call through on the strength of a binding (as toolcrib_grant_uses_total).",
                ["kind", "grant"],
                registry=registry,
            )
        )
        self._limited = Series(
            Counter(
                "toolcrib_limited_calls",
                "Calls refused since a limit of a binding was used up: per_minute, per_day or concurrent; or "
                "default_concurrent, the agent's own on this replica.",
                ["kind", "grant", "limit"],
                registry=registry,
            )
        )
        self.counter_errors = Counter(
            "toolcrib_counter_store_errors",
            "Questions that the store of counters did not answer: calls of read-only tools went through uncounted, "
            "others were refused.",
            registry=registry,
        )
        self._decisions = Series(
            Counter(
                "toolcrib_decisions",
                "Decisions about single tools.",
                ["action", "allowed", "reason"],
                registry=registry,
            )
        )
        self._calls = Series(
            Counter(
                "toolcrib_calls",
                "Tool calls by outcome: ok, or the code of the problem.",
                ["agent", "tool", "server", "outcome"],
                registry=registry,
            )
        )
        self._call_seconds = Series(
            Histogram(
                "toolcrib_call_duration_seconds",
                "Time of a call, the registry's own part included.",
                ["tool", "server", "outcome"],
                buckets=_LATENCIES,
                registry=registry,
            )
        )
        self._cut = Counter(
            "toolcrib_calls_cut",
            "Calls let through whose answer was cut, because they were not granted any more.",
            ["reason"],
            registry=registry,
        )
        self._search_seconds = Histogram(
            "toolcrib_search_duration_seconds",
            "Time of a search.",
            ["mode"],
            buckets=_LATENCIES,
            registry=registry,
        )
        self._empty = Counter(
            "toolcrib_searches_empty", "Searches that found nothing.", ["mode"], registry=registry
        )
        self._degraded = Counter(
            "toolcrib_searches_degraded",
            "Searches answered without the index or embedder.",
            registry=registry,
        )
        self._refused = Counter(
            "toolcrib_authentications_refused",
            "Requests with a token that proves nothing.",
            registry=registry,
        )
        self.validators_evicted = Counter(
            "toolcrib_validator_evictions_total",
            "Compiled schemas that made room for others; each is compiled again at its next call.",
            registry=registry,
        )
        self._streams = Gauge("toolcrib_watch_streams", "Open watch streams.", registry=registry)
        self.open_streams = 0
        self._watch_events = Counter(
            "toolcrib_watch_events", "Watch events sent.", ["type"], registry=registry
        )
        self._dropped_streams = Counter(
            "toolcrib_watch_streams_dropped",
            "Watch streams closed because the reader was slow.",
            registry=registry,
        )
        self.audit = AuditCounts(registry)
        self._publishes = Counter("toolcrib_publishes", "Publishes by result.", ["result"], registry=registry)
        self.query_embedded = Counter(
            "toolcrib_queries_embedded",
            "Requests that went through the embedder to be searched for, each once with its parts.",
            registry=registry,
        )
        self.query_reused = Counter(
            "toolcrib_queries_reused",
            "Requests whose vectors were there or being made for another search.",
            registry=registry,
        )
        self.indexed = Gauge(
            "toolcrib_index_tools",
            "Tools of the snapshot that were read back from the search index as they are; NaN where the operator has not"
            " asked this replica for two minutes.",
            registry=registry,
        )
        self.index_lag = Gauge(
            "toolcrib_index_lag_tools",
            "Tools of the snapshot that the index is not known to hold as they are, counted at this scrape; NaN where the"
            " operator has not asked this replica for two minutes.",
            registry=registry,
        )
        self.index_embedded = Counter(
            "toolcrib_index_embedded_tools",
            "Tools whose text went through the embedder, to be indexed.",
            registry=registry,
        )
        self.index_reused = Counter(
            "toolcrib_index_reused_tools",
            "Tools indexed with vectors that were there: their text had not changed, or was known from before.",
            registry=registry,
        )
        self.index_written = Counter(
            "toolcrib_index_written_tools", "Tools written to the search index.", registry=registry
        )
        self.index_healthy = Gauge(
            "toolcrib_index_healthy",
            "Whether the search index answered, asked at this scrape: 1 or 0.",
            registry=registry,
        )
        self._index_write = Gauge(
            "toolcrib_index_last_write_timestamp_seconds",
            "When this replica last wrote tools to the search index or removed some; 0 if it has not since its start.",
            registry=registry,
        )
        self._embed_failures = Counter(
            "toolcrib_embed_failures",
            "Requests to the embedder that brought no vectors, for a query or for documents to be indexed.",
            ["purpose"],
            registry=registry,
        )
        for purpose in ("query", "document"):
            self._embed_failures.labels(purpose)
        self._certificates = Gauge(
            "toolcrib_certificate_expiry_timestamp_seconds",
            "When the certificate that a listener serves expires; `agents`, `metrics` or `admin`.",
            ["listener"],
            registry=registry,
        )
        self._connections = Gauge(
            "toolcrib_connections",
            "Open connections to a listener; `agents` (in the local mode: all), `metrics` or `admin`.",
            ["listener"],
            registry=registry,
        )
        self._closed_connections = Counter(
            "toolcrib_connections_closed",
            "Connections refused or closed for their client: handshake, headers, body or answer (too slow), header_bytes (too "
            "many), connections, connections_per_peer (no place left).",
            ["listener", "reason"],
            registry=registry,
        )
        info = Gauge(
            "toolcrib_build_info", "Always 1; the version is a label.", ["version"], registry=registry
        )
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
        for name, text, read in (
            ("toolcrib_catalog_tools", "Active tools of the snapshot.", catalog),
            ("toolcrib_snapshot_bindings", "Bindings of the snapshot.", bindings),
            ("toolcrib_policy_epoch", "Epoch of the revision held.", epoch),
            ("toolcrib_policy_seq", "Sequence number of the revision held.", seq),
            ("toolcrib_policy_age_seconds", "Seconds since a leader was heard.", age),
        ):
            Gauge(name, text, registry=self.registry).set_function(read)

    def observe_calls(self, *, in_progress: Callable[[], float], waiting: Callable[[], float]) -> None:
        """Calls to backends, read when scraped."""
        for name, text, read in (
            ("toolcrib_backend_calls_in_progress", "Calls to backends in progress.", in_progress),
            ("toolcrib_backend_calls_waiting", "Calls that wait for room at their backend.", waiting),
        ):
            Gauge(name, text, registry=self.registry).set_function(read)

    def observe_held(self, *, staged: Callable[[], float], validators: Callable[[], float]) -> None:
        """Gauges of bounded memory that are read when scraped."""
        for name, text, read in (
            (
                "toolcrib_snapshot_staged_bytes",
                "Chunks of a full snapshot that is not committed yet.",
                staged,
            ),
            (
                "toolcrib_validator_bytes",
                "Estimated memory of compiled schemas (`limits.validator_bytes`).",
                validators,
            ),
        ):
            Gauge(name, text, registry=self.registry).set_function(read)

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
        rule = "" if decision.binding is None else self._grant(_rule(decision.binding))
        if rule not in ("", OTHER) and not _within((agent, rule), self._rules, self._most_pairs):
            rule = self._grant.fold()
        self._denials(agent, action, decision.reason.value, rule).inc()

    def refused(self, action: str, identity: Identity | None) -> None:
        """A decision about a name that means nothing to its caller: what it means is not told."""
        reason = Reason.NO_IDENTITY.value if identity is None else NOT_PERMITTED
        self._decisions(action, "false", reason).inc()
        self._denials(self.agent(identity), action, reason, "").inc()

    def charged(self, binding: PublishedBinding) -> None:
        """A call was let through because of `binding`."""
        labels = self._labels(binding)
        self._uses(*labels).inc()
        self._last_used(*labels).set(self._clock())

    def limited(self, binding: PublishedBinding | None, limit: str) -> None:
        """A call was refused since `limit` of `binding` was used up; None: a token alone granted it."""
        labels = ("", "") if binding is None else self._labels(binding)
        self._limited(*labels, limit).inc()

    def _labels(self, binding: PublishedBinding) -> tuple[str, str]:
        rule = self._grant(_rule(binding))
        return binding.kind, OTHER if rule is OTHER else rule.removeprefix(f"{binding.kind}/")

    def called(
        self, identity: Identity | None, tool: PublishedTool | None, outcome: str, seconds: float
    ) -> None:
        """A call ended. `tool` is None where the caller may not know of it: then names stay out."""
        agent, name, server = self.agent(identity), "", ""
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
            self._call_seconds(*labels, outcome).observe(seconds)
            if name != OTHER and not _within((agent, name), self._pairs, self._most_pairs):
                name, server = folded
                self._tool.fold()
                if server:
                    self._server.fold()
        self._calls(agent, name, server, outcome).inc()

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
        snapshot, now = self._snapshot(), self._clock()
        policy, tools = snapshot.policy, snapshot.tools
        agents = self._agent.sweep(lambda label: bool(policy.of(self._identities[label])), now)
        ids = self._tool.sweep(tools.__contains__, now)
        servers = self._server.sweep({t.server for t in tools.values()}.__contains__, now)
        rules = self._grant.sweep({_rule(b) for b in snapshot.bindings.values()}.__contains__, now)
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
            self._uses.forget(lambda k: "/".join(k) in rules)
            self._last_used.forget(lambda k: "/".join(k) in rules)
            self._limited.forget(lambda k: "/".join(k[:2]) in rules)
        self._pairs = {p for p in self._pairs if p[0] not in agents and p[1] not in ids}
        self._rules = {p for p in self._rules if p[0] not in agents and p[1] not in rules}
        self._timed = {p for p in self._timed if p[0] not in ids}


class _OfProcess(Collector):
    """What held the event loop, and what garbage collections cost."""

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        for one in process.series():
            made = CounterMetricFamily if one.kind == "counter" else GaugeMetricFamily
            family = made(one.name, one.text, labels=one.labels)
            for labels, value in one.values.items():
                family.add_metric(labels, value)
            yield family


def _rule(binding: PublishedBinding) -> str:
    """`kind/namespace/name`, or `kind/name` of a cluster binding."""
    if binding.namespace is None:
        return f"{binding.kind}/{binding.name}"
    return f"{binding.kind}/{binding.namespace}/{binding.name}"


def _within(pair: tuple[str, str], known: set[tuple[str, str]], size: int) -> bool:
    """Whether the pair has a place, or gets one."""
    if pair in known:
        return True
    if len(known) >= size:
        return False
    known.add(pair)
    return True
