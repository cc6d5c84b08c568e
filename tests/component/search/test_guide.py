"""What the guide for agents shows of searching is answered, with the fields that it names."""

import json
import re
from pathlib import Path

import pytest

from hash_embedder import HashEmbedder
from registry_harness import binding, running_registry, tool

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "agents.md"
SHOWN = re.findall(r"^```http\nPOST (\S+)\n(.*?)\n```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
TOOLS = [
    tool(
        "calculator",
        namespace="heist",
        description="Compute a sum or another arithmetic expression.",
        tags=("math",),
        scopes=("s",),
    ),
    tool("guards", namespace="heist", description="Read the guard schedule of tonight.", scopes=("s",)),
]


def test_every_request_that_is_shown_is_answered_with_something() -> None:
    paths = {path for path, _ in SHOWN}
    assert paths == {"/v1/search", "/v1/compat/intelligent_tool_finder", "/api/search/semantic"}
    grant = binding("bot", ["s"], namespace="heist")
    with running_registry(TOOLS, [grant], embedder=HashEmbedder(64)) as r:
        body = {"epoch": 1, "upsert": [t.tool_id for t in TOOLS]}
        assert len(r.admin("POST", "/v1/admin/index", json=body).json()["indexed"]) == len(TOOLS)
        for path, text in SHOWN:
            answer = r.http.post(r.url + path, headers=r.auth("team", "bot"), json=json.loads(text))
            assert answer.status_code == 200, (path, text, answer.text)
            assert "calculator" in answer.text, (path, text, answer.text)


@pytest.mark.parametrize(
    "field", ["confidence", "why", "degradation", "top_k_servers", "min_score", "search_mode"]
)
def test_the_fields_are_named(field: str) -> None:
    assert f"`{field}`" in GUIDE.read_text()
