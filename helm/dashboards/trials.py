"""The row of the usage dashboard about ToolCanaries: who gets the candidate, does it fail more, what was decided."""

from __future__ import annotations

from dashboards.common import NAMESPACE, TOOL, Column, Page, graph, listing
from dashboards.promql import select, total

_LEGEND = "{{canary}} {{side}}"


def row(made: Page) -> None:
    """Add it."""
    made.row("Candidate definitions on trial")
    calls, failures = (select(f"toolcrib_canary_{name}_total") for name in ("calls", "failures"))
    info = f"max by (namespace, canary, tool, state) ({select('toolcrib_canary_info', tool='$tool')})"
    share = f"max by (namespace, canary) ({select('toolcrib_canary_share_ratio')})"
    made.add(
        listing(
            "Trials and what was decided",
            (f"{info} * on (namespace, canary) group_left () {share}",),
            (
                Column("canary", "Canary"),
                TOOL,
                Column("state", "State"),
                Column("Value", "Share", unit="percentunit", width=90),
                NAMESPACE,
            ),
            "State: Waiting, Running, or the result of the trial (Worse: rolled back). Share: of the callers that get the "
            "candidate now. `toolcrib canary report` has each look with its interval.",
            sort="Canary",
            descending=False,
        ),
        8,
        8,
    )
    made.add(
        graph(
            "Calls by side",
            ((f"sum by (namespace, canary, side) ({total(calls, '$__rate_interval')})", _LEGEND),),
            "short",
            "Calls of tools on trial in each drawn interval, by definition that the caller read. Below 200 on a side nothing is "
            "decided: a larger share, a longer trial, or more callers.",
            bars=True,
            stacked=True,
        ),
        8,
        8,
    )
    failed = f"sum by (namespace, canary, side) ({total(failures)})"
    made.add(
        graph(
            "Failed calls by side",
            ((f"{failed} / (sum by (namespace, canary, side) ({total(calls)}) > 0)", _LEGEND),),
            "percentunit",
            "Share of the calls of the time range that failed. The operator rolls a candidate back whose whole 95 % interval is "
            "above `spec.guard`; a line above the other alone decides nothing.",
        ),
        8,
        8,
    )
