"""Smaller bindings from what calls needed: they break nothing, allow nothing new, and nothing more can go."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from oracle import decisions, worlds
from oracle.decisions import World
from oracle.wire import published_account, published_binding, published_tool
from suites import size
from toolcrib.audit.replay import Decided, Judged
from toolcrib.audit.suggestions import Entry, Suggestion, suggest
from toolcrib.audit.uses import Uses, has_wildcard
from toolcrib.authorizer import Action, decide
from toolcrib.identity import Identity, ScopesPolicy
from toolcrib.snapshot import Snapshot
from toolcrib.wire.publish import Publish, Revision

pytestmark = pytest.mark.guarantee
WORLDS = size(quick=50, whole=500)
Call = tuple[str, str, float]
"""Caller, tool, moment."""


def snapshot(world: World, seq: int) -> Snapshot:
    known = world["accounts"]
    publish = Publish(
        to=Revision(epoch=1, seq=seq),
        tools=tuple(map(published_tool, world["tools"])),
        bindings=tuple(map(published_binding, world["bindings"])),
        accounts=None if known is None else tuple(published_account(k, known[k]) for k in known),
    )
    return Snapshot().apply(Publish.model_validate_json(publish.model_dump_json()))


def identity(world: World, caller: Any, now: float) -> Identity | None:
    """What a token proves, as the oracle reads it."""
    facts = decisions.who(world | {"accounts": None}, caller, worlds.issuers(world["kind"]), now)
    if facts is None:
        return None
    return Identity(
        issuer=facts["iss"],
        subject=facts["subject"],
        cluster=bool(facts["account"]),
        client=facts["client"],
        user=None if facts["account"] else facts["subject"],
        groups=frozenset(facts["groups"]),
        scopes=frozenset(facts["scopes"]),
        policy=ScopesPolicy(facts["policy"]),
        account_uid=facts["uid"],
        expires_at=caller["claims"]["exp"],
        not_before=caller["claims"].get("nbf"),
    )


def asked(draw: random.Random, world: World, count: int) -> list[Call]:
    """Calls of somebody for something at some time."""
    ids = [t["id"] for t in world["tools"]]
    times = worlds.moments(draw, world, 6)
    return [(draw.choice(list(world["callers"])), draw.choice(ids), draw.choice(times)) for _ in range(count)]


def allowed(world: World, call: Call) -> bool:
    """By the oracle."""
    caller, tool_id, now = call
    tool = next((t for t in world["tools"] if t["id"] == tool_id), None)
    if tool is None:
        return False
    issuers = worlds.issuers(world["kind"])
    return decisions.decide(world, world["callers"][caller], issuers, tool, "call", now)[0]


def recorded(uses: Uses, world: World, at: Snapshot, calls: Sequence[Call]) -> None:
    """The calls as a log's replay gives them."""
    for caller, tool_id, now in calls:
        who = identity(world, world["callers"][caller], now)
        if who is None:
            continue
        decision = decide(who, at.tools.get(tool_id), Action.CALL, at.policy, now)
        assert decision.allowed == allowed(world, (caller, tool_id, now))
        by = None if decision.binding is None else {"uid": decision.binding.uid}
        record = {"ts": f"2030-01-01T00:00:{now % 60:09.6f}Z", "action": "call", "binding": by}
        told = (decision.allowed, decision.reason.value)
        uses.add(Judged(record, tool_id, recorded=told, found=told, of=Decided(who, at, now)))


def narrowed(world: World, suggestions: Sequence[Suggestion], without: Entry | None = None) -> World:
    """The world with the suggestions applied, and one entry more gone: of a binding's list, by its text."""
    made = []
    by_uid = {s.binding.uid: s for s in suggestions}
    for b in world["bindings"]:
        s = by_uid.get(b["uid"])
        if s is None:
            made.append(b)
            continue
        if s.narrowed is None:
            continue
        gone = {int(e.entry.key) for e in s.gone if e.entry.field == "subjects"}
        fields = {
            "subjects": [x for i, x in enumerate(b["subjects"]) if i not in gone],
            "scopes": list(s.narrowed.scopes),
            "servers": None if s.narrowed.servers is None else list(s.narrowed.servers),
            "allow": None if s.narrowed.allow is None else list(s.narrowed.allow),
        }
        if without is not None and without[0] == b["uid"]:
            _, field, key = without
            if field == "subjects":
                fields["subjects"] = [x for i, x in enumerate(b["subjects"]) if i not in gone | {int(key)}]
            else:
                fields[field] = [x for x in fields[field] or () if x != key]
        made.append(b | fields)
    return world | {"bindings": made}


def drawn(count: int, *, changing: bool) -> Iterator[tuple[int, World, World, list[Call], list[Call]]]:
    """Worlds, what became of each, and calls in both."""
    for seed in range(count):
        draw = random.Random(seed)
        world = worlds.world(draw)
        later = worlds.changed(draw, world) if changing else world
        if world["tools"] and later["tools"]:
            yield seed, world, later, asked(draw, world, 40), asked(draw, later, 40)


@pytest.mark.property
@pytest.mark.parametrize("changing", [False, True])
def test_what_is_suggested_refuses_no_call_of_the_log_and_allows_nothing_new(changing: bool) -> None:
    removed = 0
    for seed, world, later, before, after in drawn(WORLDS, changing=changing):
        uses, start, end = Uses(), snapshot(world, 1), snapshot(later, 2)
        recorded(uses, world, start, before)
        recorded(uses, later, end, after)
        found = suggest(uses, [start], end)
        removed += sum(len(s.gone) for s in found)
        for then, calls in ((world, before), (later, after)):
            smaller = narrowed(then, found)
            for call in calls:
                assert allowed(smaller, call) == allowed(then, call), (seed, call)
        # nobody gains anything, whoever asks for what
        smaller = narrowed(later, found)
        for caller in later["callers"]:
            for tool in later["tools"]:
                call = caller, tool["id"], float(worlds.START)
                assert allowed(later, call) or not allowed(smaller, call), (seed, call)
    assert removed > WORLDS


@pytest.mark.property
def test_to_give_up_one_entry_more_would_refuse_a_call_of_the_log() -> None:
    tried = 0
    for seed, world, _, before, after in drawn(WORLDS, changing=False):
        calls, uses, at = [*before, *after], Uses(), snapshot(world, 1)
        recorded(uses, world, at, calls)
        found = suggest(uses, [at], at)
        held = [call for call in calls if allowed(world, call)]
        for s in found:
            for e in s.left:
                if e.kept or (s.binding.allow and len([n for n in s.binding.allow if has_wildcard(n)]) > 60):
                    continue
                tried += 1
                less = narrowed(world, found, without=e.entry)
                assert not all(allowed(less, call) for call in held), (seed, e)
    assert tried > WORLDS
