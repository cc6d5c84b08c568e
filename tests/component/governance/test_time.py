"""Time alone: no passing moment adds a tool but by `notBefore`, and no cache is behind the clock.

The clock is stepped through every date of a world, and through the moments just before and after, while the revision
stays: lists, search, statistics, single tools and calls, each asked before at an earlier moment, and streams that have
been open since the start, agree at each moment with the oracle, and so with each other.
"""

import asyncio
import os
import random
import secrets
from collections.abc import Callable
from typing import Any

import pytest

import toolcrib.view
import toolcrib_registry.watch.stream
from oracle import decisions, paths, worlds
from oracle.asked import Asked, Difference, Question
from oracle.decisions import World
from oracle.rig import Rig, rig
from oracle.streams import until_shown

pytestmark = pytest.mark.guarantee

WORLDS = 6
MOMENTS = 10
CACHED = (
    "GET /",
    "GET /stats",
    "GET /v1/tools",
    "POST /v1/search (all)",
    "POST /v1/search (words)",
    "POST /v1/call",
)


def dates(world: World) -> list[float]:
    """Every date on which something rests, and the moments around it, in order."""
    found: set[float] = set()
    for binding in world["bindings"]:
        found |= {float(d) for d in (binding["from"], binding["until"]) if d is not None}
    for caller in world["callers"].values():
        if isinstance(caller, dict):
            found |= {float(caller["claims"]["exp"]), float(caller["claims"].get("nbf", worlds.START) - 30)}
    return sorted(at + by for at in found for by in (-0.001, 0.0, 0.001))


def starts(world: World, caller: Any, earlier: float, later: float) -> bool:
    """Whether something of this caller begins after the one moment and not after the other."""
    begun = [caller["claims"]["nbf"] - 30] if "nbf" in caller["claims"] else []
    begun += [b["from"] for b in world["bindings"] if b["from"] is not None]
    return any(earlier < at <= later for at in begun)


async def stepped(one: Rig, world: World, draw: random.Random) -> int:
    """Step the clock through one world; how many questions agreed."""
    await one.publish(world, index=False)
    every = dates(world)
    chosen = sorted(draw.sample(every, min(MOMENTS, len(every))))
    callers = {k: who for k, who in world["callers"].items() if isinstance(who, dict)}
    issuers, asked = worlds.issuers(one.kind), 0
    one.clock.set(chosen[0])
    streams = {
        key: one.watch(who)
        for key, who in callers.items()
        if decisions.who(world, who, issuers, chosen[0]) is not None
    }
    listed: dict[str, tuple[float, set[str]]] = {}
    try:
        for at in chosen:
            one.clock.set(at)
            for key, stream in streams.items():
                await until_shown(Asked(one, world, callers[key], at, None), stream)
            for key, who in callers.items():
                for path in CACHED:
                    await paths.ask(one, Question(path, key, at, paths.argument(draw, path, world, key, at)))
                    asked += 1
                answer = await one.ask("GET", "/v1/tools", who, query="limit=500")
                found = {t["tool_id"] for t in answer.json.get("tools", ())}
                before, had = listed.get(key, (at, found))
                if not starts(world, who, before, at) and not found <= had:
                    raise Difference(
                        f"{key}: {sorted(found - had)} came by time alone between {before} and {at}"
                    )
                listed[key] = at, found
        for at in draw.sample(chosen, min(3, len(chosen))):  # and back: the clock was set
            key = draw.choice(tuple(callers))
            for path in CACHED:
                await paths.ask(one, Question(path, key, at, paths.argument(draw, path, world, key, at)))
                asked += 1
    finally:
        for stream in streams.values():
            await stream.close()
    return asked


def run(count: int, seed: int, patience: float = 20.0) -> int:
    """Questions that agreed, over so many worlds."""

    async def all_of_them() -> int:
        draw, asked = random.Random(seed), 0
        for kind in worlds.KINDS:
            async with rig(kind) as one:
                one.patience = patience
                for _ in range(count // len(worlds.KINDS)):
                    world = worlds.world(draw, kind)
                    try:
                        asked += await stepped(one, world, draw)
                    except Difference as difference:
                        raise Difference(f"seed {seed}: {difference}\n{world}") from None
        return asked

    return asyncio.run(all_of_them())


def test_at_every_moment_of_one_revision_every_cache_agrees_with_the_oracle() -> None:
    seed = int(os.environ.get("TOOLCRIB_PROOF_SEED") or secrets.randbelow(1 << 32))

    assert run(WORLDS, seed) > 100


def views_that_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolcrib.view, "next_change", lambda identity, policy, now: identity.expires_at)


def streams_that_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*waited: Any) -> bool:
        for one in waited:
            if asyncio.iscoroutine(one):
                one.close()
        await waited[-1]
        return True

    monkeypatch.setattr(toolcrib_registry.watch.stream, "_first", never)


def views_of_later(monkeypatch: pytest.MonkeyPatch) -> None:
    real = toolcrib.view.view_of
    monkeypatch.setattr(
        "toolcrib_registry.policy.state.view_of",
        lambda identity, snapshot, now, *rest: real(identity, snapshot, now + 0.001, *rest),
    )


@pytest.mark.parametrize("broken", [views_that_last, streams_that_sleep, views_of_later])
def test_a_cache_behind_the_clock_is_found_out(
    broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)

    with pytest.raises(Difference):
        run(300, 7, patience=0.1)
