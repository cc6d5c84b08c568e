"""Runs the examples of commands as a person would: in bash, on a terminal, beside a running local mode.

What differs from run to run (addresses, folders, times, ids, tokens) is replaced by what a reader would see.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path

from toolcrib_cli.examples import Example

PORT = 8765
WIDTH = 110
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\r")
_STEADY = (
    # a busy machine is no part of a page
    (
        re.compile(
            r"^\d\d:\d\d:\d\d WARNING .*event loop (was held for|has been held for) .*\n?", re.MULTILINE
        ),
        "",
    ),
    (re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]+"), "eyJhbGciOiJFUzI1NiIs…"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "2026-01-05T09:00:00Z"),
    (re.compile(r"sha256:[0-9a-f]{64}"), "sha256:…"),
    (re.compile(r"request_id [0-9a-f]{16}"), "request_id 38ee3a0dd8d8adc3"),
    (re.compile(r"(example tools at http://127\.0\.0\.1:)\d+"), r"\g<1>8080"),
    (re.compile(r"(example tools +healthy +http://127\.0\.0\.1:)\d+"), r"\g<1>8080"),
    (re.compile(r"127\.0\.0\.1:(?!(8080|8090|8765|9000)\b)\d+"), "127.0.0.1:8765"),
    (re.compile(r"^\d\d:\d\d:\d\d (?=INFO|WARNING)", re.MULTILINE), "09:00:00 "),
    (re.compile(r"\b[0-9a-f]{32}\b"), "0123456789abcdef0123456789abcdef"),
    (re.compile(r"\bin \d+ ms\b"), "in 12 ms"),
    (re.compile(r"ms=[\d.]+ request_id=task-[0-9a-f]+"), "ms=12.0 request_id=task-1895d6d73fa1aa31"),
    (re.compile(r"\b\d+(\.\d+)? ms$", re.MULTILINE), "12 ms"),
    (re.compile(r"(replies, \d+ tokens, )\d+\.\d s"), r"\g<1>0.1 s"),
    (re.compile(r"(answered .* \d+ +)\d+\.\d *$", re.MULTILINE), r"\g<1>0.1"),
    (re.compile(r'"seconds": [\d.e-]+'), '"seconds": 0.012'),
    (re.compile(r"\bup in \d+\.\d s"), "up in 2.0 s"),
    (re.compile(r"Python 3\.\d+\.\d+"), "Python 3.12.1"),
    (re.compile(r'"python": "3\.\d+\.\d+"'), '"python": "3.12.1"'),
    (re.compile(r"(Active +)\d+[smhd]\b"), r"\g<1>12s"),
    (re.compile(r"^\d+ records of 1 replica in \d+ runs"), "24 records of 1 replica in 1 runs"),
)


def run(
    example: Example, folder: Path, env: Mapping[str, str], ports: Mapping[int, int], timeout: float = 90
) -> tuple[str, int]:
    """What an example prints, standard error included, and its exit code.

    Args:
        example: one that is run.
        folder: where it is run.
        env: its environment.
        ports: the ports that are really listened on, by those that the example names.
        timeout: seconds.

    Raises:
        TimeoutError: it neither ends nor says what it is awaited to say.
    """
    script = f"{example.command} {example.also}".rstrip()
    for shown, real in ports.items():
        script = script.replace(f":{shown}", f":{real}").replace(f"--port {shown} &", f"--port {real} &")
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, WIDTH, 0, 0))
    prelude = "set +m; trap 'kill $(jobs -p) 2>/dev/null' EXIT\n"
    child = subprocess.Popen(
        ["bash", "-c", prelude + script],
        cwd=folder,
        env={**env, "TERM": "xterm", "PS1": "", "COLUMNS": str(WIDTH)},
        stdin=subprocess.DEVNULL,
        stdout=follower,
        stderr=follower,
        start_new_session=True,
    )
    os.close(follower)
    try:
        text = _read(child, leader, example.until, time.monotonic() + timeout)
        return text, 0 if example.until else child.wait(timeout)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        os.close(leader)


def _read(child: subprocess.Popen[bytes], leader: int, until: str, deadline: float) -> str:
    said, asked = b"", False
    while True:
        if time.monotonic() > deadline:
            raise TimeoutError(f"it goes on after: {said.decode(errors='replace')[-2000:]}")
        ready, _, _ = select.select([leader], [], [], 0.2)
        try:
            part = os.read(leader, 65536) if ready else b""
        except OSError:  # Linux's way to say that nobody has the other end any more
            part, ready = b"", [leader]
        said += part
        text = _CONTROL.sub("", said.decode(errors="replace"))
        if until and not asked and until in text:
            os.killpg(child.pid, signal.SIGINT)
            return text[: text.index("\n", text.index(until) + len(until))]
        if not part and (ready or child.poll() is not None):
            return text


def steady(text: str, ports: Mapping[int, int], replaced: Mapping[str, str]) -> str:
    """`text` as it would be on any machine."""
    for real, shown in replaced.items():
        text = text.replace(real, shown)
    for shown_port, real_port in ports.items():
        text = text.replace(f":{real_port}", f":{shown_port}")
    for pattern, shown in _STEADY:
        text = pattern.sub(shown, text)
    return "\n".join(line.rstrip() for line in text.strip("\n").split("\n")).rstrip()


def environment(data: Path, programs: Path) -> dict[str, str]:
    """The environment of a reader's shell: the local mode's folder is the usual one, `programs` are on the path."""
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("TOOLCRIB_", "XDG_")) and k != "KUBECONFIG"
    }
    return {
        **kept,
        "PATH": f"{programs}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}",
        "TOOLCRIB_DATA": str(data),
        "PYTHONUNBUFFERED": "1",
        "HOME": str(data.parent),
    }
