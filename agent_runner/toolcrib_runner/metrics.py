"""The runner's numbers. Names, labels and meanings are an API: docs/reference lists them and a test compares.

`toolcrib_agent_*` is about an agent's doing, `toolcrib_runner_*` about the process. Labels are bounded: `agent` is
this process's own, `tool` a discovered name (beyond `TOOL_BUDGET` different ones: `other`), `outcome` `ok` or an
error code of a fixed set.
"""

from __future__ import annotations

import threading

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from toolcrib.telemetry.metric import Metric
from toolcrib.version import __version__
from toolcrib_runner.discovery import Rediscovery
from toolcrib_runner.ports import Observer, Reply

TOOL_BUDGET = 1000
OUTCOME_BUDGET = 64
_CALL_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_MODEL_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320)

# fmt: off
_DISCOVERIES = Metric(Counter, "toolcrib_runner_discoveries_total", ("agent", "outcome"),
    "Discoveries by agent and outcome: changed, unchanged, failed.")
_WATCH_CONNECTED = Metric(Gauge, "toolcrib_runner_watch_connected", ("agent",),
    "1 while the live stream of the agent's tools is open.")
_REGISTRY_UP = Metric(Gauge, "toolcrib_runner_registry_up", ("agent",),
    "1 if the agent's last discovery succeeded.")
_TOOLS_AVAILABLE = Metric(Gauge, "toolcrib_agent_tools_available", ("agent",),
    "Tools that the agent knows now.")
_TOOLS_CHANGED = Metric(Counter, "toolcrib_agent_tools_changed_total", ("agent", "change"),
    "Tools of the agent by change: gained, lost, changed.")
_TOOL_CALLS = Metric(Counter, "toolcrib_agent_tool_calls_total", ("agent", "tool", "outcome"),
    "Calls of tools by agent, tool and outcome (ok, or the code of the error).")
_TOOL_CALL_DURATION_SECONDS = Metric(Histogram, "toolcrib_agent_tool_call_duration_seconds", ("agent", "tool", "outcome"),
    "Duration of tool calls, as seen by the agent.", _CALL_SECONDS)
_TOKENS = Metric(Counter, "toolcrib_agent_tokens_total", ("agent", "mode", "phase", "kind"),
    "Model tokens by agent, mode, phase (discovery, execution) and kind: prompt, completion.")
_CACHED_TOKENS = Metric(Counter, "toolcrib_agent_cached_tokens_total", ("agent", "mode", "phase"),
    "Prompt tokens that the endpoint took from its cache, by agent, mode and phase.")
_MODEL_REQUESTS = Metric(Counter, "toolcrib_runner_model_requests_total", ("agent", "mode", "outcome"),
    "Requests to the model by agent, mode and outcome (ok, or the code of the error).")
_MODEL_REQUEST_DURATION_SECONDS = Metric(Histogram, "toolcrib_runner_model_request_duration_seconds", ("agent", "mode", "outcome"),
    "Duration of requests to the model.", _MODEL_SECONDS)
_BUILD_INFO = Metric(Gauge, "toolcrib_runner_build_info", ("version",), "Always 1; the label is the version.")
# fmt: on


class RunnerMetrics(Observer):
    """Counts what an observer is told, on the given registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._lock = threading.Lock()
        self._tools: set[str] = set()
        self._outcomes: set[str] = set()
        self._discoveries = _DISCOVERIES.on(registry)
        self._watching = _WATCH_CONNECTED.on(registry)
        self._registry_up = _REGISTRY_UP.on(registry)
        self._available = _TOOLS_AVAILABLE.on(registry)
        self._changed = _TOOLS_CHANGED.on(registry)
        self._calls = _TOOL_CALLS.on(registry)
        self._call_seconds = _TOOL_CALL_DURATION_SECONDS.on(registry)
        self._tokens = _TOKENS.on(registry)
        self._cached = _CACHED_TOKENS.on(registry)
        self._model_requests = _MODEL_REQUESTS.on(registry)
        self._model_seconds = _MODEL_REQUEST_DURATION_SECONDS.on(registry)
        build = _BUILD_INFO.on(registry)
        build.labels(__version__).set(1)

    def discovered(self, agent: str, outcome: str, tools: int) -> None:
        """Count a discovery and note how many tools there are."""
        self._discoveries.labels(agent, outcome).inc()
        self._available.labels(agent).set(tools)
        self._registry_up.labels(agent).set(0 if outcome == "failed" else 1)

    def changed(self, agent: str, change: Rediscovery) -> None:
        """Count the tools that came, went, or are another."""
        for kind, names in (("gained", change.gained), ("lost", change.lost), ("changed", change.changed)):
            self._changed.labels(agent, kind).inc(len(names))

    def following(self, agent: str, connected: bool) -> None:
        """Note whether the live stream is open."""
        self._watching.labels(agent).set(connected)

    def called(self, agent: str, tool: str, outcome: str, seconds: float) -> None:
        """Count a call of a tool."""
        labels = (agent, self._within(tool, self._tools, TOOL_BUDGET), self._outcome(outcome))
        self._calls.labels(*labels).inc()
        self._call_seconds.labels(*labels).observe(seconds)

    def replied(
        self, agent: str, mode: str, phase: str, outcome: str, seconds: float, reply: Reply | None
    ) -> None:
        """Count a request to the model and its tokens."""
        self._model_requests.labels(agent, mode, outcome).inc()
        self._model_seconds.labels(agent, mode, outcome).observe(seconds)
        if reply is not None:
            self._tokens.labels(agent, mode, phase, "prompt").inc(reply.prompt_tokens)
            self._tokens.labels(agent, mode, phase, "completion").inc(reply.completion_tokens)
            self._cached.labels(agent, mode, phase).inc(reply.cached_tokens)

    def _outcome(self, outcome: str) -> str:
        # Codes come from the registry: a fixed set, but over the network.
        return self._within(outcome[:64], self._outcomes, OUTCOME_BUDGET)

    def _within(self, value: str, seen: set[str], budget: int) -> str:
        with self._lock:
            if value in seen or len(seen) < budget:
                seen.add(value)
                return value
        return "other"
