"""Why pods of a node get no sandbox (network and all): plugins that are missing, and errors that do not go away.

A pod without a sandbox stays in ContainerCreating for ever, and whoever waits for it waits until his deadline.
Pure; `node` asks the cluster and ends the wait.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from realparts import debian

PLUGINS = ("bridge", "host-local", "portmap", "loopback")
"""The CNI plugins that the node's network names, and the one that containerd adds."""

FOLDER = Path("/usr/lib/cni")
PATIENCE = 10.0
"""For how long (s) a pod's sandbox may fail with the same message: the kubelet tries again after 10 to 15 s."""


class SandboxError(AssertionError):
    """A pod cannot be started, and its error stays the same; the message is the kubelet's."""


def require_plugins() -> None:
    """Raises debian.MissingPackagesError, with their names, unless all CNI plugins are in FOLDER."""
    absent = [name for name in PLUGINS if not (FOLDER / name).exists()]
    if absent:
        package = "containernetworking-plugins"
        raise debian.MissingPackagesError(
            f"CNI plugins missing in {FOLDER}: {', '.join(absent)} (package {package} of Debian and Ubuntu); "
            f"{debian.REMEDY} {package}"
        )


def stuck(events: Iterable[Mapping[str, Any]], pods: Sequence[Mapping[str, Any]]) -> str:
    """The message of a sandbox that has failed alike for PATIENCE or longer, with its pod; empty if none has.

    `events` and `pods` are items of the API server's lists. A pod that has an address has a sandbox.
    """
    waiting = {_uid(pod) for pod in pods if not pod.get("status", {}).get("podIP")}
    seen: dict[tuple[str, str], tuple[float, float]] = {}
    for event in events:
        pod = event.get("involvedObject", {}).get("uid", "")
        if event.get("reason") != "FailedCreatePodSandBox" or pod not in waiting:
            continue
        key = pod, _without_ids(event.get("message", ""))
        times = [_seconds(event[name]) for name in ("firstTimestamp", "lastTimestamp") if event.get(name)]
        first, last = seen.get(key, (float("inf"), float("-inf")))
        seen[key] = min([first, *times]), max([last, *times])
        if seen[key][1] - seen[key][0] >= PATIENCE:
            where = event["involvedObject"]
            return f"pod {where.get('namespace')}/{where.get('name')}: {event['message']}"
    return ""


def _uid(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"]["uid"])


def _without_ids(message: str) -> str:
    """Each try has a sandbox id of its own; all else of the message stays."""
    return re.sub(r"[0-9a-f]{64}", "…", message)


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()
