"""The row of the health dashboard about the operator: does it keep up, is the decision log whole."""

from __future__ import annotations

from dashboards.common import ANY, BAD, RED, YELLOW, Page, figure, graph
from dashboards.promql import RANGE, leading, or_zero, rate, select

WAITING = 60
"""Seconds, as the alert ToolcribOperatorQueueStuck."""


def row(made: Page) -> None:
    """Add it."""
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
