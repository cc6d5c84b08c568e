"""Paths that search: ours, and those of agents that come from another registry."""

from collections import Counter
from typing import Any

from oracle import rpc
from oracle.asked import Asked, Difference, same
from oracle.decisions import Tool


async def search(q: Asked) -> list[str]:
    """`POST /v1/search`: hits are visible and fit the filters; without words, or by the word that is theirs alone, or
    where all is ranked, exactly those that do."""
    wanted = q.argument
    answer = await q.post("/v1/search", {k: v for k, v in wanted.items() if v is not None})
    if q.refused(answer):
        return []
    mode = wanted.get("search_mode", "hybrid")
    if mode in ("dense", "compat") and q.rig.kind != "closed":
        same("a mode without an embedder", (answer.status, answer.json["code"]), (400, "invalid_request"))
        return []
    same("status", answer.status, 200)
    body = answer.json
    hits = {hit["tool_id"]: hit for hit in body["tools"]}
    same("one hit a tool", len(hits), len(body["tools"]))
    fitting = [i for i in q.names.visible if _fits(q.tool(i), wanted)]
    for tool_id, hit in hits.items():
        if tool_id not in fitting:
            raise Difference(f"a hit that is not visible, or does not fit: {tool_id}")
        q.listing_name(tool_id, hit["name"])
    words = wanted.get("query") or ""
    if wanted["limit"] == 100 and wanted.get("top_k_servers") is None:
        by_words = words and body["search_mode"] in ("hybrid", "lexical")
        sought = [i for i in fitting if not by_words or q.tool(i)["marker"] in words]
        if body["search_mode"] == "dense":
            sought = []  # what is not in the index yet has no meaning there
        same("visible tools that are not found", sorted(set(sought) - set(hits)), [])
    elif len(hits) > wanted["limit"]:
        raise Difference(f"{len(hits)} hits, where {wanted['limit']} were asked for")
    listed = await q.get("/v1/tools", "limit=100")
    same("the revision of list and search", body["revision"], listed.json["revision"])
    return sorted(hits)


async def finder(q: Asked) -> list[str]:
    """`POST /v1/compat/intelligent_tool_finder`: as search, in the shape of the names that were sent."""
    wanted = q.argument
    answer = await q.post("/v1/compat/intelligent_tool_finder", wanted)
    if q.refused(answer):
        return []
    same("status", answer.status, 200)
    second = "query" in wanted or ("top_n" in wanted and "natural_language_query" not in wanted)
    if second:
        same("the numbers", answer.json["total_results"], len(answer.json["results"]))
        rows = [(row["description"], row["tool_name"]) for row in answer.json["results"]]
    else:
        rows = [(row["tool_parsed_description"]["main"], row["tool_name"]) for row in answer.json]
    found = _known(q, rows, wanted)
    limit = wanted.get("top_n") or wanted.get("top_n_tools") or (5 if second else 1)
    _complete(q, found, wanted, limit)
    return sorted(found)


async def semantic(q: Asked) -> list[str]:
    """`POST /api/search/semantic`: as search; the servers are those of the tools, with what is visible of them."""
    wanted = q.argument
    answer = await q.post("/api/search/semantic", wanted)
    if q.refused(answer):
        return []
    same("status", answer.status, 200)
    body = answer.json
    kinds = wanted.get("entity_types") or ["tool", "mcp_server"]
    filters = {"tags": [*wanted.get("tags", ()), *(["files"] if wanted["query"] == "#files" else [])]}
    if not wanted.get("include_deprecated"):
        filters["states"] = ["Active"]
    if wanted["query"] != "#files":
        filters["query"] = wanted["query"]
    tools = _known(q, [(row["description"], row["tool_name"]) for row in body["tools"]], filters)
    of_servers = [
        (row["description"], row["tool_name"]) for s in body["servers"] for row in s["matching_tools"]
    ]
    found = _known(q, of_servers, filters)
    if "tool" in kinds and "mcp_server" in kinds:
        same("tools of the servers", sorted(found), sorted(tools))
    same("counts", (body["total_tools"], body["total_servers"]), (len(body["tools"]), len(body["servers"])))
    if "tool" not in kinds:
        same("tools where none were asked for", tools, [])
    if "mcp_server" not in kinds:
        same("servers where none were asked for", body["servers"], [])
    own = {(q.tool(i)["namespace"], q.tool(i)["server"]) for i in found}
    sizes = [
        (server or namespace, sum((t["namespace"], t["server"]) == (namespace, server) for t in _visible(q)))
        for namespace, server in own
    ]
    same("servers", Counter((s["server_name"], s["num_tools"]) for s in body["servers"]), Counter(sizes))
    if {"tool", "mcp_server"} & set(kinds):
        _complete(q, tools or found, filters, wanted["max_results"])
    return sorted(set(tools) | set(found))


