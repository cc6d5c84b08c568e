"""The Prometheus text format (0.0.4) of metric families, without the `_created` series.

Those double the number of a counter's series, and nothing here reads them. Works on what `collect()` of any
prometheus_client collector yields; imports nothing of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render(families: Iterable[Any]) -> bytes:
    """The text that `/metrics` answers. Labels are sorted by name."""
    lines: list[str] = []
    for family in families:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        lines.append(f"# HELP {name} {family.documentation}")
        lines.append(f"# TYPE {name} {family.type}")
        created = f"{family.name}_created"
        for sample in family.samples:
            if sample.name != created:
                lines.append(f"{sample.name}{_labels(sample.labels)} {_number(sample.value)}")
    lines.append("")
    return "\n".join(lines).encode()


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{k}="{_escaped(v)}"' for k, v in sorted(labels.items())) + "}"


def _escaped(value: str) -> str:
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return value


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(float(value))
