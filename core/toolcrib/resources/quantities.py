"""Sizes as Kubernetes writes them (`64Mi`, `500k`, or a plain number of bytes), and the quota made of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FORM = re.compile(r"(\d{1,15})(k|M|G|T|Ki|Mi|Gi|Ti)?", re.ASCII)
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}


@dataclass(frozen=True, slots=True)
class Quota:
    """What the tools of one namespace may come to together; 0: no limit."""

    tools: int = 5_000
    size: int = 64 << 20
    """JSON bytes of the tools as they are published."""

    @property
    def off(self) -> bool:
        """Whether nothing is limited."""
        return not self.tools and not self.size


def in_bytes(text: str) -> int:
    """The number of bytes that `text` means.

    Raises:
        ValueError: it is no size.
    """
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise ValueError(
            f"{text!r} is not a size. Specify bytes, or a number with a unit, as in 500k, 64Mi or 1Gi."
        )
    number, unit = int(found[1]), found[2] or ""
    if not unit:
        return number
    return int(number * (1024 if unit.endswith("i") else 1000) ** _POWERS[unit[0].lower()])
