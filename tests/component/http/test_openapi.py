"""The OpenAPI documents are what the apps do: bounded schemathesis runs against the running registry."""

import ast
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from registry_harness import RunningRegistry, binding, running_registry, tool
from toolcrib_registry.http.app import create_admin_app, create_agents_app
from toolcrib_registry.settings_limits import Limits

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module", autouse=True)
def _one_thread_parses_at_a_time() -> Iterator[None]:
    """CPython 3.11 counts how deep a syntax tree is for all threads together, and raises SystemError where two parse
    at one time: here schemathesis and the registry."""
    parsing = threading.Lock()

    def alone(*arguments: Any, **options: Any) -> Any:
        with parsing:
            return compile(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        # ast.parse calls it by this name
        patch.setattr(ast, "compile", alone, raising=False)
        yield


@pytest.fixture(scope="module")
def registry() -> Iterator[RunningRegistry]:
    powers = ["registry:write", "registry:admin"]
    grants = [binding("bot"), binding("bot", powers, namespace=None, name="writer")]
    with running_registry(
        [tool("calculator"), tool("hidden")], grants, limits=Limits(registration_seconds=0.1)
    ) as r:
        yield r


@pytest.fixture(scope="module")
def agents_schema(registry: RunningRegistry) -> Any:
    return schema_of(registry, registry.url)


@pytest.fixture(scope="module")
def admin() -> Iterator[RunningRegistry]:
    with running_registry([tool("calculator")]) as r:
        yield r


@pytest.fixture(scope="module")
def admin_schema(admin: RunningRegistry) -> Any:
    return schema_of(admin, admin.admin_url)


def schema_of(running: RunningRegistry, url: str) -> Any:
    schema = schemathesis.openapi.from_dict(running.http.get(url + "/openapi.json").json())
    schema.config.update(base_url=url)
    return schema


def operations(document: dict[str, Any]) -> list[tuple[str, str]]:
    return [(method.upper(), path) for path, item in document["paths"].items() for method in item]


def run(schema: Any, method: str, path: str, headers: dict[str, str], examples: int = 20) -> None:
    operation = schema[path][method]

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @schemathesis_given(operation)
    def exercise(case: Any) -> None:
        if isinstance((case.query or {}).get("wait"), int | float):  # one that is valid would take its time
            case.query["wait"] = min(case.query["wait"], 0.1)
        response = case.call(headers=headers, timeout=10)
        # 503 is an answer of its own here (no backend, not ready); every other 5xx is a defect
        checks = [c for c in CHECKS if c is not not_a_server_error or response.status_code != 503]
        case.validate_response(response, checks=checks)

    exercise()


def schemathesis_given(operation: Any) -> Any:
    from hypothesis import given

    return given(case=operation.as_strategy())


AGENT_PATHS = [
    ("GET", "/"),
    ("GET", "/stats"),
    ("GET", "/health"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/.well-known/jwks.json"),
    ("GET", "/.well-known/oauth-protected-resource/mcp"),
    ("GET", "/.well-known/oauth-protected-resource/mcp/direct"),
    ("GET", "/tools/{name}"),
    ("POST", "/tools/{name}"),
    ("POST", "/tools/register"),
    ("GET", "/v1/tools"),
    ("GET", "/v1/tools/{namespace}/{name}"),
    ("GET", "/v0.1/servers"),
    ("GET", "/v0.1/servers/{namespace}/{server}/versions"),
    ("GET", "/v0.1/servers/{namespace}/{server}/versions/{version}"),
    ("POST", "/v1/search"),
    ("POST", "/v1/compat/intelligent_tool_finder"),
    ("POST", "/api/search/semantic"),
    ("POST", "/v1/describe"),
    ("POST", "/v1/load"),
    ("POST", "/v1/call"),
    ("POST", "/mcp"),
    ("POST", "/mcp/direct"),
    ("GET", "/v1/access-review"),
    ("POST", "/v1/access-review"),
    ("POST", "/v1/access-requests"),
]


@pytest.mark.parametrize(("method", "path"), AGENT_PATHS)
@pytest.mark.parametrize("known", [True, False])
def test_no_request_gets_an_answer_that_is_not_documented(
    registry: RunningRegistry, agents_schema: Any, method: str, path: str, known: bool
) -> None:
    run(agents_schema, method, path, registry.auth("team", "bot") if known else {})


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/admin/publish"),
        ("POST", "/v1/admin/heartbeat"),
        ("POST", "/v1/admin/credentials"),
        ("POST", "/v1/admin/index"),
        ("GET", "/v1/admin/index"),
        ("GET", "/v1/admin/state"),
        ("GET", "/v1/admin/outbox"),
        ("POST", "/v1/admin/outbox"),
    ],
)
def test_the_admin_channel_is_documented_as_it_is(
    admin: RunningRegistry, admin_schema: Any, method: str, path: str
) -> None:
    run(admin_schema, method, path, admin.admin_auth(), examples=10)


def test_every_route_is_in_the_document_and_in_these_runs(registry: RunningRegistry) -> None:
    document = create_agents_app(registry.registry.deps).openapi()

    streams = [("GET", "/v1/watch"), ("GET", "/mcp/direct")]
    assert sorted(operations(document)) == sorted([*AGENT_PATHS, *streams])
    assert "HTTPValidationError" not in str(document)
    assert "HTTPValidationError" not in str(create_admin_app(registry.registry.deps).openapi())


def test_every_body_and_every_operation_has_a_summary_and_an_example(registry: RunningRegistry) -> None:
    document = create_agents_app(registry.registry.deps).openapi()

    def has_example(content: dict[str, Any]) -> bool:
        name = content["schema"].get("$ref", "").rsplit("/", 1)[-1]
        schema = document["components"]["schemas"].get(name, content["schema"])
        return any("example" in place or "examples" in place for place in (content, schema))

    for method, path in operations(document):
        operation = document["paths"][path][method.lower()]
        contents = [*operation["responses"]["200"].get("content", {}).values()]
        contents += operation.get("requestBody", {}).get("content", {}).values()
        assert operation["summary"], (method, path)
        assert any(map(has_example, contents)), (method, path)
