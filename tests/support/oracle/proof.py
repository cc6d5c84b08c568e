"""`make proof`: so many random cases over every path, each held against the oracle, and a table of them.

    python -m oracle.proof [--cases 100000] [--seed N] [--replay FILE]

Prints the seed; exits with 1 at the first difference, with the smallest world and script that still show it as JSON,
which `--replay` asks again.
"""

import argparse
import asyncio
import contextlib
import json
import random
import secrets
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from oracle import decisions, paths, worlds
from oracle.asked import Asked, Difference, Question
from oracle.decisions import World
from oracle.paths import CALLS, CHANGES, PATHS
from oracle.rig import Rig, rig


@dataclass
class Tally:
    """What was asked and what came of it."""

    seed: int
    cases: Counter[str] = field(default_factory=Counter)
    shown: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    worlds: int = 0
    seconds: float = 0.0

    def add(self, question: Question, asked: Asked, ids: list[str]) -> None:
        """Count one case that agreed, and each tool's decision in it."""
        self.cases[question.path] += 1
        self.shown[question.path] += bool(ids)
        action = "call" if question.path in CALLS else "list"
        for tool in asked.world["tools"]:
            self.reasons[
                decisions.decide(asked.world, asked.caller, asked.issuers, tool, action, asked.at)[1]
            ] += 1

    def table(self) -> str:
        """For people, and for the docs."""
        total = sum(self.cases.values())
        lines = [f"{'path':<44}{'cases':>9}{'allowed':>9}{'refused':>9}"]
        for path in PATHS:
            if self.cases[path]:
                count, shown = self.cases[path], self.shown[path]
                lines.append(f"{path:<44}{count:>9,}{shown:>9,}{count - shown:>9,}")
        shown = sum(self.shown.values())
        lines.append(f"{'all':<44}{total:>9,}{shown:>9,}{total - shown:>9,}")
        lines += ["", f"{'decision of a tool in a case':<44}{'count':>9}"]
        lines += [f"{reason:<44}{count:>9,}" for reason, count in self.reasons.most_common()]
        lines += [
            "",
            f"{total:,} cases in {self.worlds:,} worlds, no difference; seed {self.seed}; {self.seconds:.0f} s",
        ]
        return "\n".join(lines)


class Disagreement(AssertionError):
    """A difference with the smallest case that was found to show it."""

    def __init__(self, seed: int, world: World, script: list[Question], difference: Difference) -> None:
        self.document = {
            "seed": seed,
            "difference": str(difference),
            "script": [asdict(q) for q in script],
            "world": world,
        }
        super().__init__(f"{difference}\n{json.dumps(self.document, indent=1)}")


@contextlib.asynccontextmanager
async def rigs() -> AsyncIterator[dict[str, Rig]]:
    """One registry of each kind."""
    async with contextlib.AsyncExitStack() as stack:
        yield {kind: await stack.enter_async_context(rig(kind)) for kind in worlds.KINDS}


