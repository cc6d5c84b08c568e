"""What the parts of the benchmark share: children that speak JSON lines, rounds, percentiles, tables."""

from __future__ import annotations

import base64
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import held_loops

HERE = Path(__file__).parent


class Talker:
    """A child process that answers each line of JSON with one; its log goes where `log` says. A path is a program of its
    own, a name one of our scripts."""

    def __init__(self, script: str | Path, *arguments: str, log: Path) -> None:
        self._log = log.open("wb")
        program = [str(script)] if isinstance(script, Path) else [sys.executable, str(HERE / script)]
        self._process = subprocess.Popen(
            [*program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.path = log
        self.hello = self._read()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()
        if error == (None, None, None):
            held_loops.check_folder(self.path.parent)

    def ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one message. Raises RuntimeError with what the child says went wrong."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()
        answer = self._read()
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the child ended: {self.path.read_text(errors='replace')[-2000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@dataclass
class Variant:
    """One kind of request; what was measured of it, a value a round."""

    name: str
    port: int
    request: bytes | Sequence[bytes]
    """One again and again, or several in turns."""
    pid: int = 0
    """The server's process, where it is another than the rounds'."""
    rates: list[float] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)
    p50s: list[float] = field(default_factory=list)
    p99s: list[float] = field(default_factory=list)
    load: list[float] = field(default_factory=list)


def http(method: str, path: str, token: str | None, body: Any = None) -> bytes:
    """The bytes of a request, built once."""
    content = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    if token:
        head += f"authorization: Bearer {token}\r\n"
    if body is not None:
        head += f"content-type: application/json\r\ncontent-length: {len(content)}\r\n"
    return head.encode() + b"\r\n" + content


def rounds(
    load: Talker, pid: int, variants: Sequence[Variant], *, count: int, seconds: float, connections: int
) -> None:
    """Measure the variants in turns, A B C A B C …, so that other work on the machine hits all of them alike."""
    settle(pid)
    for turn in range(count + 1):
        for variant in variants:
            used = variant.pid or pid
            before = cpu_seconds(used)
            given = [variant.request] if isinstance(variant.request, bytes) else variant.request
            answer = load.ask(
                {
                    "host": "127.0.0.1",
                    "port": variant.port,
                    "request": [base64.b64encode(r).decode() for r in given],
                    "connections": connections,
                    "seconds": seconds if turn else seconds / 3,
                }
            )
            if turn == 0:
                continue  # warms connections, caches and the code
            variant.rates.append(answer["requests"] / answer["seconds"])
            variant.costs.append((cpu_seconds(used) - before) / answer["requests"])
            variant.p50s.append(answer["p50"])
            variant.p99s.append(answer["p99"])
            variant.load.append(answer["busy"])


def settle(pid: int, timeout: float = 60, quiet: float = 0.02) -> None:
    """Wait until a process does nothing: what it does after its start is no part of a measurement."""
    deadline, before = time.monotonic() + timeout, cpu_seconds(pid)
    while time.monotonic() < deadline:
        time.sleep(0.5)
        now = cpu_seconds(pid)
        if now - before <= quiet:
            return
        before = now
    raise TimeoutError(f"process {pid} is still busy after {timeout:g} s")


def ratios(top: Sequence[float], bottom: Sequence[float]) -> tuple[float, float, float]:
    """Median, least and largest of the ratios round by round."""
    found = [a / b for a, b in zip(top, bottom, strict=True)]
    return statistics.median(found), min(found), max(found)


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used, in user and system mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss(pid: int) -> int:
    """Resident memory of a process, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"process {pid} has no memory")


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the values lie (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def table(
    title: str, head: Sequence[str], rows: Sequence[Sequence[str]], say: Callable[[str], None] = print
) -> None:
    """Plain text: the first column left, the others right."""
    widths = [max(len(r[i]) for r in (head, *rows)) for i in range(len(head))]
    say(f"\n{title}")
    for row in (head, ["-" * w for w in widths], *rows):
        cells = [row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]
        say("  " + "  ".join(cells).rstrip())


def verdict(goal: str, missed: Sequence[str], say: Callable[[str], None] = print) -> None:
    """One line: whether the goal was met; else each figure that missed it, and by how much."""
    say(f"\n  goal, {goal}: {'missed: ' + '; '.join(missed) if missed else 'met'}")


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    model = next(
        (
            x.split(":", 1)[1].strip()
            for x in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in x
        ),
        "unknown",
    )
    return {
        "cores": os.cpu_count(),
        "processor": model,
        "python": sys.version.split()[0],
        "load_average": os.getloadavg()[0],
    }
