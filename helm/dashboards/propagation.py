"""The row of the health dashboard about changes: are they in effect on every replica within a second."""

from __future__ import annotations

from dashboards.common import GREEN, RED, YELLOW, Page, figure, graph
from dashboards.promql import quantile, rate, select

OBJECTIVE = 0.99
"""The propagation SLO: so many of the changes are in effect on every replica within a second."""
WITHIN = ((0.95, YELLOW), (OBJECTIVE, GREEN))


def kept(window: str) -> str:
    """Share of the changes in effect everywhere within a second; nothing where nothing changed."""
    quick = select("toolcrib_propagation_seconds_bucket", le__eq="1.0")
    every = select("toolcrib_propagation_seconds_count")
    return f"(sum(increase({quick}[{window}])) / sum(increase({every}[{window}])) >= 0)"


def row(made: Page) -> None:
    """Add it."""
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
