"""What a command loads before it does anything: nearly all of the start's time, for people, probes and MCP clients."""

import json
import subprocess
import sys

import pytest

HEAVY = (
    "pydantic",
    "httpx2",
    "numpy",
    "onnxruntime",
    "fastapi",
    "kopf",
    "weaviate",
    "toolcrib.resources",
    "toolcrib_registry",
)
COUNT = """
import json, sys
import toolcrib_cli.main
{then}
print(json.dumps(sorted(sys.modules)))
"""


def loaded(then: str = "") -> set[str]:
    """The heavy modules that a process has once it knows the commands and has run `then`."""
    code = COUNT.format(then=then)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    return set(HEAVY) & set(json.loads(done.stdout))


def test_help_and_version_load_no_model_client_or_server() -> None:
    assert loaded() == set()


@pytest.mark.parametrize(
    "part",
    ["toolcrib_cli.client", "toolcrib_cli.local.questions", "toolcrib_cli.bridge.run", "toolcrib_cli.probe"],
)
def test_what_asks_a_registry_loads_no_server(part: str) -> None:
    assert loaded(f"import {part}") <= {"httpx2"}
