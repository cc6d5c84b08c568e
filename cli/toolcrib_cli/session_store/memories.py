"""Messages of agents in the database: kept, recalled, and deleted when they are old.

They are numbered in the order in which they were stored, whatever the clock says.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from toolcrib_cli.session_store.database import Database
from toolcrib_cli.session_store.tables import MEMORIES

OLDER = 200
"""Earlier messages that a recall reads."""
BEGINNING = 2_000
"""Characters that it reads of each."""
_BATCH = 1_000
"""Messages that are deleted in one transaction, so that nobody waits long for it."""
_C = MEMORIES.c


class MemoryFull(Exception):
    """The agent has as many messages as it may have."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose messages they are, as the registry verified it."""

    issuer: str
    subject: str


@dataclass(frozen=True, slots=True)
class Memory:
    """One stored message."""

    turn: int
    message: str


@dataclass(frozen=True, slots=True)
class Recalled:
    """The messages of one session.

    Attributes:
        older: messages before the recent ones, the oldest first: the latest `OLDER`, the `BEGINNING` of each.
        recent: the latest messages, the oldest first, whole.
        count: of all.
    """

    older: Sequence[Memory]
    recent: Sequence[Memory]
    count: int


class Memories:
    """All memories of a database. Every method raises StoreError where the database fails."""

    def __init__(self, database: Database, most: int, clock: Callable[[], float] = time.time) -> None:
        """`most`: messages that an agent may have."""
        self._database, self._most, self._clock = database, most, clock

    def keep(self, owner: Owner, session: str, turn: int, message: str) -> int:
        """Store a message, once however often it comes; how many the session holds.

        Raises:
            MemoryFull: the agent has as many as it may have.
        """
        digest = hashlib.sha256(message.encode()).hexdigest()
        own = _of(owner, session)
        with self._database.transaction() as connection:
            if not self._database.is_sqlite:  # which lets one write at a time
                lock = sa.func.pg_advisory_xact_lock(
                    sa.func.hashtextextended(f"{owner.issuer}\n{owner.subject}", 0)
                )
                connection.execute(sa.select(lock))
            there = sa.select(_C.number).where(own, _C.turn == turn, _C.digest == digest)
            if connection.execute(there).first() is None:
                if _count(connection, _of(owner)) >= self._most:
                    raise MemoryFull(
                        f"You have stored {self._most} messages, the most that an agent may have. Old messages are deleted "
                        "after some days."
                    )
                last = connection.execute(sa.select(sa.func.max(_C.number)).where(own)).scalar()
                connection.execute(
                    MEMORIES.insert().values(
                        issuer=owner.issuer,
                        subject=owner.subject,
                        session=session,
                        number=(last or 0) + 1,
                        turn=turn,
                        digest=digest,
                        message=message,
                        stored_at=self._clock(),
                    )
                )
            return _count(connection, own)

    def recall(self, owner: Owner, session: str, recent: int) -> Recalled:
        """The messages of a session: the latest `recent` whole, of those before the beginnings."""
        own = _of(owner, session)
        beginning = sa.func.substr(_C.message, 1, BEGINNING).label("message")
        latest = sa.select(_C.turn, _C.message).where(own).order_by(_C.number.desc())
        older = sa.select(_C.turn, beginning).where(own).order_by(_C.number.desc())
        with self._database.transaction() as connection:

            def read(rows: sa.Select[tuple[int, str]]) -> list[Memory]:
                return [Memory(row.turn, row.message) for row in reversed(connection.execute(rows).all())]

            return Recalled(
                read(older.offset(recent).limit(OLDER)), read(latest.limit(recent)), _count(connection, own)
            )

    def forget(self, before: float) -> int:
        """Delete what was stored before that time, in seconds since 1970; how many messages."""
        gone = 0
        keys = (_C.issuer, _C.subject, _C.session, _C.number)
        old = sa.select(*keys).where(_C.stored_at < before).limit(_BATCH)
        while True:
            with self._database.transaction() as connection:
                deleted = connection.execute(MEMORIES.delete().where(sa.tuple_(*keys).in_(old))).rowcount
            gone += deleted
            if deleted < _BATCH:
                return gone

    def check(self) -> None:
        """Whether the table can be read."""
        with self._database.transaction() as connection:
            connection.execute(sa.select(_C.number).limit(1))


def _of(owner: Owner, session: str | None = None) -> sa.ColumnElement[bool]:
    agent = sa.and_(_C.issuer == owner.issuer, _C.subject == owner.subject)
    return agent if session is None else sa.and_(agent, _C.session == session)


def _count(connection: sa.Connection, which: sa.ColumnElement[bool]) -> int:
    return int(connection.execute(sa.select(sa.func.count()).select_from(MEMORIES).where(which)).scalar_one())
