"""`toolcrib client config --write` where the file is no usual one, or somebody else writes it: it stays as it is."""

import json
import os
import socket
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from realparts import loaded
from realparts.required import required
from toolcrib_cli import main as cli
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.mcp_clients import edits
from toolcrib_cli.mcp_clients.edits import write
from toolcrib_cli.mcp_clients.entries import Client

ADDED = ("client", "config", "cursor", "--url", "https://toolcrib.example.com", "--write", "--file")


def refused(file: str) -> str:
    """What is said of a file that is refused. A process of its own: one that waits for a pipe can be ended."""
    command = [sys.executable, "-m", "toolcrib_cli", *ADDED, file]
    done = loaded.run(command, timeout=60)
    assert (done.returncode, done.stdout) == (Exit.USAGE, "")
    assert "Traceback" not in done.stderr
    return done.stderr


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))  # whole, the path may be longer than an address may be


def a_device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except PermissionError:
        said = "no device can be made here: run as root, outside of a user namespace"
        if required():
            pytest.fail(said, pytrace=False)
        pytest.skip(said)


@pytest.mark.parametrize(
    ("make", "kind"),
    [(os.mkfifo, "a pipe"), (a_socket, "a socket"), (a_device, "a device")],
)
def test_what_is_no_regular_file_is_refused_and_stays_also_behind_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None], kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    make(odd := tmp_path / "odd")
    (tmp_path / "link").symlink_to(odd)
    before = odd.lstat()

    for file in (odd, tmp_path / "link"):
        said = refused(str(file))
        assert f"cannot write {file}: it is {kind}\n" in said
        assert "specify a regular file with --file, or paste the entry by hand" in said

    after = odd.lstat()
    assert (after.st_ino, after.st_mode, after.st_rdev) == (before.st_ino, before.st_mode, before.st_rdev)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "odd"]


def test_a_clients_usual_file_that_is_a_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mcp.json").mkdir()
    with pytest.raises(SystemExit) as ended:
        cli.main(["client", "config", "inspector", "--url", "https://toolcrib.example.com", "--write"])
    assert ended.value.code == Exit.USAGE
    assert "cannot write mcp.json: it is a folder" in capsys.readouterr().err


def test_a_loop_of_links_and_an_unknown_user_are_usage_errors(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("other")
    (tmp_path / "other").symlink_to("one")
    loop, nobody = refused(f"{tmp_path}/one"), refused("~no-such-user/x.json")
    assert f"cannot write {tmp_path}/one: Too many levels of symbolic links" in loop
    assert "paste the entry by hand" in loop
    assert "cannot write ~no-such-user/x.json: no such user" in nobody
    assert "specify the path without ~" in nobody
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "other"]


def test_a_link_to_a_file_that_is_not_there_yet_makes_it(tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to("real.json")
    with pytest.raises(SystemExit) as ended:
        cli.main([*ADDED, str(tmp_path / "link.json")])
    assert not ended.value.code
    assert "toolcrib.example.com" in (tmp_path / "real.json").read_text()
    assert (tmp_path / "link.json").is_symlink()


@pytest.mark.parametrize("before", ['{"theme": "light"}', None], ids=["edited", "made"])
def test_a_file_that_another_program_writes_meanwhile_is_left_to_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    before: str | None,
) -> None:
    file = tmp_path / "mcp.json"
    if before is not None:
        file.write_text(before)
    theirs = '{"theme": "dark"}'
    real = edits.with_entry

    def overtaken(*arguments: Any) -> bytes:
        file.write_text(theirs)
        return real(*arguments)

    monkeypatch.setattr(edits, "with_entry", overtaken)
    with pytest.raises(SystemExit) as ended:
        cli.main([*ADDED, str(file)])

    assert ended.value.code == Exit.FAILED
    assert file.read_text() == theirs
    said = capsys.readouterr().err
    assert "was changed by another program at the same time" in said
    assert "run the command again" in said


def test_a_link_in_the_way_of_the_new_file_is_not_followed(tmp_path: Path) -> None:
    theirs, file = tmp_path / "theirs", tmp_path / "mcp.json"
    theirs.write_text("kept")
    (tmp_path / ".mcp.json.new").symlink_to(theirs)

    with pytest.raises(SystemExit) as ended:
        cli.main([*ADDED, str(file)])

    assert not ended.value.code
    assert theirs.read_text() == "kept"
    assert "toolcrib" in file.read_text()
    assert {p.name for p in tmp_path.iterdir()} == {"theirs", "mcp.json", ".mcp.json.new"}


@pytest.mark.parametrize(
    "number",
    [
        "1.0",
        "1e400",
        "-0",
        "-0.0",
        "0.10",
        "1E+2",
        "12345678901234567890.12345678901234567890",
        "9" * 25,
        "7" * 5_000,
    ],
)
def test_numbers_of_others_stay_as_they_are_written(tmp_path: Path, number: str) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(
        f'{{"a": {number}, "b": [{number}, "{number}"], "mcpServers": {{"other": {{"timeout": {number}}}}}}}'
    )

    write(file, Client.CURSOR, "toolcrib", {"command": "toolcrib"})

    text = file.read_text()
    assert text.count(number) == 4
    read = json.loads(text, parse_int=str, parse_float=str)
    assert read == {
        "a": number,
        "b": [number, number],
        "mcpServers": {"other": {"timeout": number}, "toolcrib": {"command": "toolcrib"}},
    }
    assert not write(file, Client.CURSOR, "toolcrib", {"command": "toolcrib"}).changed


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "01", "1.", "+1"])
def test_a_file_with_what_is_no_number_of_json_is_left_as_it_is(tmp_path: Path, number: str) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(before := f'{{"a": {number}}}')

    with pytest.raises(CliError, match="was not changed"):
        write(file, Client.CURSOR, "toolcrib", {"command": "toolcrib"})

    assert file.read_text() == before
