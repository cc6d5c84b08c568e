"""What a caller does not see is not there: not for its clock, and not for whoever scrapes the metrics meanwhile."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import re
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import uvloop

from oracle import revisions, worlds
from oracle.rig import Rig, rig
from realparts.processes import wait_until
from registry_harness import RunningRegistry, binding, running_registry, tool
from suites import size
from toolcrib import entropy
from toolcrib.view import AmbiguousName
from toolcrib_registry.audit import refusal_reasons

pytestmark = pytest.mark.guarantee
WORLDS = size(quick=100, whole=200)
ROUTES = (
    ("POST", "/v1/describe"),
    ("POST", "/v1/call"),
    ("GET", "/tools/"),
    ("POST", "/tools/"),
    ("describe_tool", "/mcp"),
    ("call_tool", "/mcp"),
    ("tools/call", "/mcp/direct"),
)
"""Method and path; of MCP, what is called there."""
ANYONE = ROUTES[2:3]
"""Who has no identity may read names, and is refused at the edge elsewhere."""
REVISIONS = ("2025-11-25", "2026-07-28")


class Counted:
    """Counts the calls of Python and C functions that this thread makes inside the block."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event in ("call", "c_call"):
            self.calls[event] += 1

    def __enter__(self) -> Counter[str]:
        gc.disable()  # its callbacks are no work of the request
        sys.setprofile(self._note)
        return self.calls

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)
        gc.enable()


def _request(route: tuple[str, str], name: str, version: str) -> tuple[str, str, Any, dict[str, str]]:
    """Method, path, body and header fields."""
    method, path = route
    if path.startswith("/mcp"):
        params: dict[str, Any] = {"name": name, "arguments": {}}
        if path == "/mcp":
            params = {"name": method, "arguments": {"tool_id": name}}
        return "POST", path, *revisions.request(version, "tools/call", params)
    if path == "/tools/":
        return method, path + name, {} if method == "POST" else None, {}
    return method, path, {"tool": name} | ({"arguments": {}} if path == "/v1/call" else {}), {}


async def _asked(
    one: Rig, caller: Any, route: tuple[str, str], name: str, version: str
) -> tuple[Any, Counter[str]]:
    """The answer without its name, and what it took. What is left for later is no part of it."""
    method, path, body, fields = _request(route, name, version)
    with Counted() as calls:
        answer = await one.ask(method, path, caller, body, **fields)
    one.registry.deps.refusals.settle()
    return (answer.status, answer.body.replace(f"'{name}'".encode(), b"'NAME'")), calls


async def _names(one: Rig, world: Any, caller: Any) -> tuple[list[str], bool]:
    """Ids and names of the tools that this caller does not see; whether it has an identity."""
    token = one.token(caller)
    asker = await one.registry.deps.agents.identify([f"Bearer {token}".encode()] if token else [])
    caller_view = await one.registry.deps.state.caller_view(
        asker.identity, bad_token=asker.problem is not None
    )
    view = caller_view.view
    hidden = []
    for name in (n for t in world["tools"] for n in (t["id"], t["name"]) if n != "register"):
        try:
            if view.resolve(name) is None:
                hidden.append(name)
        except AmbiguousName:
            continue
    policy = one.registry.deps.state.snapshot.policy
    return hidden, asker.identity is not None and not policy.is_gone(asker.identity)


def _absent(name: str) -> str:
    """A name of the same shape that no world has."""
    return re.sub("[A-Za-z0-9]", "q", name)


