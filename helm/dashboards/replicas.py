"""The row of the health dashboard about replicas of the registry: which policy each has, and what it serves."""

from __future__ import annotations

from dashboards.common import ANY, GREEN, NAMESPACE, RED, REPLICA, YELLOW, Column, Page, graph, listing
from dashboards.promql import BY_REPLICA, STEP, each, leading, select

POLICY_AGE = 60
"""Seconds, as the alert ToolcribPolicyAge. Heartbeats come every 10 s; after 15 minutes calls are refused."""
AGED = ((POLICY_AGE / 2, YELLOW), (POLICY_AGE, RED))


def row(made: Page) -> None:
    """Add it."""
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
                NAMESPACE,
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
