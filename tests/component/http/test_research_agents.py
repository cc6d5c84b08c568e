"""The agents of examples/agents/research: what each sees, and that nobody opens what one of them denies itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from registry_harness import RunningRegistry, binding, running_registry
from toolcrib import publishing
from toolcrib.resources import AgentScopeBinding, Tool, parse

FOLDER = Path(__file__).parents[3] / "examples" / "agents" / "research"
SEARCHES = {"docs-search", "repository-search", "web-search"}


@pytest.fixture(scope="module")
def registry() -> Iterator[RunningRegistry]:
    found = [each for file in sorted(FOLDER.glob("*.yaml")) for each in yaml.safe_load_all(file.read_text())]
    read = [parse(each, strict=True) for each in found if each["apiVersion"].startswith("toolcrib.dev/")]
    tools = [publishing.tool(each, cluster_ip="127.0.0.1") for each in read if isinstance(each, Tool)]
    bindings = [publishing.binding(each) for each in read if isinstance(each, AgentScopeBinding)]
    # a grant that somebody adds later
    added = [
        binding(
            name,
            ("repository:write", "shell:exec"),
            namespace="research",
            account_namespace="research",
            uid=f"added-{name}",
        )
        for name in ("context-builder", "research-agent")
    ]
    with running_registry(tools, [*bindings, *added]) as running:
        yield running


def seen(registry: RunningRegistry, agent: str) -> set[str]:
    found = registry.http.get(f"{registry.url}/v1/tools", headers=registry.auth("research", agent)).json()
    return {tool["name"] for tool in found["tools"]}


def test_the_context_builder_sees_the_searches_and_what_is_added(registry: RunningRegistry) -> None:
    assert seen(registry, "context-builder") == SEARCHES | {"write-file", "execute-shell"}


def test_the_research_agent_reads_everything_and_writes_nothing_whoever_grants_it(
    registry: RunningRegistry,
) -> None:
    assert seen(registry, "research-agent") == SEARCHES | {"read-file"}
    for tool in ("write-file", "execute-shell"):
        refused = registry.http.post(
            f"{registry.url}/v1/call", headers=registry.auth("research", "research-agent"),
            json={"tool": tool, "arguments": {"path": "a"}},
        )  # fmt: skip
        assert (refused.status_code, refused.json()["code"]) == (403, "not_permitted")
