"""A registration of the local mode while the disk is full: refused, nothing has changed, and accepted later."""

import subprocess
import sys
from pathlib import Path

import pytest

from small_disk import command

pytestmark = pytest.mark.real

SCRIPT = """
import asyncio, json, sys
from pathlib import Path
from toolcrib import publishing
from toolcrib.wire.publish import Revision
from toolcrib_cli.local.registrations import Registrations
from toolcrib_operator.world import World
from toolcrib_registry.policy.registration import RegistrationFailed

disk = Path(sys.argv[1])
tool = publishing.with_digests(
    tool_id="toolcrib-runtime/fx", uid="u", namespace="toolcrib-runtime", name="fx", scopes=("fx:use",)
)

async def published(change):
    return Revision(epoch=1, seq=1)

async def main():
    world = World()
    registrations = Registrations(disk / "registrations", world, published)
    with (disk / "filler").open("wb", buffering=0) as filler:
        try:
            while True:
                filler.write(b"x" * 4096)
        except OSError:
            pass
    try:
        await registrations.register(tool, lambda: True)
    except RegistrationFailed as error:
        print("refused:", error)
    print("left:", [f.name for f in registrations.folder.iterdir()])
    (disk / "filler").unlink()
    await registrations.register(tool, lambda: True)
    print("stored:", [json.loads(f.read_text())["spec"]["name"] for f in registrations.folder.iterdir()])

asyncio.run(main())
"""


def test_a_registration_on_a_full_disk_is_refused_leaves_nothing_and_is_accepted_later(
    tmp_path: Path,
) -> None:
    within = [*command(tmp_path), sys.executable, "-c", SCRIPT, str(tmp_path)]

    done = subprocess.run(within, capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr
    refused, left, stored = done.stdout.splitlines()
    assert refused.startswith("refused:")
    assert "No space left" in refused
    assert left == "left: []"
    assert stored == "stored: ['fx']"
