"""The page about metrics: read from the collectors of the three services, with what no collector knows of its labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from reference_pages.markdown import code, table

from toolcrib_operator import metrics as operator_metrics
from toolcrib_operator.adapters.memory import FixedReplicas, MemoryWriter
from toolcrib_operator.admission.policies import Policies
from toolcrib_operator.counts.grants import INFO_FACTOR
from toolcrib_operator.elector import Elector
from toolcrib_operator.kinds.admission import Admitted
from toolcrib_operator.loop import Loop
from toolcrib_operator.replicas.access import AccessRequests
from toolcrib_operator.replicas.anchoring import Anchoring
from toolcrib_operator.replicas.imports import Imports
from toolcrib_operator.replicas.index import IndexSync
from toolcrib_operator.replicas.probes import ProbeReports
from toolcrib_operator.replicas.publisher import Publisher
from toolcrib_operator.replicas.registrations import RegistrationIntake
from toolcrib_operator.replicas.servers import ServerReports
from toolcrib_operator.settings import RegistrationSettings
from toolcrib_operator.state import Leading, State
from toolcrib_operator.watches.resync import Resync
from toolcrib_operator.world import World
from toolcrib_registry.metrics.recorder import Metrics
from toolcrib_runner.metrics import RunnerMetrics


def metrics_page() -> str:
    """Every series of the three services, what their labels mean and how many there may be."""
    text = _HEAD + table(("label", "what"), [(code(name), meaning) for name, meaning in LABELS.items()])
    text += "\n## How many series\n\n" + _BUDGETS
    text += table(("metric", "series at most"), [(code(name), bound) for name, bound in BOUNDS.items()])
    for title, where, rows in (
        ("Registry", "`/metrics` of the metrics listener (`metrics.port`, 8091); in the local mode of its one port.", registry_rows()),
        ("Operator", "`/metrics` of its port. A standby has the first two and those of its process: it tells only what it knows.", operator_rows()),
        ("Agent runner", "`/metrics` with `--metrics-port`.", runner_rows()),
    ):  # fmt: skip
        shown = [(code(n), t, ", ".join(map(code, labels)), d) for n, t, labels, d in rows]
        text += f"\n## {title}\n\n{where}\n\n" + table(("metric", "type", "labels", "what"), shown)
    return text


_HEAD = """# Metrics

Names and labels are an API: `tests/contract/metrics.txt` has them all, a test compares it with what the services tell, and a change is announced
in the changelog. Units are base units (seconds, bytes), counters end in `_total`. All three services also have the usual `process_*` series:
memory, CPU, open files. [Prometheus](../guides/prometheus.md) says how to scrape them, with rules and alerts.

## Labels

None is called `namespace`, `pod`, `service`, `container`, `job`, `instance`, `endpoint` or `node`: those belong to the scraped target.

"""

_BUDGETS = """An agent has series of its own while it has a binding, of any issuer; tools and bindings while they are published. All else
counts as `other`, so that sums are always whole: `toolcrib_metrics_folded_total` says how much went there, by label. Each label has a budget
(`limits.metric_agents`, `limits.metric_tools`, `limits.metric_grants`, and `limits.metric_pairs` for combinations; `--metric-grants` and
`--metric-tools` of the operator). What is gone keeps its series for five minutes, then it makes room: churn cannot use a budget up. In the
operator, `toolcrib_operator_series_folded` counts the series that were left out of each metric.

