"""Before the first turn: backends that the registry takes for down are named, and end the session or not as its file says."""

import json
from pathlib import Path

import pytest

from stub_server import Answer, Asked, answering
from toolcrib_cli.sessions import preflight, team
from toolcrib_cli.sessions.definition import Definition


def registry(asked: Asked) -> Answer:
    """A registry with two tools, one of them down."""
    names = ("drill", "listen")
    if asked.path == "/v1/search":
        hits = [{"tool_id": f"heist/{name}", "name": name, "unavailable": name == "drill"} for name in names]
        return Answer(json.dumps({"tools": hits}).encode())
    tools = [{"name": name, "endpoint": f"/tools/heist/{name}", "scopes": [f"{name}:use"]} for name in names]
    return Answer(json.dumps({"authenticated": True, "scopes": [], "tools": tools}).encode())


@pytest.mark.parametrize("need", ["required", "degrade"])
def test_a_backend_that_is_down_is_named_and_required_or_done_without(tmp_path: Path, need: str) -> None:
    agents = [{"name": "a", "account": "heist/a", "prompt": "x"}]
    session = Definition.model_validate(
        {"session": {"name": "n"}, "needs": {"backends": need}, "agents": agents}
    )
    with (
        answering(registry) as port,
        team.composed(
            session, f"http://127.0.0.1:{port}", folder=tmp_path, mint=lambda account: lambda: "token"
        ) as made,
    ):
        found = preflight.run(made)
    said = [(check.part, check.of, check.problem) for check in found.checks if check.problem]
    assert said == [("tool backends", "heist/a", "down: heist/drill")]
    assert (len(found.missing), len(found.degraded)) == ((1, 0) if need == "required" else (0, 1))
    assert [view.tools for view in found.views] == [{"drill": ("drill:use",), "listen": ("listen:use",)}]
