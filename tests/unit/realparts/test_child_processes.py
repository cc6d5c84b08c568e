"""Children of tests end when they are told to, and when we die."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from realparts import processes

STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
PARENT = """
import subprocess, sys, time
from realparts import processes
child = processes.spawn([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""


def python(code: str, log: Path) -> processes.Child:
    return processes.Child("python", [sys.executable, "-c", code], log=log)


def test_a_child_that_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    with python(STUBBORN, tmp_path / "log") as child:
        child.wait_ready(lambda: "up" in child.tail(), timeout=20)

        assert child.stop(grace=0.1) == -signal.SIGKILL
    assert not child.running


IGNORING = """
import signal, sys
from pathlib import Path
for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"):
    signal.signal(getattr(signal, name), signal.SIG_IGN)
from realparts import processes
child = processes.spawn([sys.executable, "-c", "print(open('/proc/self/status').read())"])
sys.exit(child.wait())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_child_hears_signals_that_the_parent_of_its_parent_ignores() -> None:
    support = str(Path(processes.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", IGNORING], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": support},
    )  # fmt: skip

    ignored = int(
        next(line for line in done.stdout.splitlines() if line.startswith("SigIgn:")).split()[1], 16
    )
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        assert not ignored & 1 << (number - 1), number


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_children_of_tests_hear_ctrl_c_where_pytest_runs_as_a_background_job(tmp_path: Path) -> None:
    (tmp_path / "test_child.py").write_text(
        "import subprocess\n"
        "def test_it():\n"
        "    status = subprocess.check_output(['cat', '/proc/self/status'], text=True)\n"
        "    ignored = next(line for line in status.splitlines() if line.startswith('SigIgn'))\n"
        "    assert not int(ignored.split()[1], 16) & 2\n"
    )
    tests = Path(__file__).parents[2]
    job = f"trap '' INT; exec {sys.executable} -m pytest -p conftest -p no:cacheprovider {tmp_path}/test_child.py"
    done = subprocess.run(
        ["/bin/sh", "-c", job], env={**os.environ, "PYTHONPATH": f"{tests}:{tests / 'support'}"},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout


def test_a_paused_child_can_be_stopped(tmp_path: Path) -> None:
    with python("print('up', flush=True); import time; time.sleep(600)", tmp_path / "log") as child:
        child.wait_ready(lambda: "up" in child.tail(), timeout=20)
        child.pause()

        assert child.stop(grace=20) == -signal.SIGTERM


def test_a_paused_child_does_nothing_more_and_goes_on_when_resumed(tmp_path: Path) -> None:
    shared = tmp_path / "count"
    shared.write_bytes(bytes(8))
    counting = (
        "import mmap, threading, time\n"
        f"file = open({str(shared)!r}, 'r+b')\n"
        "memory = mmap.mmap(file.fileno(), 8)\n"
        "def count():\n"
        "    for n in range(1, 1 << 60):\n"
        "        memory[:] = n.to_bytes(8, 'little')\n"
        "threading.Thread(target=count, daemon=True).start()\n"
        "time.sleep(600)\n"
    )

    def count() -> int:
        return int.from_bytes(shared.read_bytes(), "little")

    with python(counting, tmp_path / "log") as child:
        for _ in range(20):
            before = count()
            child.wait_ready(lambda before=before: count() > before, timeout=20)  # type: ignore[misc]
            child.pause()
            paused = count()
            time.sleep(0.01)  # a time in which nothing must happen
            assert count() == paused
            child.resume()


def test_a_child_that_ends_early_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    child = python("raise SystemExit('the port is taken')", tmp_path / "log").start()

    with pytest.raises(processes.NotReadyError, match="ended with 1:\nthe port is taken"):
        child.wait_ready(lambda: False, timeout=20)


def test_a_child_that_is_never_ready_is_reported_at_the_deadline(tmp_path: Path) -> None:
    with python("import time; time.sleep(600)", tmp_path / "log") as child:
        with pytest.raises(processes.NotReadyError, match=r"not ready after 0\.1 s"):
            child.wait_ready(lambda: False, timeout=0.1)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of the death of their parent")
def test_a_child_dies_with_us_even_if_we_are_killed() -> None:
    support = str(Path(processes.__file__).parents[1])
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": support}
    )
    with parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert exists(child)
        parent.kill()

    processes.wait_until(lambda: not exists(child))


def test_a_child_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    child = python("import time; time.sleep(600)", tmp_path / "log")
    thread = threading.Thread(target=child.start)
    thread.start()
    thread.join()
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.3)
    finally:
        child.kill()


def test_free_ports_differ_and_can_be_bound() -> None:
    ports = processes.free_ports(20)

    assert len(set(ports)) == 20
    assert not any(processes.listening(port) for port in ports)


def test_a_port_is_given_once_and_to_one_of_the_workers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be long until a server listens on it, or be between two starts."""
    given = []
    for worker in ("gw0", "gw1"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        given.append({port for _ in range(150) for port in processes.free_ports(2)})
    assert [len(ports) for ports in given] == [300, 300]
    assert not given[0] & given[1]


def test_what_came_true_while_the_test_got_no_time_is_not_late() -> None:
    began = time.monotonic()

    def holds() -> bool:
        late = time.monotonic() > began + 0.1
        time.sleep(0 if late else 0.15)
        return late

    processes.wait_until(holds, 0.05)
    with pytest.raises(TimeoutError, match=r"not true after 0\.05 s"):
        processes.wait_until(lambda: False, 0.05)


def exists(pid: int) -> bool:
    # A zombie of a container without an init is as dead as can be.
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
