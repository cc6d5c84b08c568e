"""The sessions' store keeps its promises on SQLite and on PostgreSQL alike."""

import socket
import threading
from pathlib import Path

import pytest
import sqlalchemy as sa

from realparts.postgres_server import Postgres
from realparts.required import require_postgres
from toolcrib_cli.session_store.database import FILE, Database, StoreError, has_password, migrations
from toolcrib_cli.session_store.records import Records, SessionExists, TakenOver
from toolcrib_cli.session_store.rows import Call, Ended, State, View
from toolcrib_cli.session_store.tables import METADATA, SESSIONS, USES

CALL = Call(1, 1, 1, "hacker", "database_query", "d", "started", 0.0)


@pytest.fixture
def records(database: Database) -> Records:
    made = Records(database, lambda: 1000.0)
    made.create("s", "vault", "{}", holder="a", keeps=True, retention=60.0)
    return made


def test_the_migrations_make_the_tables_that_the_program_reads(database: Database) -> None:
    with database.transaction() as connection:
        found = sa.inspect(connection)
        there = {
            name: {(c["name"], c["nullable"]) for c in found.get_columns(name)}
            for name in found.get_table_names()
        }
        keys = {name: tuple(found.get_pk_constraint(name)["constrained_columns"]) for name in METADATA.tables}
    assert there.pop("schema_version")
    assert there == {
        name: {(c.name, bool(c.nullable)) for c in table.columns} for name, table in METADATA.tables.items()
    }
    assert keys == {name: tuple(c.name for c in table.primary_key) for name, table in METADATA.tables.items()}


def test_a_store_of_each_earlier_release_is_brought_up_to_date_with_all_that_it_holds(
    url: str, database: Database
) -> None:
    with database.transaction() as connection:
        METADATA.drop_all(connection)
        connection.execute(sa.text("UPDATE schema_version SET version = 1"))
        for statement in migrations()[0].split(";"):
            if statement.strip():
                connection.execute(sa.text(statement))
        old = {"id": "old", "name": "v", "definition": "{}", "state": "paused", "reason": "", "keeps_messages": True,
               "retention_seconds": 60.0, "beat": 1, "pause_asked": False, "created_at": 1.0, "changed_at": 1.0}  # fmt: skip
        connection.execute(SESSIONS.insert(), old)
        connection.execute(USES.insert(), {"account": "heist/hacker", "tool": "t", "calls": 7})
    with Database.at(url) as opened:
        records = Records(opened)
        assert opened.version() == len(migrations()) > 1
        assert [each.id for each in records.sessions()] == ["old"]
        assert records.uses("heist/hacker") == {"t": 7}


def test_programs_that_start_together_migrate_once(url: str) -> None:
    failed: list[BaseException] = []

    def opened() -> None:
        try:
            Database.at(url).close()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=opened) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with Database.at(url) as database:
        assert (failed, database.version()) == ([], len(migrations()))


def test_a_store_of_a_newer_release_is_refused_and_left_as_it_is(url: str, database: Database) -> None:
    with database.transaction() as connection:
        connection.execute(sa.text("UPDATE schema_version SET version = 999"))
    with pytest.raises(StoreError, match="belongs to a newer Toolcrib: its schema is 999"):
        Database.at(url)
    assert database.version() == 999


