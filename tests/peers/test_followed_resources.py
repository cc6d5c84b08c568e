"""The Python SDK on both sides: its client follows a resource of its server through a registry, in either era."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from imported import imported, toolserver
from mcp_peers import environments, python_server
from mcp_peers.peer import CLIENTS
from realparts.required import absent
from registry_harness import RunningRegistry, binding, running_registry
from toolcrib import publishing

pytestmark = pytest.mark.peers


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRegistry]:
    try:
        environments.python("current")
    except environments.PeersMissingError as error:
        absent(error)
    with (
        python_server.running(tmp_path_factory.mktemp("peer"), "sdk", "stream", "touched") as url,
        running_registry([], [binding("bot", ("peer:use",))]) as running,
    ):
        server = toolserver("peer", url)
        imported(running, server)
        made = publishing.server(server, None)
        assert made is not None
        running.publish(servers=[made])
        yield running


@pytest.mark.parametrize(("mode", "version"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
def test_a_client_hears_of_a_change_of_the_resource_that_it_follows(
    registry: RunningRegistry, mode: str, version: str, tmp_path: Path
) -> None:
    token = registry.token("team", "bot")
    peer = {"PEER_URL": f"{registry.url}/mcp/direct", "PEER_TOKEN": token, "PEER_MODE": mode}
    script = [str(environments.python("current")), str(CLIENTS / "follows_a_resource.py")]
    done = subprocess.run(
        [*script, "peer://note", "touch"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **peer},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"version": version, "heard": "peer://note"}
