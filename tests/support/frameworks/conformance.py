"""Agents of other people's frameworks against a real registry, with one script for all of them.

    python -m frameworks.conformance              every framework; writes the table of docs/guides/frameworks.md
    python -m frameworks.conformance --changed    the adapters, and what has another lock or script than the table says;
                                                  writes nothing and fails where the table says something else
    python -m frameworks.conformance NAME…        these alone; writes nothing

Exit status 0 if every framework does what an adapter promises or a recipe is known to lack, 1 otherwise.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from frameworks import table
from frameworks.agent import Agent, AgentFailedError, Turn, running
from frameworks.kinds import FRAMEWORKS, Framework, Way
from frameworks.table import NO, YES, Row
from frameworks.world import MANY, VIEW, World, many, world
from mcp_peers import environments
from realparts.processes import wait_until

DOWN = 5.0
REPORTS = VIEW["reports.monthly"]
DISCOVERY = ("search_tools", "describe_tool", "ready", "call_tool")
PASSED = (YES, "–", "takes it")
SUM = {"a": 2, "b": 3}
_ASKED = {model: f"the tool {listed}" for listed, model in VIEW.items()} | {"add": "adds two numbers"}
Check = Callable[["Met"], str]


class Met:
    """An agent that has met the world, in one of its ways."""

    def __init__(self, agent: Agent, met: World, way: Way) -> None:
        self.agent, self.world, self.way = agent, met, way

    def run(self, *ready: str) -> Turn:
        """The first turn of a run; with discovery, the one after these tools were found and are ready."""
        turn = self.agent.run()
        if self.way != Way.DISCOVERY:
            return turn
        assert turn.tools == DISCOVERY, turn
        for name in ready:
            found = self.agent.call("search_tools", {"query": _ASKED[name]}).results[0]
            assert f"- {name}:" in found, found
        return self.agent.call("ready", {"names": list(ready)}) if ready else turn

    def call(self, name: str, arguments: Mapping[str, object]) -> Turn:
        """The turn after a call of this tool."""
        self.ask(name, arguments)
        return self.agent.turn()

    def ask(self, name: str, arguments: Mapping[str, object]) -> None:
        """Call, and wait for nothing."""
        if self.way == Way.DISCOVERY:
            name, arguments = "call_tool", {"name": name, "arguments": arguments}
        self.agent.ask(name, arguments)

    def added(self, turn: Turn) -> bool:
        """Whether the last call added."""
        return len(turn.results) == 1 and "5" in turn.results[0]


def view(met: Met) -> str:
    """What is offered is the view: nothing more, and nothing less but what is left out with a warning."""
    turn = met.run(*VIEW.values()) if met.way == Way.DISCOVERY else met.run()
    if met.way == Way.DISCOVERY:
        shown = met.agent.call("describe_tool", {"names": list(VIEW.values())}).results[0]
        missing = [name for name in VIEW.values() if f"- {name}:" not in shown]
        hidden = met.agent.call("describe_tool", {"names": ["hidden"]}).results[0]
        found = met.agent.call("search_tools", {"query": "hidden tool that adds"}).results[0]
        met.agent.finish()
        assert "not all of hidden" in hidden, hidden
        assert "- add:" in found, found
        assert "- hidden:" not in found, found
        return YES if not missing else f"{NO}: lacks {missing}"
    met.agent.finish()
    odd = set(VIEW.values()) ^ set(turn.tools)
    if odd and met.way == Way.MCP and {_plain(t) for t in turn.tools} == {_plain(n) for n in VIEW.values()}:
        return "renames `import` and `-`"
    return YES if odd <= {"fanned"} and len(turn.tools) == len(set(turn.tools)) else f"{NO}: {sorted(odd)}"


def _plain(name: str) -> str:
    """As frameworks write names that are no identifiers of Python."""
    return name.replace("-", "_").rstrip("_")


def right(met: Met) -> str:
    """Arguments arrive, and the result comes back."""
    met.run("add")
    turn = met.call("add", SUM)
    met.agent.finish()
    return YES if met.added(turn) else f"{NO}: {turn.results}"


def wrong(met: Met) -> str:
    """The model is told what is wrong with its arguments, and the run goes on."""
    met.run("add")
    turn = met.call("add", {"a": "two", "b": 3})
    told = " ".join(turn.results)
    mended = met.call("add", SUM)
    met.agent.finish()
    named = re.search(r"\ba\b", told) is not None and "integer" in told
    return YES if named and met.added(mended) else f"{NO}: {told[:200]}"


def names(met: Met) -> str:
    """Keywords of Python as names of a tool and of its arguments, and a tool's name with a dot."""
    given = {"from": "here", "class": "first", "self": "me"}
    turn = met.run("import", REPORTS)
    shown = {_plain(name): name for name in turn.tools}
    wanted = [shown.get(_plain(name), name) for name in ("import", REPORTS)]

    def arrived() -> str:
        told = [" ".join(met.call(name, given).results) for name in wanted]
        right = all(word in text for text in told for word in given.values())
        return YES if right and {"/import", "/reports.monthly"} <= set(met.world.calls) else " ".join(told)

    as_given = arrived()
    del given["self"]
    without = as_given if as_given == YES else arrived()
    met.agent.finish()
    if met.way == Way.MCP and as_given != YES and (without == YES or "self" in without):
        return "not with `self`"
    return as_given if as_given == YES else f"{NO}: {as_given}"


