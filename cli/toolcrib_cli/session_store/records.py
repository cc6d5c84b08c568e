"""Sessions, their turns and calls in the database.

Who runs a session is its holder. Each write of a run says whose it is, in the transaction that writes: a run whose
session was taken over (it was stopped for long, and somebody resumed the session) writes nothing any more, and so
makes no further call either, because a call is written down before it is made.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from toolcrib_cli.session_store.database import Database, StoreError
from toolcrib_cli.session_store.rows import (
    INTERRUPTED,
    RUNNING,
    STARTED,
    UNKNOWN,
    Call,
    Ended,
    Session,
    State,
    Turn,
    View,
)
from toolcrib_cli.session_store.tables import CALLS, FORGOTTEN, SESSIONS, TURNS, USES, VIEWS

_ABANDONED = 86_400.0
"""Seconds without a sign of life."""
_USED = sa.text(
    "INSERT INTO uses (account, tool, calls) VALUES (:account, :tool, 1) "
    "ON CONFLICT (account, tool) DO UPDATE SET calls = uses.calls + 1"
)


class TakenOver(Exception):
    """Somebody else runs this session now."""


class SessionExists(Exception):
    """There is a session of this id already."""


class SessionForgotten(Exception):
    """There was a session of this id; its retention is over."""


class Records:
    """All sessions of a database. Every method raises StoreError where the database fails."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    # ---- sessions ----

    def create(
        self, session: str, name: str, definition: str, *, holder: str, keeps: bool, retention: float
    ) -> None:
        """A new session, run by `holder`. Raises SessionExists, SessionForgotten."""
        now = self._clock()
        row = SESSIONS.insert().values(
            id=session,
            name=name,
            definition=definition,
            state=State.RUNNING.value,
            reason="",
            keeps_messages=keeps,
            retention_seconds=retention,
            holder=holder,
            beat=0,
            pause_asked=False,
            created_at=now,
            changed_at=now,
        )
        try:
            with self._database.transaction() as connection:
                gone = sa.select(FORGOTTEN.c.id).where(FORGOTTEN.c.id == session)
                if connection.execute(gone).first() is not None:
                    raise SessionForgotten(session)
                connection.execute(row)
        except StoreError as error:
            if isinstance(error.__cause__, sa.exc.IntegrityError):
                raise SessionExists(session) from None
            raise

    def find(self, session: str) -> Session | None:
        """One session, if there is one."""
        found = self.sessions(session=session)
        return found[0] if found else None

    def sessions(
        self,
        *,
        session: str | None = None,
        name: str | None = None,
        most: int = 1000,
        live_first: bool = False,
    ) -> list[Session]:
        """Sessions, the latest first; with `live_first` those that run before all others."""
        asked = sa.select(SESSIONS).limit(most)
        if live_first:
            asked = asked.order_by(SESSIONS.c.holder.is_(None))
        asked = asked.order_by(SESSIONS.c.created_at.desc(), SESSIONS.c.id)
        if session is not None:
            asked = asked.where(SESSIONS.c.id == session)
        if name is not None:
            asked = asked.where(SESSIONS.c.name == name)
        with self._database.transaction() as connection:
            rows = connection.execute(asked).all()
        return [Session(**(row._asdict() | {"state": State(row.state)})) for row in rows]

    def take(self, seen: Session, holder: str) -> bool:
        """Make `holder` the one who runs it, unless anything of its holder changed since `seen`.

        Calls that were in flight become `unknown`, and a turn that had begun `interrupted`.
        """
        with self._database.transaction() as connection:
            # no comparison of clocks: two who saw the same holder and beat, and only one of them changes it
            taken = connection.execute(
                SESSIONS.update()
                .where(
                    SESSIONS.c.id == seen.id,
                    SESSIONS.c.beat == seen.beat,
                    SESSIONS.c.holder.is_(None) if seen.holder is None else SESSIONS.c.holder == seen.holder,
                    SESSIONS.c.state != State.FINISHED.value,
                )
                .values(
                    holder=holder,
                    beat=SESSIONS.c.beat + 1,
                    state=State.RUNNING.value,
                    reason="",
                    pause_asked=False,
                    changed_at=self._clock(),
                )
            )
            if taken.rowcount != 1:
                return False
            _interrupt(connection, seen.id)
            return True

    def beat(self, session: str, holder: str) -> bool:
        """Say that the run lives; returns whether it is asked to pause. Raises TakenOver."""
        with self._held(session, holder) as connection:
            connection.execute(
                SESSIONS.update()
                .where(SESSIONS.c.id == session)
                .values(beat=SESSIONS.c.beat + 1, changed_at=self._clock())
            )
            return bool(
                connection.execute(sa.select(SESSIONS.c.pause_asked).where(SESSIONS.c.id == session)).scalar()
            )

    def ask_pause(self, session: str) -> bool:
        """Ask a running session to stop after its turn; False if it does not run."""
        with self._database.transaction() as connection:
            asked = connection.execute(
                SESSIONS.update()
                .where(SESSIONS.c.id == session, SESSIONS.c.holder.is_not(None))
                .values(pause_asked=True)
            )
            return asked.rowcount == 1

    def leave(self, session: str, holder: str, state: State, reason: str = "") -> None:
        """The run ends here. What was in the middle is marked as by `take`. Raises TakenOver."""
        with self._held(session, holder) as connection:
            _interrupt(connection, session)
            connection.execute(
                SESSIONS.update()
                .where(SESSIONS.c.id == session)
                .values(
                    holder=None,
                    beat=SESSIONS.c.beat + 1,
                    state=state.value,
                    reason=reason,
                    pause_asked=False,
                    changed_at=self._clock(),
                )
            )

    def forget_expired(self) -> int:
        """Delete sessions whose retention is over; their number. Their ids are kept, so that none is used again.

        A killed run leaves its holder: without a sign of life for a day, it does not keep the session.
        """
        now = self._clock()
        with self._database.transaction() as connection:
            over = connection.scalars(
                sa.select(SESSIONS.c.id)
                .where(
                    SESSIONS.c.changed_at + SESSIONS.c.retention_seconds < now,
                    sa.or_(SESSIONS.c.holder.is_(None), SESSIONS.c.changed_at < now - _ABANDONED),
                )
                .with_for_update()
            ).all()
            for ident in over:
                connection.execute(SESSIONS.delete().where(SESSIONS.c.id == ident))
                connection.execute(FORGOTTEN.insert().values(id=ident, forgotten_at=now))
            return len(over)

    # ---- views ----

    def discovered(self, session: str, holder: str, views: Sequence[View]) -> None:
        """What the agents discovered; replaces what stood there. Raises TakenOver."""
        with self._held(session, holder) as connection:
            connection.execute(VIEWS.delete().where(VIEWS.c.session == session))
            for view in views:
                connection.execute(
                    VIEWS.insert().values(
                        session=session,
                        agent=view.agent,
                        account=view.account,
                        tools=json.dumps(view.tools, sort_keys=True),
                        scopes=json.dumps(view.scopes),
                    )
                )

    def views(self, session: str) -> list[View]:
        """As `discovered` left them, by agent."""
        rows = self._rows(sa.select(VIEWS).where(VIEWS.c.session == session).order_by(VIEWS.c.agent))
        return [
            View(
                agent=row["agent"],
                account=row["account"],
                tools={name: tuple(scopes) for name, scopes in json.loads(row["tools"]).items()},
                scopes=tuple(json.loads(row["scopes"])),
            )
            for row in rows
        ]

    # ---- turns and calls ----

    def begin_turn(self, session: str, holder: str, number: int, agent: str) -> int:
        """A turn begins, or begins again after an interruption; returns its attempt. Raises TakenOver."""
        with self._held(session, holder) as connection:
            mine = sa.and_(TURNS.c.session == session, TURNS.c.number == number)
            before = connection.execute(sa.select(TURNS.c.attempt).where(mine)).scalar()
            attempt = int(before or 0) + 1
            connection.execute(TURNS.delete().where(mine))
            connection.execute(
                TURNS.insert().values(
                    session=session,
                    number=number,
                    attempt=attempt,
                    agent=agent,
                    outcome=RUNNING,
                    error="",
                    mode="",
                    replies=0,
                    prompt_tokens=0,
                    completion_tokens=0,
                    answer=None,
                    started_at=self._clock(),
                    seconds=0.0,
                )
            )
            return attempt

    def end_turn(self, session: str, holder: str, number: int, ended: Ended) -> None:
        """A turn ended. Raises TakenOver."""
        with self._held(session, holder) as connection:
            connection.execute(
                TURNS.update()
                .where(TURNS.c.session == session, TURNS.c.number == number)
                .values(
                    outcome=ended.outcome,
                    error=ended.error,
                    mode=ended.mode,
                    replies=ended.replies,
                    prompt_tokens=ended.prompt_tokens,
                    completion_tokens=ended.completion_tokens,
                    answer=ended.answer,
                    seconds=ended.seconds,
                )
            )

    def turns(self, session: str, *, turn: int | None = None) -> list[Turn]:
        """The turns that have begun, in order."""
        asked = sa.select(TURNS).where(TURNS.c.session == session)
        if turn is not None:
            asked = asked.where(TURNS.c.number == turn)
        return [Turn(**_without_session(row)) for row in self._rows(asked.order_by(TURNS.c.number))]

    def begin_call(self, session: str, holder: str, call: Call) -> None:
        """A call is about to be made. Raises TakenOver."""
        with self._held(session, holder) as connection:
            connection.execute(
                CALLS.insert().values(
                    session=session,
                    turn=call.turn,
                    attempt=call.attempt,
                    number=call.number,
                    agent=call.agent,
                    tool=call.tool,
                    arguments_digest=call.arguments_digest,
                    outcome=call.outcome,
                    seconds=call.seconds,
                )
            )

    def end_call(
        self, session: str, holder: str, call: Call, outcome: str, seconds: float, *, used_by: str | None
    ) -> None:
        """A call ended; `used_by`, the account whose use of the tool it is, counts it. Raises TakenOver."""
        with self._held(session, holder) as connection:
            connection.execute(
                CALLS.update()
                .where(
                    CALLS.c.session == session,
                    CALLS.c.turn == call.turn,
                    CALLS.c.attempt == call.attempt,
                    CALLS.c.number == call.number,
                )
                .values(outcome=outcome, seconds=seconds)
            )
            if used_by is None:
                return
            connection.execute(_USED, {"account": used_by, "tool": call.tool})

    def calls(self, session: str, *, turn: int | None = None) -> list[Call]:
        """The calls in order, of all attempts."""
        asked = sa.select(CALLS).where(CALLS.c.session == session)
        if turn is not None:
            asked = asked.where(CALLS.c.turn == turn)
        rows = self._rows(asked.order_by(CALLS.c.turn, CALLS.c.attempt, CALLS.c.number))
        return [Call(**_without_session(row)) for row in rows]

    def uses(self, account: str) -> dict[str, int]:
        """How often an account's calls reached each tool, over all sessions ever."""
        rows = self._rows(sa.select(USES).where(USES.c.account == account).order_by(USES.c.tool))
        return {row["tool"]: row["calls"] for row in rows}

    @contextmanager
    def _held(self, session: str, holder: str) -> Iterator[sa.Connection]:
        with self._database.transaction() as connection:
            found = connection.execute(
                sa.select(SESSIONS.c.holder).where(SESSIONS.c.id == session).with_for_update()
            ).scalar()
            if found != holder:
                raise TakenOver(session)
            yield connection

    def _rows(self, asked: sa.Select[Any]) -> list[dict[str, Any]]:
        with self._database.transaction() as connection:
            return [dict(row._mapping) for row in connection.execute(asked)]


def _interrupt(connection: sa.Connection, session: str) -> None:
    """Calls in flight become `unknown`, and a turn that had begun `interrupted`."""
    for table, was, now in ((CALLS, STARTED, UNKNOWN), (TURNS, RUNNING, INTERRUPTED)):
        connection.execute(
            table.update().where(table.c.session == session, table.c.outcome == was).values(outcome=now)
        )


def _without_session(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "session"}
