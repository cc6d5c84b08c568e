"""Manifests of ToolCanaries, good and bad: rows of the tables that models and API server are compared by."""

from typing import Any

import manifests

Manifest = dict[str, Any]
DIGEST = "sha256:" + "0" * 64


def canary(**spec: Any) -> Manifest:
    """A ToolCanary of `lookup`."""
    whole = {"tool": "lookup", "candidate": {"description": "Finds a row"}, **spec}
    return manifests.manifest(
        "ToolCanary", "sample", "default", **{k: v for k, v in whole.items() if v != "drop"}
    )


GOOD = [
    canary(),
    *(
        canary(candidate=each)
        for each in (
            {"title": "x"},
            {"description": "x" * 4096},
            {"examples": ["a"] * 16},
            {"replacement": "lookup2"},
        )
    ),
    *(canary(share=each) for each in (1, 50, None)),
    *(canary(guard=each) for each in (0, 50, None)),
    *(canary(duration=each) for each in ("1m", "60s", "2160h", None)),
    canary(approvedDigest=DIGEST),
]
_NOT_CANDIDATES: list[Any] = [
    {}, "drop", {"title": ""}, {"description": ""}, {"description": "x" * 4097}, {"examples": []},
    {"examples": ["a"] * 17}, {"replacement": "Lookup"}, {"replacement": "b", "title": "x"},
    {"replacement": "lookup"}, {"inputSchema": {}},
]  # fmt: skip
BAD = [
    *(canary(candidate=each) for each in _NOT_CANDIDATES),
    *(canary(tool=each) for each in ("drop", "", "A")),
    *(canary(share=each) for each in (0, 51, "10")),
    *(canary(guard=each) for each in (-1, 51)),
    *(canary(duration=each) for each in ("59s", "2161h", "7d", "")),
    canary(approvedDigest="sha256:0"),
    canary(tools=["a"]),
]
FULL = canary(
    candidate={"title": "Lookup", "description": "Finds a row", "examples": ["find row 7"]},
    share=20,
    guard=5,
    duration="24h",
    approvedDigest=DIGEST,
)
