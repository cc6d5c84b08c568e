"""Paths that name a tool: reads of one, describe, load, and calls."""

from typing import Any

from oracle import rpc
from oracle.asked import Asked, same
from oracle.rig import Answer


def _ids(q: Asked) -> list[str]:
    return q.names.meaning(q.argument)


def _is_one(q: Asked, answer: Answer, missing: tuple[int, str]) -> bool:
    """Whether the name means one tool; else the answer must be a 409 among visible ones, or say that there is none."""
    ids = _ids(q)
    if q.names.conflicts(q.argument) and ids:
        same("status", answer.status, 409)
        same("code", answer.json["code"], "ambiguous_name")
        same("tool_ids", sorted(answer.json["tool_ids"]), ids)
        return False
    if not ids:
        same("status", answer.status, missing[0])
        same("code", answer.json["code"], missing[1])
        return False
    same("status", answer.status, 200)
    return True


def _is_meant(q: Asked, tool_id: str, name: str | None = None) -> list[str]:
    same(f"the tool that {q.argument!r} means", [tool_id], _ids(q))
    if name is not None:
        q.listing_name(tool_id, name)
    return [tool_id]


async def entry(q: Asked) -> list[str]:
    """`GET /tools/{name}`: the eight keys, or 404."""
    answer = await q.get("/tools/" + q.argument)
    if not _is_one(q, answer, (404, "tool_not_found")):
        return []
    body = answer.json
    tool = next(t for t in q.world["tools"] if f"Does {t['marker']} things." == body["description"])
    return _is_meant(q, tool["id"], body["name"])


async def definition(q: Asked) -> list[str]:
    """`GET /v1/tools/{namespace}/{name}`: by id alone."""
    answer = await q.get("/v1/tools/" + q.argument)
    if not q.lists and q.refused(answer):
        return []
    if not _is_one(q, answer, (404, "tool_not_found")):
        return []
    return _is_meant(q, answer.json["tool_id"], answer.json["name"])


async def describe(q: Asked) -> list[str]:
    """`POST /v1/describe`."""
    answer = await q.post("/v1/describe", {"tool": q.argument})
    if q.refused(answer) or not _is_one(q, answer, (404, "tool_not_found")):
        return []
    return _is_meant(q, answer.json["tool_id"], answer.json["name"])


async def load(q: Asked) -> list[str]:
    """`POST /v1/load`: each of many names by itself."""
    answer = await q.post("/v1/load", {"tools": q.argument})
    if q.refused(answer):
        return []
    same("status", answer.status, 200)
    return _loaded(q, q.argument, answer.json)


def _loaded(q: Asked, asked: list[str], body: dict[str, Any]) -> list[str]:
    wanted = list(dict.fromkeys(asked))
    found = {t["_meta"]["toolcrib.dev/tool-id"]: t["name"] for t in body["tools"]}
    models = {
        t["_meta"]["toolcrib.dev/tool-id"]: t["_meta"]["toolcrib.dev/model-name"] for t in body["tools"]
    }
    errors = {e["tool"]: e for e in body["errors"]}
    hoped: set[str] = set()
    for name in wanted:
        one = Asked(q.rig, q.world, q.caller, q.at, name)
        ids, shared = _ids(one), one.names.conflicts(name)
        if len(ids) == 1 and not shared:
            hoped |= set(ids)
        else:
            code = "ambiguous_name" if ids and shared else "tool_not_found"
            same(f"the error of {name!r}", errors.get(name, {}).get("code"), code)
            if code == "ambiguous_name":
                same("tool_ids", sorted(errors[name]["tool_ids"]), ids)
    same("tools", sorted(found), sorted(hoped))
    for tool_id, name in found.items():
        same(f"{tool_id} is visible", tool_id in q.names.visible, True)
        same(f"the name of {tool_id} for models", models[tool_id], q.names.for_models(tool_id))
        q.listing_name(tool_id, name)
    return sorted(found)


async def call(q: Asked) -> list[str]:
    """`POST /v1/call`: the tool that was called, or 403."""
    answer = await q.post("/v1/call", {"tool": q.argument, "arguments": {}})
    if q.refused(answer) or not _is_one(q, answer, (403, "not_permitted")):
        return []
    same("the tool that says it was called", answer.json["result"], {"called": answer.json["tool_id"]})
    return _is_meant(q, answer.json["tool_id"])


async def plain_call(q: Asked) -> list[str]:
    """`POST /tools/{name}`: the same by plain HTTP."""
    answer = await q.post("/tools/" + q.argument, {})
    if q.refused(answer) or not _is_one(q, answer, (403, "not_permitted")):
        return []
    return _is_meant(q, answer.json["called"])


async def mcp_describe(q: Asked) -> list[str]:
    """`describe_tool` of `/mcp`."""
    version, name = q.argument
    one = Asked(q.rig, q.world, q.caller, q.at, name)
    said = await rpc.call(q, "/mcp", version, "describe_tool", tool_id=name)
    if said is None or not rpc.is_one(one, said, _ids(one), name):
        return []
    shown = said.result["structuredContent"]
    return _is_meant(one, shown["tool_id"], shown["name"])


async def mcp_load(q: Asked) -> list[str]:
    """`load_tools` of `/mcp`."""
    version, names = q.argument
    said = await rpc.call(q, "/mcp", version, "load_tools", tool_ids=names)
    if said is None:
        return []
    same("error", (said.error, said.code), (None, None))
    return _loaded(q, names, said.result["structuredContent"])


async def mcp_call(q: Asked) -> list[str]:
    """`call_tool` of `/mcp`: the tool that was called, or as one that does not exist."""
    version, name = q.argument
    one = Asked(q.rig, q.world, q.caller, q.at, name)
    said = await rpc.call(q, "/mcp", version, "call_tool", tool_id=name, args={})
    if said is None or not rpc.is_one(one, said, _ids(one), name):
        return []
    return _is_meant(one, said.result["structuredContent"]["called"])


async def direct_call(q: Asked) -> list[str]:
    """`tools/call` of `/mcp/direct`: by the names for models, and by those that are names everywhere."""
    version, name = q.argument
    ids = q.names.of_models(name)
    said = await rpc.call(q, "/mcp/direct", version, name)
    listed = any(q.names.for_models(i) == name for i in q.names.visible)
    if said is None:
        return []
    if listed:
        same("error", (said.error, said.code), (None, None))
    elif not rpc.is_one(q, said, ids, name):
        return []
    called: str = said.result["structuredContent"]["called"]
    same(f"the tool that {name!r} means", [called], ids)
    return [called]
