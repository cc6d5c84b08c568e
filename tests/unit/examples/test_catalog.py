"""The catalog of public MCP tools: complete, valid by the models, and what its script makes of the data."""

import json
import re
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolcrib import names
from toolcrib.lint import hidden_text
from toolcrib.resources import AgentScopeBinding, Tool, parse
from toolcrib.schemas import safety as schema_safety
from toolcrib.schemas.cost import SchemaCost

CATALOG = Path(__file__).parents[3] / "examples" / "catalog"
schema_of = runpy.run_path(str(CATALOG / "parameters.py"))["schema_of"]


def documents(file: Path) -> list[dict[str, Any]]:
    with file.open(encoding="utf-8") as text:
        return list(yaml.load_all(text, Loader=yaml.CSafeLoader))


@pytest.fixture(scope="module")
def files() -> dict[str, list[dict[str, Any]]]:
    return {file.name: documents(file) for file in sorted((CATALOG / "tools").iterdir())}


@pytest.fixture(scope="module")
def tools(files: dict[str, list[dict[str, Any]]]) -> list[Tool]:
    parsed = [parse(manifest, strict=True) for manifests in files.values() for manifest in manifests]
    assert all(isinstance(tool, Tool) for tool in parsed)
    return [tool for tool in parsed if isinstance(tool, Tool)]


