"""Ctrl-C while the command line still loads its modules ends it without a word."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

INTERRUPTED = """
import os, signal, time
# as in a terminal: a shell's background job, a run of tests in one too, begins with the signal ignored
signal.signal(signal.SIGINT, signal.default_int_handler)
os.kill(os.getpid(), signal.SIGINT)
time.sleep(30)
"""


@pytest.mark.parametrize("loading", ["typer", "pydantic", "uvloop"])
def test_ctrl_c_at_the_start_is_130_and_no_traceback(tmp_path: Path, loading: str) -> None:
    """A module that each command, or only `up`, loads from outside is interrupted."""
    (tmp_path / f"{loading}.py").write_text(INTERRUPTED)
    done = subprocess.run(
        [sys.executable, "-m", "toolcrib_cli", "up", "--port", "0", "--data", tmp_path / "data"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stderr) == (130, "")


def ignoring(*words: str | Path) -> list[str]:
    """The command, as a job that a shell runs in the background: it begins with SIGINT ignored."""
    return ["/bin/sh", "-c", "trap '' INT; exec \"$@\"", "sh", sys.executable, "-m", *map(str, words)]


def test_a_command_in_the_background_of_a_script_can_be_interrupted(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a.b.c")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        asking = ignoring("toolcrib_cli", "tools", "--url", url, "--token-file", tmp_path / "token")
        process = subprocess.Popen(asking, stderr=subprocess.PIPE, text=True)
        try:
            with silent.accept()[0]:
                process.send_signal(signal.SIGINT)
                _, said = process.communicate(timeout=30)
        finally:
            process.kill()
            process.communicate()

    assert (process.returncode, said) == (130, "")


def test_a_scripted_model_in_the_background_of_a_script_can_be_interrupted() -> None:
    serving = ignoring("toolcrib_runner.scripted", "--port", "0")
    process = subprocess.Popen(serving, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        assert "scripted model endpoint" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    finally:
        process.kill()
        process.communicate()

    assert process.returncode == 0
