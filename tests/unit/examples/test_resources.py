"""One commented example a kind, on the page of the custom resources: valid, whole, and without a finding."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolcrib.lint.weaknesses import SearchLint
from toolcrib.resources import Tool, ToolState, crd, parse
from toolcrib.resources.kinds import KINDS
from toolcrib.schemas import safety as schema_safety

FOLDER = Path(__file__).parents[3] / "examples" / "resources"


def _text(kind: str) -> str:
    return (FOLDER / f"{kind.lower()}.yaml").read_text(encoding="utf-8")


def _fields(schema: dict[str, Any]) -> set[str]:
    """Names of all fields, those of lists and of structures included; a schema of arguments has none of ours."""
    names = set(schema.get("properties", ()))
    below = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else ())]
    return names.union(*(_fields(part) for part in below))


def test_each_kind_has_an_example_and_nothing_else_has() -> None:
    assert {file.stem for file in FOLDER.iterdir()} == {kind.lower() for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_the_example_is_valid(kind: str) -> None:
    made = parse(yaml.safe_load(_text(kind)), strict=True)

    assert made.kind == kind
    if isinstance(made, Tool):
        schema_safety.check(made.spec.input_schema)
        schema_safety.check(made.spec.output_schema)


@pytest.mark.parametrize("kind", KINDS)
def test_the_example_names_every_field_of_its_spec(kind: str) -> None:
    spec = crd.schema(KINDS[kind])["properties"]["spec"]
    told = set(re.findall(r"[A-Za-z]+", _text(kind)))

    assert _fields(spec) - told == set()


def test_a_search_finds_the_example_tool() -> None:
    tool = parse(yaml.safe_load(_text("Tool")), strict=True)
    assert isinstance(tool, Tool)
    active = tool.spec.model_copy(update={"state": ToolState.ACTIVE})

    assert SearchLint().weaknesses(tool.model_copy(update={"spec": active})) == ()
