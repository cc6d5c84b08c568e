"""Whose memory a call is about: the agent that the registry's assertion names, never the one that arguments name."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from toolcrib_cli.example_tools.problems import ToolError
from toolcrib_cli.session_store.memories import Owner

_ACCOUNT = "system:serviceaccount:"


def owner_of(claims: Mapping[str, Any], agent_id: str) -> Owner:
    """The agent that calls.

    Raises:
        ToolError: `agent_id` is not a name of it (403), whether or not there is such an agent.
    """
    owner = Owner(str(claims["sub_iss"]), str(claims["sub"]))
    names = names_of(owner.subject)
    if agent_id not in names:
        detail = f"The argument 'agent_id' must name you: {names[-1]!r}. Each agent has its own memory."
        raise ToolError(HTTPStatus.FORBIDDEN, "other_agent", detail)
    return owner


def names_of(subject: str) -> tuple[str, ...]:
    """What an agent may call itself: its subject; a ServiceAccount also `namespace/name` and `name`."""
    if not subject.startswith(_ACCOUNT):
        return (subject,)
    namespace, _, name = subject.removeprefix(_ACCOUNT).partition(":")
    return (subject, f"{namespace}/{name}", name)
