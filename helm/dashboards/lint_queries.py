"""What is wrong with a query: names that are not in the reference, rates of gauges, counters without a rate.

It looks at selectors and the functions around them. Whether the whole is PromQL is for promtool: `unparseable`.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from dashboards.interpolate import ALL, Choice, interpolate, names_in

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
RECORDED = Path(__file__).parents[1] / "toolcrib" / "rules" / "recording.yaml"
TARGET_LABELS = frozenset({"namespace", "pod", "instance", "job", "service", "container", "endpoint", "node"})
"""Labels of scrape targets; none of them is a label of ours."""
_ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \|", re.MULTILINE)
_SELECTOR = re.compile(
    r"(?P<before>[\w]*\(\s*|unless (?:on \([^)]*\) )?)?(?P<name>\b[a-zA-Z_:][\w:]*)\{(?P<matchers>[^}]*)\}"
    r"(?P<range>\s*\[[^\]]*\])?(?P<offset>\s+offset\s+[\w$]+)?"
)
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_BY = re.compile(r"\b(?:by|on|group_left|group_right|without|ignoring)\s*\(([^)]*)\)")
_GROUP = re.compile(r"\b(?:by|on)\s*\(([^)]*)\)")
_BARE = re.compile(r"\btoolcrib_\w+\b(?!\{)")
_NAME = re.compile(r"[a-zA-Z_:][\w:]*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_OF_ONE_INSTALLATION = frozenset({"grant", "rule"})
"""Names that two installations may both have, of different things."""
_OF_COUNTERS = frozenset({"rate", "increase", "irate"})
_OF_BOTH = frozenset(
    {"min_over_time", "max_over_time", "changes", "resets", "count_over_time", "absent_over_time"}
)


@dataclass(frozen=True)
class Metric:
    """A metric of the reference: counter, gauge or histogram, and its labels."""

    type: str
    labels: frozenset[str]


def reference(text: str | None = None) -> dict[str, Metric]:
    """Every series of docs/reference/metrics.md, and every recorded one, by the name that a query uses."""
    found: dict[str, Metric] = {
        "up": Metric("gauge", frozenset()),
        "process_resident_memory_bytes": Metric("gauge", frozenset()),
        "process_cpu_seconds_total": Metric("counter", frozenset()),
    }
    for name, kind, labels in _ROW.findall(REFERENCE.read_text(encoding="utf-8") if text is None else text):
        own = frozenset(re.findall(r"`(\w+)`", labels))
        if kind == "histogram":
            found[f"{name}_bucket"] = Metric("counter", own | {"le"})
            found[f"{name}_count"] = found[f"{name}_sum"] = Metric("counter", own)
        else:
            found[name] = Metric(kind, own)
    for group in yaml.safe_load(RECORDED.read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            # one without a group has the labels of what it is made of
            made_of = (found[name].labels for name in _NAME.findall(rule["expr"]) if name in found)
            labels = by_labels(rule["expr"]) or frozenset[str]().union(*made_of)
            found[rule["record"]] = Metric("gauge", frozenset(labels - TARGET_LABELS))
    return found


def query_problems(query: str, metrics: Mapping[str, Metric]) -> Iterator[str]:
    """Everything that is wrong with one query, in words."""
    known = set(TARGET_LABELS)
    names = set()
    for found in _SELECTOR.finditer(query):
        name = found["name"]
        names.add(name)
        if name not in metrics:
            yield f"{name} is not in docs/reference/metrics.md"
            continue
        metric = metrics[name]
        known |= metric.labels
        used = set(_MATCHER.findall(_STRING.sub('""', found["matchers"])))
        if used - metric.labels - TARGET_LABELS:
            yield f"{name} has no label {', '.join(sorted(used - metric.labels - TARGET_LABELS))}"
        if "namespace" not in used:
            yield f"{name} is not narrowed to the variable namespace"
        yield from _function_problems(found, metric)
    for name in sorted({m.group() for m in _BARE.finditer(_STRING.sub('""', query))} - names):
        yield f"{name} is not narrowed to the variable namespace"
    if not names and "__name__" not in query:
        yield "names no metric"
    for group in _BY.findall(query):
        unknown = {label.strip() for label in group.split(",") if label.strip()} - known
        if unknown and "__name__" not in query:
            yield f"groups by {', '.join(sorted(unknown))}, which none of its metrics has"
    # sums of counters over installations are sums; states of one that take the place of another's are wrong
    state = any(
        name in metrics and metrics[name].type == "gauge" for name in names if name.startswith("toolcrib_")
    )
    for group in _GROUP.findall(query):
        labels = {label.strip() for label in group.split(",")}
        if (state or labels & _OF_ONE_INSTALLATION) and "namespace" not in labels:
            yield f"({group}) merges installations: it needs namespace"
    if "histogram_quantile(" in query and not re.search(r"by \(le\b", query):
        yield "histogram_quantile without `by (le, …)`"


def _function_problems(found: re.Match[str], metric: Metric) -> Iterator[str]:
    before = (found["before"] or "").strip()
    function = before[:-1].strip() if before.endswith("(") else ""
    name = found["name"]
    if metric.type == "counter":
        compared = before.startswith("unless") and found["offset"]
        if function not in _OF_COUNTERS | _OF_BOTH and not compared:
            yield f"{name} is a counter: it needs rate() or increase()"
    elif function in _OF_COUNTERS:
        yield f"{function}() of {name}, which is a gauge"


def by_labels(query: str) -> set[str]:
    """The labels that a query groups by."""
    groups = re.findall(r"\bby\s*\(([^)]*)\)", query)
    return {label.strip() for group in groups for label in group.split(",")} - {"le", ""}


def unparseable(queries: Iterable[str], promtool: str | Path) -> dict[str, str]:
    """Of these queries those that Prometheus cannot parse, with what promtool says."""
    texts = list(dict.fromkeys(queries))
    rules = [{"record": f"query:{i}", "expr": _plain(text)} for i, text in enumerate(texts)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "queries.json"
        # promtool reads YAML, and JSON is YAML
        file.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}), encoding="utf-8")
        argv = [str(promtool), "check", "rules", str(file)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603
    if done.returncode == 0:
        return {}
    said = {int(i): line for line in done.stderr.splitlines() for i in re.findall(r"query:(\d+)", line)}
    return {texts[i]: line.strip() for i, line in said.items()} or {"": done.stderr.strip()}


def _plain(query: str) -> str:
    choice = Choice()
    return interpolate(query, Choice(values=dict.fromkeys(names_in(query) - set(choice.built_in()), ALL)))
