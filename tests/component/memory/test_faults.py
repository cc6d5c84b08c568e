"""Memory while its database is locked, full or gone: one reason, in time, and nothing lost that was acknowledged."""

import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from memory_program import Crew, MemoryProgram
from realparts.postgres_server import Postgres
from realparts.processes import listening, wait_until
from realparts.required import require_postgres
from small_disk import SmallDisk, command
from toolcrib_cli.memory.app import STORE_SECONDS
from toolcrib_cli.session_store.database import FILE, Database
from toolcrib_cli.session_store.memories import Memories, Owner


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    with Crew(tmp_path_factory.mktemp("up")) as running:
        yield running


def refused_for_the_store(crew: Crew, program: MemoryProgram, turn: int) -> None:
    answer = crew.store("hacker", turn, "not acknowledged")
    assert (answer.status_code, answer.json()["code"]) == (502, "upstream_error"), answer.text
    ready = httpx.get(f"{program.url}/readyz", trust_env=False, timeout=30)
    assert (ready.status_code, ready.json()["code"]) == (503, "memory_unavailable")
    assert httpx.get(f"{program.url}/healthz", trust_env=False).status_code == 200


@pytest.mark.real
def test_a_full_disk_is_said_and_ends_when_there_is_room_again(crew: Crew, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    with MemoryProgram(
        tmp_path, crew.local.url, crew.port, "--data", str(disk), before=command(disk)
    ) as program:
        assert crew.store("hacker", 1, "before").status_code == 200
        small = SmallDisk(program.child.pid, disk)
        small.fill()
        turn = 2
        # room that SQLite had already is used up first
        while (answer := crew.store("hacker", turn, "x" * 16_000)).status_code == 200:
            turn += 1
        assert (answer.status_code, answer.json()["code"]) == (502, "upstream_error"), answer.text
        assert "full" in program.output
        assert crew.recall("hacker")["memories_count"] == turn - 1
        small.free()
        assert crew.store("hacker", turn, "after").status_code == 200
        assert '"after"' in crew.recall("hacker")["summary"]


@pytest.mark.real
def test_a_database_that_is_gone_is_found_again_with_all_that_was_acknowledged(
    crew: Crew, tmp_path: Path
) -> None:
    require_postgres()
    with Postgres() as server:
        url = server.database("memory")
        with MemoryProgram(tmp_path, crew.local.url, crew.port, "--store", url) as program:
            assert crew.store("hacker", 1, "before the crash").status_code == 200
            server.kill()
            refused_for_the_store(crew, program, 2)
            assert "the store postgresql://" in program.output
            assert "not acknowledged" not in program.output
            server.start()
            assert crew.store("hacker", 3, "after the crash").status_code == 200
            found = crew.recall("hacker")

    assert found["memories_count"] == 2
    assert '"before the crash"' in found["summary"]


def test_a_database_that_hangs_is_said_in_time_and_what_was_sent_twice_is_stored_once(
    crew: Crew, tmp_path: Path
) -> None:
    with MemoryProgram(tmp_path, crew.local.url, crew.port, "--data", str(tmp_path)) as program:
        with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            began = time.monotonic()
            refused_for_the_store(crew, program, 1)
            assert time.monotonic() - began > STORE_SECONDS
        assert f"does not answer within {STORE_SECONDS:.0f} s" in program.output
        assert crew.store("hacker", 1, "not acknowledged").json()["memories_count"] == 1


def test_old_messages_are_deleted_at_the_start(crew: Crew, tmp_path: Path) -> None:
    with Database.in_folder(tmp_path) as database:
        old = Memories(database, 10, clock=lambda: time.time() - 2 * 86_400)
        old.keep(Owner("someone", "else"), "s", 1, "two days old")
    flags = ("--data", str(tmp_path), "--keep-days", "1")
    with MemoryProgram(tmp_path, crew.local.url, crew.port, *flags) as program:
        wait_until(lambda: "deleted 1 messages older than 1 days" in program.output)
        assert crew.store("hacker", 1, "new").status_code == 200
        assert crew.recall("hacker")["memories_count"] == 1


def test_a_stop_waits_for_the_calls_in_progress(crew: Crew, tmp_path: Path) -> None:
    with MemoryProgram(tmp_path, crew.local.url, crew.port, "--data", str(tmp_path)) as program:
        crew.token("hacker")
        with (
            closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as other,
            ThreadPoolExecutor() as pool,
        ):
            other.execute("BEGIN IMMEDIATE")
            call = pool.submit(crew.store, "hacker", 1, "in progress")
            # a probe of the registry is gone sooner
            wait_until(lambda: all(connected(crew.port) for _ in range(20)))
            os.kill(program.child.pid, signal.SIGTERM)
            wait_until(lambda: not listening(crew.port))
            other.execute("COMMIT")
            assert call.result(30).json() == {"status": "stored", "memories_count": 1}
        assert program.child.wait(30) == 0


def connected(port: int) -> bool:
    """Whether somebody has a connection to a port of this machine (proc_pid_net(5): 01 is ESTABLISHED)."""
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[1].endswith(f":{port:04X}") and row[3] == "01" for row in rows)
