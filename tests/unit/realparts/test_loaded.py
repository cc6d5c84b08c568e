"""A fork of a loaded program is to its caller what a new process would be."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from realparts import loaded, processes
from realparts.required import absent, required

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" and not required(), reason="forks are on where loaded libraries may be forked"
)
PROGRAM = """
import json, os, signal, sys, threading, time
if __name__ == "__main__":
    what = sys.argv[1]
    if what == "tell":
        told = {"argv": sys.argv, "cwd": os.getcwd(), "env": dict(os.environ), "given": sys.stdin.read(), "json": "json.decoder" in sys.modules}
        print(json.dumps(told))
        print("complaint", file=sys.stderr)
    elif what == "end":
        sys.exit("a reason" if sys.argv[2] == "text" else int(sys.argv[2]))
    elif what == "raise":
        raise ValueError("broken")
    elif what == "thread":
        threading.Thread(target=lambda: (time.sleep(0.2), print("the thread's last word"))).start()
    elif what == "wait":
        print("waiting", flush=True)
        signal.pause()
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    folder = tmp_path_factory.mktemp("program")
    (folder / "a_program_of_tests.py").write_text(PROGRAM)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        patch.setattr(loaded, "MODULES", {"a_program_of_tests": ("a_program_of_tests",)})
        patch.setattr(processes, "launcher", loaded.launch)
        yield [sys.executable, "-m", "a_program_of_tests"]


def test_it_is_told_arguments_folder_environment_and_input_and_nothing_else(
    program: list[str], tmp_path: Path
) -> None:

    done = loaded.run(
        [*program, "tell", "a b"], env={"ONLY": "this"}, input="given", cwd=tmp_path, timeout=60
    )

    told = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "complaint\n")
    assert told["argv"][1:] == ["tell", "a b"]
    assert Path(told["argv"][0]).name == "a_program_of_tests.py"
    assert (told["cwd"], told["env"], told["given"]) == (str(tmp_path), {"ONLY": "this"}, "given")


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [(("end", "0"), 0, ""), (("end", "7"), 7, ""), (("end", "text"), 1, "a reason\n"), (("raise",), 1, "ValueError: broken\n")],
)  # fmt: skip
def test_it_ends_with_the_programs_status_and_last_words(
    program: list[str], arguments: tuple[str, ...], status: int, said: str
) -> None:
    done = loaded.run([*program, *arguments], timeout=60)

    assert (done.returncode, done.stderr.endswith(said)) == (status, True)


def test_its_threads_are_waited_for_and_what_they_say_is_kept(program: list[str]) -> None:
    assert loaded.run([*program, "thread"], timeout=60).stdout == "the thread's last word\n"


def test_a_child_is_paused_ended_by_signals_and_says_by_which(program: list[str], tmp_path: Path) -> None:
    with processes.Child("waits", [*program, "wait"], log=tmp_path / "log") as child:
        child.wait_ready(lambda: "waiting" in child.tail(), timeout=60)
        assert os.getsid(child.pid) == child.pid
        child.pause()
        child.resume()

        assert child.running
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.01)
        os.kill(child.pid, signal.SIGINT)
        assert child.wait(60) == -signal.SIGINT
        assert "KeyboardInterrupt" in child.tail()
        child.start().wait_ready(lambda: child.tail().endswith("waiting"), timeout=60)
        assert child.kill() == -signal.SIGKILL


def test_it_ends_with_the_process_that_started_it(program: list[str], tmp_path: Path) -> None:
    fork = loaded.spawn([*program, "wait"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pid = fork.pid

    del fork

    processes.wait_until(lambda: not Path(f"/proc/{pid}").exists())


@pytest.mark.real
def test_an_installed_command_is_asked_from_a_shell_and_hands_on_what_ends_it(tmp_path: Path) -> None:
    if processes.launcher is not loaded.launch:
        absent("forks are off: tests/conftest.py switches them on")
    loaded.write_command(tmp_path)

    asked = subprocess.run([tmp_path / "toolcrib", "version"], capture_output=True, text=True, check=False)
    wrong = subprocess.run([tmp_path / "toolcrib", "nothing"], capture_output=True, text=True, check=False)

    assert (asked.returncode, asked.stdout.split()[0]) == (0, "toolcrib")
    assert wrong.returncode == 2
