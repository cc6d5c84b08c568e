"""The SDK's server changes each field of an approved tool in turn and tells of it: the tool is out of use half a second later."""

import time
from pathlib import Path

import pytest

from imports_harness import Imports
from mcp_peers import environments, python_server
from quarantine_stage import Reviewed, reviewing_live
from realparts.required import absent
from toolcrib_operator.replicas.import_work import Work
from toolcrib_registry.outbound.guard import check_url
from toolcrib_registry.upstream.servers import Asking, Question, Server
from waiting import until

pytestmark = [pytest.mark.peers, pytest.mark.anyio]
VISIBLE = 0.5
FIELDS = (
    "title", "description", "inputSchema", "outputSchema", "title of annotations", "read_only_hint", "destructive_hint",
    "idempotent_hint", "open_world_hint", "icons", "_meta", "name", "instructions",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _environment() -> None:
    try:
        environments.python("current")
    except environments.PeersMissingError as error:
        absent(error)


async def change(imports: Imports, url: str, field: str) -> None:
    """Have the server change a field, and tell of it."""
    server = Server("heist/files", check_url(url, imports.policy.current), "", "heist")
    await imports.client.ask(
        server, Asking(), Question("tools/call", {"name": "change", "arguments": {"field": field}})
    )


async def blocked(found: Reviewed, imports: Imports, url: str, field: str) -> float:
    """Seconds until the tool that was approved is not callable any more."""
    (name,) = found.callable - {"change"}
    began = time.monotonic()
    await change(imports, url, field)
    await until(lambda: name not in found.callable, what=f"{field} is not blocked")
    took = time.monotonic() - began
    await until(lambda: found.drifted[0] == "True")
    assert not found.callable - {"change"}
    await until(lambda: len(list(found.stage.world.all("Tool"))) == 2)
    (now,) = {e.head.name for e in found.stage.world.all("Tool")} - {"change"}  # type: ignore[union-attr]
    await found.approved("change", now)
    return took


async def test_a_change_of_any_field_is_blocked_half_a_second_after_the_server_told_of_it(
    tmp_path: Path, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a list that changes more than ten times a minute is imported every 6 s: `tests/unit/operator/replicas/test_imports.py`
    monkeypatch.setattr(Work, "spaced", lambda self, now: 0.0)
    took: dict[str, float] = {}
    with python_server.running(tmp_path, "sdk", "json", "changing") as url:
        async with reviewing_live(url) as (found, imports):
            await until(lambda: found.drifted[1] == "ToolsNew")
            await found.approved("change", "target")
            for field in FIELDS:
                if field == "instructions" and era == "handshake":
                    continue  # a session says them once, when it begins
                took[field] = await blocked(found, imports, url, field)
                if took[field] >= VISIBLE:  # once more: a machine that is shared may stand still
                    took[field] = await blocked(found, imports, url, field)
    assert max(took.values()) < VISIBLE, took
