"""MCP servers of others, each in a process of its own, in the environment `current`."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from mcp_peers import environments
from realparts import processes

SCRIPT = Path(__file__).parent / "servers/python_servers.py"


@contextlib.contextmanager
def running(home: Path, *words: str) -> Iterator[str]:
    """Where `python_servers.py` with these words serves; `home` is a folder of its own."""
    with (home / "log").open("w+b") as log:
        child = processes.spawn(
            [str(environments.python("current")), str(SCRIPT), *words],
            cwd=home,
            env=processes.clean_environment({"HOME": str(home)}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
        )
        try:
            assert child.stdout is not None
            line = child.stdout.readline()
            assert line, (home / "log").read_text()
            child.stdout.close()
            yield f"http://127.0.0.1:{int(line)}/mcp"
        finally:
            processes.end(child)
