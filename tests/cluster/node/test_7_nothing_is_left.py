"""The node of these tests cannot outlive them, whatever way they end, and two stand side by side."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from realparts import processes
from realparts.node import Node
from realparts.remains import remains

pytestmark = pytest.mark.node

SUPPORT = Path(__file__).parents[2] / "support"
SCRIPT = """
from realparts.node import Node
node = Node().up()
print(node.folder, node.at.number, flush=True)
import signal; signal.pause()
"""


def test_a_test_run_killed_with_9_leaves_nothing_and_another_node_goes_on(node: Node) -> None:
    settings = {"PYTHONPATH": str(SUPPORT), **node.env, "HOME": str(Path.home())}
    with processes.spawn([sys.executable, "-c", SCRIPT], env=settings, stdout=subprocess.PIPE) as runner:
        assert runner.stdout
        folder, number = runner.stdout.readline().decode().split()
        beside = remains(Path(folder), int(number))
        runner.send_signal(signal.SIGKILL)
    processes.wait_until(lambda: not remains(Path(folder), int(number)), timeout=120, interval=0.2)

    assert beside
    assert node.kubectl("get", "--raw", "/readyz") == "ok"
