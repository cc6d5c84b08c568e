"""The row of the health dashboard about processes: memory, CPU, versions, held event loops."""

from __future__ import annotations

from dashboards.common import NAMESPACE, REPLICA, Column, Page, graph, listing
from dashboards.promql import BY_REPLICA, rate, select


def row(made: Page) -> None:
    """Add it."""
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
