"""Says what Grafana would refuse, drop or show badly in dashboards, since no Grafana runs where they are tested.

usage: python helm/dashboards/lint.py FILE.json …
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import units

from dashboards.interpolate import names_in
from dashboards.lint_queries import Metric, by_labels, query_problems, reference

Json = dict[str, Any]
COLUMNS = 24
PIXELS = 1280
COLUMN_PIXELS = (PIXELS - 32) / COLUMNS
TITLE_MARGIN, LETTER_PIXELS = 44, 7.4
"""Of a panel's width its padding and the sign of the description, and a letter of Inter Medium 14 px at the mean."""
NARROWEST = {"stat": 4, "timeseries": 6, "table": 6, "bargauge": 6, "row": COLUMNS}
WIDE_TABLE = 8
"""Columns of the grid for a table with four fields or more."""
GONE = {
    "graph": "timeseries",
    "singlestat": "stat",
    "table-old": "table",
    "grafana-piechart-panel": "piechart",
}
TYPES = {
    "timeseries",
    "stat",
    "table",
    "bargauge",
    "gauge",
    "barchart",
    "heatmap",
    "histogram",
    "piechart",
    "row",
    "text",
}
UNITS = {value for name, value in vars(units).items() if name[:1].isupper() and isinstance(value, str)}
BUILT_IN = re.compile(
    r"__(range|interval|rate_interval)(_s|_ms)?$|__(from|to|url_time_range|value|data|field|series|all_variables)$"
)
REFRESH = {"", "5s", "10s", "30s", "1m", "5m", "15m", "30m", "1h", "2h", "1d"}
SOURCE = "${datasource}"


def main(arguments: Sequence[str]) -> int:
    """Print what is wrong with the files; 1 if anything is."""
    pages = {Path(name).name: json.loads(Path(name).read_text(encoding="utf-8")) for name in arguments}
    found = [f"{name}: {text}" for name, text in lint(pages, reference())]
    sys.stdout.write("".join(f"{line}\n" for line in found))
    return 1 if found else 0


def lint(pages: Mapping[str, Json], metrics: Mapping[str, Metric]) -> Iterator[tuple[str, str]]:
    """(file, problem) of every problem; together, since uids and links cross files."""
    uids = Counter(page.get("uid") for page in pages.values())
    variables = {page.get("uid"): {v.get("name") for v in _variables(page)} for page in pages.values()}
    tags = {tag for page in pages.values() for tag in page.get("tags") or ()}
    for name, page in pages.items():
        if uids[page.get("uid")] > 1:
            yield name, f"uid {page.get('uid')} is used twice"
        for problems in (
            _frame(page),
            _lost(page),
            _variable_problems(page),
            _link_problems(page, variables, tags),
            _grid(page),
            (text for panel in _panels(page) for text in _panel(panel, metrics)),
        ):
            yield from ((name, text) for text in problems)


def queries(page: Json) -> list[tuple[str, str, str]]:
    """(panel, refId, expression) of every query that a page draws, annotations included."""
    found = [
        (p.get("title", ""), t.get("refId", ""), t.get("expr", ""))
        for p in _panels(page)
        for t in _targets(p)
    ]
    notes = page.get("annotations", {}).get("list") or ()
    return found + [(a["name"], "annotation", a["expr"]) for a in notes if a.get("expr")]


def _frame(page: Json) -> Iterator[str]:
    if not re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", page.get("uid") or ""):
        yield f"uid {page.get('uid')!r}: 1 to 40 letters, digits, - and _"
    if page.get("id") is not None:
        yield "id: it belongs to one server; an import would overwrite another dashboard"
    for key in ("title", "description", "tags", "time", "timezone"):
        if not page.get(key):
            yield f"no {key}"
    if page.get("editable") is not False:
        yield "editable: a change by hand is lost at the next upgrade"
    if page.get("schemaVersion", 0) < 36:
        yield "schemaVersion below 36: data sources are not references yet"
    if page.get("refresh", "") not in REFRESH:
        yield f"refresh {page['refresh']!r} is not offered by Grafana"


