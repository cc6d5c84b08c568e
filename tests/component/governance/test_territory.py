"""No binding of one namespace changes any decision about tools of another; a cluster binding none outside its namespaces.

Whatever binding is added, whoever it names and whatever it grants or denies: for tools outside its territory every path
answers every caller as before, and the authorizer gives the same decision with the same reason and binding.
"""

import asyncio
import os
import random
import secrets
from typing import Any

import pytest

from broken_authorizers import without_territory
from oracle import worlds
from oracle.decisions import World
from oracle.rig import Rig, rig
from toolcrib.authorizer import Action, decide

pytestmark = pytest.mark.guarantee

WORLDS = 24
Seen = dict[tuple[str, float, str], Any]


def added(draw: random.Random, world: World) -> dict[str, Any]:
    """A binding that stays within its namespaces, and does most of what one can do there."""
    made: dict[str, Any] = {"reach": None}
    while made["reach"] is None:
        made = worlds.binding(draw, 400, world["callers"])
    wide: dict[str, Any] = {"allow": None, "servers": None, "from": None, "until": None}
    if worlds.rarely(draw, 2):
        made |= wide | {"scopes": list(worlds.SCOPES)}
    if worlds.rarely(draw, 3):
        made["deny"] = ["*"]
    return made


async def seen(one: Rig, world: World, reach: list[str], moments: list[float]) -> Seen:
    """What every path and the function itself say of the tools outside `reach`, to every caller at every moment.

    Names are left out: what a bare name means depends on what else the caller may see.
    """
    found: Seen = {}
    outside = [t["id"] for t in world["tools"] if t["namespace"] not in reach]
    state = one.registry.deps.state
    for at in moments:
        one.clock.set(at)
        for key, caller in world["callers"].items():
            token = one.token(caller)
            asker = await one.registry.deps.agents.identify([f"Bearer {token}".encode()] if token else [])
            listed = await one.ask("GET", "/v1/tools", caller, query="limit=500")
            shown = {
                t["tool_id"]: {k: v for k, v in t.items() if k != "name"}
                for t in listed.json.get("tools", ())
            }
            hits = await one.ask("POST", "/v1/search", caller, {"limit": 100})
            searched = {t["tool_id"] for t in hits.json.get("tools", ())}
            for tool_id in outside:
                read = await one.ask("GET", f"/v1/tools/{tool_id}", caller)
                called = await one.ask("POST", "/v1/call", caller, {"tool": tool_id})
                tool = state.snapshot.tools[tool_id]
                decision = decide(asker.identity, tool, Action.CALL, state.snapshot.policy, at)
                found[key, at, tool_id] = (
                    decision,
                    shown.get(tool_id),
                    tool_id in searched,
                    read.status,
                    (called.status, called.body),
                )
    return found


async def compared(one: Rig, draw: random.Random) -> int:
    """How many decisions stayed the same; raises at one that did not."""
    # which accounts are looked up at all depends on whom bindings name: that is no decision about a tool
    world = worlds.world(draw, one.kind) | {"accounts": None}
    extra = added(draw, world)
    moments = worlds.moments(draw, world | {"bindings": [*world["bindings"], extra]}, 1)
    await one.publish(world, index=False)
    before = await seen(one, world, extra["reach"], moments)
    await one.step(world | {"bindings": [*world["bindings"], extra]})
    after = await seen(one, world, extra["reach"], moments)
    for case, wanted in before.items():
        assert after[case] == wanted, f"{case}: {wanted} became {after[case]}\n{extra}\n{world}"
    return len(before)


def run(count: int, seed: int) -> int:
    """Decisions compared over so many worlds."""

    async def all_of_them() -> int:
        draw, decisions = random.Random(seed), 0
        for kind in ("closed", "local"):
            async with rig(kind) as one:
                for _ in range(count // 2):
                    decisions += await compared(one, draw)
        return decisions

    return asyncio.run(all_of_them())


def test_a_binding_changes_no_decision_outside_its_namespaces() -> None:
    seed = int(os.environ.get("TOOLCRIB_PROOF_SEED") or secrets.randbelow(1 << 32))
    print(f"seed {seed}")

    assert run(WORLDS, seed) > 100


def test_denies_and_grants_that_leave_their_reach_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    without_territory(monkeypatch)

    with pytest.raises(AssertionError, match="became"):
        run(400, 7)
