"""The row of the health dashboard about search: is the index whole, does search answer."""

from __future__ import annotations

from dashboards.common import ANY, RED, YELLOW, Page, graph
from dashboards.promql import leading, quantile, rate, select

DEGRADED = 0.05
"""Share of searches, as the alert ToolcribSearchDegraded."""


def row(made: Page) -> None:
    """Add it."""
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
