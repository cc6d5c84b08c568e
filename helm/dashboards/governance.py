"""Governance: who holds which grant, what it reaches, who was refused and why, what nobody uses, what ends soon."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as builders

from dashboards import agents
from dashboards.common import (
    AGENT,
    BLUE,
    CALLS_OF_AGENT,
    CALLS_OF_TOOL,
    GOVERNANCE,
    GRANTS_OF_AGENT,
    GREEN,
    NAMESPACE,
    RED,
    SERVER,
    YELLOW,
    Column,
    Page,
    figure,
    graph,
    link_to,
    listing,
    page,
)
from dashboards.promql import DAY, RANGE, or_zero, rate, select, total

UID = GOVERNANCE
ENDS_SOON = 3 * DAY
"""As the alert ToolcribGrantExpiring."""
SOON = ((0, YELLOW), (ENDS_SOON, GREEN))
"""Colours of the time left; below 0, a grant has ended: red."""

GRANTS = select("toolcrib_grant_info", subject="$agent", grant="$grant", scope__ne="")
"""Bindings that only deny have no scope: they grant nothing that could be used or end."""
HOLDERS = f"max by (namespace, kind, grant, subject) ({GRANTS})"
"""By the namespace of the installation, here and in every group: two installations may know grants of one name."""
EXPIRY = select("toolcrib_grant_expiry_timestamp_seconds", grant="$grant")
MATCHED = select("toolcrib_grant_matched_tools", grant="$grant")
LAST_USED = select("toolcrib_grant_last_used_timestamp_seconds", grant="$grant")
TOOL_USED = select("toolcrib_grant_tool_last_used_timestamp_seconds", grant="$grant")
USES = select("toolcrib_grant_uses_total", grant="$grant")
DENIALS = select("toolcrib_denials_total", agent="$agent")
TOOL_GRANTS = select("toolcrib_tool_grants", tool="$tool", server="$server")
ENABLED = f"max by (namespace, tool) ({select('toolcrib_tool_info', state__ne='Disabled')})"
REACHED = f"(max by (namespace, tool, server) ({TOOL_GRANTS}) and on (namespace, tool) {ENABLED})"
"""Grants of each tool; no grant reaches a disabled one, and that is as its owner wants it."""

REACH = f"max by (namespace, kind, grant) ({MATCHED})"
USED_TOOLS = (
    f"count by (namespace, kind, grant) (max by (namespace, kind, grant, tool) (max_over_time({TOOL_USED}[30d]))"
    f" >= time() - {30 * DAY})"
)
USED_SHARE = f"(({USED_TOOLS}) or {REACH} * 0) / ({REACH} > 0)"
"""Of the tools that a grant reaches now, those that it was used for; more than 1 where it reached others before."""
LATEST_USE = f"max by (namespace, kind, grant) (max_over_time({LAST_USED}[{RANGE}]))"
TIME_LEFT = f"max by (namespace, kind, grant) ({EXPIRY}) - time()"
UNUSED = f"{HOLDERS} unless on (namespace, kind, grant) ({LATEST_USE} >= time() - $__range_s)"
ENDING = f"{TIME_LEFT} < {ENDS_SOON} > 0"

SUBJECT = Column("subject", "Agent", links=(CALLS_OF_AGENT, GRANTS_OF_AGENT))
GRANT = Column("grant", "Grant", links=(("This grant alone", link_to(UID, "grant")),))
KIND = Column("kind", "Kind")


def dashboard() -> builders.Dashboard:
    """The dashboard."""
    made = page(
        UID,
        "Toolcrib / Governance",
        "Who may use which tools, who was refused, and which grants nobody needs.",
        (
            ("agent", "Agent", f"label_values({select('toolcrib_grant_info')}, subject)"),
            ("grant", "Grant", f"label_values({select('toolcrib_grant_info')}, grant)"),
            ("server", "Server", f"label_values({select('toolcrib_tool_info')}, server)"),
            ("tool", "Tool", f"label_values({select('toolcrib_tool_info', server='$server')}, tool)"),
        ),
    )
    _glance(made)
    _grants(made)
    _refused(made)
    agents.row(made)
    _loose_ends(made)
    return made.made


def _glance(made: Page) -> None:
    made.row("At a glance")
    made.add(
        figure(
            "Grants",
            f"count(count by (namespace, kind, grant) ({GRANTS}))",
            "short",
            "Bindings that grant something and are published; those that only deny are not counted. "
            "A drop that nobody planned: look for deleted bindings (`kubectl get asb,casb -A`) and for namespaces "
            "that went away.",
            none="0",
        ),
        4,
        4,
    )
    made.add(
        figure(
            "Never used",
            or_zero(f"count(count by (namespace, kind, grant) ({UNUSED}))"),
            "short",
            "Grants that no call was charged to in the time range. A wide range (30 days) tells which ones to ask "
            "about; the table below names them and says when one is needed all the same.",
            steps=((1, YELLOW),),
        ),
        4,
        4,
    )
    made.add(
        figure(
            "End within 3 days",
            or_zero(f"count({ENDING})"),
            "short",
            "Grants with an end within three days. Renew `spec.expiresAt`, or let them end; the table below is in "
            "order of time left. Runbook: ToolcribGrantExpiring.",
            steps=((1, YELLOW),),
        ),
        4,
        4,
    )
    made.add(
        figure(
            "Tools out of reach",
            or_zero(f"count({REACHED} == 0)"),
            "short",
            "Published tools that no binding reaches: nobody can list or call them. Grant their scopes, or delete "
            "them. Disabled tools are not counted, nor those that a binding reaches by one scope of several.",
            steps=((1, YELLOW),),
        ),
        4,
        4,
    )
    made.add(
        figure(
            "Denials",
            or_zero(f"round(sum({total(DENIALS)}))"),
            "short",
            "Denied calls, reads and loads in the time range. Some are normal: agents ask for what they may not have. "
            "For a jump see who and why under Refused. Runbook: ToolcribDenialSpike.",
        ),
        4,
        4,
    )
    refused = select("toolcrib_authentications_refused_total")
    made.add(
        figure(
            "Refused tokens",
            f"round(sum(increase({refused}[{RANGE}])))",
            "short",
            "Requests with a token that is expired, forged, or for another audience, in the time range. Many at once: "
            "an agent that does not renew its token, a changed issuer, or somebody who tries.",
            steps=((1, YELLOW), (100, RED)),
        ),
        4,
        4,
    )


def _grants(made: Page) -> None:
    made.row("Grants")
    per_holder = f"{HOLDERS} * on (namespace, kind, grant) group_left () "
    made.add(
        listing(
            "Who can call what: reach, use and end of every grant",
            (
                f"{per_holder}{REACH}",
                f"{per_holder}round(sum by (namespace, kind, grant) ({total(USES)}))",
                f"{per_holder}{LATEST_USE} * 1000",
                f"{per_holder}({TIME_LEFT})",
                f"{per_holder}({USED_SHARE})",
            ),
            (
                SUBJECT,
                GRANT,
                KIND,
                NAMESPACE,
                Column("Value #A", "Tools", steps=((1, BLUE),), below=RED, width=100),
                Column("Value #B", "Calls", width=100),
                Column("Value #C", "Last used", unit="dateTimeFromNow", width=160),
                Column("Value #D", "Time left", unit="s", steps=SOON, below=RED, width=120),
                Column("Value #E", "Tools used in 30 days", unit="percentunit", width=120),
            ),
            "One row for each agent and grant: tools it reaches now, calls charged to it in the time range, last use, "
            "time to its end, and which share of its tools was used. 0 tools: the binding matches nothing (`kubectl "
            "describe` says why). No calls in a long range: see Grants never used. A small share: `toolcrib access "
            "suggest` makes it smaller. Click an agent for its calls.",
            sort="Tools",
        ),
        24,
        10,
    )
    made.add(
        listing(
            "Scopes by agent",
            (f"max by (namespace, subject, scope, grant, kind) ({GRANTS})",),
            (SUBJECT, Column("scope", "Scope"), GRANT, KIND, NAMESPACE),
            "Every scope that an agent holds, with the binding that gives it. Too wide a scope: split the tools' "
            "scopes, or narrow the binding with `tools.allow`.",
            sort="Agent",
            descending=False,
        ),
        12,
        10,
    )
    made.add(
        listing(
            "Tools by number of grants",
            (REACHED,),
            (
                Column("tool", "Tool", links=(CALLS_OF_TOOL,)),
                SERVER,
                NAMESPACE,
                Column("Value", "Grants", steps=((1, BLUE),), below=RED, width=100),
            ),
            "How many bindings reach each tool by one scope or more; disabled tools are left out. Most exposed first; "
            "look twice at destructive tools near the top. 0: nobody can call it.",
            sort="Grants",
        ),
        12,
        10,
    )


def _refused(made: Page) -> None:
    made.row("Refused")
    made.add(
        graph(
            "Denials by reason",
            ((f"sum by (reason) ({total(DENIALS, '$__rate_interval')})", "{{reason}}"),),
            "short",
            "Denials in each drawn interval. `not_permitted`: of a tool that the agent does not see; which tool and "
            "why, `toolcrib audit query --denied` says. With `metrics.reasons: full` the reasons are here. Much "
            "`no_binding` or `scope_not_granted`: an agent lost a grant, or its prompt sends it to tools it does not "
            "have. `not_valid_now`: a grant has ended. docs/reference/decisions.md explains each reason.",
            bars=True,
            stacked=True,
        ),
        12,
        9,
    )
    made.add(
        listing(
            "Denials by agent and rule",
            (f"topk(50, round(sum by (namespace, agent, action, reason, rule) ({total(DENIALS)})) > 0)",),
            (
                AGENT,
                Column("action", "Action", width=90),
                Column("reason", "Reason"),
                Column("rule", "Rule"),
                NAMESPACE,
                Column("Value", "Denials", width=90),
            ),
            "The 50 largest in the time range. With `metrics.reasons: full` Rule is the binding that refused; empty "
            "where no binding allows. Otherwise `toolcrib audit query --denied --agent AGENT` names tool, reason and "
            "binding. To see what that agent would be granted and why: `GET /v1/access-review` on the registry.",
            sort="Denials",
        ),
        12,
        9,
    )
    decisions = "toolcrib_decisions_total"
    made.add(
        graph(
            "Decisions, allowed and refused",
            (
                (f"sum({rate(select(decisions, allowed__eq='true'))})", "allowed"),
                (f"sum({rate(select(decisions, allowed__eq='false'))})", "refused"),
            ),
            "ops",
            "Decisions about single tools. Refused rising while allowed falls: a grant was removed or has expired, or "
            "a tool was disabled.",
        ),
        12,
        8,
    )
    made.add(
        graph(
            "Refused tokens",
            ((f"sum({rate(select('toolcrib_authentications_refused_total'))})", "refused"),),
            "reqps",
            "Requests with an invalid token. A steady rate is usually one agent with a stale token: the "
            "registry's log names the reason by request id.",
        ),
        12,
        8,
    )


def _loose_ends(made: Page) -> None:
    made.row("Loose ends")
    made.add(
        listing(
            "Grants never used",
            (UNUSED,),
            (SUBJECT, GRANT, KIND, NAMESPACE),
            "No call was charged to these in the time range (a grant that is younger than the range counts too). "
            "Choose 30 or 90 days and ask the owner before you delete one: a call is charged to one binding, so of two "
            "that allow it together (`scopeMatch: All`) or each by itself, the other is listed here and may be needed.",
            sort="Grant",
            descending=False,
            none="All were used",
        ),
        8,
        9,
    )
    made.add(
        listing(
            "Grants that end",
            (f"{HOLDERS} * on (namespace, kind, grant) group_left () ({TIME_LEFT})",),
            (
                SUBJECT,
                GRANT,
                KIND,
                NAMESPACE,
                Column("Value", "Time left", unit="s", steps=SOON, below=RED, width=110),
            ),
            "Grants with `expiresAt`, the next to end first; negative: ended, the binding is still there. An agent "
            "loses the tools at that second, also in open streams. Renew, or delete what has ended.",
            sort="Time left",
            descending=False,
            none="None has an end",
        ),
        10,
        9,
    )
    made.add(
        listing(
            "Tools nobody can call",
            (f"{REACHED} == 0",),
            (Column("tool", "Tool"), Column("server", "Server"), NAMESPACE),
            "Published, not disabled, and no binding reaches them. Check the tool's scopes against the bindings of "
            "its own namespace: a binding reaches only tools of the namespace it is in. A tool with `scopeMatch: All` "
            "is missing here if bindings grant some of its scopes and nobody all: ask `GET /v1/access-review`.",
            sort="Tool",
            descending=False,
            none="All are granted",
        ),
        6,
        9,
    )
