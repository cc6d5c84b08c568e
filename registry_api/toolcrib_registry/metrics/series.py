"""Bounds on how many series there are: budgets of label values, and children that can be forgotten again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, Self, TypeVar

OTHER = "other"
FORGET_AFTER = 300.0
"""Seconds for which a value that is gone keeps its series: Prometheus looks back as far, and has scraped the last
numbers by then."""


class _Metric(Protocol):
    def labels(self, *values: str) -> Self: ...

    def remove(self, *values: str) -> None: ...


M = TypeVar("M", bound=_Metric)


class Series(Generic[M]):
    """The children of one metric by their label values: each is made once and found in a dictionary."""

    def __init__(self, metric: M) -> None:
        self._metric = metric
        self._children: dict[tuple[str, ...], M] = {}

    def __call__(self, *values: str) -> M:
        """The child with these label values."""
        child = self._children.get(values)
        if child is None:
            child = self._children[values] = self._metric.labels(*values)
        return child

    def forget(self, is_gone: Callable[[tuple[str, ...]], bool]) -> None:
        """Remove the children whose label values `is_gone` says so of."""
        for key in [k for k in self._children if is_gone(k)]:
            del self._children[key]
            self._metric.remove(*key)


class Budget:
    """Admits up to `size` values of a label; the rest are `other`, and `folded` is told of each observation.

    A value that is gone makes room after FORGET_AFTER seconds: churn cannot use the budget up.
    """

    def __init__(self, size: int, folded: Callable[[], None] = lambda: None) -> None:
        self._size = size
        self._folded = folded
        self._gone: dict[str, float | None] = {}
        """Admitted value → since when it is gone; None: it is not."""

    def __call__(self, value: str) -> str:
        """`value`, or `other`."""
        if value in self._gone:
            return value
        if len(self._gone) >= self._size or value == OTHER:
            return self.fold()
        self._gone[value] = None
        return value

    def fold(self) -> str:
        """`other`, counted."""
        self._folded()
        return OTHER

    def __contains__(self, value: str) -> bool:
        return value in self._gone

    def sweep(self, is_here: Callable[[str], bool], now: float) -> set[str]:
        """Note what is gone, and take out what has been for long: that is returned, its series are to be forgotten."""
        out = set()
        for value, since in list(self._gone.items()):
            if is_here(value):
                self._gone[value] = None
            elif since is None:
                self._gone[value] = now
            elif now - since >= FORGET_AFTER:
                del self._gone[value]
                out.add(value)
        return out
