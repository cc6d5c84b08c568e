"""B and E, in the local mode as `toolcrib up` starts it: hidden text, reserved names, quotas."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import httpx
import yaml

from attack.stage import Stage, hold
from local_mode import LocalMode
from manifests import binding, manifest
from toolcrib.names import RESERVED_TOOL_NAMES

HIDDEN = [
    *range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), *range(0x7F, 0xA0), 0xAD, 0x34F, 0x61C, 0x115F, 0x180E,
    *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0x3164, 0xFE00, 0xFE0F, 0xFEFF, 0xFFA0, *range(0xFFF9, 0xFFFC),
    0x1D173, 0xE0001, *range(0xE0020, 0xE0080), *range(0xE0100, 0xE01F0),
]  # fmt: skip
PLAIN = (
    "Reads a file.",
    "Añade dos números.\n\tDos.",
    "计算器",
    "می\u200cخواهم",
    "👩\u200d💻 helps",
    "naïve ☎\ufe0f",
    "क्\u200dष",
)
MARGIN = 15
"""Tools beyond the quota."""
BIG = 6
NAMESPACES = ("text", "crowd", "heavy")


def attack(stage: Stage, draw: random.Random, count: int) -> int:
    """Manifests and registrations whose texts hide characters, names of routes, and more tools than a quota."""
    with stage.folder("manifests") as folder:
        manifests = folder / "m"
        manifests.mkdir()
        plain, hidden = set(), {}
        for number in range(count):
            tool = _tool("text", f"t{number}")
            where = _fill(draw, tool["spec"], hides=number % 3 > 0)
            if where:
                hidden[f"t{number}"] = where
            else:
                plain.add(f"t{number}")
            _write(manifests / f"t{number:04}.yaml", tool)
        for number in range(count + MARGIN):
            _write(manifests / f"many{number:04}.yaml", _tool("crowd", f"many{number}"))
        for number in range(BIG):
            big = _tool("heavy", f"heavy{number}")
            big["spec"]["inputSchema"]["description"] = "x" * 60_000
            _write(manifests / f"heavy{number}.yaml", big)
        _write(manifests / "a.yaml", *_grants())
        quotas = ("--quota-tools", str(count), "--quota-bytes", "250000")
        with LocalMode(folder, manifests, extra=quotas) as local:
            _listed(local, plain, hidden, count)
            registered = _registered(draw, local, count // 2)
            again = {name for name in local.names(local.token("text/bot")) if name.startswith("t")}
            hold("what was refused changes nothing for others", again == plain, now=sorted(again))
    return count + count + MARGIN + BIG + registered


def _listed(local: LocalMode, plain: set[str], hidden: dict[str, str], count: int) -> None:
    names = local.names(local.token("text/bot"))
    seen = {name for name in names if name.startswith("t")}
    hold(
        "tools whose texts hide characters are refused, and no others",
        seen == plain,
        used={name: hidden[name] for name in sorted(seen - plain)},
        refused=sorted(plain - seen),
    )
    crowd, heavy = (sum(name.startswith(word) for name in names) for word in ("many", "heavy"))
    hold("as many tools as the quota allows are accepted, and no more", crowd == count, accepted=crowd)
    hold("tools are accepted up to the quota of bytes", 0 < heavy < BIG, accepted=heavy)


def _fill(draw: random.Random, spec: dict[str, Any], *, hides: bool) -> str:
    """Fill the texts with what is plain, one of them with a hidden character; which, and where."""
    fields = ["title", "description", "returns", "examples", "tags", "schema text", "property", "enum"]
    chosen = draw.choice(fields)
    point = draw.choice(HIDDEN)
    for field in fields:
        text = draw.choice(PLAIN).split("\n")[0] if field in ("title", "tags") else draw.choice(PLAIN)
        if hides and field == chosen:
            # between Latin letters no joiner and no selector has a meaning
            text = f"Reads{chr(point)}a file."
        elif field != "description" and draw.random() < 0.5:
            continue
        if field in ("title", "description", "returns"):
            spec[field] = text
        elif field in ("examples", "tags"):
            spec[field] = [text]
        elif field == "schema text":
            spec["inputSchema"]["description"] = text
        elif field == "property":
            spec["inputSchema"].setdefault("properties", {})[text] = {"type": "string"}
        else:
            spec["inputSchema"].setdefault("properties", {})["choice"] = {"enum": ["a", text]}
    return f"U+{point:04X} in {chosen}" if hides else ""


def _registered(draw: random.Random, local: LocalMode, count: int) -> int:
    """Registrations: names of routes and hidden text are refused, plain ones are there."""
    headers = {"Authorization": f"Bearer {local.token('tester', '--scopes', 'registry:write s')}"}
    with httpx.Client(base_url=local.url, headers=headers, timeout=60, trust_env=False) as client:
        for number in range(count):
            kind = draw.choice(["reserved", "hidden", "plain"])
            name = draw.choice(sorted(RESERVED_TOOL_NAMES)) if kind == "reserved" else f"r{number}"
            point = draw.choice(HIDDEN)
            described = f"Reads{chr(point)}a file." if kind == "hidden" else draw.choice(PLAIN)
            body = {"name": name, "endpoint": "/x", "scopes": ["s"], "description": described}
            answer = client.post("/tools/register", json=body)
            hold(
                "names of routes and hidden text cannot be registered, everything else can",
                (answer.status_code == 200) == (kind == "plain") and answer.status_code in (200, 400, 422),
                kind=kind,
                body=body,
                answer=answer.text,
            )
    return count


def _tool(namespace: str, name: str) -> dict[str, Any]:
    return manifest(
        "Tool",
        name,
        namespace,
        description="Reads a file.",
        scopes=["s"],
        inputSchema={"type": "object"},
        backend={"none": {}},
    )


def _grants() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in NAMESPACES
    ]
    account = {"name": "bot", "namespace": "text"}
    found.append({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    subject = {"kind": "ServiceAccount", **account}
    return found + [binding("bot", ["s"], namespace, subjects=[subject]) for namespace in NAMESPACES]


def _write(path: Path, *documents: Any) -> None:
    path.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
