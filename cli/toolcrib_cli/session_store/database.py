"""The database of sessions: opened, brought to today's schema, and its failures as one error.

The schema is a list of numbered SQL files (`migrations/`), in SQL that SQLite and PostgreSQL both read. Each is applied
once, in its own transaction, and never changed after a release.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa
from sqlalchemy import event, exc

from toolcrib_cli.private_folders import shared_place

FILE = "sessions.sqlite"
_WAIT = 30.0
"""Seconds for which a write waits for another's."""
_BOUNDED = {"connect_timeout": 5, "tcp_user_timeout": 10_000, "options": "-c statement_timeout=30s"}
"""Of PostgreSQL: seconds to reach it, milliseconds for it to acknowledge what was sent, and the longest statement."""
_NUMBERED = re.compile(r"(\d{4})_[a-z_]+\.sql")
_LOCK = 7_316_402_118
"""PostgreSQL's advisory lock while migrations are applied: a number that nothing else here uses."""


class StoreError(Exception):
    """The database of sessions cannot be used now; the message says why, and holds no password."""

    def __init__(self, message: str, hint: str = "") -> None:
        self.message = message
        self.hint = hint
        super().__init__(message)


class Database:
    """An opened database. Safe to share between threads; close it, or use it in `with`."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        # without its query, which may hold a password too
        self.place = engine.url.set(query={}).render_as_string(hide_password=True)

    @classmethod
    def at(cls, url: str) -> Self:
        """Open the database at an SQLAlchemy URL, and apply the migrations that it lacks.

        Raises:
            StoreError: it is no such URL, cannot be reached or written, others can write the file or where it lies, or it
                belongs to a newer Toolcrib.
        """
        try:
            parsed = sa.make_url(url)
            kind = parsed.get_backend_name()
            if kind == "sqlite":
                _create_private(parsed)
                engine = sa.create_engine(parsed, connect_args={"timeout": _WAIT})
                _prepare_sqlite(engine)
            elif kind == "postgresql":
                engine = sa.create_engine(parsed, pool_pre_ping=True, connect_args=_BOUNDED)
            else:
                raise StoreError(f"a store is SQLite or PostgreSQL, not {kind}", _ADDRESSES)
        except (exc.ArgumentError, ValueError):
            raise StoreError("the store's URL is not valid", _ADDRESSES) from None
        except ImportError as missing:
            raise StoreError(
                f"the driver of PostgreSQL is not installed: {missing.name}", "install toolcrib[postgres]"
            ) from missing
        made = cls(engine)
        try:
            made._migrate()
        except BaseException:
            made.close()
            raise
        return made

    @classmethod
    def in_folder(cls, folder: Path) -> Self:
        """Open the SQLite file of a data folder, which is made (0700) if it is not there; errors as `at`."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = folder / FILE
            _refuse_shared(file)
            file.touch(mode=0o600)
        except OSError as error:
            raise StoreError(
                f"cannot write to the data folder {folder}: {error.strerror}", "choose another with --data"
            ) from error
        return cls.at(f"sqlite:///{file.resolve()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up all connections."""
        self._engine.dispose()

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """One transaction: all of it is on disk when this returns, or nothing.

        Raises:
            StoreError: the database is away, full, locked for too long, or refuses.
        """
        try:
            with self._engine.begin() as connection:
                yield connection
        except exc.SQLAlchemyError as error:
            raise StoreError(
                f"the store {self.place} fails: {_first_line(error)}",
                "what was acknowledged is kept; repair the database, then repeat the command",
            ) from error

    @property
    def is_sqlite(self) -> bool:
        """Whether it is a file of this machine."""
        return self._engine.dialect.name == "sqlite"

    def version(self) -> int:
        """The number of the last migration that was applied."""
        with self.transaction() as connection:
            return _version(connection)

    def _migrate(self) -> None:
        known = migrations()
        while True:
            with self.transaction() as connection:
                if not self.is_sqlite:
                    connection.execute(sa.text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
                connection.execute(
                    sa.text("CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)")
                )
                at = _version(connection)
                if at > len(known):
                    raise StoreError(
                        f"{self.place} belongs to a newer Toolcrib: its schema is {at}, this one knows {len(known)}",
                        "use that version, or another store",
                    )
                if at == len(known):
                    return
                for statement in known[at].split(";"):
                    if statement.strip():
                        connection.execute(sa.text(statement))
                connection.execute(sa.text("DELETE FROM schema_version"))
                connection.execute(sa.text("INSERT INTO schema_version VALUES (:at)"), {"at": at + 1})


_ADDRESSES = (
    "sqlite:///FILE, or postgresql://USER@HOST/DATABASE (the password in PGPASSWORD or a .pgpass file)"
)


def migrations() -> list[str]:
    """The SQL of each migration, in order: the first is number 1."""
    folder = resources.files(__package__) / "migrations"
    files = {int(found[1]): file for file in folder.iterdir() if (found := _NUMBERED.fullmatch(file.name))}
    return [files[number].read_text(encoding="utf-8") for number in range(1, len(files) + 1)]


def _version(connection: sa.Connection) -> int:
    found: Any = connection.execute(sa.text("SELECT MAX(version) FROM schema_version")).scalar()
    return int(found or 0)


def _create_private(url: sa.URL) -> None:
    """Make a new file that only its owner can read; what SQLite makes beside it has the same mode."""
    file = url.database or ""
    if file in ("", ":memory:"):
        raise StoreError("a store in memory would be lost with the command", _ADDRESSES)
    if "uri" in url.query:
        # SQLite would read the path in another way than the check of where it lies
        raise StoreError("the store's URL must not have `uri`", _ADDRESSES)
    _refuse_shared(Path(file))
    with suppress(OSError):  # the connection says why it cannot be used
        Path(file).touch(mode=0o600)


def _refuse_shared(path: Path) -> None:
    if (place := shared_place(path)) is not None:
        raise StoreError(f"the store {path} is not safe: {place.problem}", place.hint)


def _prepare_sqlite(engine: sa.Engine) -> None:
    """Durable commits, readers beside a writer, and transactions that hold the write lock from their start.

    A transaction that reads first and writes later would fail, not wait, where another wrote in between
    (https://sqlite.org/isolation.html).
    """

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # the driver begins no transactions of its own
        for setting in (
            "journal_mode = WAL",
            "synchronous = FULL",
            "foreign_keys = ON",
            "secure_delete = ON",
        ):
            connection.execute(f"PRAGMA {setting}")

    @event.listens_for(engine, "begin")
    def _begun(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _first_line(error: exc.SQLAlchemyError) -> str:
    """What the driver says, without the statement and its values."""
    cause = (error.orig if isinstance(error, exc.DBAPIError) else None) or error
    said = str(cause).strip().splitlines()
    return said[0] if said else type(cause).__name__


def has_password(url: str) -> bool:
    """Whether a URL holds a password, which other users of the machine could read in the list of processes."""
    try:
        parsed = sa.make_url(url)
    except (exc.ArgumentError, ValueError):
        return False  # `Database.at` refuses it, and does not repeat it
    return parsed.password is not None or not {"password", "sslpassword"}.isdisjoint(parsed.query)
