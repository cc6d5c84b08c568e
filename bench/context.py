"""`make bench-context`: what each mode costs in prompt tokens (o200k), by the number of tools that an agent sees.

    python bench/context.py [DATA] [--sizes 5,15,…] [--json]

The task loop, the modes and the prompts are the product's; the model is a script, and the tools are real definitions:
`azure_mcp` and `livemcp` of DATA (default: the committed subset), and `mcp_tools` (2,651 tools) where DATA has it. Where a set
has fewer tools than asked for, they repeat under other names: such rows have a `*`.

The script is the same in all modes (a change needs a reason in docs/contributing/performance.md): a task of 30 tokens, two tools
a task (azure_mcp: one), one search a tool with 5 hits, the right one first; READY without GET_SCHEMA, since the chosen schemas are
shown then; one call a turn, with a result of 60 tokens; an answer. The core of hybrid is five tools that the task does not need, cached
is warm. Static is counted beyond 128 tools, where the product refuses it. What stays the same from the start of a request to the next is
`stable`: an endpoint may have it in its cache, `at .1` counts it as a tenth.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolcrib_runner.discovery import DiscoveredTool, Parameter
from toolcrib_runner.loop import TaskLoop
from toolcrib_runner.modes import signatures
from toolcrib_runner.modes.kinds import Mode
from toolcrib_runner.ports import Function, FunctionCall, Message, Reply
from toolcrib_runner.ready_sets import ReadySets
from toolcrib_runner.tasks import Bounds, Outcome, Way
from toolcrib_runner.usage import UsageStats

with warnings.catch_warnings():  # it reads its files in a way that Python 3.11 and 3.12 call deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    import bpe_openai

SIZES = (5, 15, 25, 50, 100, 500, 1_000, 2_651, 10_000)
MODES = (Mode.STATIC, Mode.DYNAMIC, Mode.BATCHED, Mode.CACHED, Mode.HYBRID)
SUBSET = Path(__file__).parent / "search" / "subset"
TOOLS_A_TASK = {"azure_mcp": 1, "livemcp": 2, "mcp_tools": 2}
HITS = 5
SLOPE = 0.5
"""Tokens a tool that a task may cost more, in every mode but static."""
TARGETS = {Mode.DYNAMIC: (60, 93), Mode.BATCHED: (70, 95), Mode.CACHED: (80, 97)}
"""Of azure_mcp, saved of static's total at 15 and 100 tools, in percent."""
THEIRS = "theirs, published for Dynamic on a scaled catalog: 86.3 % at 15 tools, 97.2 % at 100; 66 % overall"
TASK = "Find what was asked for last week, compare it with the plan of this month, and tell me in one sentence whether anything is missing from it."
RESULT = " ".join(
    ["The entry was found and says that everything is as it was planned."] * 4 + ["All is well."]
)
_COMPACT = {"ensure_ascii": False, "separators": (",", ":")}


@functools.cache
def _o200k() -> Any:
    """The tokenizer; it takes ten milliseconds to find."""
    return bpe_openai.get_encoding("o200k_base")


@functools.cache
def count(piece: str) -> int:
    """Tokens of a text."""
    return len(_o200k().encode(piece))


@dataclass(frozen=True)
class Catalog:
    """Tools of a view, and their full schemas."""

    tools: Mapping[str, DiscoveredTool]
    schemas: Mapping[str, dict[str, Any]]


def catalog(rows: Sequence[Mapping[str, Any]], size: int) -> Catalog:
    """So many tools of a set; the rows again under other names where they do not suffice."""
    tools, schemas = {}, {}
    for number in range(size):
        row, again = rows[number % len(rows)], number // len(rows)
        name = (
            f"{row['name']}_{number % len(rows)}_{again}"
            if again or row["name"] in tools
            else str(row["name"])
        )
        name = "".join(c if c.isascii() and (c.isalnum() or c in "_.-") else "_" for c in name)[:128]
        about = row.get("parameters") or {}
        parameters = tuple(Parameter(p, ("string",), str(text)) for p, text in about.items())
        tools[name] = DiscoveredTool(name, f"/tools/{name}", str(row.get("description") or ""), parameters)
        schemas[name] = {
            "type": "object",
            "properties": {p: {"type": "string", "description": str(text)} for p, text in about.items()},
        }
    return Catalog(tools, schemas)


