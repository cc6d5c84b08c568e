"""Faults of the machine: a full disk, a wall clock that is set back."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from realparts.processes import wait_until
from registry_harness import OPERATOR, ManualClock, binding, mint, running_registry, tool
from registry_process import RegistryProcess, configuration, process
from small_disk import SmallDisk, command
from toolcrib.wire.index import IndexRequest

AUTH = {"Authorization": f"Bearer {mint('system:serviceaccount:team:bot')}"}
ADMIN = {"Authorization": f"Bearer {mint(OPERATOR, audience='toolcrib-admin')}"}
HTTP = httpx.Client(timeout=30, verify=False, headers={"connection": "close"})
NAMES = [f"tool_{i:02d}" for i in range(60)]


def index(running: RegistryProcess, *names: str) -> httpx.Response:
    wanted = tuple(f"team/{name.replace('_', '-')}" for name in names)
    body = IndexRequest(epoch=1, upsert=wanted).model_dump_json()
    headers = {**ADMIN, "content-type": "application/json"}
    return HTTP.post(f"{running.admin_url}/v1/admin/index", headers=headers, content=body)


def search(running: RegistryProcess) -> dict[str, Any]:
    answer = HTTP.post(f"{running.url}/v1/search", headers=AUTH, json={"query": "read a file", "limit": 5})
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


def dropped(running: RegistryProcess) -> float:
    text = HTTP.get(f"{running.metrics_url}/metrics").text
    name = "toolcrib_decision_log_dropped_records_total "
    return next(float(line.removeprefix(name)) for line in text.splitlines() if line.startswith(name))


@pytest.mark.real
def test_a_full_disk_fails_writes_alone_and_space_that_comes_back_is_used(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    config = configuration(
        tmp_path / "r",
        store={"kind": "embedded", "path": str(disk / "index")},
        audit={"path": str(disk / "decisions.jsonl"), "queue": 20},
    )
    text = "Read a file. " + "Long words of a description. " * 150
    with process(config, within=command(disk)) as running:
        small = SmallDisk(running.child.pid, disk)
        running.publish(
            *(tool(name, description=text, scopes=("s",)) for name in NAMES),
            bindings=(binding("bot", ("s",)),),
        )
        assert len(index(running, *NAMES[:5]).json()["indexed"]) == 5
        search(running)
        # the log has a page that is partly free: the line that does not fit into it is cut
        wait_until(lambda: bool((small.folder / "decisions.jsonl").read_bytes()))
        small.fill()

        refused = index(running, *NAMES)
        assert (refused.status_code, refused.json()["code"]) == (503, "index_unavailable")
        assert "full" in refused.json()["detail"]
        found = search(running)
        assert (len(found["tools"]), found["search_mode"]) == (5, "lexical")
        for _ in range(60):
            assert HTTP.get(f"{running.url}/", headers=AUTH).json()["total_available"] == 60
        assert HTTP.get(f"{running.admin_url}/readyz").status_code == 200
        assert dropped(running) > 10

        small.free()
        assert len(index(running, *NAMES[:20]).json()["indexed"]) == 20

        def nothing_is_lost() -> bool:
            before = dropped(running)
            search(running)
            return dropped(running) == before

        wait_until(nothing_is_lost)
        lost = dropped(running)
        log = (small.folder / "decisions.jsonl").open("rb")  # held: the disk goes with the process
        running.child.terminate()
        assert running.child.wait(30) == 0
        with log:
            found = [json.loads(line) for line in log]
        assert [record["seq"] for record in found] == list(range(1, len(found) + 1))
        gaps = [entry for record in found if record["action"] == "audit.gap" for entry in record["lost"]]
        assert sum(entry["count"] for entry in gaps) == lost > 10
        assert any("decision log cannot be written" in str(line) for line in running.lines)


def test_setting_the_wall_clock_back_makes_no_policy_young_again() -> None:
    clock = ManualClock()
    with running_registry([tool("calculator")], [binding("bot")], clock=clock, policy_max_age=900.0) as r:
        clock.jump(-7200)
        clock.advance(901)
        stale = r.http.post(r.url + "/v1/call", headers=r.auth("team", "bot"), json={"tool": "calculator"})
        age = next(line for line in r.metrics().splitlines()
                   if line.startswith("toolcrib_policy_age_seconds "))  # fmt: skip
        r.heartbeat()
        # forward, too: a clock that was late and is set right takes nothing away
        clock.jump(+7200)
        headers = r.auth("team", "bot")
        heard = r.http.post(r.url + "/v1/call", headers=headers, json={"tool": "calculator"})

    assert (stale.status_code, stale.json()["code"]) == (503, "policy_stale")
    assert float(age.split()[1]) == 901
    assert heard.json()["code"] == "no_backend"
