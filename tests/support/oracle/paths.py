"""Every path of the registry, asked one question and held against the oracle.

A case is one question: one caller at one moment over one path of one world. `PATHS` maps a path's name to the function
that asks it; each raises `Difference` where the answer is not exactly what the oracle allows, and returns the ids of
the tools that were to be shown or reached. `argument` draws what a question needs beside caller and moment.
"""

import random
from collections.abc import Awaitable, Callable
from typing import Any

from oracle import decisions, worlds
from oracle.asked import Asked, Question
from oracle.decisions import Tool, World
from oracle.listing import discovery, pages, servers, stats
from oracle.one_tool import call, definition, describe, entry, load, plain_call
from oracle.reviewing import review
from oracle.rig import Rig
from oracle.searching import finder, search, semantic
from oracle.streams import changes, snapshot

PathFunction = Callable[[Asked], Awaitable[list[str]]]

PATHS: dict[str, PathFunction] = {
    "GET /": discovery,
    "GET /tools/{name}": entry,
    "GET /stats": stats,
    "GET /v1/tools": pages,
    "GET /v1/tools/{ns}/{name}": definition,
    "GET /v0.1/servers": servers,
    "POST /v1/search (all)": search,
    "POST /v1/search (words)": search,
    "POST /v1/search (tags)": search,
    "POST /v1/search (servers)": search,
    "POST /v1/search (words, few)": search,
    "POST /v1/search (modes)": search,
    "POST /v1/compat/intelligent_tool_finder": finder,
    "POST /api/search/semantic": semantic,
    "POST /v1/describe": describe,
    "POST /v1/load": load,
    "POST /v1/call": call,
    "POST /tools/{name}": plain_call,
    "GET /v1/access-review": review,
    "GET /v1/watch (snapshot)": snapshot,
    "GET /v1/watch (changes)": changes,
}


CHANGE = "GET /v1/watch (changes)"
"""The path whose question changes the world."""


async def ask(rig: Rig, question: Question) -> tuple[Asked, list[str]]:
    """Put one question to the world in force; the ids shown or reached.

    Raises:
        Difference: the answer is not exactly what the oracle allows.
    """
    world = rig.world
    assert world is not None
    rig.clock.set(question.at)
    asked = Asked(rig, world, world["callers"][question.caller], question.at, question.argument)
    return asked, await PATHS[question.path](asked)


def argument(draw: random.Random, path: str, world: World, caller: str, at: float) -> Any:
    """What a question over `path` needs beside its caller and its moment; most are after what is visible."""
    tools = world["tools"]
    seen = decisions.visible(world, world["callers"][caller], worlds.issuers(world["kind"]), at)
    if seen and not worlds.rarely(draw, 3):
        tools = [t for t in tools if t["id"] in seen]
    ids = [t["id"] for t in tools]
    if path in ("GET /v1/tools", "GET /v0.1/servers"):
        return draw.choice((1, 2, 3, 100))
    if path == "GET /v1/tools/{ns}/{name}":
        return draw.choice((*ids, *ids, "team-a/nothing"))
    if path == "GET /v1/access-review":
        return worlds.some(draw, tuple(ids), 0, 2)
    if path == "POST /v1/load":
        return [name(draw, tools) for _ in range(draw.randint(1, 6))]
    if path.startswith("POST /v1/search"):
        return _wanted(draw, path, tools)
    if path == "POST /v1/compat/intelligent_tool_finder":
        return _arguments(draw, tools)
    if path == "POST /api/search/semantic":
        return _semantic(draw, tools)
    if path == CHANGE:
        later = worlds.moments(draw, world, 4)
        return {"world": worlds.changed(draw, world), "at": max(at, draw.choice(later))}
    found = name(draw, tools)
    while path == "POST /tools/{name}" and found == "register":  # that is another route
        found = name(draw, tools)
    return found if "{name}" in path or path in ("POST /v1/describe", "POST /v1/call") else None


def name(draw: random.Random, tools: list[Tool]) -> str:
    """One of the ways in which a tool can be named, or one that names nothing."""
    if not tools or worlds.rarely(draw, 12):
        return draw.choice(("nothing", "team-a/nothing", "team-a.nothing", "*", "READ_FILE", "b"))
    tool = draw.choice(tools)
    ways = [tool["id"], tool["name"], tool["name"], f"{tool['namespace']}.{tool['name']}"]
    if tool["server"]:
        ways += [f"{tool['namespace']}.{tool['server']}.{tool['name']}", f"{tool['server']}:{tool['name']}"]
    return str(draw.choice(ways))


def _words(draw: random.Random, tools: list[Tool]) -> str:
    return " ".join(t["marker"] for t in worlds.some(draw, tuple(tools), 0, 3)) + " read things"


def _wanted(draw: random.Random, path: str, tools: list[Tool]) -> dict[str, Any]:
    made: dict[str, Any] = {"limit": 100, "min_score": 0}
    words = _words(draw, tools)
    if "words" in path or "modes" in path:
        made["query"] = words
    if "few" in path:
        made |= {"limit": draw.choice((1, 2, 5)), "top_k_servers": draw.choice((None, 1, 2))}
        made["min_score"] = draw.choice((None, 0.0, 0.5))
    if "tags" in path:
        made["tags"] = worlds.some(draw, ("files", "code", "REST"), 1, 2)
    if "servers" in path:
        made["servers"] = worlds.some(draw, ("github", "web", "team-a/github", "a/GIT"), 1, 2)
        if worlds.rarely(draw, 2):
            made["query"] = words
    if "modes" in path:
        made["search_mode"] = draw.choice(("hybrid", "lexical", "dense", "compat", "compat"))
        made["namespaces"] = draw.choice(((), (), ("team-a",), ("a", "team-b")))
        made["states"] = draw.choice(((), (), ("Active",), ("Deprecated",)))
    return made


def _arguments(draw: random.Random, tools: list[Tool]) -> dict[str, Any]:
    made: dict[str, Any] = {"session_cookie": "a field of theirs"}
    second = worlds.rarely(draw, 2)
    if not worlds.rarely(draw, 3):
        made["query" if second else "natural_language_query"] = _words(draw, tools)
    if len(made) == 1 or worlds.rarely(draw, 2):
        made["tags"] = worlds.some(draw, ("files", "code", "REST"), 1, 1)
    if not worlds.rarely(draw, 3):
        made["top_n" if second else "top_n_tools"] = draw.choice((1, 3, 100))
    if worlds.rarely(draw, 3):
        made["top_k_services"] = draw.choice((1, 2, 100))
    return made


def _semantic(draw: random.Random, tools: list[Tool]) -> dict[str, Any]:
    made: dict[str, Any] = {"max_results": draw.choice((1, 3, 50)), "include_disabled": True}
    made["query"] = _words(draw, tools) if not worlds.rarely(draw, 3) else "#files"
    if worlds.rarely(draw, 3):
        made["tags"] = worlds.some(draw, ("files", "code", "REST"), 1, 1)
    if worlds.rarely(draw, 3):
        made["include_deprecated"] = True
    if worlds.rarely(draw, 3):
        made["entity_types"] = draw.choice((["tool"], ["mcp_server"], ["a2a_agent"], ["tool", "skill"]))
    return made
