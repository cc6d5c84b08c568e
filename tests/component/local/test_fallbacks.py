"""The local mode calls a fallback while a tool's backend is down, and its commands say so."""

import json
from pathlib import Path

from local_mode import LocalMode
from manifests import binding, service, tool
from realparts.processes import free_port


def test_a_call_of_a_tool_that_is_down_is_answered_by_its_fallback_and_explained(tmp_path: Path) -> None:
    folder = tmp_path / "manifests"
    folder.mkdir()
    reads = {"readOnlyHint": True}
    spare = tool("calculator", annotations=reads)
    down = tool(
        "sums",
        scopes=["calculator:use"],
        annotations=reads,
        fallback=["calculator"],
        backend={"http": {"url": f"http://127.0.0.1:{free_port()}/sums"}},
    )
    objects = (service(), spare, down, binding("bot", ["calculator:use"]))
    (folder / "tools.yaml").write_text("\n---\n".join(map(json.dumps, objects)))
    with LocalMode(tmp_path, folder) as local:
        called = local.toolcrib("call", "sums", "--json", '{"expression": "6*7"}', "--as", "bot")
        assert called.returncode == 0, called.stderr
        assert json.loads(called.stdout)["result"] == 42
        assert "The backend of heist/sums is down. Its fallback heist/calculator answered." in called.stderr

        explained = local.toolcrib("access", "explain", "heist/bot", "sums")
        assert explained.returncode == 0, explained.stderr
        head, _, table = explained.stdout.partition("Called while its backend is down")
        assert "heist/calculator" not in head
        assert "heist/calculator" in table
        assert "granted" in table

        found = json.loads(
            local.toolcrib("access", "explain", "heist/bot", "calculator", "-o", "json").stdout
        )
        assert found["fallbacks"] == []
