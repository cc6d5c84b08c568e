"""The heist: manifests that are valid by the models, refer to what is there, and describe the programs rightly."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from toolcrib.resources import AgentScopeBinding, Tool, parse
from toolcrib.schemas import safety as schema_safety
from toolcrib_cli.example_tools import create_app, prepare_samples
from toolcrib_cli.example_tools.simulation import DEFAULT_SCENARIO, SCENARIOS

HEIST = Path(__file__).parents[3] / "examples" / "heist"
CHANGES = HEIST.parent / "access" / "changes"
SCOPES = {
    "calculator": "calculator:use",
    "file_reader": "file_reader:use",
    "database_query": "database:read",
    "simulation_data": "simulation:read",
}


@pytest.fixture(scope="module")
def manifests() -> list[dict[str, Any]]:
    return [
        manifest
        for file in sorted(HEIST.glob("*.yaml"))
        for manifest in yaml.load_all(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    ]


@pytest.fixture(scope="module")
def tools(manifests: list[dict[str, Any]]) -> dict[str, Tool]:
    parsed = [parse(manifest, strict=True) for manifest in manifests if manifest["kind"] == "Tool"]
    return {tool.name: tool for tool in parsed if isinstance(tool, Tool)}


def test_everything_is_in_the_namespace_that_comes_first(manifests: list[dict[str, Any]]) -> None:
    assert manifests[0]["kind"] == "Namespace"
    assert {manifest["metadata"].get("namespace") for manifest in manifests[1:]} == {"heist"}


def test_every_agent_is_granted_exactly_its_tools(
    manifests: list[dict[str, Any]], tools: dict[str, Tool]
) -> None:
    accounts = {m["metadata"]["name"] for m in manifests if m["kind"] == "ServiceAccount"}
    reached: dict[str, set[str]] = {name: set() for name in accounts}
    for manifest in manifests:
        if manifest["kind"] == "AgentScopeBinding":
            binding = parse(manifest, strict=True)
            assert isinstance(binding, AgentScopeBinding)
            (subject,) = binding.spec.subjects
            granted = set(binding.spec.scopes or ())
            reached[subject.name] = {name for name, tool in tools.items() if granted & set(tool.spec.scopes)}
    assert reached == {
        "planner": set(),
        "hacker": {"file_reader", "simulation_data"},
        "safecracker": {"calculator"},
    }


def test_the_grant_for_later_adds_the_database_to_the_safecracker_and_lies_outside(
    tools: dict[str, Tool],
) -> None:
    (file,) = CHANGES.iterdir()
    binding = parse(yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader), strict=True)
    assert isinstance(binding, AgentScopeBinding)
    assert (binding.metadata.namespace, [s.name for s in binding.spec.subjects]) == ("heist", ["safecracker"])
    assert binding.spec.scopes == tools["database_query"].spec.scopes == ("database:read",)
    # another object than the grant that it comes beside: deleting it leaves that one
    assert binding.metadata.name != "safecracker"
    assert HEIST not in file.parents


def test_every_tool_is_safe_served_and_described(
    manifests: list[dict[str, Any]], tools: dict[str, Tool], tmp_path: Path
) -> None:
    (service,) = [m for m in manifests if m["kind"] == "Service"]
    served = {
        route.path for route in create_app(prepare_samples(tmp_path), None).routes if hasattr(route, "path")
    }
    assert {name: tool.spec.scopes for name, tool in tools.items()} == {n: (s,) for n, s in SCOPES.items()}
    for tool in tools.values():
        schema_safety.check(tool.spec.input_schema)
        http = tool.spec.backend.http
        assert http is not None
        assert http.service is not None
        assert (http.service.name, http.service.port) == (
            service["metadata"]["name"],
            service["spec"]["ports"][0]["port"],
        )
        assert http.path in served
        assert tool.spec.examples
        assert tool.spec.annotations is not None
        assert tool.spec.annotations.read_only_hint is True


def test_the_scenarios_in_the_schema_are_those_of_the_program(tools: dict[str, Tool]) -> None:
    schema = tools["simulation_data"].spec.input_schema
    scenario = schema["properties"]["scenario"]
    assert (scenario["enum"], scenario["default"]) == (list(SCENARIOS), DEFAULT_SCENARIO)
    assert f"{DEFAULT_SCENARIO} if absent" in scenario["description"]
    assert "required" not in schema
