"""The row of the usage dashboard about finding tools: who lists, who searches, and do they find."""

from __future__ import annotations

from dashboards.common import AGENT, RED, YELLOW, Column, Page, graph, listing
from dashboards.promql import quantile, rate, select, total

SEARCHES = select("toolcrib_search_duration_seconds_count")


def row(made: Page) -> None:
    """Add it."""
    made.row("Discovery and search")
    made.add(
        graph(
            "Discoveries by route",
            (
                (
                    f"sum by (route) ({rate(select('toolcrib_discoveries_total', agent='$agent'))})",
                    "{{route}}",
                ),
            ),
            "reqps",
            "Lists answered. Far more than agents: one that polls; let it use ETag or `GET /v1/watch`.",
        ),
        8,
        8,
    )
    made.add(
        graph(
            "Searches by mode",
            ((f"sum by (mode) ({rate(SEARCHES)})", "{{mode}}"),),
            "reqps",
            "Searches by what answered them. `lexical` where it should be `hybrid`: the index or the embedder is "
            "down; see Health.",
        ),
        8,
        8,
    )
    empty = select("toolcrib_searches_empty_total")
    degraded = select("toolcrib_searches_degraded_total")
    made.add(
        graph(
            "Searches: empty, degraded",
            (
                (f"sum({rate(empty)}) / sum({rate(SEARCHES)}) >= 0", "empty"),
                (f"sum({rate(degraded)}) / sum({rate(SEARCHES)}) >= 0", "degraded"),
            ),
            "percentunit",
            "Share of searches that found nothing, and that went without index or embedder. Many empty ones: agents "
            "ask for what they may not use, or descriptions do not say what tools do.",
            steps=((0.5, YELLOW),),
            top=1,
        ),
        8,
        8,
    )
    made.add(
        listing(
            "Discoveries by agent",
            (
                f"topk(50, round(sum by (agent, route) ({total(select('toolcrib_discoveries_total', agent='$agent'))})) > 0)",
            ),
            (AGENT, Column("route", "Route"), Column("Value", "Lists", width=100)),
            "The 50 largest of the time range. An agent that lists and never calls: its grants miss what it needs.",
            sort="Lists",
        ),
        8,
        9,
    )
    searching = "toolcrib_search_duration_seconds"
    made.add(
        graph(
            "Latency of searches",
            tuple((quantile(q, searching), name) for q, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))),
            "s",
            "What agents wait for a search. Above a quarter of a second: the store (Weaviate's own metrics) or the "
            "embedder is short of CPU.",
            steps=((0.25, YELLOW), (1, RED)),
        ),
        8,
        9,
    )
    made.add(
        graph(
            "Changes told on live streams",
            ((f"sum by (type) ({rate(select('toolcrib_watch_events_total'))})", "{{type}}"),),
            "ops",
            "Events of `GET /v1/watch` by type. Steady with a steady catalog: definitions or grants flap; find who "
            "edits them.",
        ),
        8,
        9,
    )