def _lost(page: Json) -> Iterator[str]:
    register_default_plugins()
    try:
        read = json.loads(json.dumps(model.Dashboard.from_json(page), cls=JSONEncoder))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        yield f"not a dashboard: {type(error).__name__} {error}"
        return
    yield from _differences(page, read, "")


def _differences(mine: Any, read: Any, place: str) -> Iterator[str]:
    if isinstance(mine, dict) and isinstance(read, dict):
        for key in mine:
            if key not in read:
                yield f"{place}.{key} is unknown to Grafana and would be dropped"
            else:
                yield from _differences(mine[key], read[key], f"{place}.{key}")
    elif isinstance(mine, list) and isinstance(read, list) and len(mine) == len(read):
        for i, (a, b) in enumerate(zip(mine, read, strict=True)):
            yield from _differences(a, b, f"{place}[{i}]")
    elif mine != read:
        yield f"{place} would be read as {read!r}"


def _variable_problems(page: Json) -> Iterator[str]:
    made = [v.get("name", "") for v in _variables(page)]
    for name, count in Counter(made).items():
        if name.startswith("__") or not re.fullmatch(r"\w+", name):
            yield f"variable {name}: the name is reserved or not a word"
        if count > 1:
            yield f"variable {name} is defined twice"
    used = set()
    for i, variable in enumerate(_variables(page)):
        here = names_in(json.dumps({k: v for k, v in variable.items() if k != "current"}))
        used |= here
        for later in sorted(here & set(made[i:])):
            yield f"variable {variable.get('name')} uses {later}, which comes later"
    rest = {key: value for key, value in page.items() if key != "templating"}
    used |= names_in(json.dumps(rest))
    for name in sorted(used - set(made)):
        if not BUILT_IN.match(name):
            yield f"variable {name} is used and not defined"
    for name in sorted(set(made) - used):
        yield f"variable {name} is defined and not used"


def _link_problems(page: Json, variables: Mapping[Any, set[Any]], tags: set[str]) -> Iterator[str]:
    for link in page.get("links") or ():
        if link.get("type") == "dashboards" and not set(link.get("tags") or ()) & tags:
            yield f"link {link.get('title')}: no dashboard has its tags"
    for uid, rest in re.findall(r"/d/([\w-]+)([^\"]*)", json.dumps(page)):
        if uid not in variables:
            yield f"link to {uid}: there is no such dashboard"
            continue
        for name in re.findall(r"var-(\w+)=", rest):
            if name not in variables[uid]:
                yield f"link to {uid}: it has no variable {name}"


def _grid(page: Json) -> Iterator[str]:
    everything = list(_panels(page, rows=True))
    for number, count in Counter(p.get("id") for p in everything).items():
        if number is None:
            yield "a panel has no id"
        elif count > 1:
            yield f"panel id {number} is used {count} times"
    taken: dict[tuple[int, int], str] = {}
    for panel in sorted(everything, key=lambda p: (p.get("gridPos") or {}).get("y", 0)):
        place, title = panel.get("gridPos") or {}, panel.get("title", "")
        x, y, w, h = (place.get(k, 0) for k in "xywh")
        if min(x, y) < 0 or min(w, h) < 1 or x + w > COLUMNS:
            yield f"{title}: outside of the grid of {COLUMNS} columns"
            continue
        cells = [(i, j) for i in range(x, x + w) for j in range(y, y + h)]
        for other in sorted({taken[cell] for cell in cells if cell in taken}):
            yield f"{title}: overlaps {other}"
        if y > 0 and not any((i, y - 1) in taken for i in range(x, x + w)):
            yield f"{title}: Grafana would move it up, there is a gap above"
        taken.update((cell, str(title)) for cell in cells)


def _panel(panel: Json, metrics: Mapping[str, Metric]) -> Iterator[str]:
    title, kind = panel.get("title", ""), panel.get("type", "")
    for text in _look(panel, title, kind):
        yield f"{title}: {text}"
    if kind in GONE or kind not in TYPES:
        return
    targets = _targets(panel)
    if not targets:
        yield f"{title}: no query"
    for ref, count in Counter(t.get("refId") for t in targets).items():
        if count > 1 or not ref:
            yield f"{title}: refId {ref} is used {count} times"
    if kind == "timeseries":
        legends = Counter(t.get("legendFormat") or "" for t in targets)
        if max(legends.values(), default=0) > 1:
            yield f"{title}: two queries have one legend"
    for target in targets:
        for text in (*_target(target, kind), *query_problems(target.get("expr", ""), metrics)):
            yield f"{title} {target.get('refId')}: {text}"


