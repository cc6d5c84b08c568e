"""What a caller receives does not depend on anything outside its view.

Two registries of two worlds that differ only there (hidden tools, bindings of others, accounts of others, other
revisions and epochs, who else is asking) are sent the same random script of requests: status, headers, bodies and
streams must be the same to the byte. Timing is not looked at.
"""

import asyncio
import os
import random
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import toolcrib.view
from oracle import decisions, paths, revisions, worlds
from oracle.decisions import Issuers, Tool, World
from oracle.rig import Answer, Rig, Stream, rig
from toolcrib_registry.mcp.direct_view import DirectView
from toolcrib_registry.mcp.protocol import RpcError
from toolcrib_registry.policy import discovery
from toolcrib_registry.policy.state import CallerView

pytestmark = pytest.mark.guarantee

SCRIPTS = 36
REQUESTS = 12


class Interference(AssertionError):
    """Something outside the caller's view shows."""


def hidden(world: World, caller: Any, issuers: Issuers, tool: Tool, moments: list[float]) -> bool:
    """Whether the tool is outside the caller's view at every one of the moments, whatever its state."""
    if caller == "anonymous" and world["anonymous"] == "list":
        return False
    active = tool | {"state": "Active", "quarantined": False}
    return not any(decisions.decide(world, caller, issuers, active, "list", at)[0] for at in moments)


def elsewhere(draw: random.Random, world: World, key: str, moments: list[float]) -> World:
    """The same world as this caller sees it, and another one to everybody else."""
    caller, issuers = world["callers"][key], worlds.issuers(world["kind"])
    seen = [t for t in world["tools"] if not hidden(world, caller, issuers, t, moments)]
    identities = [
        i for at in moments if (i := decisions.who(world | {"accounts": None}, caller, issuers, at))
    ]
    mine = [
        b
        for b in world["bindings"]
        if any(b in decisions.bindings_of(world, identity) for identity in identities)
    ]
    others = [b for b in world["bindings"] if b not in mine and not worlds.rarely(draw, 2)]
    for number in range(draw.randint(0, 4)):
        made = worlds.binding(draw, 200 + number, world["callers"])
        if not any(decisions.is_subject(i, s) for i in identities for s in made["subjects"]):
            others.append(made)
    accounts = world["accounts"]
    if accounts is not None:
        own = {"/".join(i["account"]) for i in identities if i["account"]}
        accounts = {k: uid for k, uid in worlds.accounts(draw).items() if k not in own}
        accounts |= {k: uid for k, uid in world["accounts"].items() if k in own}
    other = world | {"tools": list(seen), "bindings": [*mine, *others], "accounts": accounts}
    for number in range(draw.randint(0, 8)):
        made = worlds.tool(draw, 300 + number)
        made["name"] = draw.choice([t["name"] for t in seen] or [made["name"]])  # the name of a visible one
        if hidden(other, caller, issuers, made, moments) and not any(
            worlds.clashes(made, t) for t in [*other["tools"], *world["tools"]]
        ):
            other["tools"].append(made)
    draw.shuffle(other["tools"])
    draw.shuffle(other["bindings"])
    return other


Sent = tuple[str, str, Any, str, dict[str, str]]
"""Method, path, body, query, header fields."""


def of_mcp(draw: random.Random, path: str, said: Any) -> Sent:
    """A request of the path's kind; now and then several at one time, where the revision has that."""
    where = path.split()[1].rstrip(",")
    if " list" in path:
        version, method, params = said, "tools/list", draw.choice(({}, {"cursor": "dGVhbS1hL3Rvb2w"}))
    elif where == "/mcp/direct":
        version, method, params = said[0], "tools/call", {"name": said[1], "arguments": {}}
    else:
        version, name, argument = said[0], path.split()[2].rstrip(","), said[1]
        arguments = argument if name == "search_tools" else {"tool_id": argument}
        if name == "load_tools":
            arguments = {"tool_ids": argument}
        method, params = "tools/call", {"name": name, "arguments": arguments}
    body, fields = revisions.request(version, method, params)
    several = version in (None, "2025-03-26") and worlds.rarely(draw, 2)
    return "POST", where, [body, body] if several else body, "", fields


