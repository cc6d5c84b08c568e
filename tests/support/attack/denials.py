"""B. A deny by scope: whatever a tool's editor does, while the scope is on it the call is refused."""

from __future__ import annotations

import random

from attack.stage import NAMESPACES, Stage, code_of, hold, service
from registry_harness import binding, tool
from toolcrib.resources.tools import ToolState


def attack(stage: Stage, draw: random.Random, count: int) -> int:
    """A tool with a denied scope, edited again and again, beside one without it."""
    target = stage.target()
    for number in range(count):
        namespace = draw.choice(NAMESPACES)
        scopes = ["vault:use", *draw.sample(["s", "a:b", "files:read"], draw.randint(0, 3))]
        draw.shuffle(scopes)
        edited = tool(
            draw.choice(["heist", "vault", "files.read", "x__y"]),
            namespace=namespace,
            object_name=f"o{draw.randrange(1000)}",
            scopes=tuple(scopes),
            server=draw.choice([None, "files", "github"]),
            tags=tuple(draw.sample(["a", "b"], draw.randint(0, 2))),
            description=f"edit {number}",
            state=draw.choice([ToolState.ACTIVE, ToolState.DEPRECATED]),
            backend=service(namespace, "/"),
        )
        free = tool("free", namespace=namespace, scopes=("s",), backend=service(namespace, "/"))
        everything = binding(
            "bot", ["vault:use", "s", "a:b", "files:read"], namespace=None, name="grants", namespaces=None
        )
        where = None if draw.random() < 0.5 else namespace
        deny = binding(
            "bot",
            [],
            namespace=where,
            name="denies",
            namespaces=(namespace,) if where else None,
            deny_scopes=("vault:use", "other"),
            servers=draw.choice([None, ("files",)]) if where else None,
        )
        granted = draw.random() < 0.2
        target.publish([edited, free], [everything] if granted else [everything, deny])
        reached = target.call(edited.tool_id, {})
        control = target.call(free.tool_id, {})
        case = {
            "tool": edited.model_dump(mode="json", exclude_defaults=True),
            "denied": not granted,
            "answer": reached.text,
        }
        hold("a tool without the denied scope is called", control.status_code == 200, **case)
        if granted:
            hold("without the deny the tool is called", reached.status_code == 200, **case)
        else:
            hold("a tool with a denied scope is not called", code_of(reached) == "not_permitted", **case)
            listed = target.http.get(target.url + "/", headers=target.auth()).json()["tools"]
            hold("a tool with a denied scope is not listed", [t["name"] for t in listed] == ["free"], **case)
    return count
