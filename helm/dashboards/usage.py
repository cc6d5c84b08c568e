"""Usage: which agent calls which tool how often, how fast and with what outcome; what is searched, what is dead."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as builders

from dashboards import discovery, runner, trials
from dashboards.common import (
    AGENT,
    GREEN,
    RED,
    SERVER,
    TOOL,
    USAGE,
    YELLOW,
    Column,
    Page,
    figure,
    graph,
    listing,
    page,
)
from dashboards.promql import RANGE, or_zero, quantile, rate, select, top, total

UID = USAGE
ERROR_SHARE = 0.1
"""As the alert ToolcribToolErrors."""
ERRORS = ((0.02, YELLOW), (ERROR_SHARE, RED))
FAULTS = "upstream_.+|tool_error|egress_refused|credential_pending|service_pending|no_backend|internal"
"""Outcomes that are the tool's fault, or of the way to it; the rest is the caller's: grants, arguments."""
SLOW = ((1, YELLOW), (5, RED))
FILTERS = {"agent": "$agent", "tool": "$tool", "server": "$server"}
CALLS = select("toolcrib_calls_total", **FILTERS)
OF_TOOLS = select("toolcrib_calls_total", **FILTERS, tool__ne="")
FAILED = select("toolcrib_calls_total", **FILTERS, tool__ne="", outcome=FAULTS)
NOT_OK = select("toolcrib_calls_total", **FILTERS, outcome__ne="ok")
SECONDS = "toolcrib_call_duration_seconds"
OF_TOOL = {"tool": "$tool", "server": "$server"}
KNOWN = f"max by (namespace, tool, server, state) ({select('toolcrib_tool_info', **OF_TOOL)})"
CALLED = f"sum by (namespace, tool) ({total(select('toolcrib_calls_total', **OF_TOOL))}) > 0"
DEAD = f"{KNOWN} unless on (namespace, tool) ({CALLED})"
"""By the namespace of the installation: what is called in one may be dead in another."""


def dashboard() -> builders.Dashboard:
    """The dashboard."""
    calls = select("toolcrib_calls_total")
    made = page(
        UID,
        "Toolcrib / Usage",
        "Calls of tools by agent, tool, server and outcome; searches and discoveries; tools that nobody calls.",
        (
            ("agent", "Agent", f"label_values({calls}, agent)"),
            ("server", "Server", f"label_values({select('toolcrib_tool_info')}, server)"),
            ("tool", "Tool", f"label_values({select('toolcrib_tool_info', server='$server')}, tool)"),
            ("runner", "Runner", f"label_values({select('toolcrib_agent_tools_available')}, agent)"),
        ),
    )
    _glance(made)
    _calls(made)
    _latency(made)
    _tools(made)
    discovery.row(made)
    trials.row(made)
    runner.row(made)
    return made.made


def _glance(made: Page) -> None:
    made.row("At a glance")
    made.add(
        figure(
            "Calls",
            f"round(sum({total(CALLS)}))",
            "short",
            "Calls of tools in the time range, refused and failed ones included. 0 with agents at work: is the "
            "registry scraped (Health), and do the agents reach it?",
        ),
        4,
        4,
    )
    made.add(
        figure(
            "Tool errors",
            or_zero(f"sum({total(FAILED)}) / sum({total(OF_TOOLS)}) >= 0"),
            "percentunit",
            "Share of calls in the time range that failed by the tool or on the way to it; refusals and wrong "
            "arguments are not among them. Top tools names the tool. Runbook: ToolcribToolErrors.",
            steps=ERRORS,
            decimals=1,
        ),
        4,
        4,
    )
    made.add(
        figure(
            "Latency, p95",
            f"{quantile(0.95, SECONDS, RANGE, **OF_TOOL)} >= 0",
            "s",
            "95 of 100 calls in the time range were faster, of all callers. If it is high, Slowest tools names the "
            "backend; the registry's own part is a few milliseconds.",
            steps=SLOW,
        ),
        4,
        4,
    )
    made.add(
        figure(
            "Agents that called",
            or_zero(f"count(sum by (agent) ({total(CALLS)}) > 0)"),
            "short",
            "Different agents with a call in the time range. Agents without a binding count together as `other`.",
        ),
        4,
        4,
    )
    made.add(
        figure(
            "Dead tools",
            or_zero(f"count({DEAD})"),
            "short",
            "Published tools that nobody called in the time range. In a wide range: candidates to disable; they cost "
            "room in every agent's list.",
            steps=((1, YELLOW),),
        ),
        4,
        4,
    )
    folded = select("toolcrib_metrics_folded_total")
    left_out = select("toolcrib_operator_series_folded")
    made.add(
        figure(
            "Folded into other",
            or_zero(
                f"round(sum(increase({folded}[{RANGE}]))) + sum(max by (namespace, metric) ({left_out}))"
            ),
            "short",
            "Observations counted as `other`, and series left out, because an agent has no binding or a label is over "
            "its budget. Above 0, tables by agent, tool or grant are not the whole story: read `other` too.",
            steps=((1, YELLOW),),
        ),
        4,
        4,
    )


def _calls(made: Page) -> None:
    made.row("Calls")
    made.add(
        graph(
            "Calls by agent, top 10",
            ((top(10, "agent", CALLS), "{{agent}}"),),
            "reqps",
            "The ten busiest agents of the time range. One that runs away: look at its tools (choose it above), then "
            "narrow or delete its grant.",
        ),
        12,
        8,
    )
    made.add(
        graph(
            "Calls by tool, top 10",
            ((top(10, "tool", CALLS), "{{tool}}"),),
            "reqps",
            "The ten most called tools of the time range. An empty name: calls of tools that the caller may not know "
            "of.",
        ),
        12,
        8,
    )
    made.add(
        graph(
            "Calls by outcome",
            ((f"sum by (outcome) ({rate(CALLS)})", "{{outcome}}"),),
            "reqps",
            "ok, or the code of the problem; docs/reference/errors.md has the remedy of each. `not_permitted`: see "
            "Governance. `upstream_…`: the tool's own service. `invalid_arguments`: a model that misreads a schema.",
            stacked=True,
        ),
        12,
        8,
    )
    made.add(
        graph(
            "Calls by server, top 10",
            ((top(10, "server", CALLS), "{{server}}"),),
            "reqps",
            "Calls by the server a tool belongs to; an empty name: tools without a server.",
        ),
        12,
        8,
    )


def _latency(made: Page) -> None:
    made.row("Latency and errors")
    made.add(
        graph(
            "Latency of calls",
            tuple(
                (quantile(q, SECONDS, **OF_TOOL), name)
                for q, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
            ),
            "s",
            "Duration of a call, the registry's own part included. Not by agent: choose a tool or a server. p99 alone "
            "high: some calls reach their timeout.",
            steps=SLOW,
        ),
        12,
        8,
    )
    made.add(
        graph(
            "Share of failed calls by tool",
            ((f"sum by (tool) ({rate(FAILED)}) / sum by (tool) ({rate(OF_TOOLS)}) > 0", "{{tool}}"),),
            "percentunit",
            "Only tools with failures of their own. One near 100 %: its backend is down or its credential expired. "
            "All at once: egress or DNS. Runbook: ToolcribToolErrors.",
            steps=ERRORS,
            top=1,
        ),
        12,
        8,
    )
    per_tool = f"(sum by (tool, server) ({total(OF_TOOLS)}) > 0)"
    slowest = quantile(0.95, SECONDS, RANGE, by="tool, server", **OF_TOOL)
    failures = f"sum by (tool, server) ({total(FAILED)})"
    made.add(
        listing(
            "Top tools: calls, failures, latency",
            (
                f"round({per_tool})",
                f"{failures} / {per_tool} or 0 * {per_tool}",
                f"{slowest} >= 0",
            ),
            (
                TOOL,
                SERVER,
                Column("Value #A", "Calls", width=110),
                Column("Value #B", "Failed", unit="percentunit", steps=ERRORS, below=GREEN, width=110),
                Column("Value #C", "p95", unit="s", steps=SLOW, below=GREEN, width=110),
            ),
            "Every tool called in the time range. Sort by Failed or p95 to find the worst backend. Failed: by the tool "
            "or on the way to it, not refused.",
            sort="Calls",
        ),
        12,
        10,
    )
    per_agent = f"(sum by (agent) ({total(CALLS)}) > 0)"
    failures = f"sum by (agent) ({total(NOT_OK)})"
    made.add(
        listing(
            "Top agents: calls, not ok, tools",
            (
                f"round({per_agent})",
                f"{failures} / {per_agent} or 0 * {per_agent}",
                f"count by (agent) (sum by (agent, tool) ({total(OF_TOOLS)}) > 0)",
            ),
            (
                AGENT,
                Column("Value #A", "Calls", width=110),
                Column(
                    "Value #B", "Not ok", unit="percentunit", steps=((0.5, YELLOW),), below=GREEN, width=110
                ),
                Column("Value #C", "Tools", width=110),
            ),
            "Every agent that called in the time range and how many different tools it used. Much not ok: it is "
            "refused, or misreads schemas. `other`: agents without a binding, or beyond the budget of series.",
            sort="Calls",
        ),
        12,
        10,
    )


def _tools(made: Page) -> None:
    made.row("Who uses what")
    pairs = f"round(sum by (agent, tool, server, outcome) ({total(CALLS)}))"
    made.add(
        listing(
            "Calls by agent, tool, server and outcome",
            (f"topk(200, {pairs} > 0)",),
            (AGENT, TOOL, SERVER, Column("outcome", "Outcome"), Column("Value", "Calls", width=100)),
            "The 200 largest of the time range; narrow it with the variables above. An outcome other than ok that "
            "leads the list: docs/reference/errors.md has its remedy.",
            sort="Calls",
        ),
        14,
        10,
    )
    made.add(
        listing(
            "Dead tools",
            (DEAD,),
            (TOOL, SERVER, Column("state", "State", width=110), Column("namespace", "Namespace", width=110)),
            "Published, and nobody called them in the time range. Choose 30 days; then ask their owner, set "
            "`state: Deprecated` or delete them. Not found by anybody? Better descriptions and `examples` help.",
            sort="Tool",
            descending=False,
            none="All were called",
        ),
        10,
        10,
    )
