"""ToolServers in the local mode: `toolcrib up` imports the tools of a real MCP server, and approvals bound what changes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from local_mode import LocalMode
from manifests import binding
from mcp_peers import environments, python_server
from realparts.processes import wait_until
from realparts.required import absent

FIRST = ["add", "asks", "blocks", "fails", "grow"]


class Stage:
    """A folder with a ToolServer of a real server, and an agent that may use its tools."""

    def __init__(self, place: Path, url: str) -> None:
        self.place, self.url = place, url
        self.folder = place / "manifests"
        self.folder.mkdir()
        self.file = self.folder / "server.yaml"
        self.write()
        (self.folder / "binding.yaml").write_text(json.dumps(binding("hacker", ["peer:use"])))

    def write(self, **spec: Any) -> None:
        draft = self.place / "draft"
        base = {"mcp": {"url": self.url}, "defaults": {"scopes": ["peer:use"]}}
        made = {
            "apiVersion": "toolcrib.dev/v1alpha1",
            "kind": "ToolServer",
            "metadata": {"name": "peer", "namespace": "heist"},
            "spec": base | spec,
        }
        draft.write_text(json.dumps(made))
        draft.replace(self.file)

    def run(self, *extra: str) -> LocalMode:
        return LocalMode(self.place, self.folder, extra=extra)


@pytest.fixture
def peer() -> Path:
    """The interpreter of the SDK's servers."""
    try:
        return environments.python("current")
    except environments.PeersMissingError as error:
        absent(error)


@pytest.fixture
def stage(tmp_path: Path, peer: Path) -> Iterator[Stage]:
    (home := tmp_path / "home").mkdir()
    with python_server.running(home, "sdk", "stream") as url:
        yield Stage(tmp_path, url)


def shown(local: LocalMode, kind: str) -> dict[str, dict[str, Any]]:
    """Objects by what agents call them, or by their names; as `toolcrib get` has them, without the start of a command."""
    key = json.loads((local.data / "local.json").read_text())["key"]
    answer = httpx.get(
        f"{local.url}/local/objects",
        params={"kind": kind},
        headers={"Authorization": f"Bearer {key}"},
        trust_env=False,
    )
    found = [each["object"] for each in answer.json()["objects"]]
    return {each["spec"].get("name", each["metadata"]["name"]): each for each in found}


def condition(shown: dict[str, Any], kind: str) -> dict[str, Any]:
    return next((c for c in shown["status"].get("conditions", ()) if c["type"] == kind), {})


def tool_id(shown: dict[str, Any]) -> str:
    return f"{shown['metadata']['namespace']}/{shown['metadata']['name']}"


def called(local: LocalMode, token: str, tool: str, **arguments: Any) -> Any:
    answer = httpx.post(
        f"{local.url}/v1/call",
        json={"tool": tool, "arguments": arguments},
        headers={"Authorization": f"Bearer {token}"},
        trust_env=False,
        timeout=30,
    )
    return answer.json()


@pytest.mark.peers
def test_a_tool_server_s_tools_are_there_and_what_joins_later_waits_for_approval(stage: Stage) -> None:
    with stage.run() as local:
        hacker = local.token("hacker")
        # the start waits a second for a server that answers; a busy machine may take longer
        local.until_names(hacker, FIRST)
        wait_until(lambda: "approved on first use: " in local.output)
        assert "ToolServer heist/peer: 5 tools imported" in local.output
        assert "MatchesNothing" not in local.output
        wait_until(lambda: condition(shown(local, "ToolServer")["peer"], "Ready").get("status") == "True")
        listed = local.toolcrib("get", "toolservers").stdout
        assert listed.splitlines()[1].split()[:5] == ["heist", "peer", "True", "True", "5"]
        tools = shown(local, "Tool")
        assert tools["add"]["metadata"]["ownerReferences"][0]["name"] == "peer"
        assert called(local, hacker, tool_id(tools["add"]), a=2, b=3)["result"] == {"result": 5}

        # an edit elsewhere leaves them alone
        (stage.folder / "other.yaml").write_text(json.dumps(binding("driver", ["other:use"])))
        wait_until(lambda: "heist/driver in effect" in local.output)
        assert local.names(hacker) == FIRST

        assert called(local, hacker, tool_id(tools["grow"]), name="late")["result"] == {"result": "late"}
        wait_until(lambda: "late" in shown(local, "Tool"))
        late = tool_id(shown(local, "Tool")["late"])
        wait_until(lambda: f"Tool {late}: Ready=False/Quarantined" in local.output)
        assert f"toolcrib approvals diff {late}" in local.output
        assert local.names(hacker) == FIRST
        done = local.toolcrib("approvals", "approve", late, "--yes")
        assert done.returncode == 0, done.stderr
        assert local.names(hacker) == sorted([*FIRST, "late"]), "in effect when the command returns"

    with stage.run() as local:
        hacker = local.token("hacker")
        assert local.names(hacker) == sorted([*FIRST, "late"])
        wait_until(lambda: "ToolServer heist/peer: 6 tools imported" in local.output)
        assert "approved on first use" not in local.output
        stage.write(state="Disabled")
        local.until_names(hacker, [])
        stage.write()
        local.until_names(hacker, sorted([*FIRST, "late"]))
        stage.file.unlink()
        local.until_names(hacker, [])
        wait_until(lambda: shown(local, "Tool") == {})