def revoked(met: Met) -> str:
    """A tool that is revoked between two turns is not called, and not offered in the next turn."""
    first = met.run("add", "subtract")
    met.world.revoke()
    try:
        turn = met.call("add", SUM)
        refused = met.call("subtract", SUM)
        met.agent.finish()
        later = met.run()
        met.agent.finish()
    finally:
        met.world.grant()
    assert "/subtract" not in met.world.calls, "a revoked tool was called"
    assert refused.results, "the model was told nothing"
    if met.way == Way.DISCOVERY:
        return YES
    assert "subtract" in first.tools, first
    if "subtract" not in turn.tools:
        return YES
    return "refused; listed until the next run" if "subtract" not in later.tools else "refused; still listed"


def down(met: Met) -> str:
    """The registry is away for five seconds in the middle of a run, which goes on."""
    met.run("add")
    assert met.added(met.call("add", SUM))
    met.world.door.shut()
    back = threading.Timer(DOWN, met.world.door.open)
    began = time.monotonic()
    back.start()
    try:
        turn = met.call("add", SUM)
        told = " ".join(turn.results)
        while not met.added(turn) and time.monotonic() - began < 4 * DOWN:
            back.join(1)  # as long as a model thinks
            turn = met.call("add", SUM)
        met.agent.finish()
    except AgentFailedError as error:
        return f"the run ends: {error.kind}"
    finally:
        back.join()
    assert told, "the model was told nothing"
    return YES if met.added(turn) else "the run goes on; calls fail until a new session"


def cancelled(met: Met) -> str:
    """A run that is cancelled in a call closes that call's connection, and leaves none behind."""
    met.run("wait")
    met.ask("wait", SUM)
    assert met.world.waiting.wait(30), "the call did not arrive"
    met.agent.cancel()
    try:
        wait_until(lambda: not met.world.door.relay.open, 10)
    except TimeoutError:
        return f"{len(met.world.door.relay.open)} stay open until the session ends"
    return YES


def refused(met: Met) -> str:
    """A schema that the framework refuses costs that tool alone, and a warning names it and the reason."""
    if met.way == Way.DISCOVERY:
        return "–"
    turn = met.run()
    met.agent.finish()
    if "fanned" in turn.tools:
        return "takes it"
    told = [warning for warning in met.agent.warnings if "fanned" in warning and len(warning) > 40]
    return YES if told else f"{NO}: left out without a word"


CHECKS: Mapping[str, Check] = {
    "view": view,
    "call": right,
    "wrong arguments": wrong,
    "names": names,
    "revoked": revoked,
    "down 5 s": down,
    "cancelled": cancelled,
    "odd schema": refused,
}
MANY_CHECK = f"{MANY:,} tools"


