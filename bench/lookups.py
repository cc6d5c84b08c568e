"""What a name server that loses packets costs the calls that wait for it: 16 callers of one tool, on loopback.

The registry asks a real name server, in namespaces with an /etc/resolv.conf of their own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

GOAL = 1.2
"""Seconds that a lost packet may cost a call."""
CASES = ("nothing lost", "one lost", "all lost", "absent")


def run(quick: bool) -> dict[str, Any]:
    """Measure and print; the figures."""
    from measure import table

    import lost_packets
    import name_server
    from realparts.processes import clean_environment

    script = Path(lost_packets.__file__)
    rows, figures = [], {}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [*name_server.within(Path(folder)), sys.executable, str(script)],
            capture_output=True,
            text=True,
            check=True,
            env=clean_environment({"PYTHONPATH": str(script.parent)}),
        )
    found = json.loads(done.stdout)
    for case in CASES:
        calls = found[case]["calls"][0]
        slowest = max(call["seconds"] for call in calls)
        lookups = sum(question["kind"] == name_server.A for question in found[case]["asked"])
        figures[case] = {"calls": len(calls), "slowest": slowest, "lookups": lookups}
        rows.append((case, str(len(calls)), str(lookups), f"{slowest:.3f} s", calls[0]["problem"] or "ok"))
    slow = [case for case in CASES if figures[case]["slowest"] > GOAL]
    table(
        f"Calls while a name server loses packets; at most {GOAL:g} s each",
        ("packets", "calls", "asked", "slowest call", "outcome"),
        rows,
    )
    if slow:
        raise RuntimeError(f"slower than {GOAL:g} s: {', '.join(slow)}")
    return figures
