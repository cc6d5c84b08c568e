"""What a shell suggests beside a running local mode: agents, tools, namespaces; and nothing where none runs."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from local_mode import HEIST, LocalMode
from manifests import tool
from toolcrib_cli import main as cli
from toolcrib_cli.commands import completion

Suggest = Callable[..., list[str]]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalMode]:
    place = tmp_path_factory.mktemp("completion")
    (folder := place / "reviewed").mkdir()
    manual = tool("reviewed", scopes=["other:use"], approval="Manual", backend={"none": {}})
    (folder / "tool.yaml").write_text(json.dumps(manual))
    with LocalMode(place, HEIST, folder) as running:
        yield running


@pytest.fixture
def suggest(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Suggest:
    """What completes the last word, as bash asks for it."""
    for name in ("TOOLCRIB_URL", "TOOLCRIB_TOKEN", "TOOLCRIB_TOKEN_FILE", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(completion, "WITHIN", 60.0)

    def of(*words: str, data: Path) -> list[str]:
        asked = {"COMP_WORDS": " ".join(("toolcrib", *words)), "COMP_CWORD": str(len(words))}
        for name, value in {
            **asked,
            "TOOLCRIB_DATA": str(data),
            "_TOOLCRIB_COMPLETE": "complete_bash",
        }.items():
            monkeypatch.setenv(name, value)
        with contextlib.suppress(SystemExit):
            cli.main([])
        return capsys.readouterr().out.split()

    return of


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("call", "calculator", "--as", ""), ["hacker", "planner", "safecracker"]),
        (("tools", "--as", "ha"), ["hacker"]),
        (("tools", "--as", "heist/ha"), ["heist/hacker"]),
        (("token", "safe"), ["safecracker"]),
        (("call", "--as", "safecracker", "calc"), ["calculator"]),
        (("describe", "--as", "safecracker", "heist/calc"), ["heist/calculator"]),
        (("load", "--as", "hacker", "file_reader", "sim"), ["simulation_data"]),
        (("describe", "data"), ["database_query"]),
        (("search", "--as", "hacker", "--namespace", "h"), ["heist"]),
        (("get", "tools", "-n", "he"), ["heist"]),
        (("access", "who-can", "calc"), ["calculator"]),
        (("access", "what-can", "heist/ha"), ["heist/hacker"]),
        (("access", "explain", "heist/hacker", "data"), ["database_query"]),
        (("access", "who-holds", "calc"), ["calculator:use"]),
        (("access", "what-can", "heist/hacker", "--namespace", "h"), ["heist"]),
        (("approvals", "diff", ""), ["reviewed"]),
        (("approvals", "reject", "heist/rev"), ["heist/reviewed"]),
        (("approvals", "approve", ""), []),  # taken as approved, on first use
        (("approvals", "list", "-n", "h"), ["heist"]),
        (("agent", "suspend", "h"), ["heist/hacker", "heist/safecracker"]),
        (("agent", "suspend", "-n", "heist", "saf"), ["safecracker"]),
        (("agent", "resume", ""), []),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, tuple) else "",
)
def test_agents_tools_and_namespaces_of_the_local_mode_are_suggested(
    words: tuple[str, ...], expected: list[str], suggest: Suggest, local: LocalMode
) -> None:
    assert suggest(*words, data=local.data) == expected


def test_a_tool_that_the_agent_may_not_see_is_not_suggested(suggest: Suggest, local: LocalMode) -> None:
    assert suggest("call", "--as", "safecracker", "database", data=local.data) == []


@pytest.mark.parametrize(
    "words", [("tools", "--as", ""), ("call", ""), ("get", "tools", "-n", ""), ("access", "who-can", "")]
)
def test_without_a_local_mode_or_a_cluster_nothing_is_suggested(
    words: tuple[str, ...], suggest: Suggest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    assert suggest(*words, data=tmp_path / "none") == []


def test_an_answer_that_comes_late_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "WITHIN", 0.05)
    never = threading.Event()
    try:
        assert completion.within(lambda: ["late"] if never.wait(60) else []) == []
    finally:
        never.set()


def test_bash_gets_the_agents(local: LocalMode) -> None:
    env = {**os.environ, "TOOLCRIB_DATA": str(local.data), "_TOOLCRIB_COMPLETE": "complete_bash"}
    asked = {"COMP_WORDS": "toolcrib tools --as saf", "COMP_CWORD": "3"}
    program = str(Path(sys.executable).parent / "toolcrib")

    done = subprocess.run([program], env=env | asked, capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.split() == ["safecracker"]
