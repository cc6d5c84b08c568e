"""What the three dashboards are made of: the page that places panels, the kinds of panels, variables, links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from grafana_foundation_sdk.builders import common as options
from grafana_foundation_sdk.builders import dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.models import common as modes
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
TAG = "toolcrib"
COLUMNS = 24
GREEN, YELLOW, RED, BLUE = "green", "yellow", "red", "blue"
Steps = Sequence[tuple[float, str]]
"""Colours from a value on; below the first one: green, or what `below` says."""
ANY = ((1, YELLOW),)
"""Yellow from one on."""
BAD = ((1, RED),)
"""Red from one on."""
REPLICA = "{{pod}} {{instance}}"
"""The legend of a line a replica."""
P = TypeVar("P", timeseries.Panel, stat.Panel, table.Panel)
AnyPanel = timeseries.Panel | stat.Panel | table.Panel


@dataclass(frozen=True)
class Column:
    """A column of a table: a label, or `Value`, or `Value #A` where there are several queries."""

    label: str
    title: str
    unit: str = ""
    links: Sequence[tuple[str, str]] = ()
    """What a click offers: (title, URL from `link_to`)."""
    steps: Steps = ()
    below: str = GREEN
    width: int = 0


@dataclass
class Page:
    """A dashboard under construction. Panels go from left to right and wrap; a line is as high as its highest."""

    made: dashboard.Dashboard
    _x: int = field(default=0, init=False)
    _y: int = field(default=0, init=False)
    _height: int = field(default=0, init=False)
    _id: int = field(default=0, init=False)

    def row(self, title: str) -> None:
        """Begin a titled section."""
        self._wrap()
        row = dashboard.Row(title).id(self._next_id()).grid_pos(model.GridPos(h=1, w=COLUMNS, x=0, y=self._y))
        self.made.with_row(row)
        self._y += 1

    def add(self, panel: AnyPanel, width: int, height: int) -> None:
        """Place a panel of so many of the 24 columns."""
        if self._x + width > COLUMNS:
            self._wrap()
        place = model.GridPos(h=height, w=width, x=self._x, y=self._y)
        self.made.with_panel(panel.id(self._next_id()).grid_pos(place))
        self._x += width
        self._height = max(self._height, height)

    def _wrap(self) -> None:
        self._y += self._height
        self._x = self._height = 0

    def _next_id(self) -> int:
        self._id += 1
        return self._id


def page(uid: str, title: str, description: str, variables: Sequence[tuple[str, str, str]] = ()) -> Page:
    """An empty dashboard with its variables; `variables` are (name, label, query), each multi-valued with All."""
    made = dashboard.Dashboard(title).uid(uid).description(description).tags([TAG]).readonly()
    made.time("now-6h", "now").refresh("1m").timezone("browser")
    made.tooltip(model.DashboardCursorSync.CROSSHAIR)
    source = dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
    made.with_variable(source.description("The Prometheus that scrapes Toolcrib."))
    wanted = (("namespace", "Namespace", "label_values(toolcrib_build_info, namespace)"), *variables)
    for name, label, query in wanted:
        variable = dashboard.QueryVariable(name).label(label).datasource(SOURCE).query(query)
        variable.multi(True).include_all(True).all_value(".*")
        variable.current(model.VariableOption(selected=True, text="All", value="$__all"))
        variable.refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        made.with_variable(variable.sort(model.VariableSort.ALPHABETICAL_ASC))
    links = dashboard.DashboardLink("Toolcrib").type(model.DashboardLinkType.DASHBOARDS).tags([TAG])
    made.link(links.include_vars(True).keep_time(True).tooltip("The other dashboards of Toolcrib"))
    return Page(made)


def link_to(uid: str, variable: str) -> str:
    """The URL of another dashboard, about the clicked value, with data source, namespaces and time kept.

    The value goes in raw: some releases of Grafana encode links a second time, and names of agents, tools and
    grants hold nothing that a query string minds.
    """
    kept = "${__url_time_range}&${datasource:queryparam}&${namespace:queryparam}"
    return f"/d/{uid}?var-{variable}=${{__value.raw}}&{kept}"


GOVERNANCE, USAGE, HEALTH = "toolcrib-governance", "toolcrib-usage", "toolcrib-health"
CALLS_OF_AGENT = ("Calls of this agent", link_to(USAGE, "agent"))
GRANTS_OF_AGENT = ("Grants of this agent", link_to(GOVERNANCE, "agent"))
CALLS_OF_TOOL = ("Calls of this tool", link_to(USAGE, "tool"))
REACH_OF_TOOL = ("Who reaches this tool", link_to(GOVERNANCE, "tool"))
CALLS_OF_SERVER = ("Calls of this server", link_to(USAGE, "server"))
AGENT = Column("agent", "Agent", links=(CALLS_OF_AGENT, GRANTS_OF_AGENT))
TOOL = Column("tool", "Tool", links=(CALLS_OF_TOOL, REACH_OF_TOOL))
SERVER = Column("server", "Server", links=(CALLS_OF_SERVER,))
NAMESPACE = Column("namespace", "Namespace")


def graph(
    title: str,
    queries: Sequence[tuple[str, str]],
    unit: str,
    description: str,
    *,
    steps: Steps = (),
    stacked: bool = False,
    bars: bool = False,
    top: float | None = None,
    from_zero: bool = True,
) -> timeseries.Panel:
    """Lines over time; `queries` are (expression, legend). `steps` also draws the limits as lines."""
    panel = _described(timeseries.Panel(), title, unit, description, steps, GREEN)
    for i, (expression, legend) in enumerate(queries):
        panel.with_target(_query(chr(ord("A") + i), expression).range().legend_format(legend))
    panel.line_width(1).fill_opacity(60 if bars else 25 if stacked else 8)
    panel.show_points(modes.VisibilityMode.NEVER)
    if from_zero:
        panel.min(0)
    if top is not None:
        panel.max(top)
    if bars:
        panel.draw_style(modes.GraphDrawStyle.BARS)
    if stacked:
        panel.stacking(options.StackingConfig().mode(modes.StackingMode.NORMAL))
    if steps:
        dashed = modes.GraphThresholdsStyleMode.DASHED
        panel.thresholds_style(options.GraphThresholdsStyleConfig().mode(dashed))
    panel.color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC))
    legend_box = options.VizLegendOptions().display_mode(modes.LegendDisplayMode.LIST)
    panel.legend(legend_box.placement(modes.LegendPlacement.BOTTOM).show_legend(True).calcs([]))
    tooltip = options.VizTooltipOptions().mode(modes.TooltipDisplayMode.MULTI)
    return panel.tooltip(tooltip.sort(modes.SortOrder.DESCENDING))


def figure(
    title: str,
    expression: str,
    unit: str,
    description: str,
    *,
    steps: Steps = (),
    below: str = GREEN,
    decimals: int | None = None,
    none: str = "–",
) -> stat.Panel:
    """One number, as it is at the end of the range; neutral where there are no steps. `none` stands for no data."""
    panel = _described(stat.Panel(), title, unit, description, steps, below if steps else BLUE)
    panel.with_target(_query("A", expression).instant())
    panel.reduce_options(options.ReduceDataOptions().values(False).calcs(["lastNotNull"]).fields(""))
    panel.color_mode(modes.BigValueColorMode.VALUE).graph_mode(modes.BigValueGraphMode.NONE)
    panel.color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
    if decimals is not None:
        panel.decimals(decimals)
    return panel.no_value(none)


def listing(
    title: str,
    queries: Sequence[str],
    columns: Sequence[Column],
    description: str,
    *,
    sort: str,
    descending: bool = True,
    none: str = "None",
) -> table.Panel:
    """A table of the last values. Several queries need the same labels: a row is one set of labels."""
    panel = _described(table.Panel(), title, "short", description, (), BLUE)
    for i, expression in enumerate(queries):
        query = _query(chr(ord("A") + i), expression).instant()
        panel.with_target(query.format(PromQueryFormat.TABLE))
    if len(queries) > 1:
        panel.with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
    panel.with_transformation(
        _organize(columns, values=[f"Value #{chr(ord('A') + i)}" for i in range(len(queries))])
    )
    for column in columns:
        properties = _properties(column)
        if properties:
            panel.override_by_name(column.title, properties)
    panel.sort_by([options.TableSortByFieldState().display_name(sort).desc(descending)])
    panel.cell_height(modes.TableCellHeight.SM).show_header(True).filterable(True)
    footer = options.TableFooterOptions().show(False).reducer([]).count_rows(False).enable_pagination(True)
    return panel.footer(footer).no_value(none)


def _described(panel: P, title: str, unit: str, description: str, steps: Steps, below: str) -> P:
    panel.title(title).description(description).unit(unit).datasource(SOURCE)
    levels = [model.Threshold(value=None, color=below)]
    levels += [model.Threshold(value=value, color=color) for value, color in steps]
    panel.thresholds(dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(levels))
    return panel


def _query(ref: str, expression: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().ref_id(ref).expr(expression).datasource(SOURCE)


def _organize(columns: Sequence[Column], values: list[str]) -> model.DataTransformerConfig:
    shown = {column.label for column in columns}
    hidden = {"Time": True} | {v: True for v in (*values, "Value") if v not in shown}
    return model.DataTransformerConfig(
        id_val="organize",
        options={
            "excludeByName": hidden,
            "indexByName": {column.label: i for i, column in enumerate(columns)},
            "renameByName": {column.label: column.title for column in columns},
        },
    )


def _properties(column: Column) -> list[model.DynamicConfigValue]:
    found: list[tuple[str, object]] = []
    if column.unit:
        found.append(("unit", column.unit))
    if column.width:
        found.append(("custom.width", column.width))
    if column.links:
        found.append(("links", [{"title": title, "url": url} for title, url in column.links]))
    if column.steps:
        steps: list[dict[str, object]] = [{"value": None, "color": column.below}]
        steps += [{"value": value, "color": color} for value, color in column.steps]
        found.append(("thresholds", {"mode": "absolute", "steps": steps}))
        found.append(("custom.cellOptions", {"type": "color-text"}))
        found.append(("color", {"mode": "thresholds"}))
    return [model.DynamicConfigValue(id_val=name, value=value) for name, value in found]
