"""A session whose agents remember: the memory tools, called as each agent, through the registry."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import model_stub
from memory_program import Crew, MemoryProgram


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    with Crew(tmp_path) as running:
        with MemoryProgram(tmp_path, running.local.url, running.port, "--data", str(tmp_path / "memory")):
            yield running


def test_an_agent_is_given_what_it_said_in_an_earlier_round_and_nobody_elses_memory(
    crew: Crew, tmp_path: Path
) -> None:
    said = iter(["The guard sleeps at three.", "The drill is loud.", "Third.", "Fourth."])
    asked: list[str] = []

    def say(request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request["messages"][-1]["content"])
        return model_stub.text(next(said))

    with model_stub.serving(say) as model:
        body = {
            "session": {"name": "remembers", "rounds": 2, "messages": "keep"},
            "needs": {"memory": "required"},
            "model": {"url": model.url, "name": "m"},
            "agents": [
                {"name": n, "account": f"heist/{n}", "prompt": "Go on."} for n in ("hacker", "safecracker")
            ],
        }
        (file := tmp_path / "session.json").write_text(json.dumps(body))
        done = crew.local.toolcrib("session", "run", str(file), "--id", "remembers")
    assert done.returncode == 0, done.stderr
    assert "memory hacker: ok" in done.stdout
    first, _, third, _ = asked
    assert "What you remember" not in first
    remembered = third.partition("What you remember:\n")[2]
    assert '> - turn 1: "The guard sleeps at three."' in remembered
    assert "The drill is loud." not in remembered
    calls = json.loads(crew.local.toolcrib("session", "show", "remembers", "-o", "json").stdout)["calls"]
    assert [(c["turn"], c["tool"], c["outcome"]) for c in calls if c["turn"] == 3] == [
        (3, "get_compressed_memory", "ok"), (3, "store_memory", "ok"),
    ]  # fmt: skip
