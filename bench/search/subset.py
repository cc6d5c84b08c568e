"""Make the committed subset again, always the same one: `python bench/search/run.py subset DATA [FOLDER]`.

Every tool that a kept request is about stays, with others of its set drawn at random around it.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

from folder import QUERIES, TOOLS

SUBSET = Path(__file__).parent / "subset"
CUTS = {
    "azure_mcp": (186, 157),
    "toole": (150, 199),
    "livemcp": (45, 230),
    "bfcl": (120, 240),
    "sealtools": (100, 330),
}
"""Requests and tools of each set."""
_TOOL_FIELDS = ("id", "name", "description", "server", "tags", "parameters")
_QUERY_FIELDS = ("query", "relevant", "equivalent")
_SEED = 6


def main(arguments: list[str]) -> int:
    """Write the folder and say how large it is."""
    parser = argparse.ArgumentParser(prog="subset", description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path, nargs="?", default=SUBSET)
    chosen = parser.parse_args(arguments)
    size = 0
    for name, (asked, kept) in CUTS.items():
        tools, queries = cut(
            _rows(chosen.data / name / TOOLS),
            _rows(chosen.data / name / QUERIES),
            asked,
            kept,
            random.Random(_SEED),
        )
        (chosen.folder / name).mkdir(parents=True, exist_ok=True)
        for file, rows, fields in ((TOOLS, tools, _TOOL_FIELDS), (QUERIES, queries, _QUERY_FIELDS)):
            lines = [json.dumps({k: r[k] for k in fields if r.get(k)}, ensure_ascii=False) for r in rows]
            path = chosen.folder / name / file
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
            size += path.stat().st_size
        print(f"{name}: {len(tools)} tools, {len(queries)} queries")
    print(f"{size / 1000:.0f} kB")
    return 0


def cut(
    tools: list[dict[str, Any]], queries: list[dict[str, Any]], asked: int, kept: int, chance: random.Random
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """`asked` requests, and `kept` tools: those that the requests are about and others; both in their order."""
    chosen = sorted(chance.sample(range(len(queries)), min(asked, len(queries))))
    requests = [queries[i] for i in chosen]
    needed = {i for q in requests for i in (*q["relevant"], *q.get("equivalent", ()))}
    others = [t["id"] for t in tools if t["id"] not in needed]
    needed |= set(chance.sample(others, max(0, min(kept - len(needed), len(others)))))
    return [t for t in tools if t["id"] in needed], requests


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
