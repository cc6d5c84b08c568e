"""MCP's reference servers of npm and PyPI: imported into a registry and called through it (`make mcp-servers` prints a table)."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from imported import Import, imported, toolserver
from mcp_peers import environments, reference_servers
from mcp_peers.reference_servers import SERVERS
from mcp_requests import call
from realparts.required import absent
from registry_harness import RunningRegistry, binding, running_registry
from stub_server import Answer, Asked, answering

pytestmark = pytest.mark.peers
NOTE = "The guards change at two."


@dataclass(frozen=True)
class Scene:
    """What the servers work on: the folder that has theirs, and a page to fetch."""

    home: Path
    page: str


@dataclass(frozen=True)
class Running:
    """The registry, what was imported of each server, and the lines of the table so far."""

    registry: RunningRegistry
    found: dict[str, Import]
    scene: Scene
    lines: dict[str, list[str]]

    def call(self, server: str, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The result of one call through the registry, by the name that it is listed under."""
        (listed,) = (
            each
            for each in self.found[server].tools
            if each.backend and each.backend.mcp and each.backend.mcp.tool == tool
        )
        result = call(self.registry, "/mcp/direct", listed.name, arguments)
        said = result.get("structuredContent") or [
            block.get("text", block["type"]) for block in result["content"]
        ]
        self.lines[server].append(
            f"{tool} → {'refused: ' if result.get('isError') else ''}{str(said)[:48]!r}"
        )
        return result


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    try:
        environments.node()
        for name in environments.PYTHON:
            environments.python(name)
    except environments.PeersMissingError as error:
        absent(error)
    home = tmp_path_factory.mktemp("servers")
    _repository(home / "git")

    def page(asked: Asked) -> Answer:
        return Answer(NOTE.encode(), headers={"content-type": "text/plain"})

    lines: dict[str, list[str]] = {name: [] for name in SERVERS}
    with answering(page) as port, reference_servers.running(home) as urls:
        with running_registry(bindings=[binding("bot", [f"{name}:use" for name in urls])]) as registry:
            found = imported(registry, *(toolserver(name, url) for name, url in urls.items()))
            yield Running(registry, found, Scene(home, f"http://127.0.0.1:{port}/note"), lines)
    _print(found, lines)


def _repository(folder: Path) -> None:
    folder.mkdir()
    git = ["git", "-C", str(folder), "-c", "user.name=guard", "-c", "user.email=guard@example.com"]
    for words in (["init", "--quiet"], ["commit", "--quiet", "--allow-empty", "--message", NOTE]):
        subprocess.run([*git, *words], check=True)


def _print(found: dict[str, Import], lines: dict[str, list[str]]) -> None:
    print(f"\n{'server':12}{'version':13}{'revision':12}{'tools':7}{'way':13}called")
    for name, each in found.items():
        row, way = each.seen, "bridge" if SERVERS[name].stdio else "direct"
        head = f"{name:12}{row.server_version:13}{row.protocol_version:12}{len(each.tools):<7}{way:13}"
        for line in lines[name] or ["-"]:
            print(head + line)
            head = " " * len(head)


@pytest.mark.parametrize("server", SERVERS)
def test_all_tools_of_a_server_are_imported(running: Running, server: str) -> None:
    found = running.found[server]

    assert found.left_out == ()
    assert len(found.tools) == found.seen.tools
    assert found.tools
    assert found.seen.server_version


def test_everything_answers_text_structure_and_images(running: Running) -> None:
    echoed = running.call("everything", "echo", {"message": NOTE})
    summed = running.call("everything", "get-sum", {"a": 2, "b": 3})
    weather = running.call("everything", "get-structured-content", {"location": "Chicago"})
    image = running.call("everything", "get-tiny-image", {})
    slow = running.call("everything", "trigger-long-running-operation", {"duration": 0.2, "steps": 2})

    assert echoed["content"][0]["text"] == f"Echo: {NOTE}"
    assert "5" in summed["content"][0]["text"]
    assert set(weather["structuredContent"]) == {"temperature", "conditions", "humidity"}
    assert "image/png" in {block.get("mimeType") for block in image["content"]}
    assert not slow.get("isError")


def test_the_file_server_writes_reads_and_refuses_what_is_outside_its_folder(running: Running) -> None:
    note = str(running.scene.home / "filesystem" / "note.txt")

    running.call("filesystem", "write_file", {"path": note, "content": NOTE})
    read = running.call("filesystem", "read_text_file", {"path": note})
    outside = running.call("filesystem", "read_text_file", {"path": "/etc/hostname"})

    assert Path(note).read_text() == NOTE
    assert read["content"][0]["text"] == NOTE
    assert outside["isError"] is True


def test_the_memory_server_keeps_what_one_call_says_for_the_next(running: Running) -> None:
    entity = {"name": "vault", "entityType": "room", "observations": [NOTE]}

    running.call("memory", "create_entities", {"entities": [entity]})
    graph = running.call("memory", "read_graph", {})

    assert graph["structuredContent"]["entities"][0]["observations"] == [NOTE]


def test_the_thinking_server_counts_thoughts(running: Running) -> None:
    thought = {"thought": NOTE, "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}

    found = running.call("thinking", "sequentialthinking", thought)

    assert found["structuredContent"]["thoughtHistoryLength"] == 1


def test_the_time_server_converts(running: Running) -> None:
    asked = {"source_timezone": "UTC", "time": "02:00", "target_timezone": "Asia/Tokyo"}

    found = running.call("time", "convert_time", asked)
    unknown = running.call("time", "get_current_time", {"timezone": "Nowhere/Land"})

    assert "11:00" in found["content"][0]["text"]
    assert unknown["isError"] is True


def test_the_git_server_reads_the_log(running: Running) -> None:
    found = running.call("git", "git_log", {"repo_path": str(running.scene.home / "git")})

    assert NOTE in found["content"][0]["text"]


def test_the_fetch_server_fetches_a_page(running: Running) -> None:
    found = running.call("fetch", "fetch", {"url": running.scene.page, "raw": True})

    assert NOTE in found["content"][0]["text"]


def test_the_example_of_a_bridge_is_what_ran_here(running: Running) -> None:
    words = reference_servers.bridge_words()
    (port,) = (
        tool.backend.url for tool in running.found["time"].tools[:1] if tool.backend and tool.backend.url
    )
    ready = running.registry.http.get(port.removesuffix("/mcp") + "/status")

    assert words[words.index("--") + 1 :] == ["mcp-server-time", *SERVERS["time"].arguments]
    assert ready.status_code == 200
