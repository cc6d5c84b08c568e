"""MCP's reference servers of npm and PyPI: imported and called through a registry (`make mcp-servers` prints a table).

Over HTTP into a registry, as in a cluster, those that speak stdio behind the bridge; and started by `toolcrib up` itself.
"""

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from imported import imported, toolserver
from local_mode import LocalMode
from manifests import binding as granted
from manifests import manifest
from mcp_peers import environments, reference_servers
from mcp_peers.reference_servers import SERVERS
from mcp_requests import call_of, rpc
from realparts.processes import wait_until
from realparts.required import absent
from registry_harness import binding, running_registry
from stub_server import Answer, Asked, answering

pytestmark = pytest.mark.peers
NOTE = "The guards change at two."


@dataclass(frozen=True)
class Scene:
    """What the servers work on: the folder that has theirs, and a page to fetch."""

    home: Path
    page: str


@dataclass(frozen=True)
class Served:
    """What was imported of one server: the names that its tools are listed under, by their own; how, and what is told of it."""

    tools: Mapping[str, str]
    left_out: str
    way: str
    version: str
    revision: str
    url: str = ""


@dataclass(frozen=True)
class Running:
    """A registry that has imported them, and the lines of the table so far."""

    url: str
    token: str
    found: Mapping[str, Served]
    scene: Scene
    lines: dict[str, list[str]]

    def call(self, server: str, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The result of one call through the registry."""
        name = self.found[server].tools[tool]
        body, fields = rpc("2026-07-28", "tools/call", call_of("/mcp/direct", name, arguments))
        headers = {"authorization": f"Bearer {self.token}", **fields}
        answer = httpx.post(f"{self.url}/mcp/direct", json=body, headers=headers, timeout=60, trust_env=False)
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()["result"]
        said = result.get("structuredContent") or [b.get("text", b["type"]) for b in result["content"]]
        self.lines[server].append(
            f"{tool} → {'refused: ' if result.get('isError') else ''}{str(said)[:48]!r}"
        )
        return result


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    try:
        environments.node()
        for name in environments.PYTHON:
            environments.python(name)
    except environments.PeersMissingError as error:
        absent(error)

    def page(asked: Asked) -> Answer:
        return Answer(NOTE.encode(), headers={"content-type": "text/plain"})

    with answering(page) as port:
        yield Scene(tmp_path_factory.mktemp("servers"), f"http://127.0.0.1:{port}/note")


@contextmanager
def over_http(scene: Scene) -> Iterator[tuple[str, str, dict[str, Served]]]:
    """A registry, asked for the lists as the operator asks."""
    with (
        reference_servers.running(scene.home) as urls,
        running_registry(bindings=[binding("bot", [f"{name}:use" for name in urls])]) as registry,
    ):
        made = {}
        for name, each in imported(registry, *(toolserver(n, u) for n, u in urls.items())).items():
            tools = {t.backend.mcp.tool: t.name for t in each.tools if t.backend and t.backend.mcp}
            made[name] = Served(
                tools,
                " ".join(map(str, each.left_out)),
                "bridge" if SERVERS[name].stdio else "HTTP",
                each.seen.server_version or "",
                each.seen.protocol_version or "",
                urls[name],
            )
        yield registry.url, registry.token("team", "bot"), made


@contextmanager
def by_up(scene: Scene) -> Iterator[tuple[str, str, dict[str, Served]]]:
    """The local mode, which starts each server as the command that it is."""
    folder = scene.home / "manifests"
    folder.mkdir()
    for name in SERVERS:
        command = reference_servers.command_of(name, scene.home / name, stdio=True)
        env = [{"name": "MEMORY_FILE_PATH", "value": str(scene.home / name / "memory.jsonl")}]
        spec = {"mcp": {"command": command, "env": env}, "defaults": {"scopes": [f"{name}:use"]}}
        (folder / f"{name}.json").write_text(json.dumps(manifest("ToolServer", name, "team", **spec)))
    grant = granted("bot", [f"{name}:use" for name in SERVERS], namespace="team")
    (folder / "binding.json").write_text(json.dumps(grant))
    place = scene.home / "up"
    place.mkdir()
    with LocalMode(place, folder, extra=("--allow-stdio",), patience=120) as local:
        token = local.token("bot")

        def servers() -> dict[str, dict[str, Any]]:
            key = json.loads((local.data / "local.json").read_text())["key"]
            headers = {"Authorization": f"Bearer {key}"}
            asked = f"{local.url}/local/objects?kind="
            answer = httpx.get(asked + "ToolServer", headers=headers, trust_env=False).json()
            return {each["object"]["metadata"]["name"]: each["object"] for each in answer["objects"]}

        def ready(found: dict[str, Any]) -> bool:
            conditions = found.get("status", {}).get("conditions", ())
            return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

        wait_until(lambda: all(map(ready, servers().values())), 120)
        headers = {"Authorization": f"Bearer {token}"}
        page = httpx.get(f"{local.url}/v1/tools?limit=200", headers=headers, trust_env=False).json()
        made = {}
        for name, each in servers().items():
            info = each["status"].get("serverInfo") or {}
            tools = {t["name"]: t["name"] for t in page["tools"] if t["server"] == name}
            revision = each["status"].get("protocolVersion", "")
            made[name] = Served(tools, "", "stdio", info.get("version", ""), revision)
        yield local.url, token, made


WAYS: dict[str, Callable[[Scene], Any]] = {"over HTTP": over_http, "by up": by_up}


@pytest.fixture(scope="module", params=WAYS)
def running(request: pytest.FixtureRequest, scene: Scene) -> Iterator[Running]:
    place = Scene(scene.home / request.param.replace(" ", "-"), scene.page)
    for name in SERVERS:
        (place.home / name).mkdir(parents=True)
    _repository(place.home / "git")
    lines: dict[str, list[str]] = {name: [] for name in SERVERS}
    with WAYS[request.param](place) as (url, token, found):
        yield Running(url, token, found, place, lines)
    _print(found, lines)


def _repository(folder: Path) -> None:
    git = ["git", "-C", str(folder), "-c", "user.name=guard", "-c", "user.email=guard@example.com"]
    for words in (["init", "--quiet"], ["commit", "--quiet", "--allow-empty", "--message", NOTE]):
        subprocess.run([*git, *words], check=True)


def _print(found: Mapping[str, Served], lines: dict[str, list[str]]) -> None:
    print(f"\n{'server':12}{'version':13}{'revision':12}{'tools':7}{'way':9}called")
    for name in SERVERS:
        each = found[name]
        head = f"{name:12}{each.version:13}{each.revision:12}{len(each.tools):<7}{each.way:9}"
        for line in lines[name] or ["-"]:
            print(head + line)
            head = " " * len(head)


COUNTS = {"everything": 13, "filesystem": 14, "memory": 9, "thinking": 1, "time": 2, "git": 12, "fetch": 1}
"""Tools of each, of the versions in the locks."""


@pytest.mark.parametrize("server", SERVERS)
def test_all_tools_of_a_server_are_imported(running: Running, server: str) -> None:
    found = running.found[server]

    assert found.left_out == ""
    assert len(found.tools) == COUNTS[server]


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

    assert words[words.index("--") + 1 :] == ["mcp-server-time", *SERVERS["time"].arguments]
    if url := running.found["time"].url:
        ready = httpx.get(url.removesuffix("/mcp") + "/status", trust_env=False)
        assert ready.status_code == 200
