"""What the runner writes when it ends: the answer and a summary of use, for people or as JSON. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict

from toolcrib import text
from toolcrib_runner.tasks import Outcome, Report
from toolcrib_runner.usage import UsageStats

EXIT_CODES = {
    Outcome.ANSWERED: 0,
    Outcome.OUT_OF_TURNS: 3,
    Outcome.OUT_OF_TOKENS: 3,
    Outcome.OUT_OF_TIME: 3,
    Outcome.CONTEXT_FULL: 3,
    Outcome.LOOPING: 3,
    Outcome.TOO_MANY_TOOLS: 2,
    Outcome.MODEL_FAILED: 4,
    Outcome.REGISTRY_AWAY: 5,
    Outcome.STOPPED: 130,
}
_WHY = {
    Outcome.OUT_OF_TURNS: "stopped: the maximum number of turns is reached",
    Outcome.OUT_OF_TOKENS: "stopped: the maximum number of tokens is reached",
    Outcome.OUT_OF_TIME: "stopped: the time limit is reached",
    Outcome.CONTEXT_FULL: "stopped: the conversation does not fit into the context limit",
    Outcome.LOOPING: "stopped: the model repeats itself",
    Outcome.TOO_MANY_TOOLS: "ended: too many tools for a model",
    Outcome.MODEL_FAILED: "the model endpoint failed",
    Outcome.REGISTRY_AWAY: "not started: the registry does not respond",
    Outcome.STOPPED: "interrupted",
}


def as_json(report: Report, usage: UsageStats) -> str:
    """One JSON object: how it ended, the answer, the calls, the use."""
    return json.dumps(
        {
            "agent": usage.agent,
            "outcome": report.outcome,
            "mode": report.mode,
            "ready": list(report.ready),
            "answer": report.answer,
            "error": report.error or None,
            "turns": report.turns,
            "tokens": {"prompt": report.prompt_tokens, "completion": report.completion_tokens},
            "calls": [asdict(call) for call in report.calls],
            "usage": usage.as_dict(),
        },
        ensure_ascii=False,
    )


def as_text(report: Report, usage: UsageStats) -> str:
    """The answer, then a few lines about how it came about. Control characters of the model are shown escaped."""
    lines = [text.escape(report.answer, keep_newlines=True)] if report.answer else []
    if report.outcome is not Outcome.ANSWERED:
        lines.append(f"[{_WHY[report.outcome]}{': ' + report.error if report.error else ''}]")
    used = ", ".join(f"{tool} {count}" for tool, count in usage.usage_by_tool.items()) or "none"
    failed = sum(call.outcome != "ok" for call in report.calls)
    lines += [
        "",
        f"agent         {usage.agent}",
        f"tools         {usage.total_tools_available} available, used: {used}",
        f"calls         {len(report.calls)}" + (f", {failed} of them failed or refused" if failed else ""),
        f"most used     {usage.most_used_tool or '-'}",
        f"mode          {report.mode or '-'}"
        + (f", ready: {', '.join(report.ready)}" if report.ready else ""),
        f"model         {report.turns} turns, {report.prompt_tokens} + {report.completion_tokens} tokens",
    ]
    return "\n".join(lines)
