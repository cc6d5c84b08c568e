"""How many processors this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup/cpu.max")
"""The limit of a container (cgroup v2): microseconds of processor time in a period, or `max`, and the period."""


def available(limit: Path = CGROUP) -> int:
    """Processors that the scheduler gives to this process, and no more than its container's limit, rounded up; 1 at least."""
    scheduled = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = limit.read_text().split()
        return max(1, min(scheduled, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):  # no container, or no limit
        return scheduled
