"""Toolcrib and its client are in no index: a package of that name there would be somebody else's, so none is asked."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from stub_server import Answer, Asked, answering
from toolcrib.version import __version__

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "requirements"))
import environment  # noqa: E402

EMPTY = Answer(b"none", status=404)


class Index:
    """An index that has nothing and remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, asked: Asked) -> Answer:
        self.asked.append(asked.path)
        return EMPTY


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """The only one that pip and uv know of."""
    found = Index()
    with answering(found) as port:
        for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
            monkeypatch.delenv(name)
        url = f"http://127.0.0.1:{port}/simple"
        for name, value in {
            **dict.fromkeys(("PIP_INDEX_URL", "UV_DEFAULT_INDEX"), url),
            "UV_NO_CACHE": "1",
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_HTTP_RETRIES": "0",
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_RETRIES": "0",
            "NO_PROXY": "*",
        }.items():
            monkeypatch.setenv(name, value)
        yield found


def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_the_environment_installs_both_without_asking(index: Index) -> None:
    done = run([sys.executable, "-m", "pip", *environment.own_distributions(), "--dry-run"])

    assert done.returncode == 0, done.stderr
    assert index.asked == []


def test_the_lock_asks_for_dependencies_and_for_nothing_of_ours(index: Index, tmp_path: Path) -> None:
    made = re.search(r"^LOCK := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert made is not None

    run([sys.executable, "-m", "uv", *made[1].split(), "pyproject.toml", "-o", str(tmp_path / "lock.txt")])

    assert index.asked
    assert not [path for path in index.asked if "toolcrib" in path]


@pytest.mark.parametrize("lock", sorted((ROOT / "requirements").glob("*.txt")), ids=lambda path: path.stem)
def test_no_lock_holds_one_of_ours(lock: Path) -> None:
    assert not re.search(r"^toolcrib", lock.read_text(), re.MULTILINE)


def test_toolcrib_needs_the_client_of_its_own_release() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]

    assert f"toolcrib-client=={__version__}" in wanted
