"""What each agent of a session has done so far: calls, errors, denials, tools that are new to it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from toolcrib_cli.sessions.comparison import Account

_DENIALS = frozenset({"not_permitted", "revoked", "tool_not_found", "unauthorized", "invalid_token"})
"""Codes of calls that somebody refused; every other code but ok is an error."""


@dataclass(frozen=True, slots=True)
class Activity:
    """One agent of one session."""

    agent: str
    turn: int
    """The last that it began; 0 before its first."""
    calls: int
    errors: int
    denials: int
    new_tools: int
    """Tools that it called in its last turn and in no earlier one."""
    tokens: int


def of(account: Account) -> list[Activity]:
    """A line for each agent that discovered something or had a turn, by name."""
    names = sorted({view.agent for view in account.views} | {turn.agent for turn in account.turns})
    return [_of(account, name) for name in names]


def cells(activity: Activity) -> tuple[object, ...]:
    """For a table."""
    return (
        activity.agent, activity.turn, activity.calls, activity.errors, activity.denials, activity.new_tools,
        activity.tokens,
    )  # fmt: skip


def _of(account: Account, agent: str) -> Activity:
    turns = [turn for turn in account.turns if turn.agent == agent]
    calls = [call for call in account.calls if call.agent == agent]
    last = turns[-1].number if turns else 0
    before = {call.tool for call in calls if call.turn < last}
    return Activity(
        agent=agent,
        turn=last,
        calls=len(calls),
        errors=sum(c.outcome not in ("ok", "started") and c.outcome not in _DENIALS for c in calls),
        denials=sum(c.outcome in _DENIALS for c in calls),
        new_tools=len({call.tool for call in calls if call.turn == last} - before) if before else 0,
        tokens=sum(turn.prompt_tokens + turn.completion_tokens for turn in turns),
    )
