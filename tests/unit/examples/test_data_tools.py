"""The file reader and the database of the examples, against callers that try to get out."""

import os
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from toolcrib_cli.example_tools import prepare_samples
from toolcrib_cli.example_tools.arguments import Arguments
from toolcrib_cli.example_tools.database import MOST_ROWS, SampleDatabase
from toolcrib_cli.example_tools.files import LARGEST_FILE, SharedFolder
from toolcrib_cli.example_tools.problems import ToolError
from toolcrib_cli.example_tools.simulation import SCENARIOS, simulate


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    (tmp_path / "secret.txt").write_text("outside")
    shared = tmp_path / "shared"
    (shared / "plans").mkdir(parents=True)
    (shared / "note.txt").write_text("inside")
    (shared / "plans" / "roof.txt").write_text("hatch")
    return shared


def read(shared: Path, filename: str) -> Any:
    return SharedFolder(shared).read(Arguments({"filename": filename}))["content"]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> SampleDatabase:
    return SampleDatabase(prepare_samples(tmp_path_factory.mktemp("samples")).database)


def query(database: SampleDatabase, sql: str) -> dict[str, Any]:
    return database.query(Arguments({"query": sql}))


@pytest.mark.parametrize("filename", ["note.txt", "./note.txt"])
def test_a_file_of_the_folder_is_read(shared: Path, filename: str) -> None:
    assert read(shared, filename) == "inside"


def test_a_file_of_a_subfolder_is_read(shared: Path) -> None:
    assert read(shared, "plans/roof.txt") == "hatch"


def test_a_link_within_the_folder_is_followed(shared: Path) -> None:
    """As the files of a mounted ConfigMap are."""
    (shared / "..data").symlink_to("plans")
    (shared / "roof.txt").symlink_to("..data/roof.txt")
    assert read(shared, "roof.txt") == "hatch"


@pytest.mark.parametrize(
    "filename",
    [
        "../secret.txt",
        "plans/../../secret.txt",
        "plans/../note.txt",
        "/etc/passwd",
        ".",
        "a\\b",
        "a\x00b",
        "a\nb",
    ],
)
def test_a_name_that_leaves_the_folder_or_hides_something_is_refused(shared: Path, filename: str) -> None:
    with pytest.raises(ToolError) as refused:
        read(shared, filename)
    assert refused.value.status == 400


def test_a_link_out_of_the_folder_looks_absent(shared: Path) -> None:
    (shared / "out.txt").symlink_to(shared.parent / "secret.txt")
    (shared / "up").symlink_to(shared.parent)
    (shared / "loop").symlink_to("loop")
    for filename in ("out.txt", "up/secret.txt", "loop", "absent.txt", "note.txt/x"):
        with pytest.raises(ToolError) as refused:
            read(shared, filename)
        assert refused.value.code == "file_not_found"
        assert "out.txt" not in refused.value.detail.partition("There are")[2]


def test_a_link_swapped_in_after_the_check_reads_nothing_from_outside(shared: Path) -> None:
    """A race run for real: a thread turns the file into a link to the outside and back."""
    target, stop = shared / "swap.txt", threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for make in (
                lambda p: p.symlink_to(shared.parent / "secret.txt"),
                lambda p: p.write_text("inside"),
            ):
                staged = shared / ".staged"
                make(staged)
                os.replace(staged, target)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        seen = set()
        began = time.monotonic()
        # half a second, longer where the threads got no time
        while time.monotonic() < began + (0.5 if "inside" in seen else 30):
            try:
                seen.add(read(shared, "swap.txt"))
            except ToolError as refused:
                seen.add(refused.code)
    finally:
        stop.set()
        thread.join()
    assert "outside" not in seen
    assert "inside" in seen


def test_what_is_no_readable_text_file_is_refused_with_its_reason(shared: Path) -> None:
    (shared / "huge.txt").write_bytes(b"a" * (LARGEST_FILE + 1))
    (shared / "full.txt").write_bytes(b"a" * LARGEST_FILE)
    (shared / "image.png").write_bytes(b"\x89PNG\xff")
    os.mkfifo(shared / "pipe")
    codes = {}
    for filename in ("huge.txt", "image.png", "pipe", "plans"):
        with pytest.raises(ToolError) as refused:
            read(shared, filename)
        codes[filename] = refused.value.code
    assert codes == {
        "huge.txt": "file_too_large",
        "image.png": "not_text",
        "pipe": "not_a_file",
        "plans": "not_a_file",
    }
    assert len(read(shared, "full.txt")) == LARGEST_FILE


