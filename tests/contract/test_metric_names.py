"""Names and labels of metrics are an API: this is what they are, and what they may not be called."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from toolcrib import process
from toolcrib.telemetry.metric import Metric
from toolcrib_operator import metrics as operator_table
from toolcrib_registry.metrics import table as registry_table
from toolcrib_runner import metrics as runner_table

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("metrics.txt")
RESERVED = {"namespace", "pod", "service", "container", "job", "instance", "endpoint", "node"}
UNITS = ("_seconds", "_bytes", "_info", "_ratio")


@pytest.fixture(scope="module")
def rows() -> Iterator[list[tuple[str, str, tuple[str, ...], str, str]]]:
    """(service, name, labels, type, meaning) of everything that the services tell."""
    sys.path.insert(0, str(ROOT / "docs"))
    from reference_pages import numbers

    found = []
    for service, told in (
        ("registry", numbers.registry_rows()),
        ("operator", numbers.operator_rows()),
        ("runner", numbers.runner_rows()),
    ):
        found += [(service, name, labels, kind, text) for name, kind, labels, text in told]
    yield found
    sys.path.remove(str(ROOT / "docs"))


def test_the_metrics_are_those_of_the_list(rows: list[tuple[str, str, tuple[str, ...], str, str]]) -> None:
    now = {f"{service} {kind} {name}{{{','.join(labels)}}}" for service, name, labels, kind, _ in rows}
    listed = set(LIST.read_text().split("\n")) - {""}
    gone, new = sorted(listed - now), sorted(now - listed)
    assert (gone, new) == ([], []), (
        "Dashboards and alerts of users are built on these names and labels. If the change is meant, say so in "
        f"CHANGELOG.md and bring tests/contract/metrics.txt up to date: gone {gone}, new {new}"
    )


@pytest.mark.parametrize(
    ("service", "table"),
    [("registry", registry_table), ("operator", operator_table), ("runner", runner_table)],
)
def test_what_a_service_tells_are_the_rows_of_its_table(
    rows: list[tuple[str, str, tuple[str, ...], str, str]], service: str, table: ModuleType
) -> None:
    told = {(name.removesuffix("_total"), text) for of, name, _, _, text in rows if of == service}
    declared = {
        (row.name.removesuffix("_total"), row.text) for row in vars(table).values() if isinstance(row, Metric)
    }

    assert declared - told == set()
    assert told - declared == {(one.name, one.text) for one in process.series()} & told


def test_names_have_the_prefix_and_a_base_unit_and_labels_are_nobody_else_s(
    rows: list[tuple[str, str, tuple[str, ...], str, str]],
) -> None:
    for _, name, labels, kind, text in rows:
        assert re.fullmatch(r"toolcrib_[a-z_]+", name)
        assert name.endswith("_total") == (kind == "counter"), name
        assert not re.search(r"_(milliseconds|ms|minutes|kilobytes|kb|percent)(_|$)", name), name
        assert kind != "histogram" or name.endswith(UNITS), name
        assert not RESERVED & set(labels), name
        assert text.endswith("."), name


def test_every_label_has_a_meaning(rows: list[tuple[str, str, tuple[str, ...], str, str]]) -> None:
    from reference_pages import numbers

    used = {label for _, _, labels, _, _ in rows for label in labels}
    assert used | {"le"} == set(numbers.LABELS)
    assert set(numbers.BOUNDS) <= {name for _, name, _, _, _ in rows}
