"""What the API server demands of object metadata, for `validate` and the local mode, where there is no server.

From k8s.io/apimachinery: meta/v1 ObjectMeta (fields, types), api/validation ValidateObjectMeta, util/validation
IsQualifiedName and IsValidLabelValue.
"""

from __future__ import annotations

import re
from typing import Any

from toolcrib.errors import Finding
from toolcrib.names import DNS_SUBDOMAIN

_TEXTS = ("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "creationTimestamp",
          "deletionTimestamp")  # fmt: skip
_NUMBERS = ("generation", "deletionGracePeriodSeconds")
_LISTS = ("finalizers", "ownerReferences", "managedFields")
_MAPS = ("labels", "annotations")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(DNS_SUBDOMAIN[1:-1])
_MAX_ANNOTATIONS = 256 * 1024


def plain(metadata: dict[str, Any], *, namespaced: bool) -> dict[str, Any]:
    """`metadata` as the API server stores it: nulls gone, null labels empty, no namespace where none belongs."""
    kept = {k: v for k, v in metadata.items() if v is not None and (namespaced or k != "namespace")}
    for name in _MAPS:
        if isinstance(kept.get(name), dict):
            kept[name] = {k: "" if v is None else v for k, v in kept[name].items()}
    return kept


def findings(metadata: dict[str, Any]) -> list[Finding]:
    """What a strict API server would refuse in plain metadata; its names are the models' business."""
    found = []
    for name, value in metadata.items():
        if name in _MAPS:
            found.extend(_map_findings(name, value))
        elif name == "finalizers" and isinstance(value, list):
            found.extend(_finalizer_findings(value))
        elif problem := _type_problem(name, value):
            found.append(Finding(f"metadata.{name}", problem))
    return found


def _type_problem(name: str, value: Any) -> str:
    if name in _TEXTS:
        return "" if isinstance(value, str) else "expected a string"
    if name in _NUMBERS:
        return "" if isinstance(value, int) and not isinstance(value, bool) else "expected a whole number"
    if name in _LISTS:
        return "" if isinstance(value, list) else "expected a list"
    return "unknown field"


def _map_findings(name: str, values: Any) -> list[Finding]:
    if not isinstance(values, dict) or not all(isinstance(v, str) for v in values.values()):
        hint = "quote numbers and booleans"
        return [Finding(f"metadata.{name}", "expected a mapping of strings to strings", hint)]
    found = []
    for key, value in values.items():
        # annotation keys are compared in lower case, labels as they are
        if not is_qualified(key.lower() if name == "annotations" else key):
            found.append(
                Finding(f"metadata.{name}", f"{key[:80]!r} is not a valid key", "use name or domain/name")
            )
        if name == "labels" and value and _NAME.fullmatch(value) is None:
            hint = "at most 63 of A-Z a-z 0-9 - _ . with a letter or digit at both ends"
            found.append(
                Finding(f"metadata.labels.{key[:80]}", f"{value[:80]!r} is not a valid label value", hint)
            )
    size = sum(len(k.encode()) + len(v.encode(errors="replace")) for k, v in values.items())
    if name == "annotations" and size > _MAX_ANNOTATIONS:
        found.append(Finding("metadata.annotations", f"{size} bytes, more than {_MAX_ANNOTATIONS}"))
    return found


def _finalizer_findings(values: list[Any]) -> list[Finding]:
    bad = [v for v in values if not isinstance(v, str) or not is_qualified(v)]
    return [
        Finding("metadata.finalizers", f"{str(v)[:80]!r} is not a valid finalizer", "use domain/name")
        for v in bad
    ]


def is_qualified(key: str) -> bool:
    """Whether `key` is `name` or `domain/name`, as keys of labels and annotations are."""
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > 253 or _PREFIX.fullmatch(prefix) is None):
        return False
    return _NAME.fullmatch(name) is not None
