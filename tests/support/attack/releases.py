"""B. The revocation finalizer, on a real API server: it leaves a binding only by who holds `release` in the whole cluster."""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass
from typing import Any

import httpx

from admission_server import (
    APPLY,
    HOME,
    JSON_PATCH,
    MERGE,
    OTHER,
    Admission,
    Given,
    Manifest,
    User,
    cluster_grant,
    collection,
    grant,
    path_of,
)
from attack.stage import Stage, hold

OURS = "toolcrib.dev/revocation"
OTHERS = "example.com/kept"
PEOPLE = 10
NAMES = ("held", "other")


@dataclass(frozen=True)
class Somebody:
    """A user, what was given to him, and whether that is the right to release."""

    user: User
    given: tuple[Given, ...]
    may: bool


def attack(stage: Stage, draw: random.Random, count: int) -> int:
    """Bindings, deleted or not, and people with random rights who try to take the finalizer away."""
    admission = stage.admission
    people = [*_people(admission, draw), *_accounts()]
    admission.settle()
    for number in range(count):
        # each is tried, and in every run somebody succeeds
        _try(admission, draw, people[number % len(people)])
    return count


def _people(admission: Admission, draw: random.Random) -> list[Somebody]:
    found = []
    for number in range(PEOPLE):
        given = tuple(_given(draw) for _ in range(draw.randint(1, 3)))
        if number == 0:
            given = (*given, Given(None, (("release", "bindings", ()),)))
        found.append(Somebody(admission.user(*given), given, any(_releases(each) for each in given)))
    return found


def _given(draw: random.Random) -> Given:
    place = draw.choice([None, None, HOME, OTHER])
    rules = tuple(
        (
            draw.choice(["release", "release", "grant", "update", "delete", "*"]),
            draw.choice(
                ["bindings", "bindings", "scopes", "subjects", "agentscopebindings", "bindings/status"]
            ),
            draw.choice([(), (), ("held",), NAMES]),
        )
        for _ in range(draw.randint(1, 3))
    )
    return Given(place, rules)


def _releases(given: Given) -> bool:
    """The right as RBAC has it: in the whole cluster, on all names."""
    return given.namespace is None and any(
        verb in ("release", "*") and resource == "bindings" and not names
        for verb, resource, names in given.rules
    )


def _accounts() -> list[Somebody]:
    """The operator's own account, and one of that name elsewhere."""
    name = "system:serviceaccount:{}:toolcrib-operator"
    return [
        Somebody(User(name.format("toolcrib-system"), writes=False), (), True),
        Somebody(User(name.format(HOME)), (), False),
    ]


def _try(admission: Admission, draw: random.Random, who: Somebody) -> None:
    name = draw.choice(NAMES)
    manifest = draw.choice([grant, cluster_grant])(name, ["read:use"], ["bot"])
    manifest["metadata"]["finalizers"] = draw.choice([[OURS], [OURS, OTHERS], [OTHERS, OURS]])
    admission.request(None, "PATCH", path_of(manifest), {"metadata": {"finalizers": None}}, MERGE)
    admission.there(manifest)
    deleted = draw.random() < 0.5
    if deleted:
        admission.request(None, "DELETE", path_of(manifest))
    # the operator's role has the verb patch alone
    ways = sorted(WAYS) if who.user.writes else ["merge patch", "merge patch of ours", "JSON patch"]
    way = draw.choice(ways)
    answer = WAYS[way](admission, who.user, manifest, draw)
    left = admission.request(None, "GET", path_of(manifest))
    there = left.status_code == 200 and OURS in left.json()["metadata"].get("finalizers", [])
    case = {
        "who": who.user.name, "given": who.given, "way": way, "deleted": deleted,
        "finalizers": manifest["metadata"]["finalizers"], "kind": manifest["kind"],
        "status": answer.status_code, "answer": answer.text[:400],
    }  # fmt: skip
    taken = who.may and way not in KEEPING
    hold("the finalizer leaves a binding by who may release it, and by nobody else", there != taken, **case)
    if not who.may and way not in KEEPING:
        hold("who may not is told so", answer.status_code == 403 and "release" in answer.text, **case)


def _patch(kind: str, patch: Any) -> Any:
    return lambda admission, who, manifest, draw: admission.patch(who, manifest, patch, kind)


def _others(admission: Admission, who: User, manifest: Manifest, draw: random.Random) -> httpx.Response:
    left = [f for f in manifest["metadata"]["finalizers"] if f != OURS]
    return admission.patch(who, manifest, {"metadata": {"finalizers": left}})


def _remove(admission: Admission, who: User, manifest: Manifest, draw: random.Random) -> httpx.Response:
    at = manifest["metadata"]["finalizers"].index(OURS)
    steps = draw.choice(
        [
            [{"op": "remove", "path": f"/metadata/finalizers/{at}"}],
            [{"op": "replace", "path": f"/metadata/finalizers/{at}", "value": "toolcrib.dev/revocation2"}],
            [{"op": "replace", "path": "/metadata/finalizers", "value": [OTHERS]}],
        ]
    )
    if admission.request(None, "GET", path_of(manifest)).json()["metadata"].get("deletionTimestamp"):
        steps = [{"op": "remove", "path": f"/metadata/finalizers/{at}"}]  # none may be added then
    return admission.patch(who, manifest, steps, JSON_PATCH)


def _update(admission: Admission, who: User, manifest: Manifest, draw: random.Random) -> httpx.Response:
    now: Manifest = admission.request(None, "GET", path_of(manifest)).json()
    now["metadata"]["finalizers"] = [f for f in now["metadata"]["finalizers"] if f != OURS]
    now["metadata"]["labels"] = {"a": "b"}
    return admission.request(who, "PUT", path_of(manifest), now)


def _apply(admission: Admission, who: User, manifest: Manifest, draw: random.Random) -> httpx.Response:
    applied = copy.deepcopy(manifest)
    applied["metadata"]["finalizers"] = []
    return admission.patch(who, manifest, applied, APPLY)


def _delete(admission: Admission, who: User, manifest: Manifest, draw: random.Random) -> httpx.Response:
    options = draw.choice(
        [{}, {"gracePeriodSeconds": "0"}, {"propagationPolicy": draw.choice(["Background", "Orphan"])}]
    )
    path = draw.choice([path_of(manifest), collection(manifest)])
    return admission.request(who, "DELETE", path, **options)


def _status(admission: Admission, who: User, manifest: Manifest, draw: random.Random) -> httpx.Response:
    return admission.patch(who, manifest, {"metadata": {"finalizers": None}}, MERGE, "/status")


WAYS: dict[str, Any] = {
    "merge patch": _patch(MERGE, {"metadata": {"finalizers": None}}),
    "merge patch of ours": _others,
    "JSON patch": _remove,
    "update": _update,
    "server-side apply": _apply,
    "delete": _delete,
    "status": _status,
}
KEEPING = ("server-side apply", "delete", "status")
"""Ways that leave the finalizer, whoever takes them."""
