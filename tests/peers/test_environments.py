"""How the environments of other people's clients are found and made; none is made here."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from mcp_peers import environments

PROGRAM = Path(environments.__file__)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder instead of the machine's; environments in it are for any test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(environments, "hidden", False)
    return tmp_path


@pytest.mark.parametrize(("required", "status"), [("", 0), ("1", 1)])
def test_a_machine_without_npm_is_told_what_to_install(tmp_path: Path, required: str, status: int) -> None:
    settings = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "TOOLCRIB_REQUIRE_REAL": required}

    done = subprocess.run(
        [sys.executable, PROGRAM], env=settings, capture_output=True, text=True, check=False
    )

    assert done.returncode == status
    assert "apt-get install npm" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("cache")
def test_an_environment_that_is_not_there_names_the_target_that_makes_it() -> None:
    with pytest.raises(environments.PeersMissingError, match="make mcp-peers"):
        environments.python("current")
    with pytest.raises(environments.PeersMissingError, match="make mcp-peers"):
        environments.node()


def _archive(path: Path) -> None:
    """A source distribution with one file that is wanted and one that is not."""
    with tarfile.open(path, "w:gz") as tar:
        for name in (f"mcp-1/{environments.SDK_EXAMPLE}/server.py", "mcp-1/src/other.py"):
            tar.addfile(tarfile.TarInfo(name))


def test_a_test_without_the_mark_has_no_clients_even_where_they_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = environments._locked_folder(environments._lock("current"))
    folder.mkdir(parents=True)
    (folder / environments._DONE).touch()

    with pytest.raises(environments.PeersMissingError, match="mark `peers`"):
        environments.python("current")
    monkeypatch.setattr(environments, "hidden", False)
    assert environments.python("current").is_relative_to(folder)


@pytest.mark.usefixtures("cache")
def test_an_installation_that_was_interrupted_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    def run(command: list[str], folder: Path | None = None) -> None:
        ran.append(command)
        if "venv" in command:
            Path(command[-1]).mkdir()
            (Path(command[-1]) / "left").touch()
        if "download" in command:
            _archive(Path(command[-1]) / "mcp-1.tar.gz")
        if len(ran) == 2:
            raise KeyboardInterrupt
        if "ci" in command:
            assert folder is not None
            node = folder / "node_modules" / "node-any" / "bin" / "node"
            node.parent.mkdir(parents=True)
            node.touch()

    monkeypatch.setattr(environments, "_run", run)
    monkeypatch.setattr(environments.shutil, "which", lambda name: os.path.join("bin", name))

    with pytest.raises(KeyboardInterrupt):
        environments.provide()
    with pytest.raises(environments.PeersMissingError):
        environments.python("current")
    environments.provide()
    made = len(ran)
    environments.provide()

    assert environments.python("current").name == "python"
    assert environments.node().name == "node"
    assert [path.name for path in environments.sdk_source().glob("mcp-1/**/*.py")] == ["server.py"]
    assert made == len(ran)
