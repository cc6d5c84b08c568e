"""Manifests of AccessRequests, good and bad: rows of the tables that models and API server are compared by."""

from typing import Any

import manifests

Manifest = dict[str, Any]
DIGEST = f"sha256:{'0' * 64}"
ACCOUNT = {"kind": "ServiceAccount", "namespace": "default", "name": "bot"}
USER = {"kind": "User", "issuer": "https://login.example", "name": "ada"}
CLIENT = {"kind": "OAuthClient", "issuer": "https://login.example", "clientId": "x"}


def access_request(**change: Any) -> Manifest:
    """An AccessRequest; of `change` a None takes a field away."""
    spec = {"tool": "a", "digest": DIGEST, "subject": ACCOUNT, "why": "to see"} | change
    kept = {k: v for k, v in spec.items() if v is not None}
    return manifests.manifest("AccessRequest", "sample", "default", **kept)


GOOD = [
    access_request(),
    access_request(why=None),
    access_request(why="x" * 2_800),
    access_request(tool="a.b-c", accountUID="u"),
    *(access_request(subject=each) for each in (USER, CLIENT)),
]
BAD = [
    *(access_request(tool=each) for each in (None, "", "A", "a/b", "*")),
    *(access_request(digest=each) for each in (None, "", "sha256:x")),
    *(access_request(subject=each) for each in (None, {}, {"kind": "Agent", "name": "bot"})),
    access_request(subject={"kind": "Group", "issuer": "https://login.example", "name": "ops"}),
    access_request(why="x" * 2_801),
    access_request(accountUID=""),
    access_request(tools=["a"]),
]
FULL = access_request(accountUID="6c1f0b1e")