def test_tables_can_be_joined_counted_and_found(database: SampleDatabase) -> None:
    found = query(
        database,
        "WITH night AS (SELECT * FROM access_log WHERE granted = 1) SELECT name, count(*) AS entries"
        " FROM night JOIN guards ON guards.id = guard_id GROUP BY name ORDER BY entries DESC, name LIMIT 1;",
    )
    assert found["columns"] == ["name", "entries"]
    assert found["rows"] == [["Brandt", 2]]
    tables = query(database, "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")["rows"]
    assert tables == [["access_log"], ["cameras"], ["guards"], ["vault_boxes"]]


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO guards VALUES (9, 'a', 'b', 'c', 'd')",
        "UPDATE cameras SET status = 'offline'",
        "DELETE FROM access_log",
        "DROP TABLE guards",
        "CREATE TABLE x (y)",
        "CREATE TEMP TABLE x (y)",
        "ALTER TABLE guards ADD COLUMN x",
        "ATTACH DATABASE '/tmp/other.db' AS other",
        "DETACH DATABASE main",
        "PRAGMA writable_schema = 1",
        "PRAGMA table_info(guards)",
        "SELECT * FROM pragma_database_list",
        "SELECT load_extension('x')",
        "SELECT readfile('/etc/passwd')",
        "SELECT writefile('/tmp/x', 'y')",
        "SELECT randomblob(1000)",
        "SELECT zeroblob(1000000000)",
        "SELECT printf('%.*c', 100000000, 'x')",
        "SELECT * FROM dbstat",
        "SELECT * FROM sqlite_temp_master",
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n",
        "VACUUM INTO '/tmp/copy.db'",
        "ANALYZE",
        "REINDEX",
        "-- nothing",
        "BEGIN IMMEDIATE",
        "SELECT 1; DELETE FROM guards",
        "SELECT ?",
        "SELEC 1",
        "SELECT * FROM absent",
        "SELECT 'a\x00b'",
        "EXPLAIN DELETE FROM guards",
    ],
)
def test_everything_but_a_plain_select_is_refused(database: SampleDatabase, sql: str) -> None:
    before = database.file.read_bytes()
    with pytest.raises(ToolError) as refused:
        query(database, sql)
    assert refused.value.status == 400
    assert str(database.file.parent) not in refused.value.detail
    assert database.file.read_bytes() == before


def test_the_file_itself_is_opened_read_only(database: SampleDatabase) -> None:
    """The second lock: even without the authorizer nothing could be written."""
    connection = sqlite3.connect(f"{database.file.as_uri()}?mode=ro", uri=True)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("DELETE FROM guards")
    connection.close()


def test_a_long_answer_is_cut_and_says_so(database: SampleDatabase) -> None:
    found = query(database, "SELECT a.id FROM cameras a, cameras b, cameras c, cameras d")
    assert found["row_count"] == MOST_ROWS
    assert found["truncated"] is True


def test_a_wide_answer_is_cut_and_says_so(database: SampleDatabase) -> None:
    """40,000 characters a row: the answer stays small whatever the number of rows."""
    grown = "(SELECT group_concat(a.location) FROM cameras a, cameras b, cameras c, cameras d, guards e)"
    found = query(database, f"SELECT {grown} FROM vault_boxes")
    assert found["truncated"] is True
    assert sum(len(row[0]) for row in found["rows"]) <= 200_000


@pytest.mark.parametrize("sql", ["SELECT 9e999, -9e999, X'00ff', NULL, 1.5, 'ü'"])
def test_every_kind_of_cell_is_json(database: SampleDatabase, sql: str) -> None:
    assert query(database, sql)["rows"] == [["inf", "-inf", "00ff", None, 1.5, "ü"]]


def test_an_endless_query_ends(database: SampleDatabase) -> None:
    started = time.monotonic()
    with pytest.raises(ToolError) as refused:
        query(database, "SELECT count(*) FROM " + ", ".join(f"cameras c{i}" for i in range(20)))
    assert refused.value.code == "query_too_slow"
    assert time.monotonic() - started < 20


@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
def test_a_longer_simulation_begins_with_the_shorter_one(scenario: str) -> None:
    short = simulate(Arguments({"scenario": scenario, "steps": 3}))["measurements"]
    long = simulate(Arguments({"scenario": scenario, "steps": 200.0}))["measurements"]
    assert isinstance(long, list)
    assert long[:3] == short
    assert [m["alarm_probability"] for m in long] == sorted(m["alarm_probability"] for m in long)


@pytest.mark.parametrize("steps", [0, -1, 201, 1.5, True, "10", None, 10**400])
def test_a_senseless_number_of_steps_is_refused(steps: object) -> None:
    with pytest.raises(ToolError, match="steps"):
        simulate(Arguments({"scenario": "getaway", "steps": steps}))