def test_of_those_who_take_over_a_session_one_wins(records: Records) -> None:
    seen = records.find("s")
    assert seen is not None
    won: list[str] = []
    threads = [
        threading.Thread(target=lambda name=name: won.append(name) if records.take(seen, name) else None)
        for name in map(str, range(8))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    found = records.find("s")
    assert found is not None
    assert found.holder == won[0]


def test_an_id_is_given_once(records: Records) -> None:
    with pytest.raises(SessionExists):
        records.create("s", "other", "{}", holder="b", keeps=False, retention=1.0)
    found = records.find("s")
    assert found is not None
    assert (found.name, found.holder) == ("vault", "a")


def test_sessions_that_run_come_before_later_ones_that_do_not_where_they_are_asked_for_first(
    database: Database, records: Records
) -> None:
    later = Records(database, lambda: 2000.0)
    for ident in ("t", "u"):
        later.create(ident, "vault", "{}", holder="a", keeps=True, retention=60.0)
    later.leave("u", "a", State.PAUSED)
    assert [each.id for each in records.sessions()] == ["t", "u", "s"]
    assert [each.id for each in records.sessions(most=2, live_first=True)] == ["t", "s"]


def test_who_lost_a_session_writes_nothing_any_more(records: Records) -> None:
    seen = records.find("s")
    assert seen is not None
    assert records.begin_turn("s", "a", 1, "hacker") == 1
    assert records.take(seen, "b")
    for write in (
        lambda: records.beat("s", "a"),
        lambda: records.begin_turn("s", "a", 2, "hacker"),
        lambda: records.end_turn("s", "a", 1, Ended("answered")),
        lambda: records.begin_call("s", "a", CALL),
        lambda: records.end_call("s", "a", CALL, "ok", 0.1, used_by="heist/hacker"),
        lambda: records.discovered("s", "a", []),
        lambda: records.leave("s", "a", State.FINISHED),
    ):
        with pytest.raises(TakenOver):
            write()
    assert (records.calls("s"), records.uses("heist/hacker")) == ([], {})
    assert [turn.outcome for turn in records.turns("s")] == ["interrupted"]


def test_a_run_that_beats_cannot_be_taken_over(records: Records) -> None:
    seen = records.find("s")
    assert seen is not None
    records.beat("s", "a")
    assert not records.take(seen, "b")


def test_calls_in_flight_become_unknown_and_the_turn_begins_again_beside_them(records: Records) -> None:
    records.begin_turn("s", "a", 1, "hacker")
    records.begin_call("s", "a", CALL)
    seen = records.find("s")
    assert seen is not None
    assert records.take(seen, "b")
    assert records.begin_turn("s", "b", 1, "hacker") == 2
    assert [(c.attempt, c.outcome) for c in records.calls("s", turn=1)] == [(1, "unknown")]


def test_uses_are_counted_by_account_and_outlive_the_session(records: Records) -> None:
    records.begin_turn("s", "a", 1, "hacker")
    records.begin_call("s", "a", CALL)
    records.end_call("s", "a", CALL, "ok", 0.1, used_by="heist/hacker")
    records.leave("s", "a", State.FINISHED)
    later = Records(records._database, lambda: 1061.0)
    assert later.forget_expired() == 1
    assert (later.find("s"), later.turns("s"), later.calls("s")) == (None, [], [])
    assert later.uses("heist/hacker") == {"database_query": 1}


def test_a_session_that_runs_or_is_younger_than_its_retention_is_kept(records: Records) -> None:
    later = Records(records._database, lambda: 1061.0)
    assert later.forget_expired() == 0
    records.leave("s", "a", State.PAUSED, "asked")
    assert Records(records._database, lambda: 1059.0).forget_expired() == 0
    assert later.forget_expired() == 1


def test_a_killed_session_is_deleted_too_once_it_has_shown_no_sign_of_life_for_a_day(
    records: Records,
) -> None:
    def at(seconds: float) -> Records:
        return Records(records._database, lambda: seconds)

    at(50_000.0).beat("s", "a")
    assert at(50_000.0 + 86_400).forget_expired() == 0
    assert at(50_001.0 + 86_400).forget_expired() == 1


def test_a_run_that_leaves_marks_what_was_in_the_middle(records: Records) -> None:
    records.begin_turn("s", "a", 1, "hacker")
    records.begin_call("s", "a", CALL)
    records.leave("s", "a", State.PAUSED, "interrupted")
    assert [turn.outcome for turn in records.turns("s")] == ["interrupted"]
    assert [call.outcome for call in records.calls("s")] == ["unknown"]


def test_views_and_turns_come_back_as_they_were_written(records: Records) -> None:
    view = View("hacker", "heist/hacker", {"database_query": ("database:read",)}, ("database:read",))
    records.discovered("s", "a", [view])
    records.begin_turn("s", "a", 1, "hacker")
    records.end_turn("s", "a", 1, Ended("answered", "", "static", 2, 30, 4, "säfe ☂", 1.5))
    (turn,) = records.turns("s")
    assert records.views("s") == [view]
    assert (turn.outcome, turn.replies, turn.prompt_tokens, turn.answer, turn.seconds) == (
        "answered", 2, 30, "säfe ☂", 1.5,
    )  # fmt: skip


def test_a_pause_is_asked_of_a_session_that_runs_and_heard_with_the_next_beat(records: Records) -> None:
    assert not records.beat("s", "a")
    assert records.ask_pause("s")
    assert records.beat("s", "a")
    records.leave("s", "a", State.PAUSED)
    assert not records.ask_pause("s")


@pytest.mark.real
def test_a_server_that_is_gone_is_one_error_without_a_password() -> None:
    require_postgres()
    with Postgres() as server:
        address = server.database("gone").replace("toolcrib@", "toolcrib:s3cret@")
        with Database.at(address) as database:
            server.kill()
            with pytest.raises(StoreError, match=r"fails: .*(refused|closed|connection)") as failed:
                database.version()
    assert "s3cret" not in failed.value.message
    assert failed.value.hint


@pytest.mark.real
def test_a_server_that_never_answers_is_one_error_after_seconds() -> None:
    require_postgres()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with pytest.raises(StoreError, match="timeout"):
            Database.at(f"postgresql://u@127.0.0.1:{silent.getsockname()[1]}/d")


@pytest.mark.parametrize(
    ("address", "said"),
    [("mysql://x", "a store is SQLite or PostgreSQL"), ("nothing", "URL is not valid"),
     ("postgresql://u:s3cret@h:port/d", "URL is not valid"), ("sqlite://", "a store in memory would be lost"),
     ("postgresql://u@127.0.0.1:9/d?password=s3cret", r"the store postgresql://u@127\.0\.0\.1:9/d fails"),
     ("sqlite:////nowhere/at/all.sqlite", "unable to open")],
)  # fmt: skip
def test_an_address_that_is_no_store_says_what_one_is(address: str, said: str) -> None:
    with pytest.raises(StoreError, match=said) as refused:
        Database.at(address)
    assert "s3cret" not in refused.value.message


@pytest.mark.parametrize(
    ("address", "there"),
    [("postgresql://u:p@h/d", True), ("postgresql://u:p/q@h/d", True), ("postgresql://u@h/d?password=p", True),
     ("postgresql://u@h/d?sslp%61ssword=p", True), ("postgresql://u@h/d?sslmode=require", False), ("nothing", False)],
)  # fmt: skip
def test_a_password_is_seen_wherever_an_address_can_hold_one(address: str, there: bool) -> None:
    assert has_password(address) is there


def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    with Database.at(f"sqlite:///{tmp_path}/here.sqlite"):
        assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}


def test_what_is_no_database_is_one_error(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no database" * 1000)
    with pytest.raises(StoreError, match="file is not a database"):
        Database.in_folder(tmp_path)


def test_what_retention_deletes_is_in_no_file_any_more(tmp_path: Path) -> None:
    secret = "the-combination-is-31-07"
    with Database.in_folder(tmp_path) as database:
        records = Records(database, lambda: 1000.0)
        records.create("s", "vault", "{}", holder="a", keeps=True, retention=60.0)
        records.begin_turn("s", "a", 1, "hacker")
        records.end_turn("s", "a", 1, Ended("answered", answer=secret))
        records.leave("s", "a", State.FINISHED)

    def held() -> bool:
        return secret.encode() in b"".join(file.read_bytes() for file in tmp_path.iterdir())

    assert held()
    with Database.in_folder(tmp_path) as database:
        assert Records(database, lambda: 2000.0).forget_expired() == 1
    assert not held()
