"""What the chart renders, as text under version control: a change of a template shows as a diff.

`make chart-snapshots` writes the files anew; what it changed is for a human to read.
"""

import difflib
import os
from pathlib import Path

import pytest

from chart import Rendered, named, render
from chart_snapshot import snapshot
from chart_values import MATRIX

FOLDER = Path(__file__).parent / "snapshots"
KEPT = [
    "default",
    "embedded",
    "external-weaviate",
    "cert-manager",
    "agents",
    "ingress",
    "gateway",
    "autoscaled",
    "registrations",
    "prometheus-operator",
    "prometheus",
    "prometheus-asks-kubernetes",
    "narrow-network",
]
_RIGHTS = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


@pytest.mark.real
@pytest.mark.parametrize("name", KEPT)
def test_the_rendering_is_the_one_under_version_control(name: str) -> None:
    """Of other sets than the default, only how they differ from it."""
    rendered = render(MATRIX[name])
    gone = ""
    if name != "default":
        usual = {snapshot(Rendered([item])) for item in render().objects}
        there = {named(item) for item in rendered.objects}
        gone = "".join(f"# gone: {named(item)}\n" for item in render().objects if named(item) not in there)
        rendered = Rendered([item for item in rendered.objects if snapshot(Rendered([item])) not in usual])
    _compare(f"{name}.yaml", gone + snapshot(rendered))


@pytest.mark.real
def test_the_rights_are_those_under_version_control() -> None:
    """All RBAC in one file: what the chart may do to a cluster cannot grow unseen."""
    everything = render(MATRIX["registrations"] | MATRIX["agents"] | MATRIX["prometheus-asks-kubernetes"])
    _compare("rbac.yaml", snapshot(Rendered(everything.of(*_RIGHTS))))


def test_every_snapshot_belongs_to_a_test() -> None:
    assert {file.name for file in FOLDER.iterdir()} == {*(f"{name}.yaml" for name in KEPT), "rbac.yaml"}


def _compare(name: str, text: str) -> None:
    file = FOLDER / name
    if os.environ.get("TOOLCRIB_UPDATE_SNAPSHOTS"):
        file.write_text(text, encoding="utf-8")
    kept = file.read_text(encoding="utf-8") if file.exists() else ""
    if kept != text:
        lines = difflib.unified_diff(
            kept.splitlines(), text.splitlines(), f"snapshots/{name}", "rendered", lineterm=""
        )
        pytest.fail(
            "\n".join([*lines, "Meant so? `make chart-snapshots`, and read its diff."]), pytrace=False
        )
