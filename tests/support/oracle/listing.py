"""Paths that list: discovery, statistics, definitions in pages, tools for models, servers."""

from typing import Any
from urllib.parse import urlencode

from oracle import decisions, rpc
from oracle.asked import Asked, Difference, same
from oracle.revisions import STATELESS


async def discovery(q: Asked) -> list[str]:
    """`GET /`: 200 in any case; counts and ETag are the view's."""
    answer = await q.get("/")
    same("status", answer.status, 200)
    body = answer.json
    by_text = {f"Does {t['marker']} things.": t for t in q.world["tools"]}
    shown = {by_text[entry["description"]]["id"]: entry for entry in body["tools"]}
    same("tools", sorted(shown), q.names.visible)
    for tool_id, entry in shown.items():
        q.listing_name(tool_id, entry["name"])
        same(f"scopes of {tool_id}", entry["scopes"], q.tool(tool_id)["scopes"])
    same("names that mean two tools", len({entry["name"] for entry in body["tools"]}), len(body["tools"]))
    same("authenticated", body["authenticated"], q.identified)
    same("total_available", body["total_available"], len(q.names.visible))
    everything = q.world["totals"] == "all" and q.identified
    active = sum(decisions.active(t) for t in q.world["tools"])
    same("total_registered", body["total_registered"], active if everything else len(q.names.visible))
    same("scopes", body["scopes"], sorted(decisions.in_force(q.world, q.caller, q.issuers, q.at)))
    again = await q.get("/", if_none_match=answer.header("etag") or "")
    same("the same again, with its ETag", (again.status, again.body), (304, b""))
    return q.names.visible


async def stats(q: Asked) -> list[str]:
    """`GET /stats`: counts of what is visible; of everything for holders of `registry:write`."""
    answer = await q.get("/stats")
    same("status", answer.status, 200)
    counted = [q.tool(i) for i in q.names.visible]
    if decisions.has_power(q.world, q.caller, q.issuers, "registry:write", q.at):
        counted = [t for t in q.world["tools"] if decisions.active(t)]
    scopes, bare = [s for t in counted for s in t["scopes"]], [t["name"] for t in counted]
    # a tool that only registrars count has its own name where no other has it too
    own = {t["id"]: t["name"] if bare.count(t["name"]) == 1 else t["id"] for t in counted}
    wanted = {
        "total_tools": len(counted),
        "tools_by_name": sorted(q.names.listed.get(i, name) for i, name in own.items()),
        "scope_usage": {scope: scopes.count(scope) for scope in scopes},
        "unique_scopes": len(set(scopes)),
    }
    same("counts", answer.json, wanted)
    return q.names.visible


async def pages(q: Asked) -> list[str]:
    """`GET /v1/tools`, in pages of a few, to the end."""
    found: list[dict[str, Any]] = []
    revisions, cursor = set(), None
    while True:
        query = {"limit": str(q.argument)} | ({"cursor": cursor} if cursor else {})
        answer = await q.get("/v1/tools", urlencode(query))
        if not q.lists and q.refused(answer):
            return []
        same("status", answer.status, 200)
        body = answer.json
        if len(body["tools"]) > q.argument:
            raise Difference(f"a page of {q.argument} holds {len(body['tools'])}")
        found += body["tools"]
        revisions.add(body["revision"])
        cursor = body["next_cursor"]
        if cursor is None:
            break
    same("tools, in order", [t["tool_id"] for t in found], q.names.visible)
    same("revisions of one walk", len(revisions), 1)
    for shown in found:
        q.listing_name(shown["tool_id"], shown["name"])
    return q.names.visible


async def servers(q: Asked) -> list[str]:
    """`GET /v0.1/servers`, in pages of a few: the servers of what is visible, each with the count of its tools."""
    found: dict[str, int | None] = {}
    cursor = None
    while True:
        query = {"limit": str(q.argument)} | ({"cursor": cursor} if cursor else {})
        answer = await q.get("/v0.1/servers", urlencode(query))
        if not q.lists and q.refused(answer):
            return []
        same("status", answer.status, 200)
        body = answer.json
        if len(body["servers"]) > q.argument:
            raise Difference(f"a page of {q.argument} holds {len(body['servers'])}")
        for server in (entry["server"] for entry in body["servers"]):
            found[server["name"]] = server.get("_meta", {}).get("dev.toolcrib/server", {}).get("tools")
        cursor = body["metadata"].get("nextCursor")
        if cursor is None:
            break
    wanted: dict[str, int | None] = {"dev.toolcrib/toolcrib": None}
    for tool in (q.tool(i) for i in q.names.visible):
        if tool["server"]:
            name = f"dev.toolcrib.{tool['namespace']}/{tool['server']}"
            wanted[name] = (wanted.get(name) or 0) + 1
    same("servers, in order", list(found.items()), sorted(wanted.items()))
    return q.names.visible


async def for_models(q: Asked) -> list[str]:
    """`tools/list` of `/mcp/direct`, in pages, to the end: the view, by its names for models, in the order of the ids."""
    found: list[dict[str, Any]] = []
    more: dict[str, str] = {}
    while True:
        said = await rpc.ask(q, "/mcp/direct", q.argument, "tools/list", **more)
        if said is None:
            return []
        same("error", said.error, None)
        if len(said.result["tools"]) > q.rig.page:
            raise Difference(f"a page of {q.rig.page} holds {len(said.result['tools'])}")
        if q.argument in STATELESS:
            same("who may keep it", said.result["cacheScope"], "private")
        found += said.result["tools"]
        if "nextCursor" not in said.result:
            break
        more = {"cursor": said.result["nextCursor"]}
    ids = [t["_meta"]["toolcrib.dev/tool-id"] for t in found]
    same("tools, in order", ids, q.names.visible)
    for tool_id, shown in zip(ids, found, strict=True):
        same(f"the name of {tool_id} for models", shown["name"], q.names.for_models(tool_id))
        same(
            f"the description of {tool_id}", shown["description"], f"Does {q.tool(tool_id)['marker']} things."
        )
    return q.names.visible
