"""How `toolcrib memory` is told what to do, and what it refuses at the start."""

import logging
from pathlib import Path

import pytest

from toolcrib.errors import SettingsInvalid
from toolcrib_cli import main as cli
from toolcrib_cli.errors import Exit
from toolcrib_cli.memory.settings import SOURCE

ISSUER = {"issuer": "https://registry.example"}


def test_flags_count_before_variables_and_tools_may_be_listed_in_one() -> None:
    environ = {"TOOLCRIB_MEMORY_TOOL": "a/x, a/y", "TOOLCRIB_MEMORY_KEEP_DAYS": "7", "TOOLCRIB_DATA": "/data"}
    settings = SOURCE.read({**ISSUER, "keep_days": "8"}, environ)

    assert (settings.tool, settings.keep_days, settings.data) == (("a/x", "a/y"), 8, Path("/data"))


@pytest.mark.guarantee
def test_there_is_no_memory_without_an_issuer_or_without_tools() -> None:
    with pytest.raises(SettingsInvalid) as refused:
        SOURCE.read({"tool": [], "keep_days": "0"}, {})

    assert [problem.partition(" ")[0] for problem in refused.value.problems] == [
        "--issuer",
        "--tool",
        "--keep-days",
    ]


@pytest.mark.guarantee
def test_a_password_does_not_stand_on_the_command_line() -> None:
    with pytest.raises(SettingsInvalid, match="PGPASSWORD") as refused:
        SOURCE.read({**ISSUER, "store": "postgresql://me:s3cret@host/db"}, {})

    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("flags", "said", "code"),
    [
        ((), "--issuer", Exit.USAGE),
        (("--issuer", "http://r", "--ca-file", "/nowhere.pem"), "--ca-file", Exit.USAGE),
        (("--issuer", "http://r", "--store", "mysql://h/d"), "SQLite or PostgreSQL", Exit.FAILED),
        (("--issuer", "http://r", "--store", "postgresql://127.0.0.1:1/d"), "the store postgresql://127.0.0.1:1/d fails", Exit.FAILED),
        (("--issuer", "http://r", "--data", "/proc/nowhere"), "/proc/nowhere", Exit.FAILED),
    ],
)  # fmt: skip
def test_what_cannot_be_used_ends_the_start_with_a_reason(
    flags: tuple[str, ...], said: str, code: Exit, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["memory", "--port", "0", *flags])

    error = capsys.readouterr().err
    assert (ended.value.code, "Traceback" in error) == (int(code), False), error
    assert said in error


def test_logs_go_to_no_stream_of_an_earlier_test_in_which_a_program_ran() -> None:
    streams = [getattr(handler, "stream", None) for handler in logging.getLogger().handlers]
    assert [stream for stream in streams if getattr(stream, "closed", False)] == []
