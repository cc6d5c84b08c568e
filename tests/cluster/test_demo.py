"""`make cluster-demo` leaves nothing, also where a signal ends it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from realparts.processes import spawn, wait_until
from realparts.required import require_real, required

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.real, pytest.mark.real, pytest.mark.long]


def processes_of(folder: Path) -> list[str]:
    """The running programs of which a word has to do with a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in words:
            found.append(words.decode(errors="replace"))
    return found


@pytest.mark.skipif(sys.platform != "linux" and not required(), reason="looks for processes in /proc")
def test_a_demo_that_is_told_to_end_leaves_neither_files_nor_processes(tmp_path: Path) -> None:
    require_real("kube-apiserver", "etcd", "kubectl", "weaviate")
    folder = tmp_path / "scratch"
    folder.mkdir()
    demo = spawn(
        [sys.executable, str(ROOT / "examples" / "cluster" / "demo.py")],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "TMPDIR": str(folder)},
    )  # fmt: skip
    try:
        # the API server runs, Weaviate is starting: folders of all kinds are there
        wait_until(lambda: any(folder.rglob("weaviate.log")), timeout=120)
        assert processes_of(folder)
        demo.send_signal(signal.SIGTERM)
        assert demo.wait(60) == 128 + signal.SIGTERM
    finally:
        demo.kill()
        demo.wait()
    assert list(folder.iterdir()) == []
    wait_until(lambda: processes_of(folder) == [])