def requests(draw: random.Random, world: World, key: str, at: float) -> list[Sent]:
    """All over the surface; names of both worlds are among those asked for."""
    found: list[tuple[str, str, Any, str]] = []
    of_models: list[Sent] = []
    for _ in range(REQUESTS):
        path = draw.choice(tuple(paths.PATHS))
        if path in paths.CHANGES:
            continue
        said = paths.argument(draw, path, world, key, at)
        match path:
            case _ if "/mcp" in path:
                of_models.append(of_mcp(draw, path, said))
            case "GET /" | "GET /stats":
                found.append(("GET", path.removeprefix("GET "), None, ""))
            case "GET /v1/tools" | "GET /v0.1/servers":
                found.append(("GET", path.removeprefix("GET "), None, f"limit={said}"))
            case "GET /tools/{name}":
                found.append(("GET", f"/tools/{said}", None, ""))
            case "GET /v1/tools/{ns}/{name}":
                found.append(("GET", f"/v1/tools/{said}", None, ""))
            case "POST /v1/describe":
                found.append(("POST", "/v1/describe", {"tool": said}, ""))
            case "POST /v1/load":
                found.append(("POST", "/v1/load", {"tools": said}, ""))
            case "POST /v1/call":
                found.append(("POST", "/v1/call", {"tool": said}, ""))
            case "POST /tools/{name}":
                found.append(("POST", f"/tools/{said}", {}, ""))
            case "GET /v1/access-review":
                found.append(("GET", "/v1/access-review", None, "subject=a/bot"))
            case "POST /v1/compat/intelligent_tool_finder" | "POST /api/search/semantic":
                found.append(("POST", path.removeprefix("POST "), said, ""))
            case _ if "search" in path:
                found.append(("POST", "/v1/search", {k: v for k, v in said.items() if v is not None}, ""))
    return [*((*one, {}) for one in found), *of_models]


async def compared(one: Rig, other: Rig, draw: random.Random) -> tuple[int, int]:
    """(answers compared, events compared) of one script."""
    world = worlds.world(draw, one.kind)
    issuers = worlds.issuers(one.kind)
    moments = sorted(worlds.moments(draw, world, 3))
    later = worlds.changed(draw, world)
    known = [k for k, who in world["callers"].items() if isinstance(who, dict)]
    seeing = [
        k for k in known if any(decisions.visible(world, world["callers"][k], issuers, at) for at in moments)
    ]
    key = draw.choice(seeing or known) if not worlds.rarely(draw, 8) else draw.choice(tuple(world["callers"]))
    caller = world["callers"][key]
    powers = ("registry:write", "registry:admin")  # who holds one is told of the whole
    if any(
        decisions.has_power(w, caller, issuers, p, at)
        for w in (world, later)
        for p in powers
        for at in moments
    ):
        return 0, 0
    twin, later_twin = elsewhere(draw, world, key, moments), elsewhere(draw, later, key, moments)
    one.clock.set(moments[0])
    other.clock.set(moments[0])
    other.epoch += draw.randint(0, 5)
    await one.publish(world, index=True)
    await other.publish(twin, index=True)
    answers, streams = 0, [(one.watch(caller), other.watch(caller))]
    streams += [(one.notices(caller, v), other.notices(caller, v)) for v in ("2025-11-25", "2026-07-28")]
    try:
        for at, step in zip(moments, (None, None, (later, later_twin)), strict=True):
            one.clock.set(at)
            other.clock.set(at)
            await _settled(streams)  # what the clock changed is said before what a publish changes
            if step is not None:
                await one.step(step[0])
                await other.step(elsewhere(draw, step[0], key, moments))  # on the way there, another one
                await other.step(step[1])
                # when the index takes in what has become visible is nobody's promise; until then search says `degraded`
                await one.index()
                await other.index()
                world = later
            for method, path, body, query, fields in requests(draw, world, key, at):
                if worlds.rarely(draw, 3):
                    await other.ask("GET", "/v1/tools", world["callers"][draw.choice(known)])
                found = await one.ask(method, path, caller, body, query, **fields)
                mirrored = await other.ask(method, path, caller, body, query, **fields)
                if found != mirrored:
                    raise Interference(
                        f"{method} {path} {query} {body}\n{found}\n{mirrored}\n{world}\n{other.world}"
                    )
                answers += 1
                tag = found.header("etag")
                if tag:
                    same = [
                        await r.ask(method, path, caller, body, query, if_none_match=tag)
                        for r in (one, other)
                    ]
                    assert [s.status for s in same] == [304, 304]
            await _settled(streams)
            for mine, others in streams:
                if mine.data != others.data:
                    raise Interference(f"{mine.data!r}\n{others.data!r}\n{world}\n{other.world}")
    finally:
        for pair in streams:
            for stream in pair:
                await stream.close()
    return answers, sum(len(mine.events) for mine, _ in streams)