class Toolbox:
    """An agent whose search finds the right tool first."""

    name = "bench"

    def __init__(self, catalog: Catalog) -> None:
        self.tools = catalog.tools
        self._schemas = catalog.schemas
        self._order = list(catalog.tools)

    def search(self, query: str, limit: int) -> list[str]:
        at = self._order.index(query.removeprefix("a tool for "))
        return [self._order[(at + n) % len(self._order)] for n in range(min(HITS, limit, len(self._order)))]

    def call(self, tool_name: str, arguments: Mapping[str, Any]) -> str:
        return RESULT

    def input_schemas(self, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        return {name: self._schemas[name] for name in names}

    def usage_stats(self) -> UsageStats:
        return UsageStats("bench", len(self.tools), 0, {}, None)


@dataclass
class Bill:
    """Prompt tokens of the requests of one task."""

    requests: list[int] = field(default_factory=list)
    stable: int = 0
    _before: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(self.requests)

    @property
    def mean(self) -> float:
        return self.total / len(self.requests)

    @property
    def cheap(self) -> float:
        """The total with what is stable at a tenth."""
        return self.total - 0.9 * self.stable

    def add(self, pieces: list[str]) -> None:
        """Count a request, in the order in which endpoints read it: functions, then messages."""
        self.requests.append(sum(map(count, pieces)))
        for piece, before in zip(pieces, self._before, strict=False):
            if piece != before:
                break
            self.stable += count(piece)
        self._before = pieces


class Script:
    """The model: it searches, chooses, calls, answers. Told the right tools, it reads no prompt but to know its phase."""

    def __init__(self, mode: Mode, names: Sequence[str]) -> None:
        self.bill = Bill()
        self._mode = mode
        self._names = names
        self._searches = [list(names)] if mode is not Mode.DYNAMIC else [[name] for name in names]

    def complete(self, messages: Sequence[Message], functions: Sequence[Function], timeout: float) -> Reply:
        self.bill.add([json.dumps(part, **_COMPACT) for part in (*functions, *messages)])  # type: ignore[arg-type]
        done = sum(message["role"] == "tool" for message in messages)
        if messages[0]["role"] == "system" and "First find tools" in messages[0]["content"]:
            if done < len(self._searches):
                query = "; ".join(f"a tool for {name}" for name in self._searches[done])
                return _calls("search_tools", query=query)
            return _calls("ready", names=list(self._names))
        if done == len(self._names):
            return Reply(text="Nothing is missing.")
        name = self._names[done]
        direct = self._mode is Mode.STATIC
        return _calls(name) if direct else _calls("call_tool", name=name, arguments={})

    def close(self) -> None:
        pass


def _calls(name: str, /, **arguments: Any) -> Reply:
    return Reply(calls=(FunctionCall("call_1", name, json.dumps(arguments)),))


def bill(mode: Mode, catalog: Catalog, tools: int, at: int | None = None) -> Bill:
    """What one task costs in a mode; `at`: the place of the first right tool, else the middle."""
    from toolcrib_runner.session.functions import FunctionNames

    view = list(catalog.tools)
    names = FunctionNames()
    names.assign(catalog.tools[name] for name in sorted(view))
    begin = len(view) // 2 if at is None else at
    right = view[begin : begin + tools]
    core = tuple(name for name in view if name not in right)[:HITS]
    script = Script(mode, [names.function(name) for name in right])
    sets = ReadySets()
    sets.keep(("", ""), signatures.view_digest(catalog.tools), signatures.task_signature(TASK), right)
    way = Way(mode=mode, core=core, ready_sets=sets)
    endless = Bounds(tokens=10**12, context=10**12)
    found = {names.function(name): name for name in right}
    box = Toolbox(catalog)
    search = box.search
    box.search = lambda query, limit: search(f"a tool for {found[query.removeprefix('a tool for ')]}", limit)  # type: ignore[method-assign]
    report = TaskLoop(box, script, way=way, bounds=endless, max_functions=10**6).run(TASK)
    if report.outcome is not Outcome.ANSWERED or [c.outcome for c in report.calls] != ["ok"] * tools:
        raise SystemExit(f"{mode}: the script ended with {report.outcome}: {report.error} {report.calls}")
    return script.bill


def sets(data: Path) -> dict[str, list[dict[str, Any]]]:
    """The sets that there are."""
    found = {}
    for name in TOOLS_A_TASK:
        for folder in (data, SUBSET):
            if (file := folder / name / "tools.jsonl").exists():
                found[name] = [json.loads(line) for line in file.read_text().splitlines()]
                break
    return found


def slope_of(rows: Sequence[Mapping[str, Any]], tools: int, mode: Mode, sizes: Sequence[int]) -> float:
    """Tokens for each further tool of the view, with the same right tools and the same hits.

    From 15 tools on: smaller views have fewer hits than a search may answer.
    """
    first = next((size for size in sizes if size >= 3 * HITS), sizes[0])
    few, many = (bill(mode, catalog(rows, size), tools, HITS).total for size in (first, sizes[-1]))
    return (many - few) / max(1, sizes[-1] - first)


def crossing(rows: Sequence[Mapping[str, Any]], tools: int, mode: Mode) -> int | None:
    """The smallest number of tools from which on the mode costs less than static; None above 20."""
    cheaper = [
        size
        for size in range(tools + 1, 21)
        if bill(mode, catalog(rows, size), tools).total < bill(Mode.STATIC, catalog(rows, size), tools).total
    ]
    return min(cheaper) if cheaper else None


def main() -> int:
    """Print a table for each set; 1 where a slope is above the bound."""
    parser = argparse.ArgumentParser(description="Prompt tokens by mode and number of tools.")
    parser.add_argument("data", nargs="?", type=Path, default=SUBSET)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--sets", default=",".join(TOOLS_A_TASK))
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    started, steep, totals = time.monotonic(), [], {}
    chosen = {name: rows for name, rows in sets(options.data).items() if name in options.sets.split(",")}
    for name, rows in chosen.items():
        tools = TOOLS_A_TASK[name]
        print(f"\n{name}: {len(rows)} tools, {tools} a task\n")
        print(
            "| tools | mode | requests | first | mean | peak | total | saved | mean saved | stable | at .1 | saved |"
        )
        print("|---|---|---|---|---|---|---|---|---|---|---|---|")
        for size in sizes:
            made = catalog(rows, size)
            static = bill(Mode.STATIC, made, tools)
            for mode in MODES:
                one = static if mode is Mode.STATIC else bill(mode, made, tools)
                totals[name, mode, size] = one.total, 100 * (1 - one.total / static.total)
                print(
                    f"| {size:,}{'*' if size > len(rows) else ''} | {mode} | {len(one.requests)} | {one.requests[0]:,} | {one.mean:,.0f} "
                    f"| {max(one.requests):,} | {one.total:,} | {1 - one.total / static.total:.1%} | {1 - one.mean / static.mean:.1%} "
                    f"| {one.stable:,} | {one.cheap:,.0f} | {1 - one.cheap / static.cheap:.1%} |"
                )
        for mode in MODES[1:]:
            slope = slope_of(rows, tools, mode, sizes)
            at = crossing(rows, tools, mode)
            print(
                f"{mode}: cheaper than static from {at or 'more than 20'} tools on; {slope:.3f} tokens a tool"
            )
            if slope > SLOPE:
                steep.append(f"{name}, {mode}: {slope:.3f} tokens a tool, more than {SLOPE}")
    for mode, wanted in TARGETS.items():
        for size, least in zip((15, 100), wanted, strict=True):
            if ("azure_mcp", mode, size) in totals:
                saved = totals["azure_mcp", mode, size][1]
                print(
                    f"target, azure_mcp, {mode} at {size}: {saved:.1f} of {least} %: {'met' if saved >= least else 'missed'}"
                )
    print(f"{THEIRS}\n{time.monotonic() - started:.0f} s")
    print("\n".join(steep), file=sys.stderr)
    return int(bool(steep))


if __name__ == "__main__":
    sys.exit(main())
