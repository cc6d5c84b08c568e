"""The recipe for client-side search, run against a real registry."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import jsonschema_rs

from local_mode import HEIST, LocalMode
from provider_payloads import ANTHROPIC

EXAMPLE = Path(__file__).parents[3] / "examples" / "mcp" / "client_side_search.py"


def test_a_search_becomes_references_to_definitions_that_are_deferred(tmp_path: Path) -> None:
    token = tmp_path / "token"
    with LocalMode(tmp_path, HEIST) as local:
        token.write_text(local.token("safecracker"))
        argv = [sys.executable, "-I", str(EXAMPLE), local.url, str(token), "compute an expression"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
        payload = json.loads(done.stdout)
        search, *found = payload["tools"]

        spec = importlib.util.spec_from_file_location("client_side_search", EXAMPLE)
        assert spec
        assert spec.loader
        example = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(example)
        registry = example.Registry(local.url, token.read_text())
        called = registry.call(found[0]["name"], {"expression": "310 / 4.5"}, direct=True)

    jsonschema_rs.validator_for(ANTHROPIC).validate(payload)
    assert "defer_loading" not in search
    assert [t["name"] for t in found] == ["calculator"]
    assert all(t["defer_loading"] for t in found)
    (result,) = payload["messages"][-1]["content"]
    assert result["content"] == [{"type": "tool_reference", "tool_name": "calculator"}]
    assert "68.88" in called["content"][0]["text"]
