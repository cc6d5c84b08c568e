"""All paths agree with each other and with an oracle that shares no code with the authorizer."""

import fnmatch
import random
import threading
from typing import Any

import httpx
import pytest

from realparts.processes import wait_until
from registry_harness import RunningRegistry, binding, running_registry, tool
from toolcrib.wire.publish import PublishedBinding, PublishedTool

pytestmark = pytest.mark.guarantee

SCOPES = ["a:use", "b:use", "c:use"]
NAMESPACES = ["red", "blue"]
NOW_ISH = 4_000_000_000.0


def world(seed: int) -> tuple[list[PublishedTool], list[PublishedBinding]]:
    dice = random.Random(seed)
    tools = [
        tool(
            f"tool_{i}",
            namespace=dice.choice(NAMESPACES),
            scopes=tuple(dice.sample(SCOPES, dice.randint(1, 2))),
            scope_match=dice.choice(["Any", "Any", "All"]),
            state=dice.choice(["Active", "Active", "Deprecated", "Disabled"]),
            server=dice.choice([None, "s1", "s2"]),
        )
        for i in range(18)
    ]
    bindings = []
    for i in range(dice.randint(2, 7)):
        denies = dice.random() < 0.2
        bindings.append(
            binding(
                dice.choice(["bot", "bot", "other"]),
                [] if denies else dice.sample(SCOPES, dice.randint(1, 2)),
                namespace=dice.choice([*NAMESPACES, None]),
                name=f"grant-{i}",
                allow=None if denies or dice.random() < 0.6 else (f"tool_{dice.randint(0, 9)}", "tool_1*"),
                deny=(f"*:tool_{dice.randint(0, 9)}", f"tool_{dice.randint(0, 14)}") if denies else (),
                expires_at=dice.choice([None, None, 1.0, NOW_ISH]),
                not_before=dice.choice([None, None, None, NOW_ISH]),
            )
        )
    return tools, bindings


def expected(tools: list[PublishedTool], bindings: list[PublishedBinding]) -> set[str]:
    mine = [b for b in bindings if any(s.name == "bot" for s in b.subjects)]

    def matches(pattern: str, t: PublishedTool) -> bool:
        server, colon, name = pattern.rpartition(":")
        if colon and (t.server is None or not fnmatch.fnmatchcase(t.server, server)):
            return False
        return fnmatch.fnmatchcase(t.name, name)

    found = set()
    for t in tools:
        there = [b for b in mine if b.namespaces is None or t.namespace in b.namespaces]
        if t.state == "Disabled" or any(matches(p, t) for b in there for p in b.deny):
            continue
        given: set[str] = set()
        for b in there:
            current = b.not_before is None and (b.expires_at is None or b.expires_at == NOW_ISH)
            if current and (b.allow is None or any(matches(p, t) for p in b.allow)):
                given |= set(b.scopes) & set(t.scopes)
        if given and (t.scope_match == "Any" or given == set(t.scopes)):
            found.add(t.tool_id)
    return found


def seen(r: RunningRegistry, tools: list[PublishedTool]) -> dict[str, Any]:
    ids = [t.tool_id for t in tools]
    with httpx.Client(base_url=r.url, headers=r.auth("team", "bot"), verify=False, timeout=30) as client:
        post = client.post
        listed = client.get("/").json()["tools"]
        return {
            "discovery": {client.get("/v1/tools/" + i).json()["tool_id"] for i in _ids_of(client, listed)},
            "pages": {t["tool_id"] for t in client.get("/v1/tools").json()["tools"]},
            "one": {i for i in ids if client.get("/v1/tools/" + i).status_code == 200},
            "simple": {i for i in ids if client.get("/tools/" + i).status_code == 200},
            "search": {
                t["tool_id"] for t in post("/v1/search", json={"query": "tool", "limit": 100}).json()["tools"]
            },
            "filter": {t["tool_id"] for t in post("/v1/search", json={"limit": 100}).json()["tools"]},
            "describe": {i for i in ids if post("/v1/describe", json={"tool": i}).status_code == 200},
            "load": {
                t["_meta"]["toolcrib.dev/tool-id"]
                for t in post("/v1/load", json={"tools": ids}).json()["tools"]
            },
            # permitted calls get as far as the missing backend
            "call": {i for i in ids if post("/v1/call", json={"tool": i}).status_code == 503},
            "plain call": {i for i in ids if post("/tools/" + i, json={}).status_code == 503},
            "statistics": client.get("/stats").json()["total_tools"],
        }


def _ids_of(client: httpx.Client, listed: list[dict[str, Any]]) -> list[str]:
    loaded = [client.post("/v1/describe", json={"tool": t["name"]}).json() for t in listed]
    return [t["tool_id"] for t in loaded]


def test_all_paths_agree_with_an_independent_oracle() -> None:
    with running_registry() as r:
        before: tuple[list[PublishedTool], list[PublishedBinding]] = ([], [])
        visible = 0
        for seed in range(8):
            tools, bindings = world(seed)
            r.publish(
                tools,
                bindings,
                remove_tools=[t.tool_id for t in before[0]],
                remove_bindings=[b.uid for b in before[1]],
            )
            before = (tools, bindings)
            r.admin("POST", "/v1/admin/index", json={"epoch": 1, "upsert": [t.tool_id for t in tools]})
            wanted = expected(tools, bindings)
            visible += len(wanted)
            found = seen(r, tools)
            assert found.pop("statistics") == len(wanted), seed
            assert found == dict.fromkeys(found, wanted), seed
    assert visible > 25  # the worlds are not all empty


@pytest.mark.parametrize("path", ["/", "/v1/tools"])
def test_a_request_sees_exactly_one_revision(path: str) -> None:
    red = [tool(f"red_{i}", scopes=("s",)) for i in range(50)]
    blue = [tool(f"blue_{i}", scopes=("s",)) for i in range(50)]
    worlds = ({t.name for t in red}, {t.name for t in blue})
    with running_registry(red, [binding("bot", ["s"])]) as r:
        headers = r.auth("team", "bot")
        stop, mixed, seen_worlds = threading.Event(), [], set()
        looks = 0

        def look() -> None:
            nonlocal looks
            with httpx.Client(headers=headers, verify=False, timeout=30) as client:
                while not stop.is_set():
                    names = {t["name"] for t in client.get(r.url + path).json()["tools"]}
                    if names not in worlds:
                        mixed.append(names)
                    seen_worlds.add(worlds.index(names))
                    looks += 1

        reader = threading.Thread(target=look)
        reader.start()
        wait_until(lambda: bool(seen_worlds))
        for _ in range(10):
            r.publish(blue, remove_tools=[t.tool_id for t in red])
            r.publish(red, remove_tools=[t.tool_id for t in blue])
        so_far = looks
        wait_until(lambda: looks > so_far or not reader.is_alive())
        stop.set()
        reader.join(timeout=30)

    assert not mixed
    assert looks > so_far, "it looked until the end"
    assert not reader.is_alive()
