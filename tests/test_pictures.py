"""The README's pictures: drawn by their scripts, whole without a network, and true to what the README shows."""

import re
import runpy
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from page_commands import blocks

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
FILES = sorted(PICTURES.glob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"


def text_of(file: Path) -> str:
    root = ET.fromstring(file.read_text(encoding="utf-8"))
    return "\n".join("".join(element.itertext()) for element in root.iter(f"{SVG}text"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_picture_is_text_with_a_title_small_and_asks_no_other_host(file: Path) -> None:
    written = file.read_text(encoding="utf-8")
    root = ET.fromstring(written)

    assert [child.tag for child in root][:2] == [f"{SVG}title", f"{SVG}desc"]
    assert all(child.text for child in root[:2])
    assert float(root.attrib["width"]) <= 800
    assert len(written.encode()) < 300_000
    assert re.findall(r"(?:href|src)=|url\((?!#)|@import|<script|<image", written) == []
    assert len(text_of(file)) > 200


def test_the_readme_shows_each_picture_in_light_and_dark() -> None:
    shown = re.findall(r'(?:srcset|src)="([^"]+)"', (ROOT / "README.md").read_text(encoding="utf-8"))

    assert sorted(ROOT / name for name in shown) == FILES
    assert len(FILES) == 4


def test_the_pictures_are_what_their_scripts_draw() -> None:
    parts = runpy.run_path(str(PICTURES / "architecture.py"))
    tour = runpy.run_path(str(PICTURES / "tour.py"))
    cast = (PICTURES / "tour.cast").read_text(encoding="utf-8")

    drawn = {f"architecture-{n}.svg": parts["draw"](c) for n, c in parts["PALETTES"].items()}
    drawn |= {f"tour-{n}.svg": tour["draw"](cast, c) for n, c in tour["PALETTES"].items()}
    assert {f.name: f.read_text(encoding="utf-8") for f in FILES} == drawn, "run `make generate`"


def test_the_recording_shows_the_commands_that_the_readme_shows() -> None:
    """Those are run by test_docs.py: the recording shows what still works."""
    session = runpy.run_path(str(PICTURES / "tour.py"))["SESSION"]
    recorded = re.findall(r"^\$ (.+)$", text_of(PICTURES / "tour-light.svg"), re.MULTILINE)
    page = blocks.marked((ROOT / "README.md").read_text(encoding="utf-8"))
    shown = {re.sub(r"\s+# .*", "", c.text).strip() for b in page for c in blocks.commands(b)}

    assert recorded == ["make up", *(command for screen in session for command in screen)]
    assert set(recorded) <= shown


def test_the_picture_of_the_parts_names_them() -> None:
    named = text_of(PICTURES / "architecture-dark.svg")
    parts = (
        "Kubernetes API server", "Operator", "Registry", "admin port", "Search index", "Weaviate", "Redis", "Decision log",
        "Agents", "MCP", "HTTP", "Tools", "Prometheus", "Grafana", "local mode",
    )  # fmt: skip

    assert [part for part in parts if part not in named] == []
