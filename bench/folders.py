"""How long after a file of many was saved an agent sees it in the local mode: a folder of 10,000 tools against one of 100.

The edits of both alternate in one run. Seen is `GET /v1/tools/{namespace}/{name}` with the new description. One agent is
granted the tool that is edited and nothing else, so that the size of its view plays no part. The search index is full
before the first edit: filling it takes minutes of the processor with 10,000 tools, and edits go in between.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

SIZES = (100, 10_000)
ROUNDS = 30
GOAL = 0.3
"""Seconds, at the 99th percentile."""
_STARTED = 600.0
_NOTICED = 30.0
_TOOL = """\
apiVersion: toolcrib.dev/v1alpha1
kind: Tool
metadata: {{name: tool-{number}, namespace: team-a}}
spec:
  description: {said}
  scopes: ["{scope}:use"]
  backend: {{none: {{}}}}
"""
_BINDING = """\
apiVersion: toolcrib.dev/v1alpha1
kind: AgentScopeBinding
metadata: {name: bot, namespace: team-a}
spec:
  subjects: [{kind: ServiceAccount, namespace: team-a, name: bot}]
  scopes: ["edited:use"]
"""


def run(quick: bool) -> dict[str, Any]:
    """Measure and print; the figures."""
    from measure import percentile, table, verdict

    from local_mode import LocalMode

    sizes = (SIZES[0], SIZES[1] // 10) if quick else SIZES
    rounds = ROUNDS // 10 if quick else ROUNDS
    took: dict[int, list[float]] = {size: [] for size in sizes}
    with tempfile.TemporaryDirectory(prefix="toolcrib-bench-") as name:
        running: list[tuple[int, Path, LocalMode, str]] = []
        try:
            for size in sizes:
                folder = Path(name) / str(size)
                (manifests := folder / "manifests").mkdir(parents=True)
                _fill(manifests, size)
                flags = ("--quota-tools", "0")
                local = LocalMode(folder, manifests, extra=flags, patience=_STARTED)
                running.append((size, manifests, local.start(), local.token("team-a/bot")))
            for _, _, local, _ in running:
                _indexed(local)
            for number in range(rounds):
                for size, manifests, local, token in running:
                    took[size].append(_edit(manifests, local.url, token, f"Edited for the time {number}."))
        finally:
            for _, _, local, _ in running:
                local.child.stop()
    figures = {
        str(size): {"p50": percentile(each, 0.5), "p99": percentile(each, 0.99)}
        for size, each in took.items()
    }
    table(
        "A file of many is edited, local mode",
        ("tools in the folder", "saved to seen, p50", "p99"),
        [(f"{size:,}", *(f"{took * 1000:.0f} ms" for took in figures[str(size)].values())) for size in sizes],
    )
    few, many = (figures[str(size)] for size in sizes)
    ratio = many["p50"] / few["p50"]
    print(f"{sizes[1]:,} tools against {sizes[0]:,}, p50: {ratio:.2f}")
    missed = [f"p99 {many['p99']:.2f} s at {sizes[1]:,} tools"] if many["p99"] > GOAL else []
    verdict(f"seen within {GOAL:g} s at {sizes[1]:,} tools", missed)
    return {"seconds": figures, "ratio": ratio, "missed": missed}


def _fill(folder: Path, size: int) -> None:
    for number in range(size):
        text = _TOOL.format(number=number, said=f"What the tool of number {number} does.", scope="others")
        (folder / f"tool-{number:05}.yaml").write_text(text)
    (folder / "bot.yaml").write_text(_BINDING)
    (folder / "tool-00007.yaml").write_text(_TOOL.format(number=7, said="Not yet.", scope="edited"))


def _indexed(local: Any) -> None:
    deadline = time.monotonic() + _STARTED
    while "tools indexed and read back" not in local.output:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the search index is not full after {_STARTED:g} s")
        time.sleep(0.5)


def _edit(folder: Path, url: str, token: str, said: str) -> float:
    """Seconds from the moment in which the file stands there until the registry answers with its text."""
    draft = folder.parent / "draft"
    draft.write_text(_TOOL.format(number=7, said=said, scope="edited"))
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=30) as http:
        http.get("/v1/tools/team-a/tool-7").raise_for_status()
        saved = time.perf_counter()
        draft.replace(folder / "tool-00007.yaml")
        while time.perf_counter() < saved + _NOTICED:
            if http.get("/v1/tools/team-a/tool-7").json().get("description") == said:
                return time.perf_counter() - saved
            time.sleep(0.005)
    raise TimeoutError(f"not seen within {_NOTICED:g} s: {said}")
