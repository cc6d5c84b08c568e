"""Runtime registrations of the local mode: who may no longer register when it is his turn leaves nothing."""

import json
from pathlib import Path

import pytest

from published import tool as published_tool
from toolcrib.wire.publish import Revision
from toolcrib_cli.local.registrations import Registrations
from toolcrib_operator.objects import Ref
from toolcrib_operator.world import World
from toolcrib_registry.policy.registration import RegistrationForbidden

pytestmark = pytest.mark.anyio


async def test_who_lost_the_power_while_it_waited_registers_nothing(tmp_path: Path) -> None:
    async def published(change: int) -> Revision:
        return Revision(epoch=1, seq=change)

    world, folder = World(), tmp_path / "registrations"
    tool = published_tool("toolcrib-runtime/fx", scopes=("fx:use",))
    registrations = Registrations(folder, world, published)

    with pytest.raises(RegistrationForbidden):
        await registrations.register(tool, lambda: False)

    assert list(folder.iterdir()) == []
    assert world.get(Ref("Tool", tool.tool_id)) is None
    await registrations.register(tool, lambda: True)
    assert [json.loads(f.read_text())["spec"]["name"] for f in folder.iterdir()] == ["fx"]
