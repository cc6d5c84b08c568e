"""`database_query`: one SELECT over the sample database, read-only and bounded in every direction."""

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from toolcrib_cli.example_tools.arguments import Arguments
from toolcrib_cli.example_tools.problems import ToolError, impossible, invalid_argument

LONGEST_QUERY: Final = 4000
MOST_ROWS: Final = 200
MOST_CHARACTERS: Final = 200_000
QUERY_SECONDS: Final = 1.0
_STEPS_BETWEEN_CHECKS: Final = 1000

_FUNCTIONS: Final = frozenset(
    {
        *("abs", "avg", "coalesce", "count", "date", "datetime", "group_concat", "ifnull", "iif", "instr"),
        *("length", "like", "lower", "ltrim", "max", "min", "nullif", "round", "rtrim", "strftime", "substr"),
        *("substring", "sum", "time", "total", "trim", "upper"),
    }
)
# What a statement may grow to. A pattern is short because it is matched where no progress handler runs.
_LIMITS: Final = {
    sqlite3.SQLITE_LIMIT_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: LONGEST_QUERY * 4,
    sqlite3.SQLITE_LIMIT_COLUMN: 100,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 50,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 10,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 100,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}

Cell = str | int | float | None


class SampleDatabase:
    """A SQLite file that may be asked, never changed. Blocking: call it in a thread."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def query(self, arguments: Arguments) -> dict[str, object]:
        """Answer `{columns, rows, row_count, truncated}`: at most 200 rows, each a list of cells.

        Raises `ToolError`: 400 for SQL that is wrong or no plain SELECT, 422 for one that takes too long.
        """
        arguments.expect({"query"})
        sql = arguments.text("query", longest=LONGEST_QUERY)
        try:
            with closing(self._connect()) as connection:
                return _answer(connection, sql)
        except sqlite3.DatabaseError as error:
            raise _explained(error) from error
        except (sqlite3.Error, sqlite3.Warning) as error:
            # "You can only execute one statement at a time": its class differs between Python versions.
            raise invalid_argument(f"{error}") from error

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self.file.absolute().as_uri()}?mode=ro", uri=True, timeout=QUERY_SECONDS
        )
        for category, limit in _LIMITS.items():
            connection.setlimit(category, limit)
        tables = {str(name) for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        connection.set_authorizer(_authorizer(frozenset(tables | {"sqlite_master", "sqlite_schema"})))
        deadline = time.monotonic() + QUERY_SECONDS
        connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_BETWEEN_CHECKS)
        return connection


def _authorizer(
    tables: frozenset[str],
) -> Callable[[int, str | None, str | None, str | None, str | None], int]:
    """Permit SELECT, reading the known tables, and harmless functions; everything else is denied."""

    def authorize(
        action: int, first: str | None, second: str | None, database: str | None, trigger: str | None
    ) -> int:
        allowed = (
            action == sqlite3.SQLITE_SELECT
            or (action == sqlite3.SQLITE_READ and first in tables)
            or (action == sqlite3.SQLITE_FUNCTION and second is not None and second.lower() in _FUNCTIONS)
        )
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY

    return authorize


def _answer(connection: sqlite3.Connection, sql: str) -> dict[str, object]:
    cursor = connection.execute(sql)
    if cursor.description is None:
        raise invalid_argument("The query is no SELECT.")
    columns = [column[0] for column in cursor.description]
    rows: list[list[Cell]] = []
    characters = 0
    truncated = False
    for values in cursor:
        row = [_cell(value) for value in values]
        characters += sum(len(cell) if isinstance(cell, str) else 8 for cell in row)
        if len(rows) == MOST_ROWS or characters > MOST_CHARACTERS:
            truncated = True
            break
        rows.append(row)
    return {"columns": columns, "rows": rows, "row_count": len(rows), "truncated": truncated}


def _cell(value: object) -> Cell:
    """What JSON can say: blobs as hexadecimal text, infinities as text."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return str(value)
    return value if isinstance(value, str | int | float) else None


def _explained(error: sqlite3.DatabaseError) -> ToolError:
    code = getattr(error, "sqlite_errorcode", None)
    if code == sqlite3.SQLITE_INTERRUPT:
        return impossible("query_too_slow", f"The query took longer than {QUERY_SECONDS:g} s.")
    if code == sqlite3.SQLITE_AUTH:
        return invalid_argument("Only a SELECT over the tables of the sample database is allowed.")
    if code in (sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_NOMEM):
        return impossible("result_too_large", "A value of the result is too large.")
    return invalid_argument(f"SQLite says: {str(error)[:200]}.")
