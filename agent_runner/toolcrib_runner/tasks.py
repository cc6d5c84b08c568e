"""What a task needs, where it ends at the latest, and what came of it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from toolcrib_runner.discovery import DiscoveredTool
from toolcrib_runner.modes.kinds import Dialect, Mode
from toolcrib_runner.ready_sets import Caller, ReadySets
from toolcrib_runner.usage import UsageStats

HITS = 5
"""Of one search."""
SEARCHES = 8
"""Of one SEARCH; a model that asks for more at once has no plan."""
SCHEMAS = 16
"""Of one GET_SCHEMA."""
CORE = 5
"""Most used tools that the mode hybrid shows at once."""
EQUAL_CALLS = 3
"""So many equal calls in a row end a run; the last of them is not made."""


class Toolbox(Protocol):
    """What the loop needs of an agent: the live view and the call path."""

    name: str

    @property
    def tools(self) -> Mapping[str, DiscoveredTool]:
        """The tools now."""

    def search(self, query: str, limit: int) -> Sequence[str]:
        """Listed names of tools that fit, best first."""

    def call(self, tool_name: str, arguments: Mapping[str, Any]) -> Any:
        """Call one."""

    def input_schemas(self, names: Sequence[str]) -> Mapping[str, dict[str, Any]]:
        """Full input schemas of some."""

    def usage_stats(self) -> UsageStats:
        """Which tools are used most."""


class Outcome(StrEnum):
    """How a task ended."""

    ANSWERED = "answered"
    OUT_OF_TURNS = "out_of_turns"
    OUT_OF_TOKENS = "out_of_tokens"
    OUT_OF_TIME = "out_of_time"
    CONTEXT_FULL = "context_full"
    LOOPING = "looping"
    MODEL_FAILED = "model_failed"
    TOO_MANY_TOOLS = "too_many_tools"
    REGISTRY_AWAY = "registry_away"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where a task ends at the latest."""

    turns: int = 20
    """Requests to the model that were answered."""
    tokens: int = 200_000
    """Prompt and completion tokens together, as the endpoint counts them, estimated where it does not."""
    seconds: float = 600.0
    """From the first request."""
    calls_per_turn: int = 16
    """Of a reply that asks for more, the rest is refused."""
    context: int = 128_000
    """Estimated tokens of one request; the oldest results are cut first."""
    model_patience: float = 60.0
    """Seconds for which a failing model endpoint is retried."""
    model_timeout: float = 120.0
    """Seconds for one reply."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One executed call. `outcome` is ok, or the code of the error."""

    tool: str
    outcome: str
    seconds: float


@dataclass
class Report:
    """What came of a task. `error` has the reason of every end but an answer."""

    outcome: Outcome
    answer: str = ""
    error: str = ""
    turns: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    calls: list[CallRecord] = field(default_factory=list)
    mode: str = ""
    """The mode that the task was worked on in; never auto."""
    ready: tuple[str, ...] = ()
    """Listed names of the tools that a discovering mode chose."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a task is worked on: what its model is shown, and how it asks."""

    mode: Mode = Mode.STATIC
    dialect: Dialect = Dialect.NATIVE
    core: tuple[str, ...] = ()
    """Of the mode hybrid; empty: the most used."""
    tool_context: bool = False
    ready_sets: ReadySets | None = None
    """Of the mode cached."""
    caller: Callable[[], Caller] = lambda: ("", "")
    """Whose READY sets these are."""
