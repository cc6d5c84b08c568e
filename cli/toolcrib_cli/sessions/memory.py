"""A session's use of the memory tools (`store_memory`, `get_compressed_memory`), as each agent, through the registry."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from toolcrib_runner.errors import RunnerError
from toolcrib_runner.tasks import Toolbox

STORE, RECALL = "store_memory", "get_compressed_memory"
_TOKENS = 400
_RECENT = 3
_LONGEST = 16_000
"""Characters of a message; the example's tools take 16,384."""


def question(account: str, session: str) -> dict[str, Any]:
    """Arguments of a recall."""
    return {"agent_id": account, "game_session_id": session, "max_tokens": _TOKENS, "recent_count": _RECENT}


def recalled(tools: Toolbox, session: str, account: str) -> str:
    """What the agent remembers of the session; empty if it remembers nothing, or memory does not answer."""
    try:
        answer: Any = tools.call(RECALL, question(account, session))
    except RunnerError:
        return ""
    summary = answer.get("summary") if isinstance(answer, dict) else None
    return summary if isinstance(summary, str) else ""


def stored(tools: Toolbox, session: str, account: str, turn: int, message: str) -> None:
    """Keep what the agent answered in a turn. A failure is on record as a call; it does not end the turn."""
    with suppress(RunnerError):
        tools.call(
            STORE,
            {"agent_id": account, "turn_id": turn, "message": message[:_LONGEST], "game_session_id": session},
        )