@pytest.mark.property
@pytest.mark.parametrize("reasons", ["not_permitted", "full"])
def test_hidden_and_absent_make_the_same_number_of_python_calls(
    reasons: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the moment at which refusals are explained must not fall into a request that is counted
    monkeypatch.setattr(refusal_reasons, "LATER", 3600.0)
    # neither must the one at which the next 256 ids are read
    monkeypatch.setattr(entropy, "piece", lambda: os.urandom(entropy.SIZE))
    seed = random.randrange(1 << 32)
    draw = random.Random(seed)
    asked: Counter[str] = Counter()
    explained: set[str] = set()

    async def compare() -> None:
        audit = {"path": str(tmp_path / "decisions.jsonl"), "queue": 1_000_000}
        async with rig("closed", metrics={"reasons": reasons}, audit=audit) as one:
            deps = one.registry.deps
            decided = deps.decisions.decided
            monkeypatch.setattr(
                deps.decisions,
                "decided",
                lambda *a, **k: (explained.add(a[4].reason.value), decided(*a, **k)),
            )
            for number in range(WORLDS):
                world = worlds.world(draw, "closed")
                await one.publish(world, index=False)
                one.clock.set(draw.choice(worlds.moments(draw, world, 1)))
                caller = draw.choice(list(world["callers"].values()))
                hidden, known = await _names(one, world, caller)
                for route in ROUTES if known else ANYONE:
                    version = draw.choice(REVISIONS)
                    for name in draw.sample(hidden, min(3, len(hidden))):
                        case = f"seed {seed}, world {number}, {route}, {name}, {caller}, {world}"
                        # the view, and a list for models, are made by the first
                        await _asked(one, caller, route, _absent(name), version)
                        there = await _asked(one, caller, route, name, version)
                        nowhere = await _asked(one, caller, route, _absent(name), version)
                        assert there == nowhere, case
                        if route[1].startswith("/mcp"):
                            assert b'{"code":-32602,"message":"Unknown tool"}' in there[0][1], case
                        else:
                            assert there[0][0] in (403, 404), case
                        asked[" ".join(route)] += 1

    # as the service does: asyncio's own loop drops cancelled timers at a later request, which would be counted
    uvloop.run(compare())
    assert asked.keys() == {" ".join(route) for route in ROUTES}
    assert min(asked.values()) > WORLDS // 2
    # the names were refused for many reasons, and that was found out afterwards
    assert explained >= {"unknown_tool", "tool_disabled", "denied", "no_binding", "scope_not_granted"}


def _told(r: RunningRegistry, records: float) -> Counter[str]:
    """All numbers but those of time, of the process and of the scraper's own connections, once so many records of decisions are written."""

    def written() -> bool:
        return f"toolcrib_audit_records_total {records}" in r.metrics()

    wait_until(written, timeout=30, interval=0.02)
    found: Counter[str] = Counter()
    for line in r.metrics().splitlines():
        series, _, value = line.rpartition(" ")
        if (
            value != "NaN"
            and not line.startswith(("#", "process_", "toolcrib_connections{"))
            and not re.search(r"_(bucket|sum|seconds|created)\b", series)
        ):
            found[series] = float(value)  # type: ignore[assignment]
    return found


MCP = {"describe_tool": "describe", "call_tool": "call", "load_tools": "load", "tools/call": "call"}
"""What is asked over MCP, and the action of its record."""


def _rpc(question: str, word: str) -> tuple[str, dict[str, Any], dict[str, str]]:
    if question == "tools/call":
        path, params = "/mcp/direct", {"name": word, "arguments": {}}
    else:
        arguments: dict[str, Any] = {"tool_ids": [word]} if question == "load_tools" else {"tool_id": word}
        path, params = "/mcp", {"name": question, "arguments": arguments}
    body, _ = revisions.request("2025-11-25", "tools/call", params)
    return path, body, {"MCP-Protocol-Version": "2025-11-25"}


@pytest.mark.parametrize("seed", range(10))
def test_what_a_scraper_reads_is_the_same_for_a_hidden_tool_and_for_none(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    hidden = {
        "denied": ("vault", ("vault:use",), {}),
        "of another's scope": ("safe", ("safe:use",), {}),
        "disabled": ("oldie", ("calculator:use",), {"state": "Disabled"}),
        "quarantined": ("changed", ("calculator:use",), {"quarantined": True}),
    }
    name, scopes, fields = hidden[draw.choice(list(hidden))]
    grants = [
        binding("bot", ["calculator:use", "vault:use"]),
        binding("bot", name="no", deny=("vault",), scopes=()),
    ]
    tools = [tool("calculator"), tool(name, scopes=scopes, **fields)]
    audit = {"path": str(tmp_path / "decisions.jsonl")}
    kinds = ("describe", "call", "load", "GET", "POST", *MCP)
    questions = [draw.choice(kinds) for _ in range(16)]
    told = []
    with running_registry(tools, grants, audit=audit) as r:
        headers = r.auth("team", "bot")
        r.heartbeat()
        r.http.get(r.url, headers=headers)  # a log explains who a caller is once, whatever is asked
        records = 2.0
        before = _told(r, records)
        for asked in ((name, f"team/{name}"), ("q" * len(name), "team/" + "q" * len(name))):
            for number, question in enumerate(questions):
                word = asked[number % 2]
                if question in ("GET", "POST"):
                    r.http.request(question, f"{r.url}/tools/{word}", headers=headers)
                elif question in MCP:
                    path, body, fields = _rpc(question, word)
                    answer = r.http.post(r.url + path, headers=headers | fields, json=body)
                    assert answer.status_code == 200
                else:
                    body = {"tools": [word]} if question == "load" else {"tool": word}
                    r.http.post(f"{r.url}/v1/{question}", headers=headers, json=body)
            # the first of each action and name is written, the rest are counted
            actions = {"GET": "list", "POST": "call", **MCP}
            records += len({(actions.get(q, q), n % 2) for n, q in enumerate(questions)})
            after = _told(r, records)
            told.append({key: after[key] - before[key] for key in after if after[key] != before[key]})
            before = after

    assert told[0] == told[1]
    assert any("not_permitted" in series for series in told[0])


def test_with_full_reasons_the_next_scrape_has_them() -> None:
    with running_registry(
        [tool("calculator"), tool("vault")], [binding("bot")], metrics={"reasons": "full"}
    ) as r:
        headers = r.auth("team", "bot")
        for name in ("vault", "nothing"):
            assert (
                r.http.post(f"{r.url}/v1/describe", headers=headers, json={"tool": name}).status_code == 404
            )
        told = [line for line in r.metrics().splitlines() if line.startswith("toolcrib_denials_total")]

    assert [re.search(r'reason="(\w+)"', line)[1] for line in told] == ["scope_not_granted", "unknown_tool"]  # type: ignore[index]


def test_more_refusals_than_may_wait_are_all_explained() -> None:
    many = refusal_reasons.MOST + 300
    with running_registry([tool("calculator")], [binding("bot")], metrics={"reasons": "full"}) as r:
        deps = r.registry.deps

        async def flood() -> int:
            asker = await deps.agents.identify([r.auth("team", "bot")["Authorization"].encode()])
            caller_view = await deps.state.caller_view(asker.identity)
            waiting = 0
            for number in range(many):
                deps.refusals.add(refusal_reasons.Action.CALL, caller_view, f"name-{number}")
                waiting = max(waiting, len(deps.refusals._waiting))
            return waiting

        assert r.on_loop(flood) <= refusal_reasons.MOST
        assert f'reason="unknown_tool",rule=""}} {float(many)}' in r.metrics()


def test_many_refusals_are_explained_in_pieces_between_which_others_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(refusal_reasons, "LATER", 0.0)
    with running_registry([tool("calculator")], [binding("bot")], metrics={"reasons": "full"}) as r:
        deps = r.registry.deps
        explained: list[int] = []

        async def flood() -> list[int]:
            asker = await deps.agents.identify([r.auth("team", "bot")["Authorization"].encode()])
            caller_view = await deps.state.caller_view(asker.identity)
            for number in range(1000):
                deps.refusals.add(refusal_reasons.Action.CALL, caller_view, f"name-{number}")
            while len(deps.refusals._waiting):
                explained.append(1000 - len(deps.refusals._waiting))
                await asyncio.sleep(0)
            return explained

        pieces = r.on_loop(flood)
        began = time.monotonic()
        assert 'reason="unknown_tool",rule=""} 1000.0' in r.metrics()
        assert time.monotonic() - began < 30

    steps = [after - before for before, after in zip([0, *pieces], [*pieces, 1000], strict=True)]
    assert max(steps) <= refusal_reasons.AT_A_TIME
