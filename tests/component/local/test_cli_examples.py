"""Every example of every command is run, and prints what docs/reference/cli.md shows.

`TOOLCRIB_UPDATE_EXAMPLES=1` writes what they print; `make generate` puts it into the page.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import shell_examples
from local_mode import HEIST, LocalMode
from realparts import loaded
from realparts.processes import free_ports
from toolcrib_cli import examples
from toolcrib_cli.examples import Example

ROOT = Path(__file__).parents[3]
UPDATE = bool(os.environ.get("TOOLCRIB_UPDATE_EXAMPLES"))


def _pages() -> ModuleType:
    sys.path.insert(0, str(ROOT / "docs"))
    from reference_pages import command_line

    return command_line


command_line = _pages()
COMMANDS = command_line.commands()
EVERY = [
    (name, number, example)
    for name, command in COMMANDS.items()
    for number, example in enumerate(examples.of(command.callback), 1)
]
RUN = [each for each in EVERY if not each[2].not_run]


class Shell:
    """A folder with the repository's examples in it, and a local mode that serves the heist."""

    def __init__(self, folder: Path, local: LocalMode) -> None:
        self.folder = folder
        self.local = local
        (programs := folder.parent / "bin").mkdir()
        loaded.write_command(programs)
        self.programs = programs
        self.env = shell_examples.environment(local.data, programs)
        port = int(local.url.rpartition(":")[2])
        tools = re.search(r"example tools\t\w+\thttp://127\.0\.0\.1:(\d+)", local.output)
        assert tools is not None
        (scripted,) = free_ports(1)
        self.ports = {8765: port, 8090: scripted, 8080: int(tools.group(1))}

    def run(self, example: Example) -> str:
        text, code = shell_examples.run(example, self.folder, self.env, self.ports)
        assert code == example.exit, text
        replaced = {
            str(self.local.data): "~/.local/share/toolcrib",
            f"{self.folder}/": "",
            "data in other": "data in ~/.local/share/toolcrib",
            "other/search-index": "~/.local/share/toolcrib/search-index",
            f"{ROOT}/": "",
            str(self.programs): ".venv/bin",
            str(self.folder.parent): "~",
        }
        return shell_examples.steady(text, self.ports, replaced)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    base = tmp_path_factory.mktemp("shell")
    folder = base / "checkout"
    shutil.copytree(ROOT / "examples", folder / "examples")
    with LocalMode(base, HEIST, embedder="packaged") as local:
        made = Shell(folder, local)
        # one request that no example makes, for those that read the decision log
        local.toolcrib("call", "calculator", "expression=1", "--as", "planner")
        yield made


@pytest.mark.parametrize(
    ("name", "number", "example"), RUN, ids=[f"{name}-{number}".replace(" ", "-") for name, number, _ in RUN]
)
def test_an_example_prints_what_the_page_shows(
    name: str, number: int, example: Example, shell: Shell
) -> None:
    printed = shell.run(example)
    lines = printed.split("\n")
    if example.lines and len(lines) > example.lines:
        printed = "\n".join([*lines[: example.lines], "…"])

    file = command_line.recorded(name, number)
    if UPDATE:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(printed + "\n", encoding="utf-8")
    assert printed == file.read_text(encoding="utf-8").rstrip("\n"), "TOOLCRIB_UPDATE_EXAMPLES=1 writes it"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_examples_and_its_help_shows_them(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from toolcrib_cli import main as cli

    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        cli.main([*name.split(), "--help"])
    shown = capsys.readouterr().out

    given = examples.of(COMMANDS[name].callback)
    assert 1 <= len(given) <= 2
    for line in "\n".join(each.command for each in given).split("\n"):
        assert line in shown


def test_an_example_that_is_not_run_says_why_and_no_recording_is_left_over() -> None:
    wanted = {command_line.recorded(name, number) for name, number, _ in RUN}

    assert [name for name, _, each in EVERY if each.not_run and len(each.not_run) < 15] == []
    assert set(command_line.RECORDED.iterdir()) == wanted
    assert len(RUN) > 30
