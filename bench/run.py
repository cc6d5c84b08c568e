"""Figures of docs/contributing/performance.md: `python bench/run.py [PART…] [--quick]`.

Parts: arguments, assertion, discovery, call, tails, access_review, replica_memory, propagation, catalog, memory,
operator_memory; all of them without one. Tables go to the screen, the same as JSON to bench/out/. The last four need the
real API server, the first three of these the real Weaviate too (`make build-tools`).
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
import traceback
from pathlib import Path

HERE = Path(__file__).parent
ALONE = (
    "revocation",
    "hidden",
    "bulkheads",
    "lookups",
    "counters",
    "mcp",
    "hops",
    "folders",
    "growth",
    "health",
    "log_growth",
    "replay",
    "suggest",
    "scanner",
    "openapi",
)
"""Run only where named: `make revocation`, `make hidden-timing`, `make bulkheads`, `make mcp-bench`, `make openapi-documents`;
the others by `python bench/run.py PART`."""
PARTS = (
    "arguments", "assertion", "discovery", "call", "tails", "access_review", "replica_memory", "propagation", "catalog", "memory",
    "operator_memory",
)  # fmt: skip

sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "support")]


def main() -> int:
    """Run the named parts; 1 where one failed, or where a part that was named missed its goal."""
    import measure

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join((*PARTS, *ALONE))}")
    parser.add_argument(
        "--quick", action="store_true", help="fewer rounds and tools: a check, not a measurement"
    )
    options = parser.parse_args()
    if unknown := set(options.parts) - {*PARTS, *ALONE}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    out = HERE / "out"
    out.mkdir(exist_ok=True)
    machine = measure.machine()
    print(", ".join(f"{k.replace('_', ' ')} {v}" for k, v in machine.items()))
    failed = 0
    for part in options.parts or PARTS:
        start = time.perf_counter()
        try:
            figures = importlib.import_module(part).run(options.quick)
        except Exception:
            failed = 1
            print(f"\n{part} failed:\n{traceback.format_exc()}", file=sys.stderr)
            continue
        if options.parts and figures.get("missed"):
            failed = 1
        seconds = time.perf_counter() - start
        document = {"machine": machine, "quick": options.quick, "seconds": seconds, "figures": figures}
        (out / f"{part}.json").write_text(json.dumps(document, indent=1) + "\n")
        print(f"  ({part}: {seconds:.0f} s)")
    return failed


if __name__ == "__main__":
    sys.exit(main())
