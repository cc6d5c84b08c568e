"""What the registry counts. Names are an API; labels come from verified identities and published tools alone.

A label has a budget: agents and tools beyond it are counted as `other`, so that nobody can make series at will.
"""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from toolcrib.authorizer import Decision
from toolcrib.identity import Identity
from toolcrib.version import __version__
from toolcrib.wire.publish import PublishedTool

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OTHER = "other"
_LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Budget:
    """Admits the first `size` values; the rest are `other`."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._known: set[str] = set()

    def __call__(self, value: str) -> str:
        """`value`, or `other`."""
        if value in self._known:
            return value
        if len(self._known) >= self._size:
            return OTHER
        self._known.add(value)
        return value


class Metrics:
    """All series, on the given collector registry."""

    def __init__(self, registry: CollectorRegistry, *, agents: int = 1000, tools: int = 5000) -> None:
        self.registry = registry
        self._agent, self._tool, self._server = Budget(agents), Budget(tools), Budget(tools)
        self._discoveries = Counter(
            "toolcrib_discoveries",
            "Lists answered, by agent and route.",
            ["agent", "route"],
            registry=registry,
        )
        self._discovery_children: dict[tuple[str, str], Counter] = {}
        self._decisions = Counter(
            "toolcrib_decisions",
            "Decisions about single tools.",
            ["action", "allowed", "reason"],
            registry=registry,
        )
        self._calls = Counter(
            "toolcrib_calls",
            "Tool calls by outcome: ok, or the code of the problem.",
            ["agent", "tool", "server", "outcome"],
            registry=registry,
        )
        self._call_seconds = Histogram(
            "toolcrib_call_duration_seconds",
            "Time of a call, the registry's own part included.",
            ["tool", "server", "outcome"],
            buckets=_LATENCIES,
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
        self.log_dropped = Counter(
            "toolcrib_decision_log_dropped_records",
            "Decision records lost to a full queue.",
            registry=registry,
        )
        self._publishes = Counter("toolcrib_publishes", "Publishes by result.", ["result"], registry=registry)
        self.indexed = Gauge(
            "toolcrib_index_tools", "Tools read back from the search index.", registry=registry
        )
        self.index_lag = Gauge(
            "toolcrib_index_lag_tools", "Tools of the snapshot that the index lacks.", registry=registry
        )
        self.index_embedded = Counter(
            "toolcrib_index_embedded_tools",
            "Tools whose text went through the embedder, to be indexed.",
            registry=registry,
        )
        self.index_written = Counter(
            "toolcrib_index_written_tools", "Tools written to the search index.", registry=registry
        )
        info = Gauge(
            "toolcrib_build_info", "Always 1; the version is a label.", ["version"], registry=registry
        )
        info.labels(__version__).set(1)

    def observe_state(
        self,
        *,
        catalog: Callable[[], float],
        epoch: Callable[[], float],
        seq: Callable[[], float],
        age: Callable[[], float],
    ) -> None:
        """Gauges that are read when scraped. `age` gives NaN while no leader has been heard."""
        for name, text, read in (
            ("toolcrib_catalog_tools", "Active tools of the snapshot.", catalog),
            ("toolcrib_policy_epoch", "Epoch of the revision held.", epoch),
            ("toolcrib_policy_seq", "Sequence number of the revision held.", seq),
            ("toolcrib_policy_age_seconds", "Seconds since a leader was heard.", age),
        ):
            Gauge(name, text, registry=self.registry).set_function(read)

    def agent(self, identity: Identity | None) -> str:
        """The label of an identity: `namespace/name`, or `anonymous`."""
        return "anonymous" if identity is None else self._agent(identity.label)

    def discovered(self, identity: Identity | None, route: str) -> None:
        """A list was answered."""
        key = (self.agent(identity), route)
        child = self._discovery_children.get(key)
        if child is None:
            child = self._discovery_children[key] = self._discoveries.labels(*key)
        child.inc()

    def decided(self, action: str, decision: Decision) -> None:
        """A decision about one tool."""
        self._decisions.labels(action, "true" if decision.allowed else "false", decision.reason.value).inc()

    def called(
        self, identity: Identity | None, tool: PublishedTool | None, outcome: str, seconds: float
    ) -> None:
        """A call ended. `tool` is None where the caller may not know of it: then names stay out."""
        name = self._tool(tool.tool_id) if tool else ""
        server = self._server(tool.server) if tool and tool.server else ""
        self._calls.labels(self.agent(identity), name, server, outcome).inc()
        if tool is not None:
            self._call_seconds.labels(name, server, outcome).observe(seconds)

    def searched(self, mode: str, found: int, seconds: float, *, degraded: bool) -> None:
        """A search was answered."""
        self._search_seconds.labels(mode).observe(seconds)
        if not found:
            self._empty.labels(mode).inc()
        if degraded:
            self._degraded.inc()

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
        """All series in the text format."""
        return generate_latest(self.registry)
