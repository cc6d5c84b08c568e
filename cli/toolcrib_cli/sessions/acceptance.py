"""Notes of the sessions started or accepted on this machine, so that nobody who writes the store chooses what a resume does.

A definition names accounts, prompts, models, and the key files that go to them. So a note of each session that was started
or accepted on this machine is kept in the data folder, which the store's writers cannot reach.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

from toolcrib.text import escape
from toolcrib_cli.private_folders import shared_place
from toolcrib_cli.sessions.definition import Definition

_FOLDER = "accepted-sessions"


class Acceptances:
    """Sessions that were started or accepted here, an empty file each."""

    def __init__(self, data: Path) -> None:
        self._folder = data / _FOLDER

    def add(self, session: str, definition: str) -> str:
        """Accept a session as the store holds it; why that cannot be noted, empty if it was."""
        try:
            self._folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder.mkdir(mode=0o700, exist_ok=True)
            if (place := shared_place(self._folder)) is not None:
                return place.problem
            self._note(session, definition).touch(mode=0o600)
        except OSError as error:
            return f"cannot write to {self._folder}: {error.strerror}"
        return ""

    def remove(self, session: str, definition: str) -> None:
        """Forget a session that has ended."""
        with suppress(OSError):  # what has ended is not resumed
            self._note(session, definition).unlink(missing_ok=True)

    def has(self, session: str, definition: str) -> bool:
        """Return True if exactly this was started or accepted here, and nobody else can have noted it."""
        note = self._note(session, definition)
        return note.exists() and shared_place(note) is None

    def _note(self, session: str, definition: str) -> Path:
        return self._folder / digest(session, definition).replace(":", "-")


def digest(session: str, definition: str) -> str:
    """`sha256:…` of a session's id and its definition, as the store holds them."""
    return "sha256:" + hashlib.sha256(f"{session}\n{definition}".encode()).hexdigest()


def facts(definition: Definition) -> list[str]:
    """The accounts that a session uses and the addresses that its key files go to, a line each agent."""
    lines = []
    for agent in definition.agents:
        model = definition.model_of(agent)
        token = f" with the token in {agent.token_file}" if agent.token_file else ""
        key = f" with the key in {model.key_file}" if model.key_file else ""
        where = f"the model {model.name} at {model.url}{key}" if model.url else "the scripted model"
        lines.append(escape(f"{agent.name} acts as {agent.account}{token} and uses {where}"))
    return lines
