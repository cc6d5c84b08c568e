"""Whether a workload at the API server is as it is to be. Pure.

What we do not set is not ours: defaults that the API server fills in, and fields that others add.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_KEYS = ("mountPath", "containerPort", "uid", "name")
"""By what the items of a list are told apart, as the API server's schemas have it; other lists count as a whole."""


def holds(wanted: Any, there: Any) -> bool:
    """Whether `there` has everything that `wanted` says."""
    if isinstance(wanted, Mapping):
        if not isinstance(there, Mapping):
            return False
        return all(name in there and holds(value, there[name]) for name, value in wanted.items())
    if isinstance(wanted, Sequence) and not isinstance(wanted, str):
        if not isinstance(there, Sequence) or isinstance(there, str):
            return False
        return _items(wanted, there)
    return bool(wanted == there)


def _items(wanted: Sequence[Any], there: Sequence[Any]) -> bool:
    for key in _KEYS:
        if wanted and all(isinstance(item, Mapping) and key in item for item in wanted):
            found = {item.get(key): item for item in there if isinstance(item, Mapping)}
            return all(item[key] in found and holds(item, found[item[key]]) for item in wanted)
    return len(wanted) == len(there) and all(map(holds, wanted, there))
