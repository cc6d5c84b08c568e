"""What is counted of bindings: calls that they allowed, when last and of which tools, and limits that were used up."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge

from toolcrib.wire.publish import PublishedBinding, PublishedTool
from toolcrib_registry.metrics import table
from toolcrib_registry.metrics.series import OTHER, Budget, Series

Labels = tuple[str, str]


class _Moment:
    """What a gauge shows, which is asked for it at a scrape: setting one takes longer, and each call sets two."""

    __slots__ = ("at",)

    def __init__(self, gauge: Gauge, now: float) -> None:
        self.at = now
        gauge.set_function(lambda: self.at)


class GrantMetrics:
    """The metrics of bindings.

    Args:
        registry: where the series are.
        budget: of bindings, by `rule`.
        pairs: how many combinations of binding and tool have a series.
        clock: seconds since the epoch.
    """

    def __init__(
        self, registry: CollectorRegistry, budget: Budget, pairs: int, clock: Callable[[], float]
    ) -> None:
        self._budget, self._most_pairs, self._clock = budget, pairs, clock
        self._uses = Series(table.GRANT_USES.on(registry))
        self._last_used = Series(table.GRANT_LAST_USED_TIMESTAMP_SECONDS.on(registry))
        self._tool_used = Series(table.GRANT_TOOL_LAST_USED_TIMESTAMP_SECONDS.on(registry))
        self._limited = Series(table.LIMITED_CALLS.on(registry))
        self._charges: dict[tuple[str, str | None, str], tuple[Labels, Counter, _Moment]] = {}
        """What counts a binding's calls; all forgotten by `sweep`."""
        self._tools: dict[tuple[Labels, str], _Moment] = {}

    def charged(self, binding: PublishedBinding, tool: PublishedTool) -> None:
        """A call of the tool was let through because of `binding`."""
        key = (binding.kind, binding.namespace, binding.name)
        found, now = self._charges.get(key), self._clock()
        if found is None:
            labels = self._labels(binding)
            found = labels, self._uses(*labels), _Moment(self._last_used(*labels), now)
            if labels[1] != OTHER:
                self._charges[key] = found
        labels, uses, last_used = found
        uses.inc()
        last_used.at = now
        if (used := self._of_tool(labels, tool.tool_id, now)) is not None:
            used.at = now

    def _of_tool(self, labels: Labels, tool: str, now: float) -> _Moment | None:
        """None beyond the budget: a time of several tools together would mean nothing."""
        if labels[1] == OTHER:
            return None
        known = self._tools.get((labels, tool))
        if known is None and len(self._tools) < self._most_pairs:
            known = self._tools[labels, tool] = _Moment(self._tool_used(*labels, tool), now)
        return known

    def limited(self, binding: PublishedBinding | None, limit: str) -> None:
        """A call was refused since `limit` of `binding` was used up; None: a token alone granted it."""
        labels = ("", "") if binding is None else self._labels(binding)
        self._limited(*labels, limit).inc()

    def _labels(self, binding: PublishedBinding) -> Labels:
        admitted = self._budget(rule(binding))
        return binding.kind, OTHER if admitted is OTHER else admitted.removeprefix(f"{binding.kind}/")

    def sweep(self, rules: set[str], tools: Callable[[str], bool]) -> None:
        """Forget the series of these bindings, and of tools that are not there."""
        self._charges.clear()
        gone = {key for key in self._tools if "/".join(key[0]) in rules or not tools(key[1])}
        if gone:
            self._tools = {key: gauge for key, gauge in self._tools.items() if key not in gone}
            self._tool_used.forget(lambda k: ((k[0], k[1]), k[2]) in gone)
        if rules:
            self._uses.forget(lambda k: "/".join(k) in rules)
            self._last_used.forget(lambda k: "/".join(k) in rules)
            self._limited.forget(lambda k: "/".join(k[:2]) in rules)


def rule(binding: PublishedBinding) -> str:
    """`kind/namespace/name`, or `kind/name` of a cluster binding."""
    if binding.namespace is None:
        return f"{binding.kind}/{binding.name}"
    return f"{binding.kind}/{binding.namespace}/{binding.name}"
