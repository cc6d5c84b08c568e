"""The release on the node: its names, its values, what its agent may use, what its pods take."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from manifests import binding

SYSTEM = "toolcrib-system"
RELEASE = "toolcrib"
AGENTS = "agents"
"""Where the chart's own agents run."""
Values = dict[str, Any]


def values() -> Values:
    """The chart's values on this node: its images, small requests, an agent of the release and those of the heist."""
    small = {"requests": {"cpu": "20m"}, "limits": {"memory": "1Gi"}}
    return {
        "image": {"repository": "toolcrib", "tag": "test", "pullPolicy": "Never"},
        "weaviate": {
            "image": {"repository": "local/weaviate", "tag": "1", "pullPolicy": "Never"},
            "resources": small,
        },
        "operator": {"resources": small},
        "registry": {"resources": small},
        "agents": {"items": [{"name": "safecracker"}], "namespaces": [AGENTS, "heist"]},
    }


class Usage(NamedTuple):
    """A look at a pod: memory without what can be dropped (MiB), CPU time so far (s), when (s)."""

    memory: float
    cpu: float
    at: float

    def since(self, before: Self) -> str:
        """Memory now, CPU in thousandths of a core since an earlier look."""
        return f"{self.memory:.0f} MiB, {(self.cpu - before.cpu) / (self.at - before.at) * 1000:.0f} m"


def agent_binding(*scopes: str) -> dict[str, Any]:
    """What the release's agent `safecracker` may use."""
    safecracker = {"kind": "ServiceAccount", "namespace": AGENTS, "name": f"{RELEASE}-agent-safecracker"}
    return binding("chart-agent", scopes, subjects=[safecracker])


def condition(item: Mapping[str, Any], kind: str) -> str:
    """The status of a condition; Unknown if it is about an older generation."""
    status = item.get("status", {})
    if "observedGeneration" in status and status["observedGeneration"] != item["metadata"].get("generation"):
        return "Unknown"
    return next((c["status"] for c in status.get("conditions", ()) if c["type"] == kind), "Unknown")