@pytest.fixture(scope="module")
def regenerated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The manifests of the servers in sample.jsonl, made anew."""
    folder = tmp_path_factory.mktemp("catalog")
    script = [
        sys.executable,
        str(CATALOG / "generate.py"),
        str(CATALOG / "sample.jsonl"),
        "--out",
        str(folder),
    ]
    subprocess.run(script, check=True, capture_output=True)
    return folder


def test_the_whole_catalog_is_there_and_valid(tools: list[Tool]) -> None:
    assert len(tools) == 2651
    assert len({tool.spec.server for tool in tools}) == 293
    for tool in tools:
        schema_safety.check(tool.spec.input_schema)


def test_no_text_of_the_catalog_hides_a_character(tools: list[Tool]) -> None:
    assert [tool.tool_id for tool in tools if any(hidden_text.places(tool.spec))] == []


def test_every_schema_of_the_catalog_is_safe_to_evaluate(tools: list[Tool]) -> None:
    for tool in tools:
        schema_safety.check(tool.spec.input_schema)


def test_no_schema_of_the_catalog_makes_an_ordinary_call_too_complex(tools: list[Tool]) -> None:
    assert [tool.name for tool in tools if SchemaCost(tool.spec.input_schema).is_costly] == []


def test_no_two_tools_share_an_id_or_a_name_on_their_server(tools: list[Tool]) -> None:
    ids = Counter(tool.tool_id for tool in tools)
    by_server = Counter((str(tool.spec.server).lower(), tool.name.lower()) for tool in tools)
    assert [key for key, count in (ids + by_server).items() if count > 1] == []


def test_each_file_holds_one_server_and_its_scope(files: dict[str, list[dict[str, Any]]]) -> None:
    for file, manifests in files.items():
        key = file.removesuffix(".yaml")
        assert len({manifest["spec"]["server"] for manifest in manifests}) == 1
        assert all(manifest["spec"]["scopes"] == ["catalog:use", f"{key}:use"] for manifest in manifests)


def test_every_tool_is_named_and_routed_as_an_import_would_be(tools: list[Tool]) -> None:
    for tool in tools:
        object_name = tool.metadata.name
        assert object_name == names.object_name(tool.spec.server, tool.spec.title or tool.name)
        assert re.fullmatch(names.DNS_LABEL, object_name)
        assert tool.metadata.namespace == "catalog"
        http = tool.spec.backend.http
        assert http is not None
        assert http.path == f"/tools/echo/{object_name}"


def test_a_name_that_mcp_does_not_allow_is_kept_as_the_title(tools: list[Tool]) -> None:
    titled = [tool for tool in tools if tool.spec.title is not None]
    assert len(titled) == 378
    assert all(not re.fullmatch(names.TOOL_NAME, str(tool.spec.title)) for tool in titled)


def test_two_servers_that_differ_in_case_alone_stay_two(files: dict[str, list[dict[str, Any]]]) -> None:
    assert files["firecrawl.yaml"][0]["spec"]["server"] == "FireCrawl"
    assert files["firecrawl-2.yaml"][0]["spec"]["server"] == "Firecrawl-2"


def test_the_grants_of_the_catalog_are_valid_and_name_what_is_there(tools: list[Tool]) -> None:
    bindings = [parse(manifest, strict=True) for manifest in documents(CATALOG / "bindings.yaml")]
    accounts = {
        (manifest["metadata"]["namespace"], manifest["metadata"]["name"])
        for manifest in documents(CATALOG / "00-namespace.yaml")
        if manifest["kind"] == "ServiceAccount"
    }
    reached = {}
    for binding in bindings:
        assert isinstance(binding, AgentScopeBinding)
        (subject,) = binding.spec.subjects
        assert (binding.metadata.namespace, subject.name) in accounts
        granted, servers = set(binding.spec.scopes or ()), binding.spec.servers
        reached[subject.name] = sum(
            1 for t in tools if granted & set(t.spec.scopes) and (servers is None or t.spec.server in servers)
        )
    assert reached == {"librarian": 2651, "github-bot": 26}


def test_the_script_makes_the_same_files_again(regenerated: Path) -> None:
    made = {file.name: file.read_text(encoding="utf-8") for file in regenerated.iterdir()}
    assert len(made) == 15
    assert made == {name: (CATALOG / "tools" / name).read_text(encoding="utf-8") for name in made}


def test_hostile_rows_become_valid_manifests(tmp_path: Path) -> None:
    rows = [
        {"server": "Bad ‮ Server", "name": name, "description": "a\x00\u202eb\n" + "x" * 9000, "tags": ["t" * 99] * 20,
         "parameters": {"y": "(number) up", "1e3": "(string) no\n---\nkind: Secret", "yes": "x"}}
        for name in ("get it", "get/it", "GET IT", "...", "ü", "n" * 300)
    ]  # fmt: skip
    source = tmp_path / "rows.jsonl"
    source.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    subprocess.run(
        [sys.executable, str(CATALOG / "generate.py"), str(source), "--out", str(tmp_path / "out")],
        check=True,
    )
    (file,) = (tmp_path / "out").iterdir()
    tools = [parse(manifest, strict=True) for manifest in documents(file)]
    assert [tool.name for tool in tools if isinstance(tool, Tool)] == [
        "get_it", "get_it_2", "GET_IT_3", "...", "tool", "n" * 124,
    ]  # fmt: skip
    assert "\u202e" not in file.read_text(encoding="utf-8")
    # Bare, Kubernetes' YAML reader would take these keys for a boolean and a number.
    assert '"y":' in file.read_text(encoding="utf-8")
    assert '"1e3":' in file.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("note", "schema", "required"),
    [
        ("(string) A path", {"type": "string", "description": "A path"}, False),
        ("(string)", {"type": "string"}, False),
        ("", {}, False),
        ("A path", {"description": "A path"}, False),
        ("(str, required) A", {"type": "string", "description": "A"}, True),
        ("(Required, number | string) A", {"type": ["number", "string"], "description": "A"}, True),
        ("(required) A", {"description": "A"}, True),
        ("(optional) A", {"description": "A"}, False),
        ("(optional boolean) A", {"type": "boolean", "description": "A"}, False),
        ("(int | None, optional) A", {"type": ["integer", "null"], "description": "A"}, False),
        ("(array of strings) A", {"type": "array", "items": {"type": "string"}, "description": "A"}, False),
        ("(List[str]) A", {"type": "array", "items": {"type": "string"}, "description": "A"}, False),
        ("(Optional, Creator[]) A", {"type": "array", "description": "A"}, False),
        ("(2D array)", {"type": "array", "items": {"type": "array"}}, False),
        ("(Dict[str, Any]) A", {"type": "object", "description": "A"}, False),
        ("(['integer', 'string']) A", {"type": ["integer", "string"], "description": "A"}, False),
        ("(enum: person | brand) A", {"type": "string", "enum": ["person", "brand"], "description": "A"}, False),
        ('("x" | "y") A', {"type": "string", "enum": ["x", "y"], "description": "A"}, False),
        ("(number, optional, default: 800): Width", {"type": "number", "default": 800, "description": "Width"}, False),
        ("(boolean, default: False)", {"type": "boolean", "default": False}, False),
        ("(optional, default: 10)", {"default": 10}, False),
        ("(number, default: many) A", {"type": "number", "description": "(default: many) A"}, False),
        ("(number, default: true) A", {"type": "number", "description": "(default: true) A"}, False),
        ("(str | bytes) A", {"description": "(str | bytes) A"}, False),
        ("(Optional, string, YYYY-MM-DD) A", {"type": "string", "description": "(YYYY-MM-DD) A"}, False),
        ("string, Dataset (e.g. 'x')", {"type": "string", "description": "Dataset (e.g. 'x')"}, False),
        ("string -- the key", {"type": "string", "description": "the key"}, False),
        ("(string (a, b)) A", {"description": "(string (a, b)) A"}, False),
        ("(unclosed A", {"description": "(unclosed A"}, False),
        ("(string) A\x00\u202e\nB", {"type": "string", "description": "A B"}, False),
    ],
)  # fmt: skip
def test_a_parameter_note_becomes_schema_as_far_as_it_is_understood(
    note: str, schema: dict[str, Any], required: bool
) -> None:
    assert schema_of(note) == (schema, required)
