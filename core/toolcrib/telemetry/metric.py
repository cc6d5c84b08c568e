"""A metric as a row of a service's table: its name, labels and meaning are an API, declared in one place.

The library that counts is the service's: this imports nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

M = TypeVar("M")


@dataclass(frozen=True)
class Metric(Generic[M]):
    """One metric; a counter's name goes without its `_total`."""

    kind: Callable[..., M]
    """Makes it: `Counter`, `Gauge` or `Histogram` of prometheus_client."""
    name: str
    labels: tuple[str, ...]
    text: str
    """The help text."""
    buckets: tuple[float, ...] | None = None

    def on(self, registry: object) -> M:
        """Its collector, on a registry of collectors."""
        more: dict[str, Any] = {} if self.buckets is None else {"buckets": self.buckets}
        return self.kind(self.name, self.text, self.labels, registry=registry, **more)
