"""The page about metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from reference_pages.markdown import code, table

from toolcrib_operator import metrics as operator_metrics
from toolcrib_operator.adapters.memory import FixedReplicas, MemoryWriter
from toolcrib_operator.elector import Elector
from toolcrib_operator.indexing import Indexing
from toolcrib_operator.loop import Loop
from toolcrib_operator.publisher import Publisher
from toolcrib_operator.registering import Registering
from toolcrib_operator.settings import RegistrationSettings
from toolcrib_operator.state import Leading, State
from toolcrib_operator.watching import Watching
from toolcrib_operator.world import World
from toolcrib_registry.metrics import Metrics
from toolcrib_runner.metrics import RunnerMetrics


def metrics_page() -> str:
    """Every series of the three services."""
    text = "# Metrics\n\nNames and labels are an API: they change only with a note in the changelog. Units are base units. Labels are\n"
    text += "bounded: beyond its budget an agent or a tool counts as `other`. Calls and tokens carry identities from verified\ntokens only. All three also have the usual `process_*` series: memory, CPU, open files.\n"
    for title, where, rows in (
        ("Registry", "`/metrics` of the admin listener; in the local mode of its one port.", registry_rows()),
        ("Operator", "`/metrics` of its port. A standby has the first two.", operator_rows()),
        ("Agent runner", "`/metrics` with `--metrics-port`.", runner_rows()),
    ):
        shown = [(code(n), t, ", ".join(map(code, labels)), d) for n, t, labels, d in rows]
        text += f"\n## {title}\n\n{where}\n\n" + table(("metric", "type", "labels", "what"), shown)
    return text


Row = tuple[str, str, tuple[str, ...], str]


def registry_rows() -> list[Row]:
    """(name, type, labels, meaning) of the registry's series."""
    registry = CollectorRegistry()
    made = Metrics(registry)
    made.observe_state(catalog=lambda: 0, bindings=lambda: 0, epoch=lambda: 0, seq=lambda: 0, age=lambda: 0)
    return sorted(_metric_rows(registry._collector_to_names))


def runner_rows() -> list[Row]:
    """The same of the agent runner."""
    registry = CollectorRegistry()
    RunnerMetrics(registry)
    return sorted(_metric_rows(registry._collector_to_names))


def operator_rows() -> list[Row]:
    """The same of a leading operator."""
    world = World()
    publisher = Publisher(1, FixedReplicas())
    indexing = Indexing(publisher)
    reader: Any = None
    loop = Loop(world, publisher, indexing, MemoryWriter(world))
    state = _Leads(Elector(reader, "documentation"))
    registering = Registering(
        world, publisher, reader, reader, loop.published, settings=RegistrationSettings("toolcrib-runtime")
    )
    state.leading = Leading(world, Watching(world, reader), publisher, indexing, loop, registering)
    return list(_metric_rows([operator_metrics.StateCollector(state)]))


class _Leads(State):
    role = "leader"


def _metric_rows(collectors: Iterable[Any]) -> Iterator[Row]:
    for collector in collectors:
        known: tuple[str, ...] = getattr(collector, "_labelnames", ())
        for family in collector.collect():
            labels = known or getattr(family, "_labelnames", ()) or tuple(sorted({k for s in family.samples for k in s.labels} - {"le"}))
            suffix = "_total" if family.type == "counter" else ""
            yield f"{family.name}{suffix}", family.type, labels, family.documentation
