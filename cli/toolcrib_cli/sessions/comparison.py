"""Sessions compared by the sets of tools that their agents had. Pure."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toolcrib.digest import sha256
from toolcrib_cli.session_store.rows import INTERRUPTED, RUNNING, Call, Session, Turn, View

Z = 1.959964
"""Of a two-sided interval of 95 %."""
_RESAMPLES = 2_000


@dataclass(frozen=True, slots=True)
class Account:
    """All that the store has of one session."""

    session: Session
    views: Sequence[View]
    turns: Sequence[Turn]
    calls: Sequence[Call]


@dataclass(frozen=True, slots=True)
class Share:
    """How many of how many, and Wilson's interval of the share; 0 to 1 where there were none."""

    hits: int
    of: int
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean with a percentile-bootstrap interval; of one value there is none."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Row:
    """What the sessions with one set of tools came to."""

    tool_set: str
    """The first characters of a digest: the same for the same tools of the same agents."""
    tools: tuple[str, ...]
    sessions: int
    calls: Mean
    """A turn."""
    succeeded: Share
    """Of the calls."""
    answered: Share
    """Of the turns."""
    replies: Mean
    """Of the model, a turn."""
    tokens: Mean
    """A turn."""


def compare(accounts: Sequence[Account]) -> list[Row]:
    """A row for each set of tools, in the order in which the sessions began."""
    by_set: dict[str, list[Account]] = {}
    for account in sorted(accounts, key=lambda each: each.session.created_at):
        by_set.setdefault(tool_set(account.views), []).append(account)
    return [_row(name, of) for name, of in by_set.items()]


def tool_set(views: Sequence[View]) -> str:
    """The name of a set of tools."""
    return sha256({view.agent: sorted(view.tools) for view in views}).removeprefix("sha256:")[:8]


def _row(name: str, accounts: Sequence[Account]) -> Row:
    ended = [(a.session.id, t) for a in accounts for t in a.turns if t.outcome not in (RUNNING, INTERRUPTED)]
    turns = [turn for _, turn in ended]
    calls = [call for account in accounts for call in account.calls]
    made: Mapping[tuple[str, int], int] = _calls_by_turn(accounts)
    return Row(
        tool_set=name,
        tools=tuple(sorted({tool for view in accounts[0].views for tool in view.tools})),
        sessions=len(accounts),
        calls=mean([made.get((session, turn.number), 0) for session, turn in ended]),
        succeeded=share(sum(call.outcome == "ok" for call in calls), len(calls)),
        answered=share(sum(turn.outcome == "answered" for turn in turns), len(turns)),
        replies=mean([turn.replies for turn in turns]),
        tokens=mean([turn.prompt_tokens + turn.completion_tokens for turn in turns]),
    )


def _calls_by_turn(accounts: Sequence[Account]) -> dict[tuple[str, int], int]:
    counted: dict[tuple[str, int], int] = {}
    for account in accounts:
        for call in account.calls:
            key = (account.session.id, call.turn)
            counted[key] = counted.get(key, 0) + 1
    return counted


def share(hits: int, of: int) -> Share:
    """A share with its 95 % interval (Wilson, "Probable inference", JASA 22, 1927; the form of Newcombe 1998, method 3)."""
    if of == 0:
        return Share(0, 0, 0.0, 1.0)
    p, z2 = hits / of, Z * Z
    centre = (p + z2 / (2 * of)) / (1 + z2 / of)
    half = Z / (1 + z2 / of) * math.sqrt(p * (1 - p) / of + z2 / (4 * of * of))
    return Share(hits, of, max(0.0, centre - half), min(1.0, centre + half))


def mean(values: Sequence[float]) -> Mean:
    """A mean with its 95 % interval (percentile bootstrap, Efron 1979), the same for the same values."""
    if len(values) < 2:
        return Mean(values[0] if values else 0.0, None, None)
    chance = random.Random(len(values))  # noqa: S311, it resamples
    resampled = sorted(statistics.fmean(chance.choices(values, k=len(values))) for _ in range(_RESAMPLES))
    return Mean(
        statistics.fmean(values), resampled[int(_RESAMPLES * 0.025)], resampled[int(_RESAMPLES * 0.975)]
    )
