"""Every value is described where people look for it, and what is described exists."""

import importlib.util
import json
import re
import sys
from types import ModuleType
from typing import Any

import pytest
import yaml

from chart import CHART, ROOT


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    """helm/readme.py, which is a script and no package."""
    spec = importlib.util.spec_from_file_location("chart_readme", ROOT / "helm" / "readme.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)

    sys.modules["chart_readme"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def _text() -> str:
    return (CHART / "values.yaml").read_text(encoding="utf-8")


def _known(path: str) -> bool:
    """Whether the schema has a property at this dotted path."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    node: dict[str, Any] = schema
    for key in path.split("."):
        while "$ref" in node:
            node = schema["definitions"][node["$ref"].rpartition("/")[2]]
        if key not in node.get("properties", {}):
            return False
        node = node["properties"][key]
    return True


def test_every_value_has_a_description(generator: ModuleType) -> None:
    bare = [value.path for value in generator.values(_text()) if value.leaf and not value.description]
    assert not bare, f"no `# --` comment above: {bare}"


def test_every_described_value_is_one_that_the_schema_knows(generator: ModuleType) -> None:
    assert [value.path for value in generator.values(_text()) if not _known(value.path)] == []


def test_the_page_is_up_to_date_and_has_every_value(generator: ModuleType) -> None:
    page = (CHART / "README.md").read_text(encoding="utf-8")
    assert page == generator.page(), "run `make generate`"
    for value in generator.values(_text()):
        if value.leaf:
            assert f"| `{value.path}` |" in page


def test_defaults_on_the_page_are_the_real_ones(generator: ModuleType) -> None:
    real = yaml.safe_load(_text())
    for value in generator.values(_text()):
        if value.leaf and value.default.startswith("`"):
            found: Any = real
            for key in value.path.split("."):
                found = found[key]
            assert json.loads(value.default.strip("`")) == found, value.path


def test_links_of_the_page_lead_to_files_of_the_repository(generator: ModuleType) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", generator.page())
    missing = [target for target in targets if not (CHART / target).resolve().exists()]
    assert targets
    assert not missing


def test_comments_go_on_over_lines_and_defaults_may_be_said_in_words(generator: ModuleType) -> None:
    text = "# A file.\n\na:\n  # -- What b\n  # does | at all.\n  # @default -- as it comes\n  b: 1\n  c: {}\nd:\n  # -- E.\n  e: [1]\n"
    found = {value.path: value for value in generator.values(text)}
    assert found["a.b"].description == "What b does | at all."
    assert found["a.b"].default == "as it comes"
    assert found["a.c"].description == ""
    assert found["d.e"].default == "`[1]`"
    assert not found["d"].leaf


def test_every_pattern_that_a_value_is_refused_by_is_explained_in_words(generator: ModuleType) -> None:
    schema = (CHART / "values.schema.json").read_text(encoding="utf-8")
    patterns = {json.loads(found) for found in re.findall(r'"pattern": ("(?:[^"\\\\]|\\\\.)*")', schema)}

    assert patterns == generator.refusals.FORMS.keys()
    assert generator.refusals.section() in (CHART / "README.md").read_text(encoding="utf-8")


def test_a_pattern_without_words_ends_the_generator(
    generator: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(generator.refusals.FORMS, "^/")

    with pytest.raises(SystemExit, match="differ: \\^/"):
        generator.refusals.section()
