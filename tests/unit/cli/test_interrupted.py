"""Ctrl-C while the command line still loads its modules ends it without a word."""

import os
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