"""

LABELS = {
    "action": "What was decided about: `describe`, `load`, `call`.",
    "agent": "The caller's verified identity: `namespace/name` of a service account of the cluster, else `issuer:subject`, so that no two share one "
    "(in the subject `:`, `%`, `#` and what is no plain ASCII are percent-encoded). `other`: without a binding, or beyond the budget. `anonymous`: "
    "without a token. At most 256 characters: what is longer ends in `#` and a hash. In the runner: the agent's name. Of "
    "`toolcrib_agent_suspended`: the Agent object.",
    "allowed": "`true` or `false`.",
    "canary": "The ToolCanary: `namespace/name`.",
    "grant": "The binding: `namespace/name`, or the name of a cluster binding.",
    "change": "What became of an agent's tool: `gained`, `lost`, `changed`.",
    "kind": "The kind of object: `AgentScopeBinding`, `ClusterAgentScopeBinding`, `Tool`, `Namespace`. Of tokens: `prompt`, `completion`.",
    "place": "What held the loop: the innermost function of Toolcrib in most samples of the stack, else the library; `gc`: a garbage "
    "collection; `unknown`: too short to be sampled; `other`: beyond 32 places.",
    "purpose": "What the vectors were for: `query` or `document`.",
    "limit": "Which limit of a binding was used up: `per_minute`, `per_day` or `concurrent`.",
    "label": "The label whose value was replaced by `other`: `agent`, `tool`, `server`, `grant`.",
    "le": "Upper bound of a histogram's bucket.",
    "listener": "`agents`, `metrics` or `admin`.",
    "metric": "The metric that series were left out of.",
    "mode": "How a search was answered: `hybrid`, `lexical`, …. Of agents: how the runner works with its model.",
    "outcome": "`ok`, or the [code of the problem](errors.md). Of probes and of lists of MCP servers: what became of them.",
    "phase": "`discovery` while the model chooses its tools, `execution` while it works with them.",
    "reason": "[Why](decisions.md) a decision went as it did. `not_permitted`: of a tool that the caller does not see, unless `metrics.reasons` is "
    "`full`; the decision log has the reason. Of connections: what took too long or was too much.",
    "replica": "A replica of the registry, as its decision log names it: its pod.",
    "result": "`applied`, `revision_mismatch` or `epoch_fenced`.",
    "route": "`/`, `/v1/tools` or `watch`.",
    "rule": "The deciding binding: `kind/namespace/name` or `kind/name`; empty where none decided, and with `not_permitted`.",
    "scope": "A scope that a binding grants; empty where it only denies.",
    "server": "The tool's `server`; empty where it has none. Of `toolcrib_server_up`: the ToolServer's name.",
    "server_namespace": "The namespace of a ToolServer.",
    "side": "Of a trial: `candidate`, or `stable` for the tool's own definition.",
    "state": "`Active`, `Deprecated` or `Disabled`. Of a ToolCanary: `Waiting` while the candidate is not served, `Running`, or its result.",
    "subject": "Whom a binding names, written as `agent` would be "
    "if the client's id or the user's name is the token's subject; a group as `group:NAME`.",
    "tool": "The tool's id, `namespace/name` of its object; empty where the caller may not know of it. In the runner: its listed name.",
    "tool_namespace": "The namespace of tools; `other`: beyond the first 100.",
    "type": "The type of a watch event.",
    "version": "The version of the program.",
}
"""Label → meaning. A test demands one for each."""

BOUNDS = {
    "toolcrib_calls_total": "pairs × outcomes (each 1 to 3, as a rule)",
    "toolcrib_call_duration_seconds": "pairs / 5 × 17",
    "toolcrib_denials_total": "pairs × reasons",
    "toolcrib_discoveries_total": "agents × 3",
    "toolcrib_grant_uses_total": "grants",
    "toolcrib_server_up": "ToolServers, at most 1,000",
    "toolcrib_limited_calls_total": "grants × 3",
    "toolcrib_grant_last_used_timestamp_seconds": "grants",
    "toolcrib_grant_tool_last_used_timestamp_seconds": "pairs; beyond, none",
    "toolcrib_grant_info": f"operator's grants × {INFO_FACTOR}; subjects × scopes of each binding",
    "toolcrib_grant_expiry_timestamp_seconds": "operator's grants: the next to end",
    "toolcrib_grant_matched_tools": "operator's grants",
    "toolcrib_agent_suspended": "operator's grants",
    "toolcrib_canary_info": "100",
    "toolcrib_canary_share_ratio": "100",
    "toolcrib_canary_calls_total": "100 × 2",
    "toolcrib_canary_failures_total": "100 × 2",
    "toolcrib_tool_info": "operator's tools",
    "toolcrib_tool_grants": "operator's tools",
    "toolcrib_audit_anchor_timestamp_seconds": "replicas of the registry",
    "toolcrib_loop_held_total": "33 a process",
    "toolcrib_loop_held_seconds_total": "33 a process",
}
"""Metric → bound, of those that grow with a cluster."""

Row = tuple[str, str, tuple[str, ...], str]


def registry_rows() -> list[Row]:
    """(name, type, labels, meaning) of the registry's series."""
    registry = CollectorRegistry()
    made = Metrics(registry)
    made.observe_state(catalog=lambda: 0, bindings=lambda: 0, epoch=lambda: 0, seq=lambda: 0, age=lambda: 0)
    made.observe_calls(in_progress=lambda: 0, waiting=lambda: 0)
    made.observe_breakers(lambda: 0)
    made.observe_confirmations(lambda: 0)
    made.observe_held(staged=lambda: 0, validators=lambda: 0)
    return sorted(_metric_rows(registry._collector_to_names))


def runner_rows() -> list[Row]:
    """The same of the agent runner."""
    registry = CollectorRegistry()
    RunnerMetrics(registry)
    return sorted(_metric_rows(registry._collector_to_names))


def operator_rows() -> list[Row]:
    """The same of a leading operator."""
    world = World()
    publisher = Publisher(1, FixedReplicas())
    indexing = IndexSync(publisher)
    reader: Any = None
    policies = Policies(Admitted(external=False))
    loop = Loop(world, publisher, indexing, MemoryWriter(world), policies=policies)
    state = _Leads(Elector(reader, "documentation"))
    registering = RegistrationIntake(
        world, publisher, reader, reader, loop.published, settings=RegistrationSettings("toolcrib-runtime")
    )
    anchoring = Anchoring(reader, publisher.audit_heads)
    anchoring.anchored["registry-0"] = 0.0
    state.leading = Leading(
        world,
        Resync(world, reader),
        publisher,
        indexing,
        loop,
        registering,
        AccessRequests(world, publisher, reader, reader),
        anchoring,
        ProbeReports(publisher, reader),
        Imports(world, publisher, ServerReports(publisher, reader), reader),
    )
    return list(_metric_rows([operator_metrics.StateCollector(state)]))


class _Leads(State):
    role = "leader"


def _metric_rows(collectors: Iterable[Any]) -> Iterator[Row]:
    for collector in collectors:
        known: tuple[str, ...] = getattr(collector, "_labelnames", ())
        for family in collector.collect():
            labels = (
                known
                or getattr(family, "_labelnames", ())
                or tuple(sorted({k for s in family.samples for k in s.labels} - {"le"}))
            )
            suffix = "_total" if family.type == "counter" else ""
            yield f"{family.name}{suffix}", family.type, labels, family.documentation
