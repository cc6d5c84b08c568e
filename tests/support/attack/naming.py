"""B. Names: one new tool in somebody else's namespace takes no bare name, and no two tools share one for models."""

from __future__ import annotations

import random
import re
from typing import Any

from attack.stage import NAMESPACES, Stage, code_of, hold, service
from registry_harness import binding, tool
from stub_server import Answer, Asked

POOL = ("calc", "Calc", "read", "a.b", "north.calc", "team.calc", "a__b", "north__calc", "x_abcdef", "n" * 60)
MODEL = re.compile("[A-Za-z0-9_-]{1,48}")


def attack(stage: Stage, draw: random.Random, count: int) -> int:
    """Random worlds, each with one tool more; then every name is asked for again."""
    target = stage.target()
    cases = taken = 0
    stage.backend.answer = _reached
    for number in range(max(1, count // 2)):
        bindings, named = _bindings(draw)
        tools: dict[str, Any] = {}
        for _ in range(draw.randint(1, 7)):
            _add(draw, tools, draw.choice(NAMESPACES[:3]), draw.choice(POOL), number)
        asked = (*POOL, *tools, "evil.calc", "evil__calc", "evil/calc")
        target.publish(list(tools.values()), bindings)
        before = {name: _means(target, name) for name in asked}
        strangers = [n for n in NAMESPACES if n != "team" and n not in named]
        wanted = draw.choice((*(t.name for t in tools.values()), draw.choice(POOL)))
        _add(draw, tools, draw.choice(strangers), wanted, number)
        (*_, new) = tools
        target.publish(list(tools.values()), bindings)
        for name in asked:
            was, now = before[name], _means(target, name)
            case = {
                "name": name,
                "before": was,
                "after": now,
                "created": new,
                "tools": {k: t.name for k, t in tools.items()},
                "bindings": [b.model_dump(exclude_defaults=True, mode="json") for b in bindings],
            }
            if was in (None, now):
                hold("a tool id means that tool alone", "/" not in name or now in (None, name), **case)
            else:
                hold(
                    "a new tool takes no bare name from another",
                    now == "ambiguous_name" and was != now,
                    **case,
                )
                taken += 1
            cases += 1
        _listed(target, [t.name for t in tools.values()])
    hold("some names became ambiguous: the worlds are not empty", taken or count < 60)
    return cases


def _add(draw: random.Random, tools: dict[str, Any], namespace: str, name: str, number: int) -> None:
    if any(t.namespace == namespace and t.name == name for t in tools.values()):
        name += str(len(tools))
    object_name = f"o{number}-{len(tools)}-{draw.randrange(1000)}"
    made = tool(
        name,
        namespace=namespace,
        object_name=object_name,
        scopes=("s",),
        backend=service(namespace, f"/{namespace}/{object_name}"),
    )
    tools[made.tool_id] = made


def _bindings(draw: random.Random) -> tuple[list[Any], set[str]]:
    """Bindings of team/bot over all that matters, and the namespaces that they name."""
    made, named = [binding("bot", ["s"], namespace=None, name="all", namespaces=None)], set()
    for namespace in draw.sample(NAMESPACES[:3], draw.randint(0, 2)):
        named.add(namespace)
        if draw.random() < 0.5:
            made.append(binding("bot", ["s"], namespace=namespace, name=f"in-{namespace}"))
        else:
            made.append(
                binding(
                    "bot",
                    ["s"],
                    namespace=None,
                    name=f"to-{namespace}",
                    namespaces=(namespace,),
                    lists_namespaces=True,
                )
            )
    return made, named


def _means(target: Any, name: str) -> str | None:
    """The id of the tool that a call by this name reaches, a problem's code, or None where there is none."""
    answer = target.call(name, {})
    if answer.status_code == 200:
        return (
            str(answer.json()["result"]["reached"])
            if "result" in answer.json()
            else str(answer.json()["reached"])
        )
    code = code_of(answer)
    return None if code == "not_permitted" else code


def _reached(asked: Asked) -> Answer:
    return Answer(b'{"reached":"%s"}' % asked.path.strip("/").encode())


def _listed(target: Any, names: list[str]) -> None:
    listed = [t["name"] for t in target.http.get(target.url + "/", headers=target.auth()).json()["tools"]]
    hold("no two tools are listed by one name", len(listed) == len(set(listed)) == len(names), listed=listed)
    loaded = target.http.post(target.url + "/v1/load", headers=target.auth(), json={"tools": listed}).json()
    models = [t["_meta"]["toolcrib.dev/model-name"] for t in loaded["tools"]]
    hold(
        "names for models are of models' letters, and no two tools share one",
        len(set(models)) == len(names) and all(MODEL.fullmatch(m) for m in models),
        names=models,
        tools=names,
    )
    shown = _over_mcp(target, "tools/list", {})["tools"]
    ids = {t["name"]: t["_meta"]["toolcrib.dev/tool-id"] for t in shown}
    hold(
        "MCP lists tools by their names for models", sorted(ids) == sorted(models), listed=ids, models=models
    )
    for name, tool_id in ids.items():
        reached = _over_mcp(target, "tools/call", {"name": name})["structuredContent"]["reached"]
        hold("a name for models means one tool", reached == tool_id, name=name, reached=reached, tools=ids)


def _over_mcp(target: Any, method: str, params: dict[str, Any]) -> dict[str, Any]:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = target.http.post(target.url + "/mcp/direct", headers=target.auth(), json=body)
    hold("MCP answers with a result", "result" in answer.json(), answer=answer.text, asked=body)
    result: dict[str, Any] = answer.json()["result"]
    return result
