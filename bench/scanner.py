"""How well the scanner of definitions tells poisoned from honest ones: precision and recall on both halves of the corpus.

`python bench/run.py scanner` prints the table. With real tools, TOOLCRIB_REAL_TOOLS=FILE (JSON lines with `name`,
`description`, `server` and `parameters`), it counts and prints what is said of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolcrib import names
from toolcrib.imports.definitions import tool_name
from toolcrib.lint import hidden_text, suspicions
from toolcrib.lint.scanner import WordScanner
from toolcrib.resources import Tool, parse

HERE = Path(__file__).parent / "scanner"
DEVELOPMENT, SET_ASIDE = "development", "set aside"


@dataclass(frozen=True)
class Case:
    """One definition of the corpus."""

    family: str
    tool: Tool
    poisoned: bool
    half: str


def tool(name: str, server: str, namespace: str = "bench", **spec: Any) -> Tool:
    """A Tool of a server; a name that a Tool may not have becomes the one that an import would give."""
    made = parse({
        "apiVersion": "toolcrib.dev/v1alpha1",
        "kind": "Tool",
        "metadata": {"name": names.object_name(server, name), "namespace": namespace},
        "spec": {"name": tool_name(server, name), "server": server, "scopes": ["x:use"], "backend": {"none": {}}, **spec},
    })  # fmt: skip
    assert isinstance(made, Tool)
    return made


def cases() -> Iterator[Case]:
    """The whole corpus."""
    for kind in ("poisoned", "honest"):
        for line in (HERE / f"{kind}.txt").read_text(encoding="utf-8").splitlines():
            family, name, field, text = (part.strip() for part in line.split("|", 3))
            text = _unescaped(text)
            spec: dict[str, Any] = {"description": "Does what its name says."}
            if field.startswith("p:"):
                spec["inputSchema"] = {
                    "type": "object",
                    "properties": {field[2:]: {"type": "string", "description": text}},
                }
            elif field == "example":
                spec["examples"] = [text]
            else:
                spec[field] = text
            half = (
                DEVELOPMENT if hashlib.sha256(f"{family}|{name}".encode()).digest()[0] % 2 == 0 else SET_ASIDE
            )
            yield Case(family, tool(name, "stranger", **spec), kind == "poisoned", half)


def _unescaped(text: str) -> str:
    return text.replace("\\\\", "\x00").encode("ascii").decode("unicode_escape").replace("\x00", "\\")


def neighbours() -> list[Tool]:
    """The tools that each is judged among."""
    lines = (HERE / "neighbours.txt").read_text(encoding="utf-8").splitlines()
    pairs = ([part.strip() for part in line.split("|", 1)] for line in lines)
    return [tool(name, "office", description=text) for name, text in pairs]


def reasons(scanner: WordScanner, each: Tool) -> set[str]:
    """What is said of a tool, hidden text included."""
    scanner.update(each.tool_id, each)
    found = {w.reason.value for w in scanner.weaknesses(each)}
    scanner.update(each.tool_id, None)
    return found | ({"HiddenText"} if any(True for _ in hidden_text.places(each.spec)) else set())


def judged(half: str) -> list[tuple[Case, set[str]]]:
    """One half, with what is said of each."""
    scanner = WordScanner()
    for each in neighbours():
        scanner.update(each.tool_id, each)
    return [(case, reasons(scanner, case.tool)) for case in cases() if case.half == half]


def figures(found: Iterable[tuple[Case, set[str]]]) -> dict[str, Any]:
    """Counts, precision and recall."""
    counts = Counter((case.poisoned, bool(said)) for case, said in found)
    hit, missed, false = counts[True, True], counts[True, False], counts[False, True]
    return {"poisoned": hit + missed, "honest": false + counts[False, False], "found": hit, "false_alarms": false,
            "precision": round(hit / max(1, hit + false), 3), "recall": round(hit / max(1, hit + missed), 3)}  # fmt: skip


def of_real(file: Path) -> tuple[int, list[tuple[str, str]], float]:
    """How many real tools there are, what is said of which, and the seconds that it took. All are of one namespace."""
    made = list[Tool]()
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines()):
        entry = json.loads(line)
        properties = {
            name: {"type": "string", "description": text}
            for name, text in (entry.get("parameters") or {}).items()
        }
        server = (
            "".join(c if c.isalnum() else "-" for c in (entry.get("server") or "none").lower()).strip("-")[
                :40
            ]
            or "none"
        )
        try:
            made.append(tool(entry["name"], server, description=entry["description"][:4096],
                             inputSchema={"type": "object", "properties": properties}))  # fmt: skip
        except Exception as error:
            print(f"line {number + 1} makes no Tool: {str(error)[:80]}")
    began = time.perf_counter()
    scanner = WordScanner()
    for each in made:
        scanner.update(each.tool_id, each)
    said = [(f"{t.spec.server}:{t.name}", f"{w.reason} {w}") for t in made for w in scanner.weaknesses(t)]
    return len(made), said, time.perf_counter() - began


def run(quick: bool = False) -> dict[str, Any]:
    """The table; what is missed and what is a false alarm of the development half alone."""
    result = {
        half: figures(judged(half))
        for half in (DEVELOPMENT, *(() if os.environ.get("TOOLCRIB_SCANNER_HALF") else (SET_ASIDE,)))
    }
    for half, row in result.items():
        print(f"{half:12} " + "  ".join(f"{k} {v}" for k, v in row.items()))
    if os.environ.get("TOOLCRIB_SCANNER_HALF"):
        for case, said in judged(DEVELOPMENT):
            if case.poisoned is not bool(said):
                print("missed" if case.poisoned else "false alarm", case.family, case.tool.name, sorted(said))
    text = "Reads a file. " * 75_000
    began = time.perf_counter()
    list(suspicions.suspicious(text))
    result["one_mebibyte_ms"] = round(1e3 * (time.perf_counter() - began))
    if (real := os.environ.get("TOOLCRIB_REAL_TOOLS")) is not None:
        count, said, seconds = of_real(Path(real))
        result["real"] = {
            "tools": count,
            "warned": len({name for name, _ in said}),
            "ms_a_tool": round(1e3 * seconds / count, 3),
        }
        print(f"real tools: {result['real']}")
        for name, words in said:
            print(f"  {name}: {words}")
    return result
