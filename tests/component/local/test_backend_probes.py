"""The local mode looks whether the backends of its tools can be reached."""

import json
from pathlib import Path

import httpx
import pytest

from local_mode import LocalMode
from manifests import binding, service, tool
from realparts.processes import free_port, wait_until


@pytest.mark.slow
def test_a_service_that_runs_a_dead_url_and_a_service_without_an_address_are_told_apart(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "manifests"
    folder.mkdir()
    dead = tool("dead", backend={"http": {"url": f"http://127.0.0.1:{free_port()}/dead"}})
    lost = tool("lost", backend={"http": {"service": {"name": "nowhere", "port": 80}}})
    grant = binding("bot", ["alive:use", "dead:use"])
    (folder / "tools.yaml").write_text(
        "\n---\n".join(map(json.dumps, (service(), tool("alive"), dead, lost, grant)))
    )
    with LocalMode(tmp_path, folder) as local:

        def probed() -> bool:
            told = httpx.get(local.url + "/metrics", trust_env=False, timeout=30).text
            outcomes = ("connected", "refused", "no_address")
            return all(f'toolcrib_backends{{outcome="{o}"}} 1.0' in told for o in outcomes)

        wait_until(probed)
        for name, reason in (("dead", "Refused"), ("lost", "NoAddress")):
            said = f"Tool heist/{name}: BackendReachable=False/{reason}: "
            wait_until(lambda line=said: line in local.output)
        assert "heist/alive: BackendReachable" not in local.output

        def found() -> list[tuple[str, bool]]:
            said = local.toolcrib("search", "dead alive", "--as", "bot", "-o", "json")
            return [(hit["name"], hit.get("unavailable", False)) for hit in json.loads(said.stdout)["tools"]]

        told = "The backend is down: heist/dead."
        wait_until(lambda: told in local.toolcrib("search", "dead", "--as", "bot").stderr)
        wait_until(lambda: found() == [("alive", False), ("dead", True)])
