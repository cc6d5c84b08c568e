"""Durations (`10s`, `1m30s`) and instants (RFC 3339) as manifests write them."""

from __future__ import annotations

import re
from datetime import datetime

from pydantic_core import PydanticCustomError

DURATION = r"^[1-9][0-9]{0,6}(ms|s|m|h)$"
INSTANT = (
    r"^(19[7-9][0-9]|[2-9][0-9]{3})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
    r"(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"
)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(text: str) -> float:
    """`1500ms` → 1.5.

    Raises:
        ValueError: not a duration of one number and one unit (ms, s, m, h).
    """
    found = re.fullmatch(DURATION[1:-1], text)
    if found is None:
        raise ValueError(f"not a duration: {text[:64]!r} (write 500ms, 10s, 5m or 1h)")
    unit = found.group(1)
    return int(text[: -len(unit)]) * _UNITS[unit]


def instant(text: str) -> float:
    """RFC 3339, from 1970 on → seconds since the epoch.

    Raises:
        ValueError: not an instant with a zone.
    """
    if re.fullmatch(INSTANT[1:-1], text) is None:
        raise ValueError(f"not an RFC 3339 time with a zone: {text[:64]!r} (write 2027-01-31T12:00:00Z)")
    # fromisoformat knows microseconds; further digits do not change any decision
    trimmed = re.sub(r"(\.[0-9]{6})[0-9]+", r"\1", text)
    return datetime.fromisoformat(trimmed).timestamp()


def check_instant(text: str) -> str:
    """For models: the text unchanged, or a precise error."""
    try:
        instant(text)
    except ValueError as error:
        raise PydanticCustomError("date_time", "{message}", {"message": str(error)}) from None
    return text
