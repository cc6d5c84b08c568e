"""From a change handed to the operator until an agent's watch stream tells of it, with 10 to 10,000 tools in the catalog.

An operator and a registry process for each size, side by side, asked in turns: other work on the machine hits all sizes
alike. The goal is a p99 at 10,000 tools of at most three times that at 100, over all changes of one run.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

SIZES = (10, 100, 1_000, 10_000)
BASE, MOST = 100, 10_000
GATE = 3.0
TURNS, QUICK, EACH = 60, 24, 5
"""Turns of all sizes, the same with --quick, and of each turn so many edits, grants and revocations."""
THIRDS = 3
_LOADED = 300.0


def run(quick: bool) -> dict[str, Any]:
    """Measure and print; the figures."""
    from measure import percentile, table, verdict

    sizes = (BASE, MOST) if quick else SIZES
    took: dict[int, dict[str, list[float]]] = {}
    thirds: dict[int, list[list[float]]] = {size: [[] for _ in range(THIRDS)] for size in sizes}
    used: dict[int, float] = dict.fromkeys(sizes, 0.0)
    turns = QUICK if quick else TURNS
    with tempfile.TemporaryDirectory(prefix="toolcrib-bench-") as name, contextlib.ExitStack() as stack:
        children = {size: stack.enter_context(_operated(Path(name), size)) for size in sizes}
        for size, child in children.items():
            child.ask({"tools": size})
        for child in children.values():
            _settled(child)
        for turn in range(-1, turns):
            for size, child in children.items():
                answer = child.ask({"changes": EACH})
                if turn < 0:
                    continue  # it warms
                used[size] += answer["used"]
                for kind, values in answer["seconds"].items():
                    took.setdefault(size, {}).setdefault(kind, []).extend(values)
                    thirds[size][turn * THIRDS // turns].extend(values)
    figures: dict[str, Any] = {}
    for size, kinds in took.items():
        kinds["all"] = [each for values in kinds.values() for each in values]
        figures[str(size)] = {
            kind: {f"p{share * 100:.0f}": percentile(values, share) for share in (0.5, 0.95, 0.99)}
            for kind, values in kinds.items()
        }
    rows = []
    for kind in ("edit", "grant", "revoke", "all"):
        base = figures[str(BASE)][kind]
        for size in sizes:
            mine = figures[str(size)][kind]
            to_base = [f"{mine[k] / base[k]:.2f}" for k in ("p50", "p99")]
            rows.append(
                [kind, f"{size:,}", *(f"{mine[k] * 1e3:.1f}" for k in ("p50", "p95", "p99")), *to_base]
            )
    table(
        f"A change until an agent sees it, ms; {len(took[BASE]['edit'])} of each kind at each size",
        ["change", "tools", "p50", "p95", "p99", f"p50 to {BASE}", f"p99 to {BASE}"],
        rows,
    )
    changes = {size: len(took[size]["all"]) for size in sizes}
    cost = {size: used[size] / changes[size] for size in sizes}
    told = ", ".join(f"{cost[size] * 1e3:.1f} ms at {size:,}" for size in sizes)
    print(f"\n  processor time of a change, operator and registry together: {told}")
    ratios = [
        percentile(many, 0.99) / percentile(few, 0.99)
        for few, many in zip(thirds[BASE], thirds[MOST], strict=True)
    ]
    ratio = statistics.median(ratios)
    missed = [f"{ratio:.2f} times"] if ratio > GATE else []
    print(f"  p99 at {MOST:,} to {BASE}, by third: {', '.join(f'{r:.2f}' for r in ratios)}")
    verdict(f"p99 of all at {MOST:,} tools at most {GATE:g} times that at {BASE}, the middle third", missed)
    return {"seconds": figures, "processor_seconds": cost, "ratios": ratios, "ratio": ratio, "missed": missed}


def _operated(folder: Path, size: int) -> Any:
    from measure import Talker

    (own := folder / str(size)).mkdir()
    return Talker("operated.py", str(own), "none", log=folder / f"{size}.log")


def _settled(child: Any) -> None:
    deadline = time.monotonic() + _LOADED
    while (state := child.ask({"state": True})) != {"published": True, "waiting": 0, "writing": 0}:
        if time.monotonic() > deadline:
            raise TimeoutError(f"not loaded after {_LOADED:g} s: {state}")
        time.sleep(0.2)
