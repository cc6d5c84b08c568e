"""B. Bindings that others write in their own namespaces change nothing elsewhere, and cost nothing there."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

from attack.stage import Stage, Target, hold
from registry_harness import ISSUER, binding, tool
from toolcrib.resources.bindings import SubjectKind
from toolcrib.wire.publish import PublishedBinding, PublishedSubject

TOOLS, FOREIGN, CALLERS = 800, 1_000, 6
FACTOR, SECONDS = 4.0, 0.4
"""Processor time that views may take with foreign bindings: so many times as without, and so much more."""
_TEAM = (PublishedSubject(kind=SubjectKind.GROUP, issuer=ISSUER, name="system:serviceaccounts:team"),)
_TICKS = os.sysconf("SC_CLK_TCK")


def attack(stage: Stage, draw: random.Random, count: int) -> int:
    """Worlds with a thousand bindings of one namespace that name everybody of another."""
    target = stage.target("foreign bindings")
    rounds = max(1, count // 15)
    tools = [tool(f"t{i}", namespace="north", scopes=("all:use",)) for i in range(TOOLS)]
    evil = [tool(f"e{i}", namespace="evil", scopes=("all:use", "e:use")) for i in range(10)]
    own = [binding("wide", ["all:use"], namespace=None, subjects=_TEAM, namespaces=("north",))]
    for number in range(rounds):
        target.publish([*tools, *evil], own)
        seen, alone = _views(target, f"before-{number}")
        foreign = [_foreign(draw, i) for i in range(FOREIGN)]
        target.publish([*tools, *evil], [*own, *foreign])
        with_them, cost = _views(target, f"after-{number}")
        elsewhere = [t for t in with_them if t["endpoint"] not in {t["endpoint"] for t in seen}]
        case: dict[str, Any] = {"foreign": [b.model_dump(mode="json") for b in foreign[:3]]}
        hold(
            "foreign bindings take nothing away, and give only their own namespace's tools",
            {t["endpoint"] for t in seen} <= {t["endpoint"] for t in with_them}
            and all(t["name"].startswith("e") for t in elsewhere),
            **case,
        )
        hold(
            "foreign bindings do not slow others' views",
            cost <= FACTOR * alone + SECONDS,
            seconds={"without": alone, "with": cost},
            **case,
        )
    return rounds


def _foreign(draw: random.Random, number: int) -> PublishedBinding:
    """One that grants or denies whatever it can name."""
    fields: dict[str, Any] = {}
    if draw.random() < 0.7:
        fields["deny"] = tuple(draw.choice(("*", "t*", "north:*", "?1*")) for _ in range(draw.randint(1, 8)))
    if draw.random() < 0.5:
        fields["deny_scopes"] = ("all:use",)
    if draw.random() < 0.3:
        fields["allow"] = tuple(draw.choice(("t*", "e*", "nothing")) for _ in range(draw.randint(1, 8)))
    scopes = draw.sample(["all:use", "e:use", *(f"x{i}:use" for i in range(14))], draw.randint(0, 16))
    return binding("n", scopes, namespace="evil", name=f"f{number}", subjects=_TEAM, **fields)


def _views(target: Target, prefix: str) -> tuple[list[dict[str, Any]], float]:
    """What a member of the team lists, and the processor time for several who were not seen before."""
    before, tools = _spent(target), list[dict[str, Any]]()
    for number in range(CALLERS):
        answer = target.http.get(target.url + "/", headers=target.auth(f"team/{prefix}-{number}"))
        hold("everybody is answered", answer.status_code == 200, text=answer.text[:500])
        tools = answer.json()["tools"]
    return tools, _spent(target) - before


def _spent(target: Target) -> float:
    """Seconds of processor time of the registry's process so far."""
    fields = Path(f"/proc/{target.running.child.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
