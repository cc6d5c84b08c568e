"""The programs of the services look and end like every other command."""

import tomllib
from pathlib import Path

import pytest

from toolcrib_cli import main

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("program", main.PROGRAMS)
def test_help_of_a_services_program_is_that_of_its_command(
    program: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", [f"/opt/toolcrib/bin/{program}", "--help"])
    with pytest.raises(SystemExit) as ended:
        main.main()
    of_the_program = capsys.readouterr().out
    assert (ended.value.code, f"Usage: {program} [OPTIONS]" in of_the_program) == (0, True)
    monkeypatch.setattr("sys.argv", ["toolcrib", *main.PROGRAMS[program], "--help"])
    with pytest.raises(SystemExit):
        main.main()
    of_the_command = capsys.readouterr().out
    assert of_the_program.splitlines()[2:] == of_the_command.splitlines()[2:]


@pytest.mark.parametrize("program", main.PROGRAMS)
def test_an_unknown_option_of_a_services_program_ends_with_2_and_names_its_help(
    program: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", [program, "--nonsense"])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 2
    assert f"hint: see `{program} --help`" in capsys.readouterr().err


def test_every_installed_program_is_the_command_line() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert set(scripts) == {"toolcrib", "kubectl-toolcrib", *main.PROGRAMS}
    assert set(scripts.values()) == {"toolcrib_cli.main:main"}
