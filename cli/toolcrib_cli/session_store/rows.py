"""What the store of sessions holds, a row at a time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

STARTED = "started"
UNKNOWN = "unknown"
"""A call whose run ended before its answer came."""
RUNNING = "running"
"""A turn that has not ended."""
INTERRUPTED = "interrupted"


class State(StrEnum):
    """Where a session stands. A run that was killed leaves `running`."""

    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class Session:
    """One session."""

    id: str
    name: str
    definition: str
    """The session's file as JSON."""
    state: State
    reason: str
    keeps_messages: bool
    retention_seconds: float
    holder: str | None
    beat: int
    pause_asked: bool
    created_at: float
    """Seconds since 1970, by the clock of the machine that ran it; so are all `_at`."""
    changed_at: float


@dataclass(frozen=True, slots=True)
class View:
    """What an agent discovered when the session began."""

    agent: str
    account: str
    tools: dict[str, tuple[str, ...]]
    """Scopes by listed name."""
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn. `attempt` counts from 1; `answer` is None where messages are not kept."""

    number: int
    attempt: int
    agent: str
    outcome: str
    error: str
    mode: str
    replies: int
    prompt_tokens: int
    completion_tokens: int
    answer: str | None
    started_at: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool. `outcome`: ok, the code of an error, started, or unknown."""

    turn: int
    attempt: int
    number: int
    agent: str
    tool: str
    arguments_digest: str
    outcome: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Ended:
    """How a turn ended."""

    outcome: str
    error: str = ""
    mode: str = ""
    replies: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    answer: str | None = None
    seconds: float = 0.0
