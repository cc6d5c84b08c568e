"""What was seen of an installation: objects by kind, as an API server gives them, or why they could not be read. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

import yaml

Object = Mapping[str, Any]
SETTINGS = "registry.yaml"
"""The key of the registry's ConfigMap."""


class Unread(Exception):
    """Something that a check needs could not be read; the message says what, and why."""


class Place(StrEnum):
    """What is looked at."""

    CLUSTER = "cluster"
    LOCAL = "local"


class Outcome(StrEnum):
    """What comes of one item."""

    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one item, and what was found."""

    outcome: Outcome
    found: str


def passed(found: str) -> Verdict:
    """It is as it should be."""
    return Verdict(Outcome.PASS, found)


def failed(found: str) -> Verdict:
    """It is not."""
    return Verdict(Outcome.FAIL, found)


_SHOWN = 5


def listed(names: Sequence[str], limit: int = _SHOWN) -> str:
    """The first few of many names."""
    shown = ", ".join(names[:limit])
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown


def name_of(item: Object) -> str:
    """`namespace/name`, or the name of what has no namespace."""
    metadata = item["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def conditions(item: Object) -> Iterator[tuple[str, str, str]]:
    """Type, status and reason of each condition of an object."""
    for c in (item.get("status") or {}).get("conditions") or ():
        yield c.get("type", ""), c.get("status", ""), c.get("reason", "")


@dataclass(frozen=True)
class Facts:
    """All that was seen.

    Args:
        place: a cluster, or the local mode.
        objects: by kind; a text in their place says why they could not be read. In the local mode only manifests.
        now: seconds since the epoch.
        local: of the local mode: `settings` (as in the registry's file), `hidden_text`, `url`, `open_files`, `anonymous`.
    """

    place: Place
    objects: Mapping[str, Sequence[Object] | str]
    now: float
    local: Mapping[str, Any] = field(default_factory=dict)

    def of(self, kind: str) -> Sequence[Object]:
        """The objects of a kind.

        Raises:
            Unread: they could not be read.
        """
        found = self.objects.get(kind, "it was not asked for")
        if isinstance(found, str):
            raise Unread(f"{kind}: {found}")
        return found

    def workload(self, component: str) -> Object:
        """The Deployment or StatefulSet of a component of ours.

        Raises:
            Unread: there is none, or several.
        """
        found = [
            w
            for w in self.of("Workload")
            if (w["metadata"].get("labels") or {}).get("app.kubernetes.io/component") == component
        ]
        if len(found) != 1:
            number = "no workload" if not found else f"{len(found)} workloads"
            raise Unread(
                f"{number} with the labels app.kubernetes.io/part-of=toolcrib and app.kubernetes.io/component={component}"
            )
        return found[0]

    def account(self, component: str) -> tuple[str, str]:
        """Namespace and name of the service account of a component."""
        workload = self.workload(component)
        return workload["metadata"]["namespace"], pod_of(workload).get("serviceAccountName") or "default"

    def option(self, name: str, default: str) -> str:
        """An option of the operator, as its pod is told: an argument, else a variable, else the default."""
        main = container_of(self.workload("operator"))
        given = [str(each) for each in main.get("args") or ()]
        for at in reversed(range(len(given))):
            if given[at].startswith(f"--{name}="):
                return given[at].partition("=")[2]
            if given[at] == f"--{name}" and at + 1 < len(given):
                return given[at + 1]
        variable = "TOOLCRIB_OPERATOR_" + name.upper().replace("-", "_")
        for entry in main.get("env") or ():
            if entry.get("name") == variable and "value" in entry:
                return str(entry["value"])
        return default

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """The registry's settings: its file, with the variables of its pod over it.

        Raises:
            Unread: the file was not found or cannot be read.
        """
        if self.place is Place.LOCAL:
            if "settings" not in self.local:
                raise Unread(
                    self.local.get("unread") or "an earlier version wrote local.json: restart `toolcrib up`"
                )
            return dict(self.local["settings"])
        workload = self.workload("registry")
        namespace, pod = workload["metadata"]["namespace"], pod_of(workload)
        names = [v["configMap"].get("name") for v in pod.get("volumes") or () if "configMap" in v]
        maps = [m for m in self.of("ConfigMap") if m["metadata"]["namespace"] == namespace]
        files = [
            m["data"][SETTINGS]
            for m in maps
            if m["metadata"]["name"] in names and SETTINGS in (m.get("data") or {})
        ]
        if len(files) != 1:
            raise Unread(f"the registry's pod mounts no ConfigMap with {SETTINGS} that can be read")
        try:
            found = yaml.safe_load(files[0])
        except yaml.YAMLError as error:
            raise Unread(f"{SETTINGS} of the registry is not valid YAML") from error
        return _with_variables(dict(found or {}), container_of(workload).get("env") or ())


def pod_of(workload: Object) -> Object:
    """The spec of a workload's pods."""
    found: Object = workload["spec"]["template"]["spec"]
    return found


def labels_of(workload: Object) -> Mapping[str, str]:
    """The labels of a workload's pods."""
    return (workload["spec"]["template"].get("metadata") or {}).get("labels") or {}


def container_of(workload: Object) -> Object:
    """The first container of a workload's pods, which is Toolcrib's."""
    found: Object = pod_of(workload)["containers"][0]
    return found


def _with_variables(data: dict[str, Any], variables: Sequence[Object]) -> dict[str, Any]:
    for entry in variables:
        name, value = str(entry.get("name", "")), entry.get("value")
        if not name.startswith("TOOLCRIB_") or not isinstance(value, str):
            continue
        *outer, last = [part.lower() for part in name.removeprefix("TOOLCRIB_").split("__")]
        inner = data
        for part in outer:
            deeper = inner.get(part)
            inner[part] = inner = dict(deeper) if isinstance(deeper, dict) else {}
        try:
            inner[last] = yaml.safe_load(value)
        except yaml.YAMLError:
            inner[last] = value
    return data
