"""Memory as agents meet it: two Tools of a real registry, executed by `toolcrib memory`."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from memory_program import EXAMPLE, Crew, MemoryProgram

TOOLS = ["get_compressed_memory", "store_memory"]


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, without a grant for the planner, and with few calls a minute for the safecracker."""
    folder = tmp_path_factory.mktemp("manifests")
    for file in EXAMPLE.glob("*.yaml"):
        if not file.name.startswith("40"):
            (folder / file.name).write_text(file.read_text())
    binding = yaml.safe_load((EXAMPLE / "40-binding.yaml").read_text())
    for name, limits in (("hacker", {}), ("safecracker", {"callsPerMinute": 2})):
        binding["metadata"]["name"] = f"memory-{name}"
        binding["spec"] |= {"subjects": [{"kind": "ServiceAccount", "name": name}], "limits": limits}
        if not limits:
            del binding["spec"]["limits"]
        (folder / f"40-{name}.yaml").write_text(yaml.safe_dump(binding))
    return folder


@pytest.fixture(scope="module")
def crew(manifests: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    with Crew(tmp_path_factory.mktemp("up"), manifests) as running:
        yield running


@pytest.fixture
def program(crew: Crew, tmp_path: Path) -> Iterator[MemoryProgram]:
    with MemoryProgram(tmp_path, crew.local.url, crew.port, "--data", str(tmp_path / "data")) as running:
        yield running


def test_an_agent_recalls_what_it_stored(crew: Crew, program: MemoryProgram) -> None:
    stored = [crew.store("hacker", turn, f"Message {turn} about the vault.") for turn in range(5)]

    assert [s.status_code for s in stored] == [200] * 5, stored[0].text
    assert [s.json() for s in stored] == [{"status": "stored", "memories_count": n} for n in range(1, 6)]
    found = crew.recall("hacker")
    assert found.keys() == {"status", "summary", "memories_count", "recent_count"}
    assert (found["status"], found["memories_count"], found["recent_count"]) == ("ok", 5, 3)
    for turn in (2, 3, 4):
        assert f'- turn {turn}: "Message {turn} about the vault."' in found["summary"]
    assert "Extracts of earlier messages:" in found["summary"]
    assert found == crew.recall("hacker", max_tokens=100, recent_count=3)
    assert "Extracts" not in crew.recall("hacker", max_tokens=1)["summary"]
    assert crew.recall("hacker", "another session") == {
        "status": "empty", "summary": "", "memories_count": 0, "recent_count": 0,
    }  # fmt: skip


@pytest.mark.guarantee
def test_an_agent_without_the_scopes_sees_no_memory_and_cannot_use_it(
    crew: Crew, program: MemoryProgram
) -> None:
    assert [n for n in crew.local.names(crew.token("planner")) if n in TOOLS] == []
    assert [n for n in crew.local.names(crew.token("hacker")) if n in TOOLS] == TOOLS
    refused = crew.store("planner", 1, "mine")
    assert (refused.status_code, refused.json()["code"]) == (403, "not_permitted")
    assert (
        crew.call("planner", "get_compressed_memory", agent_id="planner", game_session_id="s1").status_code
        == 403
    )


@pytest.mark.guarantee
def test_no_agent_reads_or_writes_the_memory_of_another(crew: Crew, program: MemoryProgram) -> None:
    assert crew.store("hacker", 1, "the code is 1234").status_code == 200
    for refused in (
        crew.call("safecracker", "get_compressed_memory", agent_id="hacker", game_session_id="s1"),
        crew.call(
            "hacker", "store_memory", agent_id="safecracker", turn_id=1, message="x", game_session_id="s1"
        ),
        crew.call("hacker", "store_memory", agent_id="nobody", turn_id=1, message="x", game_session_id="s1"),
    ):
        assert refused.status_code == 422, refused.text
        assert refused.json()["code"] == "tool_error"
        assert "must name you" in refused.text
        assert "1234" not in refused.text
    assert crew.recall("safecracker")["status"] == "empty"
    assert crew.recall("hacker")["memories_count"] == 1


def test_the_limits_of_a_grant_and_the_decision_log_count_calls_of_memory(
    crew: Crew, program: MemoryProgram
) -> None:
    codes = [crew.store("safecracker", turn, "again").status_code for turn in range(4)]

    assert codes[-1] == 429
    logged = crew.local.toolcrib(
        "audit", "query", "--tool", "heist/store-memory", "-o", "json", "--data", str(crew.local.data)
    )
    assert logged.returncode == 0, logged.stderr
    agents = {record["agent"] for record in json.loads(logged.stdout)}
    assert "heist/safecracker" in agents


@pytest.mark.guarantee
def test_callers_that_bypass_the_registry_are_refused(crew: Crew, program: MemoryProgram) -> None:
    for tool in TOOLS:
        for headers in ({}, {"toolcrib-assertion": "x"}, {"authorization": f"Bearer {crew.token('hacker')}"}):
            refused = httpx.post(f"{program.url}/tools/{tool}", json={}, headers=headers, trust_env=False)
            assert refused.status_code == 401, refused.text


def test_what_was_acknowledged_outlives_kill_9(crew: Crew, program: MemoryProgram) -> None:
    for turn in range(3):
        assert crew.store("hacker", turn, f"kept {turn}").status_code == 200
        program.kill()
        away = crew.store("hacker", 90, "not now")
        assert away.status_code in (502, 503), away.text
        program.start()

    found = crew.recall("hacker")
    assert found["memories_count"] == 3
    assert all(f'"kept {turn}"' in found["summary"] for turn in range(3))


def test_a_message_of_a_megabyte_is_refused_for_one_reason_and_nothing_is_lost(
    crew: Crew, program: MemoryProgram
) -> None:
    assert crew.store("hacker", 1, "before").status_code == 200
    assert crew.store("hacker", 2, "ü" * 16_384).status_code == 200
    refused = [crew.store("hacker", 3, "x" * length) for length in (16_385, 1_000_000)]

    assert {(r.status_code, r.json()["code"]) for r in refused} == {(400, "invalid_arguments")}
    assert crew.recall("hacker")["memories_count"] == 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"message": "a\0b"}, "'message' holds a NUL character"),
        ({"message": " \n"}, "'message' is empty"),
        ({"game_session_id": "s\n1"}, "'game_session_id' holds control characters"),
    ],
)
def test_what_no_schema_can_say_is_refused_in_words_that_help(
    crew: Crew, program: MemoryProgram, given: dict[str, str], said: str
) -> None:
    whole = {"agent_id": "hacker", "turn_id": 1, "message": "m", "game_session_id": "s1", **given}
    refused = crew.call("hacker", "store_memory", **whole)

    assert refused.status_code == 422, refused.text
    assert said in refused.json()["upstream"]["detail"]
    assert crew.recall("hacker")["status"] == "empty"


def test_health_tells_of_the_store_and_sigterm_ends_the_program(crew: Crew, program: MemoryProgram) -> None:
    assert httpx.get(f"{program.url}/healthz", trust_env=False).json() == {"status": "ok"}
    assert httpx.get(f"{program.url}/readyz", trust_env=False).json() == {"status": "ok"}
    assert program.interrupt() == 0
