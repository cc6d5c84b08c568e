"""The row of the health dashboard about MCP servers: can they be read, do tools wait for approval, are tokens granted."""

from __future__ import annotations

from dashboards.common import ANY, Page, graph
from dashboards.promql import leading, rate, select


def row(made: Page) -> None:
    """Add it."""
    made.row("MCP servers")
    up = f"min by (namespace, server_namespace, server) ({select('toolcrib_server_up')})"
    made.add(
        graph(
            "Servers that cannot be read",
            ((f"{up} == 0", "{{server_namespace}}/{{server}}"),),
            "short",
            "ToolServers whose last look brought no whole list. Their tools of before stay listed. `kubectl describe toolserver` "
            "says why. Runbook: ToolcribServerDown.",
        ),
        8,
        8,
    )
    made.add(
        graph(
            "Tools that wait for approval",
            ((leading("toolcrib_tools_quarantined"), "quarantined {{namespace}}"),),
            "short",
            "New or changed tools that nobody approved: no agent sees or calls them. `toolcrib approvals list`. Runbook: "
            "ToolcribToolsQuarantined.",
            steps=ANY,
        ),
        8,
        8,
    )
    made.add(
        graph(
            "Access tokens of backends",
            ((f"sum by (outcome) ({rate(select('toolcrib_backend_token_requests_total'))})", "{{outcome}}"),),
            "ops",
            "Requests to authorization servers by outcome. Anything but granted: the registry's log names backend and reason. "
            "Runbook: ToolcribBackendTokensFailing.",
        ),
        8,
        8,
    )
