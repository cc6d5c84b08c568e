"""A fresh machine cannot outlive its maker, whatever way that ends; machines do not meet; the base stays as it was."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from realparts import freshroot, processes
from realparts.freshroot import FreshMachine, FreshMachineError

pytestmark = pytest.mark.fresh

SUPPORT = Path(__file__).parents[1] / "support"
SCRIPT = """
from realparts.freshroot import FreshMachine
with FreshMachine() as machine:
    child = machine.start("sh", "-c", "sleep 600 & (setsid sleep 600 &); echo up; wait")
    child.wait_ready(lambda: "up" in child.tail(), timeout=60)
    print(machine.folder, flush=True)
    import signal; signal.pause()
"""


def remains(folder: Path) -> list[str]:
    """The processes whose root or mounts are in the folder of a machine, and the mounts of this machine there."""
    found = [line for line in Path("/proc/mounts").read_text().splitlines() if str(folder) in line]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            mounted = str(folder) in (process / "mountinfo").read_text()
            if mounted or str(folder).encode() in (process / "cmdline").read_bytes():
                found.append(process.name)
        except OSError:
            continue
    return found


@pytest.mark.usefixtures("able")
def test_a_run_killed_with_9_leaves_no_process_and_no_mount_and_the_next_removes_its_folder() -> None:
    environment = {**os.environ, "PYTHONPATH": str(SUPPORT)}
    with processes.spawn([sys.executable, "-c", SCRIPT], env=environment, stdout=subprocess.PIPE) as runner:
        assert runner.stdout
        folder = Path(runner.stdout.readline().decode().strip())
        beside = remains(folder)
        runner.send_signal(signal.SIGKILL)
    processes.wait_until(lambda: not remains(folder), timeout=60)
    left = folder.exists()
    with FreshMachine():
        assert not folder.exists()

    assert len(beside) >= 4
    assert left


@pytest.mark.usefixtures("able")
def test_a_program_that_does_not_end_in_time_is_ended_with_all_it_started() -> None:
    with FreshMachine() as machine:
        with pytest.raises(FreshMachineError, match="did not end within 2 s:\nworking"):
            machine.run("sh", "-c", "echo working; sleep 600 & sleep 600", timeout=2)
        processes.wait_until(lambda: not remains(machine.folder), timeout=30)
        folder = machine.folder
    assert not folder.exists()


@pytest.mark.usefixtures("able")
@pytest.mark.parametrize("overlay", [True, False], ids=["layer", "copy"])
def test_two_machines_do_not_meet_and_what_one_does_stays_in_it(overlay: bool) -> None:
    base = freshroot.make_base()
    with FreshMachine(overlay=overlay) as one, FreshMachine(overlay=overlay) as two:
        wrote = one.run("sh", "-c", "echo one > /etc/mark; rm /etc/debian_version; mkdir .mark", timeout=60)
        seen = one.run("cat", "/etc/mark", timeout=60)
        other = two.run("sh", "-c", "ls -d .mark /etc/mark; cat /etc/debian_version", timeout=60)
        with FreshMachine(one) as below:
            inherited = below.run("sh", "-c", "cat /etc/mark; rm /etc/mark", timeout=60)
        still = one.run("cat", "/etc/mark", timeout=60)

    assert (wrote.status, seen.output, inherited.output, still.output) == (0, "one\n", "one\n", "one\n")
    assert other.output.splitlines()[-1].startswith("12.")
    assert "cannot access '/etc/mark'" in other.output
    assert (one.layers, two.layers) == (overlay, overlay)
    assert (base / "etc/debian_version").exists()
    assert not (base / "etc/mark").exists()


@pytest.mark.usefixtures("able")
def test_a_program_that_a_signal_ends_has_the_status_that_a_shell_gives() -> None:
    with FreshMachine() as machine:
        assert machine.run("sh", "-c", "exit 7", timeout=60).status == 7
        assert machine.run("sh", "-c", "kill -9 $$", timeout=60).status == 128 + signal.SIGKILL


@pytest.mark.usefixtures("able")
def test_no_address_and_no_setting_of_this_machine_is_kept_in_the_base() -> None:
    base = freshroot.make_base()

    assert (base / "etc/apt/sources.list").read_text() == ""
    assert (base / "etc/resolv.conf").read_text() == ""
    assert not (base / "etc/pip.conf").exists()
    assert not [path for path in (base / "var/lib/apt/lists").rglob("*") if path.is_file()]
