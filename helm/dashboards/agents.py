"""The row of the governance dashboard about single agents: who is suspended, and who behaves unlike before."""

from __future__ import annotations

from dashboards.common import (
    AGENT,
    NAMESPACE,
    RED,
    YELLOW,
    Column,
    Page,
    graph,
    listing,
)
from dashboards.promql import select, total

ODD = ((0.5, YELLOW), (1, RED))
"""Of the score, 0 to 3."""
_REFUSED = select("toolcrib_denials_total", reason__eq="agent_suspended")


def row(made: Page) -> None:
    """Add it."""
    made.row("Suspended agents, and agents unlike themselves")
    made.add(
        listing(
            "Suspended agents",
            (f"max by (namespace, agent) ({select('toolcrib_agent_suspended')})",),
            (AGENT, NAMESPACE),
            "Agents with `suspended: true`: no tool, on no replica. `kubectl get agents -A` says why. "
            "Runbook: ToolcribAgentSuspended.",
            sort="Agent",
            descending=False,
        ),
        6,
        8,
    )
    made.add(
        graph(
            "Refused while suspended",
            ((f"sum by (namespace, agent) ({total(_REFUSED, '$__rate_interval')})", "{{agent}}"),),
            "short",
            "Calls, reads and loads of suspended agents in each drawn interval. An agent that still asks still runs: "
            "end its workload.",
            bars=True,
            stacked=True,
        ),
        8,
        8,
    )
    score, errors, denials, new = (
        f"max by (namespace, agent) ({select(f'toolcrib:agent_{name}', agent='$agent')})"
        for name in (
            "anomaly:score15m",
            "errors:ratio_rate15m",
            "denials:ratio_rate15m",
            "new_tools:count15m",
        )
    )
    made.add(
        listing(
            "Agents unlike themselves",
            (score, errors, denials, new),
            (
                AGENT,
                Column("Value #A", "Score", steps=ODD, width=90),
                Column("Value #B", "Failed", unit="percentunit", width=90),
                Column("Value #C", "Refused", unit="percentunit", width=90),
                Column("Value #D", "New tools", width=90),
                NAMESPACE,
            ),
            "Calls of 15 minutes: the share that failed, the share that was refused, and tools that are new to the agent (5 count "
            "as 1); the score, 0 to 3, is their sum. Needs the recording rules (`monitoring.rules.enabled`). High: read "
            "`toolcrib audit query --agent AGENT`, and suspend the agent if in doubt.",
            sort="Score",
        ),
        10,
        8,
    )
