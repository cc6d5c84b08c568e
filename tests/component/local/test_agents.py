"""`toolcrib agent suspend` and `resume` in the local mode: in effect when they return, and kept over a restart."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from local_mode import LocalMode
from manifests import binding, manifest, tool
from realparts import loaded
from realparts.processes import wait_until


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (folder := tmp_path / "manifests").mkdir()
    objects = [
        tool("calculator", backend={"none": {}}),
        binding("hacker", ["calculator:use"]),
        binding("planner", ["calculator:use"]),
    ]
    (folder / "all.yaml").write_text("\n---\n".join(map(json.dumps, objects)))
    return folder


@pytest.fixture
def local(tmp_path: Path, folder: Path) -> Iterator[LocalMode]:
    with LocalMode(tmp_path, folder) as running:
        yield running


def agent(local: LocalMode, *arguments: str) -> subprocess.CompletedProcess[str]:
    return local.toolcrib("agent", *arguments)


def seen(local: LocalMode, who: str = "hacker") -> list[str]:
    found = local.toolcrib("tools", "--as", who, "-o", "json")
    assert found.returncode == 0, found.stderr
    return [each["name"] for each in json.loads(found.stdout)]


def test_it_sees_nothing_once_the_command_has_returned_and_all_of_it_again_once_it_is_resumed(
    local: LocalMode,
) -> None:
    assert seen(local) == ["calculator"]
    stopped = agent(local, "suspend", "heist/hacker", "--reason", "incident 7")
    assert (stopped.returncode, stopped.stdout) == (0, "heist/hacker is suspended on every replica.\n"), (
        stopped.stderr
    )
    assert (seen(local), seen(local, "planner")) == ([], ["calculator"])
    called = local.toolcrib("call", "calculator", "--as", "hacker")
    assert (called.returncode != 0, "not_permitted" in called.stderr) == (True, True), called.stderr
    why = local.toolcrib("audit", "query", "--denied")
    assert "agent_suspended" in why.stdout
    shown = local.toolcrib("get", "agents", "hacker", "-o", "describe").stdout
    assert "incident 7" in shown

    assert agent(local, "suspend", "hacker", "-n", "heist").returncode == 0, "again is no error"
    resumed = agent(local, "resume", "heist/hacker")
    assert (resumed.returncode, resumed.stdout) == (0, "heist/hacker is resumed on every replica.\n"), (
        resumed.stderr
    )
    assert seen(local) == ["calculator"]


@pytest.mark.slow
def test_a_suspension_outlives_the_local_mode(local: LocalMode) -> None:
    assert agent(local, "suspend", "heist/hacker").returncode == 0
    local.child.kill()
    local.start()
    assert (seen(local), seen(local, "planner")) == ([], ["calculator"])


@pytest.mark.slow
def test_an_agent_of_the_users_own_manifests_is_changed_there(local: LocalMode, folder: Path) -> None:
    (folder / "agent.json").write_text(json.dumps(manifest("Agent", "hacker", "heist", suspended=True)))
    wait_until(lambda: seen(local) == [], 30)
    for word in ("suspend", "resume"):
        refused = agent(local, word, "heist/hacker")
        assert (refused.returncode, "agent.json:1" in refused.stderr) == (2, True), refused.stderr
    (folder / "agent.json").unlink()
    wait_until(lambda: seen(local) == ["calculator"], 30)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("resume", "heist/hacker"), "heist/hacker is not suspended"),
        (("suspend", "hacker"), "specify namespace/name, or the name with -n"),
        (("suspend", "heist/hacker", "-n", "other"), "heist/hacker is not in the namespace other"),
        (("suspend", "heist/hacker", "--reason", ""), "not 1 to 1,024"),
    ],
)
def test_what_cannot_be_done_is_said(local: LocalMode, given: tuple[str, ...], said: str) -> None:
    done = agent(local, *given)
    assert (done.returncode != 0, said in done.stderr) == (True, True), done.stderr


@pytest.mark.slow
def test_a_shell_is_offered_those_that_can_be_stopped_or_started(local: LocalMode) -> None:
    def offered(word: str) -> set[str]:
        env = {**os.environ, "TOOLCRIB_DATA": str(local.data), "_TOOLCRIB_COMPLETE": "complete_bash"}
        asked = {"COMP_WORDS": f"toolcrib agent {word} heist/", "COMP_CWORD": "3"}
        script = Path(sys.executable).with_name("toolcrib")
        return set(loaded.run([str(script)], env={**env, **asked}, timeout=60).stdout.split())

    assert offered("suspend") == {"heist/hacker", "heist/planner"}
    assert offered("resume") == set()
    assert agent(local, "suspend", "heist/hacker").returncode == 0
    assert offered("resume") == {"heist/hacker"}
