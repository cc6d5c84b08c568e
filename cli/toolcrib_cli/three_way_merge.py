"""What `kubectl apply` makes of an object that is there: kubectl's three-way merge, without a cluster. Pure.

An apply changes what the manifest says, takes away what the last apply had and the manifest lacks, and keeps the
rest: what somebody patched in stays. Server-side apply and `kubectl replace` do otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from toolcrib.resources import KINDS
from toolcrib.resources.kinds import Resource
from toolcrib_operator.kinds.namespace import NAMESPACE
from toolcrib_operator.objects import Entry, Ref, key_of
from toolcrib_operator.world import World

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation in which kubectl leaves the manifest of the last apply."""
_MISSING = object()


class LiveWorld(World):
    """A World of a cluster that also has the objects as its API server gave them: what an apply is merged with."""

    def __init__(self, required: Iterable[str]) -> None:
        super().__init__(required=tuple(required))
        self._live: dict[Ref, Mapping[str, Any]] = {}

    def replace(
        self, kind: str, objects: Iterable[Mapping[str, Any] | Resource | Entry], resource_version: str = ""
    ) -> int:
        """As of a World."""
        found = list(objects)
        if kind in KINDS or kind == NAMESPACE:
            self._live |= {Ref(kind, key_of(o)): o for o in found if isinstance(o, Mapping)}
        return super().replace(kind, found, resource_version)

    def live(self, ref: Ref) -> Mapping[str, Any] | None:
        """The object as it was read; None where there is none, or of a kind of which nothing is kept."""
        return self._live.get(ref)


def applied(manifest: Mapping[str, Any], live: Mapping[str, Any]) -> dict[str, Any]:
    """`live` after `kubectl apply` of `manifest`.

    As k8s.io/apimachinery's jsonmergepatch.CreateThreeWayJSONMergePatch, which kubectl uses for custom resources:
    maps are merged, lists are replaced whole, and `null` in a manifest takes a field away unless it was so last time.

    Raises:
        ValueError: kubectl could not read the annotation that it left there.
    """
    desired = dict(manifest)
    metadata = dict(desired.get("metadata") or {})
    metadata["annotations"] = (
        metadata.get("annotations") or {}
    )  # kubectl adds its own, so that there are some
    desired["metadata"] = metadata
    return _patched(_patched(live, _removals(_last(live), desired)), _settings(desired))  # type: ignore[no-any-return]


def kept(merged: Any, manifest: Any, defaults: Any) -> Iterator[str]:
    """The fields of `merged` that `manifest` does not have, as dotted paths; not those at their default.

    Args:
        merged: what an apply makes, or a part of it.
        manifest: the same of the manifest.
        defaults: the same of the manifest with its defaults filled in.
    """
    if not isinstance(merged, dict):
        return
    written = manifest if isinstance(manifest, dict) else {}
    filled = defaults if isinstance(defaults, dict) else {}
    for name, value in merged.items():
        if name not in written:
            if value != filled.get(name, _MISSING):
                yield name
            continue
        for path in kept(value, written[name], filled.get(name)):
            yield f"{name}.{path}"


def _last(live: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of the last apply; empty where there was none: then nothing is taken away."""
    annotations = (live.get("metadata") or {}).get("annotations") or {}
    if not (text := annotations.get(LAST_APPLIED)):
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"its annotation {LAST_APPLIED} cannot be read")
    return found


def _removals(last: Mapping[str, Any], manifest: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch with nothing but nulls."""
    found: dict[str, Any] = {name: None for name in last if name not in manifest}
    for name, value in manifest.items():
        before = last.get(name, _MISSING)
        if value is None:
            if before is not None:
                found[name] = None
        elif isinstance(value, dict):
            deeper = _removals(before if isinstance(before, dict) else {}, value)
            if deeper:
                found[name] = deeper
    return found


def _settings(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch without nulls; a map that held nothing else is no part of it."""
    found: dict[str, Any] = {}
    for name, value in manifest.items():
        if isinstance(value, dict) and value:
            deeper = _settings(value)
            if deeper:
                found[name] = deeper
        elif value is not None:
            found[name] = value
    return found


def _patched(target: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    found = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = _patched(found.get(name), value)
    return found
