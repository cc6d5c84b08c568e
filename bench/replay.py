"""`toolcrib audit replay` of a million records: seconds of a core, and memory. The bounds are 60 s and 400 MB.

1,000 tools, 200 bindings, 100 agents, 100 calls a second, and a change of the policy each minute; one process, one core.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import log_growth
import measure

from toolcrib_registry.audit import writer

RECORDS = 1_000_000
MOST_SECONDS, MOST_MEGABYTES = 60.0, 400.0


def run(quick: bool) -> dict[str, Any]:
    """Measure and print; the figures."""
    records = RECORDS // 20 if quick else RECORDS
    with tempfile.TemporaryDirectory() as folder:
        # hours are written in seconds: no change of the policy may be lost for that
        writer.POLICIES = records
        path, calls = log_growth.written(Path(folder), 1_000, 0, records // log_growth.CALLS)
        size, told = path.stat().st_size, Path(folder) / "told"
        command = [sys.executable, "-m", "toolcrib_cli", "audit", "replay", str(path), "-o", "json"]
        with told.open("wb") as out:
            child = subprocess.Popen(command, stdout=out)
            most = 0
            while (ended := os.wait4(child.pid, os.WNOHANG))[0] == 0:
                most = max(most, peak(child.pid))
                time.sleep(0.05)
        child.returncode = os.waitstatus_to_exitcode(ended[1])
        found = json.loads(told.read_bytes())
    seconds, megabytes = ended[2].ru_utime + ended[2].ru_stime, most / 1e6
    measure.table(
        "toolcrib audit replay",
        ["calls", "MiB", "equal", "different", "processor s", "\u00b5s a record", "MB"],
        [
            [
                f"{calls:,}",
                f"{size / (1 << 20):,.0f}",
                f"{found['equal']:,}",
                str(found["different"]),
                f"{seconds:.1f}",
                f"{seconds / calls * 1e6:.1f}",
                f"{megabytes:.0f}",
            ]
        ],
    )
    missed = [f"{found['different']} decisions differ"] if found["different"] else []
    if found["equal"] != calls:
        missed.append(f"{calls - found['equal']:,} are not decided again: {found['notReplayed']}")
    if seconds / calls > MOST_SECONDS / RECORDS and not quick:
        missed.append(f"{seconds:.0f} s")
    if megabytes > MOST_MEGABYTES:
        missed.append(f"{megabytes:.0f} MB")
    measure.verdict(f"{RECORDS:,} records in {MOST_SECONDS:g} s and {MOST_MEGABYTES:g} MB", missed)
    return {"calls": calls, "seconds": seconds, "megabytes": megabytes, **found, "missed": missed}


def peak(pid: int) -> int:
    """The most memory (bytes) that a process had; 0 where it is over. `ru_maxrss` counts what its parent had, too."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
