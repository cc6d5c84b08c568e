"""`toolcrib access suggest` over a million records and 1,000 bindings: seconds of a core, and memory. The bound is 90 s.

1,000 tools, 100 agents, 100 calls a second; verified, replayed, and replayed again with what is suggested, in one process.
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
import replay

from toolcrib.audit.chain import timestamp
from toolcrib_registry.audit import writer

RECORDS, BINDINGS = 1_000_000, 1_000
MOST_SECONDS = 90.0


def run(quick: bool) -> dict[str, Any]:
    """Measure and print; the figures."""
    records = RECORDS // 20 if quick else RECORDS
    with tempfile.TemporaryDirectory() as folder:
        # hours are written in seconds: no change of the policy may be lost for that
        writer.POLICIES, log_growth.BINDINGS = records, BINDINGS
        path, calls = log_growth.written(Path(folder), 1_000, 0, records // log_growth.CALLS)
        begins = timestamp(log_growth.Clock.time + 300)
        told = Path(folder) / "told"
        command = [sys.executable, "-m", "toolcrib_cli", "access", "suggest", "--log", str(path)]
        with told.open("wb") as out:
            child = subprocess.Popen([*command, "--since", begins, "-o", "json"], stdout=out)
            most = 0
            while (ended := os.wait4(child.pid, os.WNOHANG))[0] == 0:
                most = max(most, replay.peak(child.pid))
                time.sleep(0.05)
        child.returncode = os.waitstatus_to_exitcode(ended[1])
        found = json.loads(told.read_bytes())
    seconds, megabytes = ended[2].ru_utime + ended[2].ru_stime, most / 1e6
    suggested = found["suggestions"]
    measure.table(
        "toolcrib access suggest",
        ["records", "bindings", "calls", "smaller", "not needed", "processor s", "\u00b5s a record", "MB"],
        [
            [
                f"{calls:,}",
                f"{BINDINGS:,}",
                f"{found['calls']:,}",
                str(sum(not s["delete"] for s in suggested)),
                str(sum(s["delete"] for s in suggested)),
                f"{seconds:.1f}",
                f"{seconds / calls * 1e6:.1f}",
                f"{megabytes:.0f}",
            ]
        ],
    )
    missed = [] if suggested else ["nothing is suggested"]
    if seconds / calls > MOST_SECONDS / RECORDS and not quick:
        missed.append(f"{seconds:.0f} s")
    measure.verdict(f"{RECORDS:,} records and {BINDINGS:,} bindings in {MOST_SECONDS:g} s", missed)
    return {"calls": calls, "seconds": seconds, "megabytes": megabytes, "missed": missed}
