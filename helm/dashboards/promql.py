"""Fragments of PromQL that the dashboards share. Text in, text out.

Every selector narrows to the variable `namespace`, a label of the scrape target: several installations may share a
Prometheus. Where a target has no such label, the variable's All (`.*`) matches its absence.
"""

from __future__ import annotations

DAY = 86400
RANGE = "$__range"
STEP = "$__rate_interval"
BY_REPLICA = "namespace, pod, instance"
"""What tells processes apart: `pod` in a cluster, `instance` where targets are plain addresses."""


def select(metric: str, **matchers: str) -> str:
    """A selector. `agent="$agent"` matches by regular expression; `outcome__ne="ok"` and `le__eq="1.0"` exactly."""
    parts = ['namespace=~"$namespace"']
    for name, value in matchers.items():
        label, _, operator = name.partition("__")
        parts.append(f'{label}{ {"": "=~", "eq": "=", "ne": "!="}[operator] }"{value}"')
    return f"{metric}{{{', '.join(parts)}}}"


def total(selector: str, window: str = RANGE) -> str:
    """How often something happened in the window, the first time of all included.

    A labelled counter appears with its first event, and `increase` sees no increase in a first sample: an agent that
    was denied once would not show. So what a series that is new in the window began with is added.
    """
    grown = f"increase({selector}[{window}])"
    born = f"(min_over_time({selector}[{window}]) unless {selector} offset {window})"
    return f"({grown} + {born} or {grown} or {born})"


def rate(selector: str) -> str:
    """Events a second, at the resolution that is drawn."""
    return f"rate({selector}[{STEP}])"


def top(count: int, labels: str, selector: str) -> str:
    """Rates of the same `count` largest series at every point; largest over the whole range."""
    chosen = f"topk({count}, sum by ({labels}) (rate({selector}[{RANGE}] @ end())))"
    return f"sum by ({labels}) ({rate(selector)}) and {chosen}"


def quantile(share: float, histogram: str, window: str = STEP, by: str = "", **matchers: str) -> str:
    """A quantile of a histogram; `by` keeps labels apart."""
    labels = f"le, {by}" if by else "le"
    buckets = select(f"{histogram}_bucket", **matchers)
    return f"histogram_quantile({share:g}, sum by ({labels}) (rate({buckets}[{window}])))"


def or_zero(expression: str) -> str:
    """0 where nothing ever happened: only for counters that appear with their first event, and filtered counts."""
    return f"({expression} or vector(0))"


def leading(metric: str) -> str:
    """A gauge of the operator's leader: the standbys have none."""
    return f"max by (namespace) ({select(metric)})"


def each(metric: str) -> str:
    """A gauge of every replica."""
    return f"max by ({BY_REPLICA}) ({select(metric)})"