def test_a_server_at_a_host_that_is_not_allowed_says_how_to_allow_it(tmp_path: Path) -> None:
    with Stage(tmp_path, "https://far.example/mcp").run() as local:
        wait_until(lambda: "EgressRefused: The host far.example (port 443)" in local.output)
        assert "run `toolcrib up` with --allow-host far.example" in local.output


@pytest.mark.peers
def test_a_command_is_started_only_where_up_allows_it_and_is_a_server_like_others_then(
    tmp_path: Path, peer: Path
) -> None:
    stage = Stage(tmp_path, "http://127.0.0.1:9/mcp")
    command = [str(peer), str(python_server.SCRIPT), "sdk", "stdio"]
    stage.write(mcp={"command": command})
    with stage.run() as local:
        wait_until(lambda: "StdioNotAllowed" in local.output)
        assert f"It would run: {shlex.join(command)}" in local.output
        assert local.names(local.token("hacker")) == []
        assert "AgentScopeBinding heist/hacker: spec: MatchesNothing" in local.output
        assert not (local.data / "stdio").exists()

    with stage.run("--allow-stdio=heist/peer") as local:
        hacker = local.token("hacker")
        local.until_names(hacker, FIRST)
        wait_until(lambda: "ToolServer heist/peer: 5 tools imported" in local.output)
        assert "MatchesNothing" not in local.output, "its tools were on their way"
        tools = shown(local, "Tool")
        assert called(local, hacker, tool_id(tools["add"]), a=2, b=3)["result"] == {"result": 5}
        assert called(local, hacker, tool_id(tools["asks"]))["result"]["result"].startswith("went on")
        assert called(local, hacker, tool_id(tools["grow"]), name="late")["result"] == {"result": "late"}
        wait_until(lambda: "late" in shown(local, "Tool"))
        assert local.names(hacker) == FIRST
        # another command is another way: nothing of it is approved
        stage.write(mcp={"command": [*command, "more"]})
        local.until_names(hacker, [])
        wait_until(lambda: "program" in condition(shown(local, "Tool")["add"], "Approved").get("message", ""))
        assert Path(f"/proc/{local.child.pid}/task/{local.child.pid}/children").read_text()
        stage.file.unlink()
        wait_until(lambda: not Path(f"/proc/{local.child.pid}/task/{local.child.pid}/children").read_text())


@pytest.mark.peers
def test_a_start_while_the_server_is_away_has_its_tools_and_their_calls_fail_typed(
    tmp_path: Path, peer: Path
) -> None:
    (home := tmp_path / "home").mkdir()
    with python_server.running(home, "sdk", "json") as url:
        stage = Stage(tmp_path, url)
        with stage.run() as local:
            local.until_names(local.token("hacker"), FIRST)
            add = tool_id(shown(local, "Tool")["add"])
            kept, name = local.data / "imported.json", add.partition("/")[2]
            wait_until(lambda: kept.exists() and name in kept.read_text())

    with stage.run() as local:
        hacker = local.token("hacker")
        local.until_names(hacker, FIRST)
        assert called(local, hacker, add, a=2, b=3)["code"] == "upstream_unreachable"
        assert "approved on first use" not in local.output

    # at another address nothing of it is there before it is read
    stage.write(mcp={"url": url.replace("/mcp", "/other")})
    with stage.run() as local:
        wait_until(lambda: condition(shown(local, "ToolServer")["peer"], "Ready").get("status") == "False")
        assert local.names(local.token("hacker")) == []