def _look(panel: Json, title: str, kind: str) -> Iterator[str]:
    if kind in GONE:
        yield f"type {kind} is gone: {GONE[kind]}"
    elif kind not in TYPES:
        yield f"type {kind} is not a panel of Grafana's"
    width = (panel.get("gridPos") or {}).get("w", 0)
    fields = _columns(panel)
    least = max(NARROWEST.get(kind, 4), WIDE_TABLE if len(fields) >= 4 else 0)
    if width < least:
        yield f"{width} columns are too narrow, at least {least}"
    if not title:
        yield "no title"
    if len(title) > (width * COLUMN_PIXELS - TITLE_MARGIN) / LETTER_PIXELS:
        yield f"the title does not fit at {PIXELS} pixels"
    if len(panel.get("description") or "") < 40:
        yield "no description of what to do when it looks bad"
    yield from _source(panel.get("datasource"))
    defaults = (panel.get("fieldConfig") or {}).get("defaults") or {}
    unit_values = [defaults.get("unit")]
    levels = [defaults.get("thresholds")]
    for override in (panel.get("fieldConfig") or {}).get("overrides") or ():
        properties = {p.get("id"): p.get("value") for p in override.get("properties") or ()}
        if "unit" in properties:
            unit_values.append(properties["unit"])
        levels.append(properties.get("thresholds"))
        matcher = override.get("matcher") or {}
        if kind == "table" and matcher.get("id") == "byName" and matcher.get("options") not in fields:
            yield f"an override for the column {matcher.get('options')}, which is not there"
    for unit in unit_values:
        if not unit:
            yield "no unit"
        elif unit not in UNITS:
            yield f"unit {unit} is not Grafana's"
    for steps in (level["steps"] for level in levels if level):
        values = [step.get("value") for step in steps]
        if not values or values[0] is not None or None in values[1:] or values[1:] != sorted(set(values[1:])):
            yield f"thresholds {values}: the first without a value, the rest rising"
    for sort in (panel.get("options") or {}).get("sortBy") or ():
        if sort.get("displayName") not in fields:
            yield f"sorted by {sort.get('displayName')}, which is not there"


def _target(target: Json, kind: str) -> Iterator[str]:
    yield from _source(target.get("datasource"))
    instant, table = bool(target.get("instant")), target.get("format") == "table"
    if kind == "timeseries":
        legend = target.get("legendFormat") or ""
        groups = by_labels(target.get("expr", ""))
        if not legend or legend == "__auto":
            yield "no legend"
        shown = set(re.findall(r"\{\{\s*(\w+)\s*\}\}", legend))
        if shown - groups:
            yield f"the legend names {', '.join(sorted(shown - groups))}, which the query does not keep"
        if groups - {"namespace"} and not shown:
            yield "several series and one legend"
        if instant:
            yield "an instant query draws no line"
    elif not instant:
        yield "a range query where one value is shown"
    if kind == "table" and not table:
        yield "a table needs format table"


def _source(source: Any) -> Iterator[str]:
    if not isinstance(source, dict) or not source.get("uid"):
        yield "no data source"
    elif source["uid"] != SOURCE:
        yield f"data source {source['uid']} is hard-coded: {SOURCE}"


def _columns(panel: Json) -> set[str]:
    changes = panel.get("transformations") or ()
    return {
        n for t in changes if t.get("id") == "organize" for n in t["options"].get("renameByName", {}).values()
    }


def _panels(page: Json, *, rows: bool = False) -> Iterator[Json]:
    for panel in page.get("panels") or ():
        if panel.get("type") != "row" or rows:
            yield panel
        yield from panel.get("panels") or () if panel.get("type") == "row" else ()


def _targets(panel: Json) -> list[Json]:
    return list(panel.get("targets") or ())


def _variables(page: Json) -> list[Json]:
    return list(page.get("templating", {}).get("list") or ())


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
