"""The row of the usage dashboard about agents of the agent runner: what their models cost."""

from __future__ import annotations

from dashboards.common import GREEN, NAMESPACE, RED, YELLOW, Column, Page, graph, listing
from dashboards.promql import rate, select, total

RUN = {"agent": "$runner"}
"""The runner calls an agent by its own name, the registry by the identity that its token proves: two variables."""


def row(made: Page) -> None:
    """Add it."""
    made.row("Agents run by the agent runner")
    tokens = select("toolcrib_agent_tokens_total", **RUN)
    made.add(
        graph(
            "Model tokens",
            ((f"sum by (mode, phase, kind) ({rate(tokens)})", "{{mode}} {{phase}} {{kind}}"),),
            "cps",
            "Tokens a second by mode, phase and kind. Prompt tokens of static that grow: too many tool definitions "
            "in the prompt; use `--mode auto`.",
            stacked=True,
        ),
        8,
        8,
    )
    requests = select("toolcrib_runner_model_requests_total", **RUN)
    made.add(
        graph(
            "Model requests by outcome",
            ((f"sum by (outcome) ({rate(requests)})", "{{outcome}}"),),
            "reqps",
            "Requests to the model. Outcomes other than ok: the model's address, key or limits; the runner's log has "
            "the answer.",
            stacked=True,
        ),
        8,
        8,
    )
    own_calls = select("toolcrib_agent_tool_calls_total", **RUN)
    made.add(
        graph(
            "Tool calls seen by agents",
            ((f"sum by (agent, outcome) ({rate(own_calls)})", "{{agent}} {{outcome}}"),),
            "reqps",
            "Calls as the agents saw them. More failures here than under Calls: the way between runner and registry.",
        ),
        8,
        8,
    )
    labels = "namespace, agent"
    made.add(
        listing(
            "Agents of the runner",
            (
                f"max by ({labels}) ({select('toolcrib_runner_registry_up', **RUN)})",
                f"max by ({labels}) ({select('toolcrib_runner_watch_connected', **RUN)})",
                f"max by ({labels}) ({select('toolcrib_agent_tools_available', **RUN)})",
                f"round(sum by ({labels}) ({total(tokens)}))",
                f"round(sum by ({labels}) ({total(own_calls)}))",
            ),
            (
                Column("agent", "Runner"),
                NAMESPACE,
                Column("Value #A", "Registry up", steps=((1, GREEN),), below=RED, width=120),
                Column("Value #B", "Live stream", steps=((1, GREEN),), below=YELLOW, width=120),
                Column("Value #C", "Tools known", steps=((1, GREEN),), below=RED, width=120),
                Column("Value #D", "Tokens", width=110),
                Column("Value #E", "Tool calls", width=110),
            ),
            "Registry up 0: the last discovery failed (address, CA, token). No live stream: changes are seen at the "
            "next discovery only. 0 tools: no grant reaches anything.",
            sort="Tokens",
        ),
        24,
        8,
    )
    by = "agent, mode, phase"
    prompt = select("toolcrib_agent_tokens_total", kind="prompt", **RUN)
    completion = select("toolcrib_agent_tokens_total", kind="completion", **RUN)
    cached = select("toolcrib_agent_cached_tokens_total", **RUN)
    spent = f"(sum by ({by}) ({total(prompt)}) > 0)"
    made.add(
        listing(
            "Model tokens by agent, mode and phase",
            (
                f"round({spent})",
                f"round(sum by ({by}) ({total(completion)}))",
                f"sum by ({by}) ({total(cached)}) / {spent}",
            ),
            (
                Column("agent", "Runner"),
                Column("mode", "Mode"),
                Column("phase", "Phase"),
                Column("Value #A", "Prompt", width=110),
                Column("Value #B", "Completion", width=110),
                Column("Value #C", "Cached", unit="percentunit", width=110),
            ),
            "What each phase cost. Much in discovery: few tools, or searches that find nothing. Cached is the share of "
            "prompt tokens that the endpoint took from its cache; 0 where it does not say.",
            sort="Prompt",
        ),
        24,
        8,
    )
