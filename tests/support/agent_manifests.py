"""Manifests of Agents and AccessRequests, good and bad: rows of the tables that models and API server are compared by."""

from typing import Any

import access_request_manifests
import manifests

Manifest = dict[str, Any]
ISSUER = "https://login.example"
CLIENT = {"kind": "OAuthClient", "issuer": ISSUER, "clientId": "x"}
USER = {"kind": "User", "issuer": ISSUER, "name": "ada"}
MODEL = {"name": "qwen3:8b", "baseURL": "http://ollama.models.svc:11434/v1"}


def agent(**spec: Any) -> Manifest:
    """An Agent."""
    return manifests.manifest("Agent", "sample", "default", **spec)


KEYED = {**MODEL, "apiKeySecretRef": {"name": "model", "key": "token"}}
GOOD = [
    agent(),
    *(agent(run=each) for each in ({}, {"replicas": 0}, {"replicas": 100.0}, {"systemPrompt": ""}, None)),
    agent(run={"task": "x" * 65_536, "systemPrompt": "п" * 60_000}, model=KEYED),
    agent(model={**MODEL, "apiKeySecretRef": {"name": "model"}}),
    *(agent(suspended=each) for each in (True, False, None)),
    agent(reason="x" * 1024),
    agent(serviceAccountName="a.b"),
    *(agent(subjects=each) for each in ([CLIENT, USER], [CLIENT] * 16, None)),
    agent(mode="auto", core=["a/b", "a-b/c.d"], model=MODEL),
    agent(model={"name": "m"}),
    *access_request_manifests.GOOD,
]
BAD = [
    *(agent(subjects=each) for each in ([], [CLIENT] * 17)),
    *(agent(subjects=[{"kind": kind, "name": "bot"}]) for kind in ("ServiceAccount", "Agent", "User")),
    agent(subjects=[{"kind": "Group", "issuer": ISSUER, "name": "ops"}]),
    *(agent(suspended=each) for each in ("yes", 1)),
    *(agent(serviceAccountName=each) for each in ("", "A")),
    *(agent(reason=each) for each in ("", "x" * 1025)),
    agent(mode="fast"),
    *(agent(core=each) for each in (["read"], ["a/b", "a/b"], [])),
    *(agent(model=each) for each in ({}, {"name": "m", "baseURL": "ftp://x"})),
    agent(tools=["a/b"]),
    *(agent(run={"replicas": each}) for each in (-1, 101)),
    *(agent(run={"systemPrompt": each}) for each in ("x" * 65_537, "п" * 60_001, "a\0b")),
    agent(run={"tools": []}),
    *(agent(run={"task": each}, model=MODEL) for each in ("", "x" * 65_537)),
    agent(run={"task": "x", "replicas": 1}, model=MODEL),
    *(agent(run={"task": "x"}, model=each) for each in ({"name": "m"}, None)),
    agent(model={"name": "m", "apiKeySecretRef": {"name": "model"}}),
    agent(model={**MODEL, "apiKeySecretRef": {}}),
    agent(model={**MODEL, "apiKeySecretRef": {"name": "A"}}),
    agent(model={**MODEL, "apiKeySecretRef": {"name": "a", "key": "/"}}),
    *access_request_manifests.BAD,
]
_FULL = agent(
    serviceAccountName="bot",
    subjects=[CLIENT, USER],
    suspended=True,
    reason="incident",
    mode="auto",
    core=["a/b"],
    model=KEYED,
    run={"task": "x", "systemPrompt": "y"},
)
FULL = {"Agent": _FULL, "AccessRequest": access_request_manifests.FULL}
