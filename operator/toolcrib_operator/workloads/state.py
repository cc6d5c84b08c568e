"""What a workload at the API server says of itself, for the status of its Agent. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from toolcrib.resources.agents import RunOutcome
from toolcrib.resources.meta import GROUP
from toolcrib_operator.objects import Ref

Manifest = Mapping[str, Any]


def ref_of(manifest: Manifest) -> Ref:
    """Which object it is."""
    metadata = manifest["metadata"]
    return Ref(manifest["kind"], f"{metadata['namespace']}/{metadata['name']}")


def owner_of(manifest: Manifest) -> str:
    """The uid of the Agent that controls it; empty: none does."""
    for owner in manifest["metadata"].get("ownerReferences") or ():
        group = str(owner.get("apiVersion") or "").partition("/")[0]
        if owner.get("controller") and (group, owner.get("kind")) == (GROUP, "Agent"):
            return str(owner.get("uid") or "")
    return ""


def pods(manifest: Manifest) -> tuple[int, int]:
    """How many are to run, and how many have discovered their tools."""
    status = manifest.get("status") or {}
    if manifest["kind"] == "Job":
        return (0, 0) if _end(manifest) is not None else (1, int(status.get("ready") or 0))
    wanted = (manifest.get("spec") or {}).get("replicas")
    return (1 if wanted is None else int(wanted)), int(status.get("readyReplicas") or 0)


def trouble(manifest: Manifest) -> str:
    """Why its pods are not made; empty where nothing is in the way."""
    for condition in _conditions(manifest):
        if (condition.get("type"), condition.get("status")) == ("ReplicaFailure", "True"):
            return str(condition.get("message") or "")
    return ""


def last_run(manifest: Manifest) -> dict[str, Any]:
    """`status.lastRun` of the Agent of a Job."""
    status, end = manifest.get("status") or {}, _end(manifest)
    found: dict[str, Any] = {"job": manifest["metadata"]["name"]}
    if started := status.get("startTime"):
        found["startedAt"] = started
    if end is None:
        return found | {"outcome": RunOutcome.RUNNING.value}
    outcome = RunOutcome.SUCCEEDED if end.get("type") == "Complete" else RunOutcome.FAILED
    if ended := status.get("completionTime") or end.get("lastTransitionTime"):
        found["completedAt"] = ended
    return found | {"outcome": outcome.value}


def is_running(manifest: Manifest) -> bool:
    """Whether it has, or will have, pods."""
    return manifest["kind"] != "Job" or _end(manifest) is None


def _end(job: Manifest) -> Manifest | None:
    """The condition that says that a Job is over."""
    return next(
        (
            c
            for c in _conditions(job)
            if c.get("type") in ("Complete", "Failed") and c.get("status") == "True"
        ),
        None,
    )


def _conditions(manifest: Manifest) -> Iterable[Manifest]:
    return (manifest.get("status") or {}).get("conditions") or ()
