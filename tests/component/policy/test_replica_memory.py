"""What a catalog takes in a replica: at most 12 KB and three times its JSON a tool, once it was searched."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "bench" / "replica_memory.py"


@pytest.mark.parametrize(
    ("catalog", "tools", "divisor"),
    [
        ("large, prose", 1_000, 1),
        ("ordinary", 1_000, 10),
        pytest.param("ordinary", 10_000, 1, marks=pytest.mark.long),
        ("words of its own", 250, 20),
        pytest.param("words of its own", 1_000, 5, marks=pytest.mark.long),
        ("large, names", 100, 10),
        ("large, nested", 100, 10),
    ],
)
def test_a_tool_takes_bounded_memory_whatever_its_schemas_are(catalog: str, tools: int, divisor: int) -> None:
    """Resident memory of a process of its own, before and after; 1,000 tools of 100 KB, 1,000 ordinary ones (the longer tests: 10,000)."""
    done = subprocess.run(
        [sys.executable, SCRIPT, catalog, str(divisor)], stdout=subprocess.PIPE, check=True, text=True
    )
    found = json.loads(done.stdout)
    assert found["tools"] == tools
    assert max(found["rest"], found["searched"]) <= found["bound"]
