"""Health: does policy reach every replica in time, is the index whole, does search answer, does the operator keep up."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as builders

from dashboards import fallbacks, servers
from dashboards.common import (
    ANY,
    GREEN,
    HEALTH,
    RED,
    SOURCE,
    YELLOW,
    Column,
    Page,
    figure,
    graph,
    listing,
    page,
)
from dashboards.promql import BY_REPLICA, DAY, RANGE, STEP, each, leading, or_zero, quantile, rate, select

UID = HEALTH
OBJECTIVE = 0.99
"""The propagation SLO: so many of the changes are in effect on every replica within a second."""
WITHIN = ((0.95, YELLOW), (OBJECTIVE, GREEN))
POLICY_AGE = 60
"""Seconds, as the alert ToolcribPolicyAge. Heartbeats come every 10 s; after 15 minutes calls are refused."""
AGED = ((POLICY_AGE / 2, YELLOW), (POLICY_AGE, RED))
WAITING = 60
"""Seconds, as the alert ToolcribOperatorQueueStuck."""
DEGRADED = 0.05
"""Share of searches, as the alert ToolcribSearchDegraded."""
REPLICA = "{{pod}} {{instance}}"
BAD = ((1, RED),)
NAMESPACE = Column("namespace", "Namespace")


def kept(window: str) -> str:
    """Share of the changes in effect everywhere within a second; nothing where nothing changed."""
    quick = select("toolcrib_propagation_seconds_bucket", le__eq="1.0")
    every = select("toolcrib_propagation_seconds_count")
    return f"(sum(increase({quick}[{window}])) / sum(increase({every}[{window}])) >= 0)"


def dashboard() -> builders.Dashboard:
    """The dashboard."""
    made = page(
        UID,
        "Toolcrib / Health",
        "Whether policy is in effect everywhere in time, and whether index, search and operator keep up.",
    )
    epoch = f"max by (namespace) ({select('toolcrib_operator_epoch')})"
    takeover = builders.AnnotationQuery().name("Takeover by another operator").datasource(SOURCE).enable(True)
    before = f"max by (namespace) ({select('toolcrib_operator_epoch')} offset 1m)"
    made.made.annotation(takeover.icon_color("orange").expr(f"{epoch} > {before}"))
    _glance(made)
    _propagation(made)
    _replicas(made)
    _search(made)
    _operator(made)
    servers.row(made)
    fallbacks.row(made)
    _processes(made)
    return made.made


def _glance(made: Page) -> None:
    made.row("At a glance")
    made.add(
        figure(
            "Leaders",
            f"min(sum by (namespace) ({select('toolcrib_operator_leader')}))",
            "short",
            "Must be 1. 0: nothing is published; replicas serve what they have until it is 15 minutes old. See the "
            "operator's pods and the Lease `toolcrib-operator`. Runbook: ToolcribNoLeader.",
            steps=((1, GREEN), (2, RED)),
            below=RED,
        ),
        4,
        4,
    )
    known, current = leading("toolcrib_operator_replicas"), leading("toolcrib_operator_replicas_current")
    made.add(
        figure(
            "Replicas behind",
            f"sum({known} - {current})",
            "short",
            "Replicas of the registry without the latest revision. Above 0 for more than seconds: see the table of "
            "replicas and the operator's log. Runbook: ToolcribReplicaBehind.",
            steps=BAD,
        ),
        4,
        4,
    )
    made.add(
        figure(
            "Oldest policy",
            f"max({select('toolcrib_policy_age_seconds')} >= 0)",
            "s",
            "Longest time since a replica heard the leader; about 10 s is normal. From a minute on: operator down or "
            "cut off. At 15 minutes calls are refused. Runbook: ToolcribPolicyAge.",
            steps=AGED,
        ),
        4,
        4,
    )
    made.add(
        figure(
            "Problems",
            f"sum({select('toolcrib_operator_problems')})",
            "short",
            "What the operators' /readyz complains about: open it (port 8090), it says what and why.",
            steps=BAD,
        ),
        4,
        4,
    )
    made.add(
        figure(
            "Tools not indexed",
            f"max({leading('toolcrib_operator_index_waiting')})",
            "short",
            "Tools that search by meaning cannot find yet. They are listed and callable all the same. If it stays: "
            "Weaviate or the disk. Runbook: ToolcribIndexLag.",
            steps=ANY,
        ),
        4,
        4,
    )
    expiry = select("toolcrib_certificate_expiry_timestamp_seconds")
    made.add(
        figure(
            "Certificate ends in",
            f"min({expiry}) - time()",
            "s",
            "Time left of the registry's serving certificate that ends first. Renew the Secret (`helm upgrade` or "
            "cert-manager): it is read again without a restart.",
            steps=((7 * DAY, YELLOW), (21 * DAY, GREEN)),
            below=RED,
            none="no TLS",
        ),
        4,
        4,
    )


def _propagation(made: Page) -> None:
    made.row("Propagation: from a change to every replica")
    for title, window in (("Within 1 s, 1 hour", "1h"), ("Within 1 s, 3 days", "3d")):
        made.add(
            figure(
                title,
                kept(window),
                "percentunit",
                f"Share of the changes of the last {title.partition(', ')[2]} that were in effect on every replica "
                f"within a second; the objective is {OBJECTIVE:.0%}. Below: a slow replica, network, or too many changes at "
                "once. Runbook: ToolcribPropagationBurnFast.",
                steps=WITHIN,
                below=RED,
                decimals=2,
                none="no change",
            ),
            4,
            8,
        )
    budget = f"1 - (1 - {kept('30d')}) / (1 - {OBJECTIVE})"
    made.add(
        figure(
            "Error budget, 30 days",
            budget,
            "percentunit",
            f"What is left of the {1 - OBJECTIVE:.0%} of changes that may take longer than a second in 30 days. "
            "Negative: overspent; correct what slows propagation before anything else.",
            steps=((0, YELLOW), (0.25, GREEN)),
            below=RED,
            decimals=0,
            none="no change",
        ),
        4,
        8,
    )
    made.add(
        graph(
            "Time to every replica",
            tuple(
                (quantile(q, "toolcrib_propagation_seconds", "5m"), n)
                for q, n in ((0.5, "p50"), (0.99, "p99"))
            ),
            "s",
            "From a change being seen until every replica has it in effect, over 5 minutes. Gaps: nothing changed. p99 "
            "high with p50 low: one replica is slow or was replaced.",
            steps=((1, RED),),
        ),
        12,
        8,
    )
    made.add(
        graph(
            "Share within 1 s",
            tuple((kept(window), window) for window in ("5m", "1h", "6h")),
            "percentunit",
            "The windows that the burn-rate alerts use. A dip of the short one alone is an event, of all three a "
            "trend.",
            top=1,
        ),
        12,
        8,
    )
    made.add(
        graph(
            "Publishes by result",
            ((f"sum by (result) ({rate(select('toolcrib_publishes_total'))})", "{{result}}"),),
            "ops",
            "What replicas answered the operator. Many conflicts or full snapshots: replicas that restart, or two "
            "leaders that fight (Leaders above).",
            stacked=True,
        ),
        12,
        8,
    )


def _replicas(made: Page) -> None:
    made.row("Replicas of the registry")
    made.add(
        listing(
            "Replicas",
            (
                each("toolcrib_policy_epoch"),
                each("toolcrib_policy_seq"),
                f"{each('toolcrib_policy_age_seconds')} >= 0",
                f"max by ({BY_REPLICA}) ({select('toolcrib_catalog_tools')} and on ({BY_REPLICA}) {select('toolcrib_policy_seq')})",
                f"{each('toolcrib_index_lag_tools')} >= 0",
                each("toolcrib_watch_streams"),
                each("toolcrib_index_healthy"),
            ),
            (
                Column("namespace", "Namespace"),
                Column("pod", "Pod"),
                Column("instance", "Address"),
                Column("Value #A", "Epoch", width=100),
                Column("Value #B", "Revision", width=100),
                Column("Value #C", "Policy age", unit="s", steps=AGED, below=GREEN, width=120),
                Column("Value #D", "Tools", width=100),
                Column("Value #E", "Index lag", steps=ANY, below=GREEN, width=100),
                Column("Value #G", "Index answers", steps=((1, GREEN),), below=RED, width=120),
                Column("Value #F", "Streams", width=100),
            ),
            "All rows should show one epoch and one revision. A replica that stays behind: its log, then delete the "
            "pod; it takes the whole policy from the leader when it is back.",
            sort="Revision",
            descending=False,
            none="No replica is scraped",
        ),
        24,
        7,
    )
    made.add(
        graph(
            "Revision: replicas and operator",
            (
                (each("toolcrib_policy_seq"), REPLICA),
                (leading("toolcrib_operator_revision"), "operator {{namespace}}"),
            ),
            "none",
            "All lines run together; they fall back together when another operator takes over. One that stays flat "
            "is a replica that gets no policy.",
            from_zero=False,
        ),
        6,
        8,
    )
    made.add(
        graph(
            "Policy age by replica",
            ((f"{each('toolcrib_policy_age_seconds')} >= 0", REPLICA),),
            "s",
            "A saw of up to 10 s: heartbeats. One that climbs: that replica is cut off. All climb: no leader.",
            steps=AGED,
        ),
        6,
        8,
    )
    made.add(
        graph(
            "Watch streams",
            (
                (f"sum({select('toolcrib_watch_streams')})", "open"),
                (
                    f"sum(increase({select('toolcrib_watch_streams_dropped_total')}[{STEP}]))",
                    "dropped, slow reader",
                ),
            ),
            "short",
            "Open live streams of agents. Dropped ones: agents that do not read; they come back by themselves.",
        ),
        6,
        8,
    )
    made.add(
        graph(
            "Calls to backends",
            (
                (f"sum({select('toolcrib_backend_calls_in_progress')})", "in progress"),
                (f"sum({select('toolcrib_backend_calls_waiting')})", "waiting for room"),
            ),
            "short",
            "Calls wait while their caller, its binding or their backend has as many in progress as it may. Some that wait for long: "
            "a slow backend; its callers get `backend_busy` after 5 s, others are served.",
        ),
        6,
        8,
    )


def _search(made: Page) -> None:
    made.row("Catalog, index and search")
    made.add(
        graph(
            "Catalog and index",
            (
                (leading("toolcrib_catalog_tools"), "tools {{namespace}}"),
                (leading("toolcrib_catalog_bindings"), "bindings {{namespace}}"),
                (leading("toolcrib_agents_suspended"), "suspended agents {{namespace}}"),
                (f"max by (namespace) ({select('toolcrib_index_tools')})", "indexed {{namespace}}"),
            ),
            "short",
            "A cliff: a namespace or a manifest was deleted. Indexed below tools for long: the index lags.",
        ),
        6,
        8,
    )
    made.add(
        graph(
            "Index lag",
            (
                (f"max by (namespace) ({select('toolcrib_index_lag_tools')})", "replicas {{namespace}}"),
                (leading("toolcrib_operator_index_waiting"), "operator {{namespace}}"),
            ),
            "short",
            "Tools that the index lacks. Rises with a big change and falls within minutes. If it does not fall: is "
            "Weaviate up, is its disk full, does the embedder load?",
            steps=ANY,
        ),
        6,
        8,
    )
    made.add(
        graph(
            "Waiting for the index",
            ((leading("toolcrib_index_lag_seconds"), "oldest tool {{namespace}}"),),
            "s",
            "For how long the oldest tool has not been in the index. Seconds after a change. Minutes: one tool that is "
            "refused, or an index that is down. Runbook: ToolcribIndexLag.",
            steps=((60, YELLOW), (900, RED)),
        ),
        6,
        8,
    )
    made.add(
        graph(
            "Indexing",
            (
                (f"sum({rate(select('toolcrib_index_embedded_tools_total'))})", "embedded"),
                (f"sum({rate(select('toolcrib_index_written_tools_total'))})", "written"),
                (
                    f"sum by (purpose) ({rate(select('toolcrib_embed_failures_total'))})",
                    "embedder failed: {{purpose}}",
                ),
            ),
            "ops",
            "Tools that are embedded and written to the index. Busy for hours with a steady catalog: definitions "
            "flap; find who edits them.",
        ),
        6,
        8,
    )
    searching = "toolcrib_search_duration_seconds"
    made.add(
        graph(
            "Search latency",
            tuple((quantile(q, searching), name) for q, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))),
            "s",
            "Above a quarter of a second: Weaviate or the embedder is short of CPU; add registry replicas or give "
            "the store more.",
            steps=((0.25, YELLOW), (1, RED)),
        ),
        8,
        8,
    )
    empty = select("toolcrib_searches_empty_total")
    made.add(
        graph(
            "Empty results by mode",
            (
                (
                    f"sum by (mode) ({rate(empty)}) / sum by (mode) ({rate(select(searching + '_count'))}) >= 0",
                    "{{mode}}",
                ),
            ),
            "percentunit",
            "Share of searches that found nothing. A jump for all: the index was wiped or the catalog is empty.",
            steps=((0.5, YELLOW),),
            top=1,
        ),
        8,
        8,
    )
    degraded = select("toolcrib_searches_degraded_total")
    made.add(
        graph(
            "Degraded searches",
            ((f"sum({rate(degraded)}) / sum({rate(select(searching + '_count'))}) >= 0", "degraded"),),
            "percentunit",
            "Share of searches answered from words alone, without index or embedder: `search` in the registry's "
            "/readyz says which one is down. Runbook: ToolcribSearchDegraded.",
            steps=((DEGRADED, RED),),
            top=1,
        ),
        8,
        8,
    )


def _operator(made: Page) -> None:
    made.row("Operator")
    made.add(
        graph(
            "Queue",
            (
                (leading("toolcrib_operator_status_waiting"), "objects to be looked at {{namespace}}"),
                (leading("toolcrib_operator_index_waiting"), "tools to be indexed {{namespace}}"),
            ),
            "short",
            "Work not done yet. It should fall back to 0 within seconds of a change; if it stays, see failures beside "
            "this and the oldest thing below.",
        ),
        8,
        8,
    )
    made.add(
        graph(
            "Oldest thing waiting",
            ((leading("toolcrib_operator_oldest_waiting_seconds"), "{{namespace}}"),),
            "s",
            "Age of the oldest thing not yet assessed, published or written. Minutes: the operator is stuck or the API "
            "server refuses its writes. Runbook: ToolcribOperatorQueueStuck.",
            steps=((WAITING / 2, YELLOW), (WAITING, RED)),
        ),
        8,
        8,
    )
    made.add(
        graph(
            "Writes to the API server",
            tuple(
                (f"sum({rate(select(f'toolcrib_operator_{name}_total'))})", label)
                for name, label in (
                    ("status_writes", "statuses"),
                    ("finalizer_writes", "finalizers"),
                    ("write_conflicts", "conflicts"),
                    ("write_failures", "failures"),
                )
            ),
            "ops",
            "Conflicts are tried again and harmless in small numbers. Failures: the operator's rights (RBAC) or the "
            "API server; the operator's log names the object.",
        ),
        8,
        8,
    )
    made.add(
        figure(
            "Kinds not listed",
            f"sum(max by (namespace, kind) ({select('toolcrib_operator_kind_unlisted')}))",
            "short",
            "Kinds that the operator cannot list. Above 0 nothing is published: are the CRDs there, and its rights?",
            steps=BAD,
        ),
        4,
        4,
    )
    for title, metric, about in (
        (
            "Watch repairs",
            "watch_repairs",
            "Lists that found something a watch had missed. Many: an unsteady API server.",
        ),
        (
            "Events dropped",
            "events_dropped",
            "Kubernetes events that were not written: rights, or too many at once.",
        ),
    ):
        made.add(
            figure(
                title,
                f"round(sum(increase({select(f'toolcrib_operator_{metric}_total')}[{RANGE}])))",
                "short",
                f"{about} In the time range.",
                steps=ANY,
            ),
            4,
            4,
        )
    dropped = select("toolcrib_decision_log_dropped_records_total")
    made.add(
        figure(
            "Decision log drops",
            f"round(sum(increase({dropped}[{RANGE}])))",
            "short",
            "Records of decisions lost to a full queue in the time range: a slow or full disk. The log's chain marks "
            "the gap. Where no record may be lost, set the log to strict. Runbook: ToolcribDecisionLogDropping.",
            steps=BAD,
        ),
        4,
        4,
    )
    made.add(
        figure(
            "Series folded",
            or_zero(f"sum(max by (namespace, metric) ({select('toolcrib_operator_series_folded')}))"),
            "short",
            "Series that the operator leaves out because there are more grants or tools than its budget: some tables "
            "on Governance are not whole.",
            steps=ANY,
        ),
        4,
        4,
    )
    made.add(
        figure(
            "Bindings in effect",
            f"max({select('toolcrib_snapshot_bindings')})",
            "short",
            "Bindings that the replicas decide by. Should be what Catalog and index says; less: a replica is behind.",
        ),
        4,
        4,
    )


def _processes(made: Page) -> None:
    made.row("Processes")
    ours = f'max by ({BY_REPLICA}) ({{__name__=~"toolcrib_build_info|toolcrib_operator_leader|toolcrib_runner_build_info"}})'
    for title, value, unit, about in (
        (
            "Memory",
            f"max by ({BY_REPLICA}) ({select('process_resident_memory_bytes')})",
            "bytes",
            "Resident memory. The registry's grows with the catalog and its embedder; a steady climb with a steady "
            "catalog is a leak: please report it.",
        ),
        (
            "CPU",
            f"max by ({BY_REPLICA}) ({rate(select('process_cpu_seconds_total'))})",
            "none",
            "Cores in use. A registry near its limit: searches slow down first; add replicas or let the autoscaler.",
        ),
    ):
        made.add(graph(title, ((f"{value} and on ({BY_REPLICA}) {ours}", REPLICA),), unit, about), 9, 8)
    made.add(
        listing(
            "Versions",
            (f"count by (namespace, version) ({select('toolcrib_build_info')})",),
            (NAMESPACE, Column("version", "Version"), Column("Value", "Replicas", width=90)),
            "Versions of the registry that run. Two for long: a rolling update that hangs (`kubectl rollout status`).",
            sort="Version",
        ),
        6,
        8,
    )
    held = rate(select("toolcrib_loop_held_seconds_total"))
    made.add(
        graph(
            "Event loops held",
            ((f"sum by ({BY_REPLICA}, place) ({held}) and on ({BY_REPLICA}) {ours}", "{{place}} {{pod}}"),),
            "percentunit",
            "Share of time in which a process answered nobody, because one piece of work used its event loop for over 100 "
            "ms, and what ran. The log has the whole stack. Runbook: ToolcribLoopHeld.",
        ),
        12,
        8,
    )
    passes = rate(select("toolcrib_gc_pass_seconds_total"))
    made.add(
        graph(
            "Garbage collections of everything",
            ((f"max by ({BY_REPLICA}) ({passes} and on ({BY_REPLICA}) {ours})", REPLICA),),
            "percentunit",
            "Share of time in which a process stood still to look for garbage in all that it holds: at its start and after "
            "it has grown by half. Again and again with a steady catalog: please report it.",
        ),
        12,
        8,
    )
