"""The row of the health dashboard about backends that are down, and the tools that are called in their place."""

from __future__ import annotations

from dashboards.common import NAMESPACE, TOOL, Column, Page, graph, listing
from dashboards.promql import rate, select, total


def row(made: Page) -> None:
    """Add it."""
    made.row("Backends that are down")
    made.add(
        graph(
            "Backends by last probe",
            ((f"max by (namespace, outcome) ({select('toolcrib_backends')})", "{{outcome}}"),),
            "short",
            "Backends by outcome of the last probe. Search lists tools of those that cannot be reached last, as `unavailable`. "
            "`kubectl get tools -A` shows BackendReachable and why.",
        ),
        8,
        8,
    )
    opened = select("toolcrib_backend_breaker_openings_total")
    made.add(
        graph(
            "Circuit breakers",
            (
                (f"sum by (namespace) ({select('toolcrib_backend_breakers_open')})", "open {{namespace}}"),
                (f"sum by (namespace) ({total(opened, '$__rate_interval')})", "opened {{namespace}}"),
            ),
            "short",
            "Breakers that are open, added over replicas, and openings in each drawn interval. Calls of such a backend are refused "
            "(`backend_unavailable`), or answered by a fallback. The log names the backend.",
        ),
        8,
        8,
    )
    fallen = select("toolcrib_fallback_calls_total")
    made.add(
        graph(
            "Calls of fallbacks",
            ((f"sum by (outcome) ({rate(fallen)})", "{{outcome}}"),),
            "ops",
            "Calls that a fallback took, by outcome. Long: repair the backend of the tool, as fallbacks count for limits twice.",
        ),
        8,
        8,
    )
    made.add(
        listing(
            "Tools that fall back",
            (f"sum by (namespace, tool) ({total(fallen)}) > 0",),
            (
                TOOL,
                NAMESPACE,
                Column("Value", "Calls", width=90),
            ),
            "Tools whose backend was down in the time range, and calls that their fallbacks took.",
            sort="Calls",
        ),
        24,
        6,
    )
