"""The tables as SQLAlchemy knows them; `migrations/` makes them, and a test compares the two."""

from __future__ import annotations

import sqlalchemy as sa

METADATA = sa.MetaData()
_TEXT, _NUMBER, _SECONDS = sa.Text, sa.BigInteger, sa.Double


def _of_session() -> sa.Column[str]:
    return sa.Column("session", _TEXT, sa.ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True)


SESSIONS = sa.Table(
    "sessions",
    METADATA,
    sa.Column("id", _TEXT, primary_key=True),
    sa.Column("name", _TEXT, nullable=False),
    sa.Column("definition", _TEXT, nullable=False),
    sa.Column("state", _TEXT, nullable=False),
    sa.Column("reason", _TEXT, nullable=False),
    sa.Column("keeps_messages", sa.Boolean, nullable=False),
    sa.Column("retention_seconds", _SECONDS, nullable=False),
    sa.Column("holder", _TEXT),
    sa.Column("beat", _NUMBER, nullable=False),
    sa.Column("pause_asked", sa.Boolean, nullable=False),
    sa.Column("created_at", _SECONDS, nullable=False),
    sa.Column("changed_at", _SECONDS, nullable=False),
)
VIEWS = sa.Table(
    "views",
    METADATA,
    _of_session(),
    sa.Column("agent", _TEXT, primary_key=True),
    sa.Column("account", _TEXT, nullable=False),
    sa.Column("tools", _TEXT, nullable=False),
    sa.Column("scopes", _TEXT, nullable=False),
)
TURNS = sa.Table(
    "turns",
    METADATA,
    _of_session(),
    sa.Column("number", _NUMBER, primary_key=True),
    sa.Column("attempt", _NUMBER, nullable=False),
    sa.Column("agent", _TEXT, nullable=False),
    sa.Column("outcome", _TEXT, nullable=False),
    sa.Column("error", _TEXT, nullable=False),
    sa.Column("mode", _TEXT, nullable=False),
    sa.Column("replies", _NUMBER, nullable=False),
    sa.Column("prompt_tokens", _NUMBER, nullable=False),
    sa.Column("completion_tokens", _NUMBER, nullable=False),
    sa.Column("answer", _TEXT),
    sa.Column("started_at", _SECONDS, nullable=False),
    sa.Column("seconds", _SECONDS, nullable=False),
)
CALLS = sa.Table(
    "calls",
    METADATA,
    _of_session(),
    sa.Column("turn", _NUMBER, primary_key=True),
    sa.Column("attempt", _NUMBER, primary_key=True),
    sa.Column("number", _NUMBER, primary_key=True),
    sa.Column("agent", _TEXT, nullable=False),
    sa.Column("tool", _TEXT, nullable=False),
    sa.Column("arguments_digest", _TEXT, nullable=False),
    sa.Column("outcome", _TEXT, nullable=False),
    sa.Column("seconds", _SECONDS, nullable=False),
)
USES = sa.Table(
    "uses",
    METADATA,
    sa.Column("account", _TEXT, primary_key=True),
    sa.Column("tool", _TEXT, primary_key=True),
    sa.Column("calls", _NUMBER, nullable=False),
)
FORGOTTEN = sa.Table(
    "forgotten",
    METADATA,
    sa.Column("id", _TEXT, primary_key=True),
    sa.Column("forgotten_at", _SECONDS, nullable=False),
)
MEMORIES = sa.Table(
    "memories",
    METADATA,
    sa.Column("issuer", _TEXT, primary_key=True),
    sa.Column("subject", _TEXT, primary_key=True),
    # an agent's own word: memories need no session that is recorded
    sa.Column("session", _TEXT, primary_key=True),
    sa.Column("number", _NUMBER, primary_key=True),
    sa.Column("turn", _NUMBER, nullable=False),
    sa.Column("digest", _TEXT, nullable=False),
    sa.Column("message", _TEXT, nullable=False),
    sa.Column("stored_at", _SECONDS, nullable=False),
)
