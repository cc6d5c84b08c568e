"""The manifests of memory: valid without a warning, and bounded as the program is."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from toolcrib_cli import main as cli
from toolcrib_cli.memory import app
from toolcrib_cli.memory.main import parser
from toolcrib_cli.memory.settings import SOURCE, MemorySettings

FOLDER = Path(__file__).parents[3] / "examples" / "memory"


@pytest.fixture(scope="module")
def tools() -> dict[str, Any]:
    found = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in FOLDER.glob("3*.yaml")]
    return {tool["spec"]["name"]: tool for tool in found}


@pytest.mark.parametrize("beside", [(), (FOLDER.parent / "heist",)], ids=["alone", "with the heist"])
def test_the_manifests_are_valid_without_a_warning(
    beside: tuple[Path, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["validate", str(FOLDER), *map(str, beside)])

    said = capsys.readouterr()
    assert ended.value.code == 0
    assert said.out.strip().endswith(": all valid")
    assert said.err == ""


def test_each_schema_refuses_what_the_program_would(tools: dict[str, Any]) -> None:
    store = tools["store_memory"]["spec"]["inputSchema"]
    recall = tools["get_compressed_memory"]["spec"]["inputSchema"]

    assert store["required"] == ["agent_id", "turn_id", "message", "game_session_id"]
    assert recall["required"] == ["agent_id", "game_session_id"]
    for schema in (store, recall):
        assert schema["additionalProperties"] is False
        assert schema["properties"]["agent_id"]["maxLength"] == app.LONGEST_AGENT
        assert schema["properties"]["game_session_id"]["maxLength"] == app.LONGEST_SESSION
    assert store["properties"]["message"]["maxLength"] == app.LONGEST_MESSAGE
    assert store["properties"]["turn_id"]["maximum"] == app.LARGEST_TURN
    numbers = {name: recall["properties"][name] for name in ("max_tokens", "recent_count")}
    assert [(n["minimum"], n["maximum"], n["default"]) for n in numbers.values()] == [
        (1, app.MOST_TOKENS, 100),
        (1, app.MOST_RECENT, 3),
    ]


def test_the_program_executes_these_tools_and_says_why_it_cannot_before_their_timeout(
    tools: dict[str, Any],
) -> None:
    ids = {f"{t['metadata']['namespace']}/{t['metadata']['name']}" for t in tools.values()}

    assert set(MemorySettings(issuer="http://127.0.0.1:1").tool) == ids
    for tool in tools.values():
        http = tool["spec"]["backend"]["http"]
        assert http["path"] == f"/tools/{tool['spec']['name']}"
        assert float(http["timeout"].removesuffix("s")) > app.STORE_SECONDS


def test_a_reader_may_not_write(tools: dict[str, Any]) -> None:
    assert {name: tool["spec"]["scopes"] for name, tool in tools.items()} == {
        "store_memory": ["memory:write"],
        "get_compressed_memory": ["memory:read"],
    }


def test_the_deployment_is_set_up_as_the_program_reads_it() -> None:
    deployment = next(
        yaml.safe_load_all((FOLDER.parent / "cluster" / "memory.yaml").read_text(encoding="utf-8"))
    )
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    command, *flags = container["args"]
    environ = {each["name"]: each.get("value", "") for each in container["env"]}
    settings = SOURCE.read(vars(parser().parse_args(flags)), environ)

    assert command == "memory"
    assert settings.host == "0.0.0.0"
    assert (settings.store or "").startswith("postgresql://")
    assert "PGPASSWORD" in environ