def all_of_many(framework: Framework, way: Way, folder: Path) -> str:
    """A view as large as the catalog: every tool is offered, or found, and called."""
    with many() as (registry, names):
        token = registry.token("team", "bot")
        with running(framework.command(folder), way.url(registry.url), token, way, folder) as agent:
            turn = agent.run()
            if way == Way.DISCOVERY:
                found = agent.call("search_tools", {"query": f"does thing number {MANY - 1}"}).results[0]
                assert f"- {names[-1]}:" in found, found
                agent.call("ready", {"names": [names[-1]]})
                last = agent.call("call_tool", {"name": names[-1], "arguments": SUM})
            else:
                if way == Way.MCP and {_plain(t) for t in turn.tools} < {_plain(name) for name in names}:
                    agent.finish()
                    return f"the first {len(turn.tools)}"
                assert sorted(turn.tools) == sorted(names), len(turn.tools)
                last = agent.call(names[-1], SUM)
            agent.finish()
    return YES if "done" in " ".join(last.results) else f"{NO}: {last.results}"


def outcome(check: Check, met: Met) -> str:
    """What a check says, or why it failed."""
    try:
        return check(met)
    except (AgentFailedError, AssertionError, TimeoutError) as error:
        return f"{NO}: {error}"


def row(framework: Framework, way: Way) -> Row:
    """Everything about one framework in one way."""
    cells: dict[str, str] = {}
    version = ""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="toolcrib-framework-")))
        met = stack.enter_context(world())
        left = list(CHECKS)
        while left:
            # one process for all checks; after a failure nobody knows what it waits for
            try:
                with running(framework.command(folder), way.url(met.url), met.token(), way, folder) as agent:
                    version = agent.version
                    while left:
                        name = left.pop(0)
                        met.begin()
                        cells[name] = outcome(CHECKS[name], Met(agent, met, way))
                        if cells[name] not in PASSED:
                            break
            except AgentFailedError as error:  # it does not even start
                cells |= dict.fromkeys(left, f"{NO}: {error}")
                left.clear()
    with tempfile.TemporaryDirectory(prefix="toolcrib-framework-") as given:
        try:
            cells[MANY_CHECK] = all_of_many(framework, way, Path(given))
        except (AgentFailedError, AssertionError) as error:
            cells[MANY_CHECK] = f"{NO}: {error}"
    return Row(framework.title, version, way.label, cells)


def main(arguments: Sequence[str]) -> int:
    """Run the command line; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FRAMEWORKS)}")
    parser.add_argument("--changed", action="store_true", help="the adapters and what changed; write nothing")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - FRAMEWORKS.keys():
        parser.error(f"unknown framework {sorted(unknown)[0]!r}, choose from {', '.join(FRAMEWORKS)}")
    chosen = [FRAMEWORKS[name] for name in options.names or FRAMEWORKS]
    if options.changed:
        known = table.digests()
        chosen = [f for f in chosen if f.adapter or known.get(f.name) != f.digest()]
    try:
        for framework in chosen:
            framework.provide()
    except environments.PeersMissingError as error:
        print(error, file=sys.stderr)
        return 1
    wanted = [(framework, way) for framework in chosen for way in framework.ways]
    # Most of the time is waiting: for imports, and for the registry to come back.
    with ThreadPoolExecutor(3) as pool:
        rows = list(pool.map(lambda pair: row(*pair), wanted))
    print(table.rendered(rows))
    failed = [
        f"{r.framework}, {r.way}: {name}: {cell}"
        for r in rows
        for name, cell in r.cells.items()
        if cell.startswith(NO) or (r.way != Way.MCP.label and cell not in PASSED)
    ]
    for line in failed:
        print(line, file=sys.stderr)
    if failed:
        return 1
    if options.changed:
        if differing := table.differing(rows):
            print(
                f"{table.PAGE.name} says something else: run `make frameworks`: {differing}", file=sys.stderr
            )
            return 1
    elif not options.names:
        table.write(rows, {f.name: f.digest() for f in chosen})
    print(f"{len(rows)} passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
