"""Objects of our kinds as `kubectl get` shows them: the printer columns of their definitions. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolcrib.resources import KINDS, crd, durations

_STEP = re.compile(r"\.(\w+)|\[\?\(@\.(\w+)=='([^']*)'\)\]|\[(\*)\]")


def columns(kind: str, *, wide: bool) -> list[Mapping[str, Any]]:
    """The printer columns of a kind; those of low priority only where it is `wide`."""
    return [c for c in crd.COLUMNS[kind] if wide or not c.get("priority")]


def head(kind: str, *, wide: bool) -> list[str]:
    """The headings of a table."""
    space = ["namespace"] if KINDS[kind].namespaced else []
    return [*space, "name", *(str(c["name"]) for c in columns(kind, wide=wide))]


def row(shown: Mapping[str, Any], *, wide: bool, now: float) -> list[str]:
    """One object under these headings."""
    metadata, kind = shown["metadata"], shown["kind"]
    space = [metadata["namespace"]] if KINDS[kind].namespaced else []
    cells = [_cell(c, shown, now) for c in columns(kind, wide=wide)]
    return [*space, metadata["name"], *cells]


def age(seconds: float) -> str:
    """`95s`, `12m`, `5h`, `3d`: about as kubectl writes ages."""
    for unit, size, most in (("s", 1, 120), ("m", 60, 180 * 60), ("h", 3_600, 48 * 3_600)):
        if seconds < most:
            return f"{max(0, int(seconds // size))}{unit}"
    return f"{int(seconds // 86_400)}d"


def _cell(column: Mapping[str, Any], shown: Mapping[str, Any], now: float) -> str:
    found = _found(column["jsonPath"], shown)
    if column["type"] == "date":
        return "".join(age(now - durations.instant(str(each))) for each in found[:1])
    return ",".join(each if isinstance(each, str) else json.dumps(each) for each in found)


def _found(path: str, shown: Mapping[str, Any]) -> Sequence[Any]:
    values: list[Any] = [shown]
    for name, key, wanted, every in _STEP.findall(path):
        values = list(_next(values, name, key, wanted, bool(every)))
    return [v for v in values if v is not None]


def _next(values: Iterable[Any], name: str, key: str, wanted: str, every: bool) -> Iterable[Any]:
    for value in values:
        if name and isinstance(value, Mapping):
            yield value.get(name)
        elif every and isinstance(value, list):
            yield from value
        elif key and isinstance(value, list):
            yield from (each for each in value if each.get(key) == wanted)