async def mcp_search(q: Asked) -> list[str]:
    """`search_tools` of `/mcp`: hits with exactly five fields, and the schema where it is asked for."""
    version, wanted = q.argument
    said = await rpc.call(q, "/mcp", version, "search_tools", **wanted)
    if said is None:
        return []
    same("error", (said.error, said.code), (None, None))
    hits = said.result["structuredContent"]["tools"]
    fields = {"tool_id", "name", "short_desc", "server", "confidence"}
    if wanted.get("schemas"):
        fields.add("inputSchema")
    filters = {"query": wanted["query"], "tags": wanted["tags"], "servers": wanted["allow_servers"]}
    found = _known(q, [(hit["short_desc"], hit["name"]) for hit in hits], filters)
    same("ids", [hit["tool_id"] for hit in hits], found)
    for hit in hits:
        same("fields of a hit", set(hit), fields)
        same("server", hit["server"], q.tool(hit["tool_id"])["server"])
        if wanted.get("schemas"):
            marked = hit["inputSchema"]["properties"]["path"]["description"]
            same("the schema", marked, q.tool(hit["tool_id"])["marker"])
    _complete(q, found, filters, wanted.get("max_results", 5))
    return sorted(found)


def _known(q: Asked, rows: list[tuple[str, str]], wanted: dict[str, Any]) -> list[str]:
    """The ids of rows of (description, listed name), each of which must be visible and fit."""
    by_text = {f"Does {t['marker']} things.": t for t in q.world["tools"]}
    found = []
    for description, name in rows:
        tool = by_text[description]
        if tool["id"] not in q.names.visible or not _fits(tool, wanted):
            raise Difference(f"a hit that is not visible, or does not fit: {tool['id']}")
        q.listing_name(tool["id"], name)
        found.append(tool["id"])
    same("one hit a tool", len(set(found)), len(found))
    return found


def _complete(q: Asked, found: list[str], wanted: dict[str, Any], limit: int) -> None:
    """Without words, everything that fits is found, as far as the limit goes."""
    if len(found) > limit:
        raise Difference(f"{len(found)} hits, where {limit} were asked for")
    if not wanted.get("query") and not wanted.get("natural_language_query"):
        fitting = [t for t in _visible(q) if _fits(t, wanted)]
        same("how many fit", len(found), min(limit, len(fitting)))


def _visible(q: Asked) -> list[Tool]:
    return [q.tool(i) for i in q.names.visible]


def _fits(tool: Tool, wanted: dict[str, Any]) -> bool:
    tags = {tag.lower() for tag in tool["tags"]}
    if not {tag.lower() for tag in wanted.get("tags", ())} <= tags:
        return False
    if wanted.get("namespaces") and tool["namespace"] not in wanted["namespaces"]:
        return False
    if wanted.get("states") and tool["state"] not in wanted["states"]:
        return False
    servers = [server.lower() for server in wanted.get("servers", ())]
    if not servers:
        return True
    own = (tool["server"] or "").lower()
    return bool(own) and (own in servers or f"{tool['namespace']}/{own}" in servers)
