"""Streams: what they begin with, and what they say after the world and the clock have moved on."""

import asyncio

from oracle.asked import Asked, Difference, same
from oracle.revisions import STATELESS
from oracle.rig import Stream

OPENING = 30.0
"""Seconds that an answer may take to begin."""


async def snapshot(q: Asked) -> list[str]:
    """`GET /v1/watch`: the first event is the whole view."""
    stream = q.rig.watch(q.caller)
    try:
        if await _open(q, stream):
            _shows(q, stream)
    finally:
        await stream.close()
    return q.names.visible


async def changes(q: Asked) -> list[str]:
    """`GET /v1/watch`: after a publish, and after the clock has moved on, the events lead to what is then visible."""
    stream = q.rig.watch(q.caller)
    try:
        live = await _open(q, stream)
        await q.rig.step(q.argument["world"])
        for at in (q.at, q.argument["at"]):
            q.rig.clock.set(at)
            later = Asked(q.rig, q.argument["world"], q.caller, at, None)
            if live:
                await until_shown(later, stream)
    finally:
        await stream.close()
    return later.names.visible


async def _open(q: Asked, stream: Stream) -> bool:
    """Wait for the first event; False: 401."""
    async with asyncio.timeout(OPENING):
        await stream.begun.wait()
    if not q.identified:
        same("status", stream.status, 401)
        return False
    same("status", stream.status, 200)
    same("first event", stream.events[0][0], "snapshot")
    return True


def _shown(stream: Stream) -> dict[str, str]:
    """id → listed name, after all events so far."""
    found: dict[str, str] = {}
    for kind, data in stream.events:
        if kind == "snapshot":
            found = {t["tool_id"]: t["name"] for t in data["tools"]}
        elif kind in ("added", "changed"):
            if (kind == "changed") != (data["tool"]["tool_id"] in found):
                raise Difference(f"{kind}: {data['tool']['tool_id']}, while {sorted(found)} were shown")
            found[data["tool"]["tool_id"]] = data["tool"]["name"]
        elif kind == "removed" and found.pop(data["tool_id"], None) is None:
            raise Difference(f"removed, but never shown: {data['tool_id']}")
    return found


def _shows(q: Asked, stream: Stream) -> None:
    shown = _shown(stream)
    same("tools", sorted(shown), q.names.visible)
    for tool_id, name in shown.items():
        q.listing_name(tool_id, name)


async def until_shown(q: Asked, stream: Stream) -> None:
    """Let the stream run until it has said all that it has to say."""
    deadline = asyncio.get_running_loop().time() + q.rig.patience
    while True:
        for _ in range(12):
            await asyncio.sleep(0)
        try:
            if q.identified:
                same("the stream's end", stream.ended, False)
                _shows(q, stream)
            elif not stream.ended:
                same("tools", sorted(_shown(stream)), [])
            return
        except Difference:
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(0.001)


async def notices(q: Asked) -> list[str]:
    """The change streams of `/mcp/direct`, of both eras: one notice when the caller's own list differs, and else none."""
    version = q.argument["version"]
    stream = q.rig.notices(q.caller, version)
    try:
        async with asyncio.timeout(OPENING):
            await stream.begun.wait()
        live = q.identified
        same("status", stream.status, 200 if live else 401)
        begun = 1 if version in STATELESS else 0  # the stateless era acknowledges
        told, listed = 0, _listed(q)
        await q.rig.step(q.argument["world"])
        for at in (q.at, q.argument["at"]):
            q.rig.clock.set(at)
            later = Asked(q.rig, q.argument["world"], q.caller, at, None)
            live = live and later.identified
            if live:
                now = _listed(later)
                told, listed = told + (now != listed), now
                await _until_told(q.rig.patience, stream, begun, told)
    finally:
        await stream.close()
    if live:
        _told(stream, begun, told)
    return later.names.visible


def _listed(q: Asked) -> list[tuple[str, str, str]]:
    """What the list for models holds."""
    return [(i, q.names.for_models(i), q.tool(i)["marker"]) for i in q.names.visible]


def _told(stream: Stream, begun: int, told: int) -> None:
    methods = [data["method"] for _, data in stream.events]
    same("how it begins", methods[:begun], ["notifications/subscriptions/acknowledged"] * begun)
    same("notices", methods[begun:], ["notifications/tools/list_changed"] * told)


async def _until_told(patience: float, stream: Stream, begun: int, told: int) -> None:
    deadline = asyncio.get_running_loop().time() + patience
    while True:
        for _ in range(12):
            await asyncio.sleep(0)
        try:
            same("the stream's end", stream.ended, False)
            _told(stream, begun, told)
            return
        except Difference:
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(0.001)
