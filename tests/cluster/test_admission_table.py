"""Who may hand out which scopes to whom, and gate tools with which, on a real API server: every row is an attempt.

`-v` prints the table. What lacks a right is refused by the policy that asks for it, with the rule to ask for in words.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from admission_server import (
    HOME,
    OTHER,
    Admission,
    Given,
    Manifest,
    User,
    all_but,
    cluster_grant,
    denying,
    grant,
)
from manifests import tool

pytestmark = [pytest.mark.real, pytest.mark.guarantee]

SIZES = (1, 2, 3, 16)


@dataclass(frozen=True)
class Attempt:
    """Somebody tries `what` with a list of so many, and holds `right` to do it."""

    what: str
    size: int
    right: str
    accepted: bool

    def __str__(self) -> str:
        verdict = "accepted" if self.accepted else "refused"
        return f"{self.what}-{self.size}-with-{self.right}-is-{verdict}"


VERBS = {
    "grant": "grant",
    "equip": "equip",
    "gate": "gate",
    "grant-in-the-cluster": "grant",
    "equip-by-the-cluster": "equip",
    "deny": "equip",
}


def _rows() -> Iterator[Attempt]:
    for what in VERBS:
        everywhere = what == "grant-in-the-cluster"
        for size in SIZES:
            if what == "deny":
                yield Attempt(what, size, "no right", True)
                continue
            yield Attempt(what, size, "no right", False)
            yield Attempt(what, size, "all in this namespace", not everywhere)
            yield Attempt(what, size, "all in another namespace", False)
            yield Attempt(what, size, "all cluster-wide", True)
            yield Attempt(what, size, "every name", not everywhere)
            yield Attempt(what, size, "another verb", False)
            if size > 1:
                yield Attempt(what, size, "the first alone", False)
                yield Attempt(what, size, "all but the first", False)
                yield Attempt(what, size, "all but the last", False)
            if size > 2:
                yield Attempt(what, size, "all but the middle", False)


ROWS = list(_rows())


@pytest.fixture(scope="module")
def users(admission: Admission) -> dict[Attempt, User]:
    """Who makes each attempt: he holds the other two verbs, and of this one what the row says."""
    found = {row: admission.user(*_given(row), groups=[all_but(VERBS[row.what])]) for row in ROWS}
    admission.settle()
    return found


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_an_attempt(row: Attempt, admission: Admission, users: dict[Attempt, User]) -> None:
    answer = admission.create(users[row], _manifest(row), dryRun="All")

    if row.accepted:
        assert answer.status_code == 201, answer.text
        return
    assert answer.status_code == 403, answer.text
    said = answer.json()["message"]
    verb, missing = VERBS[row.what], _held(row)[1]
    assert (
        f"'{'tools' if verb == 'gate' else 'bindings'}-{verb}.toolcrib.dev' denied request: you may not "
        in said
    )
    assert f"resources: [{_resource(row)}], resourceNames: ['{missing}'], verbs: [{verb}]}}" in said
    everywhere = row.what == "grant-in-the-cluster"
    place = (
        "a ClusterRole bound by a ClusterRoleBinding"
        if everywhere
        else f"a Role bound in the namespace {HOME}"
    )
    assert f"in {place} (see docs/guides/admission.md)" in said


def _resource(row: Attempt) -> str:
    return "subjects" if VERBS[row.what] == "equip" else "scopes"


def _names(row: Attempt) -> list[str]:
    return [f"n{i}" if VERBS[row.what] == "equip" else f"tool-{i}:use" for i in range(row.size)]


def _given(row: Attempt) -> list[Given]:
    held, _ = _held(row)
    if held is None:
        return []
    some = "first" in row.right or "but" in row.right
    usual = None if some and row.what == "grant-in-the-cluster" else HOME
    namespace = {"all in another namespace": OTHER, "all cluster-wide": None}.get(row.right, usual)
    verb = "create" if row.right == "another verb" else VERBS[row.what]
    return [Given(namespace, ((verb, _resource(row), tuple(held)),))]


def _held(row: Attempt) -> tuple[list[str] | None, str]:
    """The names that the user has the right on (an empty list: all), and the first that is missing."""
    names = _names(row)
    middle = names[len(names) // 2]
    match row.right:
        case "no right":
            return None, names[0]
        case "every name":
            return [], names[0]
        case "the first alone":
            return names[:1], names[1]
        case "all but the first":
            return names[1:], names[0]
        case "all but the last":
            return names[:-1], names[-1]
        case "all but the middle":
            return [name for name in names if name != middle], middle
    return names, names[0]


def _manifest(row: Attempt) -> Manifest:
    names = _names(row)
    if row.what == "gate":
        return tool("attempt", HOME, scopes=names)
    if row.what == "deny":
        return denying("attempt", accounts=names)
    make = grant if row.what in ("grant", "equip") else cluster_grant
    if VERBS[row.what] == "equip":
        return make("attempt", ["x:use"], names)
    return make("attempt", names, ["bot"])