def script(draw: random.Random, world: World, only: tuple[str, ...] = tuple(PATHS)) -> list[Question]:
    """Callers at moments, forward and back; of each, questions over half of the paths, changes of the world among them."""
    made: list[Question] = []
    callers = tuple(key for key, who in world["callers"].items() if isinstance(who, dict))
    issuers, caller = worlds.issuers(world["kind"]), draw.choice(callers)
    for at in worlds.moments(draw, world, 3):
        seeing = [c for c in callers if decisions.visible(world, world["callers"][c], issuers, at)]
        if seeing and worlds.rarely(draw, 2):
            caller = draw.choice(seeing)
        elif worlds.rarely(draw, 4):
            caller = draw.choice(tuple(world["callers"]))
        asked = draw.sample(only, (len(only) + 1) // 2)
        made += [Question(p, caller, at, paths.argument(draw, p, world, caller, at)) for p in asked]
    return made


async def run(cases: int, seed: int, *, shrink: bool = True, patience: float = 20.0) -> Tally:
    """Ask `cases` questions; a difference is made smaller unless `shrink` is false.

    Raises:
        Disagreement: at the first difference.
    """
    draw, tally, began = random.Random(seed), Tally(seed), time.perf_counter()
    async with rigs() as all_rigs:
        for one in all_rigs.values():
            one.patience = patience
        while sum(tally.cases.values()) < cases:
            world = worlds.world(draw)
            asked_of = all_rigs[world["kind"]]
            # where the index lacks a tool, or holds another world's, the answer must be the same
            await asked_of.publish(world, index=worlds.rarely(draw))
            tally.worlds += 1
            questions = script(draw, world)[: cases - sum(tally.cases.values())]
            for done, question in enumerate(questions):
                try:
                    tally.add(question, *await paths.ask(asked_of, question))
                except Difference as difference:
                    small, kept = world, questions[: done + 1]
                    if shrink:
                        small, kept = await shrunk(asked_of, small, kept)
                    raise Disagreement(seed, small, kept, difference) from difference
    tally.seconds = time.perf_counter() - began
    return tally


async def differs(rig: Rig, world: World, questions: list[Question]) -> Difference | None:
    """The first difference of a script over a world, if any."""
    await rig.publish(world)
    for question in questions:
        try:
            await paths.ask(rig, question)
        except Difference as difference:
            return difference
        except (StopIteration, KeyError):  # the question speaks of what was taken out of the world
            return None
    return None


async def shrunk(rig: Rig, world: World, questions: list[Question]) -> tuple[World, list[Question]]:
    """A smaller world and script that still differ, by leaving out one thing after another."""
    rig.patience = 0.1
    if await differs(rig, world, questions) is None:
        return world, questions
    for count in (1, 2, 4, 8):
        if await differs(rig, world, questions[-count:]) is not None:
            questions = questions[-count:]
            break
    smaller = True
    while smaller:
        smaller = False
        for fewer, asked in _smaller(world, questions):
            if await differs(rig, fewer, asked) is not None:
                world, questions, smaller = fewer, asked, True
                break
    return world | {"callers": {q.caller: world["callers"][q.caller] for q in questions}}, questions


def _smaller(world: World, questions: list[Question]) -> Iterator[tuple[World, list[Question]]]:
    """World and script with one thing less: of the world, or of one that a change leads to."""
    yield from ((fewer, questions) for fewer in _without(world))
    for at, question in enumerate(questions):
        if question.path in CHANGES:
            for fewer in _without(question.argument["world"]):
                less = replace(question, argument=question.argument | {"world": fewer})
                yield world, [*questions[:at], less, *questions[at + 1 :]]


def _without(world: World) -> list[World]:
    """The world with one thing less."""
    found: list[World] = []
    for part in ("tools", "bindings"):
        found += [world | {part: [x for x in world[part] if x is not item]} for item in world[part]]
    plain: dict[str, Any] = {
        "allow": None,
        "deny": [],
        "deny_scopes": [],
        "servers": None,
        "from": None,
        "until": None,
    }
    for at, binding in enumerate(world["bindings"]):
        lesser = [binding | {k: v} for k, v in plain.items() if binding[k] != v]
        lesser += [
            binding | {"subjects": [s for s in binding["subjects"] if s is not one]}
            for one in binding["subjects"]
            if len(binding["subjects"]) > 1
        ]
        found += [
            world | {"bindings": [*world["bindings"][:at], b, *world["bindings"][at + 1 :]]} for b in lesser
        ]
    if world["accounts"] is not None:
        found.append(world | {"accounts": None})
    return found


async def replay(document: dict[str, Any]) -> Difference | None:
    """Ask a printed case again."""
    world = document["world"]
    async with rig(world["kind"]) as one:
        return await differs(one, world, [Question(**q) for q in document["script"]])


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="make proof", description="Random cases over every path against the oracle."
    )
    parser.add_argument("--cases", type=int, default=100_000, help="how many questions (default 100,000)")
    parser.add_argument(
        "--seed", type=int, default=None, help="draw the same worlds again (default: a new seed)"
    )
    parser.add_argument(
        "--replay", type=Path, default=None, help="ask a case again that an earlier run printed"
    )
    options = parser.parse_args(arguments)
    if options.replay is not None:
        difference = asyncio.run(replay(json.loads(options.replay.read_text())))
        print("no difference" if difference is None else f"difference: {difference}")
        return int(difference is not None)
    seed = secrets.randbelow(1 << 32) if options.seed is None else options.seed
    print(f"proof: {options.cases:,} cases, seed {seed}", flush=True)
    try:
        print(asyncio.run(run(options.cases, seed)).table())
    except Disagreement as found:
        print(f"A difference (seed {seed}); keep the JSON in a file for --replay:\n{found}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
