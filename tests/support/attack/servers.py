"""B. `spec.server`, on a real API server: however a Tool is edited, it stays as it was created, absence included."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import httpx

from admission_server import (
    APPLY,
    EVERYTHING,
    HOME,
    JSON_PATCH,
    MERGE,
    Admission,
    Given,
    Manifest,
    User,
    path_of,
)
from attack.stage import Stage, hold
from manifests import tool

Way = Callable[[Admission, User, Manifest, str | None], httpx.Response]
VALUES = (None, None, "files", "github", "Files", "files2", "a")


def attack(stage: Stage, draw: random.Random, count: int) -> int:
    """Tools with and without a server, edited by somebody who may write them in every way there is."""
    admission = stage.admission
    editor = admission.user(Given(HOME, EVERYTHING))
    admission.settle()
    for number in range(count):
        before, wanted = draw.choice(VALUES), draw.choice(VALUES)
        way = draw.choice(sorted(WAYS))
        made = _with(tool(f"edited{number}", HOME), before)
        # an apply takes away what the same manager applied, and nothing else
        there = admission.patch(editor, made, made, APPLY)
        hold("an editor creates a Tool", there.status_code == 201, answer=there.text)
        changed = copy.deepcopy(made)
        if draw.random() < 0.5:
            changed["spec"]["description"] = f"edit {number}"
        if draw.random() < 0.3:
            changed["metadata"]["labels"] = {"team": draw.choice(["a", "b"])}
        answer = WAYS[way](admission, editor, changed, wanted)
        now = admission.request(None, "GET", path_of(made)).json()["spec"].get("server")
        case = {"before": before, "wanted": wanted, "way": way, "now": now, "answer": answer.text}
        hold("the server of a Tool stays as it was created", now == before, **case)
        hold(
            "an edit that changes the server is refused, and others are not",
            answer.status_code == (200 if wanted == before or way in IGNORED else 422),
            **case,
        )
        deleted = admission.request(editor, "DELETE", path_of(made))
        hold("an editor deletes a Tool", deleted.is_success, answer=deleted.text)
    return count


def _with(manifest: Manifest, server: str | None) -> Manifest:
    spec = {k: v for k, v in manifest["spec"].items() if k != "server"}
    return manifest | {"spec": spec | ({} if server is None else {"server": server})}


def _merge(admission: Admission, who: User, new: Manifest, server: str | None) -> httpx.Response:
    return admission.patch(who, new, {"spec": {**new["spec"], "server": server}}, MERGE)


def _operations(admission: Admission, who: User, new: Manifest, server: str | None) -> httpx.Response:
    here = "server" in new["spec"]
    steps: list[dict[str, Any]] = [{"op": "remove", "path": "/spec/server"}] if here else []
    if server is not None:
        steps.append({"op": "add", "path": "/spec/server", "value": server})
    return admission.patch(who, new, steps, JSON_PATCH)


def _replaced(admission: Admission, who: User, new: Manifest, server: str | None) -> httpx.Response:
    steps = [{"op": "replace", "path": "/spec", "value": _with(new, server)["spec"]}]
    return admission.patch(who, new, steps, JSON_PATCH)


def _update(admission: Admission, who: User, new: Manifest, server: str | None) -> httpx.Response:
    metadata = admission.request(None, "GET", path_of(new)).json()["metadata"]
    return admission.request(who, "PUT", path_of(new), _with(new, server) | {"metadata": metadata})


def _apply(admission: Admission, who: User, new: Manifest, server: str | None) -> httpx.Response:
    return admission.patch(who, new, _with(new, server), APPLY)


def _status(admission: Admission, who: User, new: Manifest, server: str | None) -> httpx.Response:
    return admission.patch(who, new, {"spec": {"server": server}}, MERGE, "/status")


WAYS: dict[str, Way] = {
    "merge patch": _merge,
    "JSON patch": _operations,
    "JSON patch of the spec": _replaced,
    "update": _update,
    "server-side apply": _apply,
    "status": _status,
}
IGNORED = ("status",)
"""Ways that write no spec, whatever they carry."""