async def _settled(streams: list[tuple[Stream, Stream]]) -> None:
    """Let each say what it has to say."""
    for _ in range(40):
        await asyncio.sleep(0)
    for _ in range(1_000):  # two seconds; only a difference waits so long
        if all(mine.data == others.data for mine, others in streams):
            return
        await asyncio.sleep(0.002)


def run(scripts: int, seed: int) -> tuple[int, int]:
    """(answers, events) compared over so many scripts."""

    async def all_of_them() -> tuple[int, int]:
        draw, answers, events = random.Random(seed), 0, 0
        # `totals: all` is the switch that tells of the whole; it is off here
        for kind in worlds.KINDS:
            told = {"discovery": {"anonymous": worlds.KINDS[kind]["anonymous"], "totals": "visible"}}
            async with rig(kind, **told) as one, rig(kind, **told) as other:
                for _ in range(scripts // len(worlds.KINDS)):
                    try:
                        found = await compared(one, other, draw)
                    except Interference as interference:
                        raise Interference(f"seed {seed}: {interference}") from None
                    answers, events = answers + found[0], events + found[1]
        return answers, events

    return asyncio.run(all_of_them())


def test_nothing_outside_a_view_changes_a_byte_of_what_its_caller_receives() -> None:
    answers, events = run(SCRIPTS, int(os.environ.get("TOOLCRIB_PROOF_SEED") or secrets.randbelow(1 << 32)))

    assert answers > 400
    assert events > 15


# ---- a comparison that finds nothing proves nothing -------------------------------------------------------------------


def counts_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        discovery, "total_registered", lambda caller_view, settings: caller_view.snapshot.active_tools
    )


def names_the_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CallerView, "revision", property(lambda self: str(self.snapshot.revision)))


def takes_names_for_hidden_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    real = toolcrib.view.view_of

    def view_of(identity: Any, snapshot: Any, now: float, *rest: Any) -> Any:
        view = real(identity, snapshot, now, *rest)
        listed = {}
        for name, tool_id in view.names.items():
            shared = len(snapshot.by_name.get(name.lower(), ())) > 1
            listed[f"{view.tools[tool_id].namespace}.{name}" if shared else name] = tool_id
        return replace(view, names=listed)

    monkeypatch.setattr("toolcrib_registry.policy.state.view_of", view_of)


def searches_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    async def entries_of(self: Any, caller_view: CallerView) -> Any:
        return {i: self._entries.of(tool) for i, tool in caller_view.snapshot.tools.items() if tool.active}

    monkeypatch.setattr("toolcrib_registry.search.engine.SearchEngine.entries_of", entries_of)


def gives_notice_of_every_publish(monkeypatch: pytest.MonkeyPatch) -> None:
    async def digest(self: DirectView, caller_view: CallerView, version: str) -> str:
        return str(caller_view.snapshot.revision)

    monkeypatch.setattr(DirectView, "digest", digest)


def says_that_a_tool_is_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    real = DirectView.call

    async def call(self: DirectView, client: Any, asked: Any) -> Any:
        try:
            return await real(self, client, asked)
        except RpcError as error:
            if asked.name.replace("__", "/") in self._parts.state.snapshot.tools:
                raise RpcError(error.code, "Not permitted") from None
            raise

    monkeypatch.setattr(DirectView, "call", call)


@pytest.mark.parametrize(
    "broken",
    [
        counts_everything,
        names_the_revision,
        takes_names_for_hidden_tools,
        searches_everything,
        gives_notice_of_every_publish,
        says_that_a_tool_is_denied,
    ],
)
def test_a_registry_that_tells_of_hidden_things_is_found_out(
    broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)

    with pytest.raises(Interference):
        run(600, 7)


def test_answers_are_compared_with_all_their_headers() -> None:
    assert Answer(200, (("etag", "1"),), b"") != Answer(200, (("etag", "2"),), b"")
