"""The client library and the registry agree: routes, fields, codes, versions."""

import ast
import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest

import toolcrib
import toolcrib_client
from toolcrib.wire import api, search
from toolcrib_client import errors, exchange, results
from toolcrib_registry.http import problems, route_table

_NOT_FOR_AGENTS = {
    *(
        "already_registered",
        "reserved_scope",
        "schema_unsafe",
        "hidden_text",
        "registration_off",
        "not_durable",
    ),
    *("not_admin", "not_listed", "epoch_fenced", "revision_mismatch"),
}
_OF_THE_REQUEST_ITSELF = {
    *("token_in_query", "origin_refused", "not_found", "method_not_allowed", "not_acceptable"),
    *("unsupported_media_type", "wrong_host"),
}
"""What this client does not send, or the address decides; an error by status."""

ADAPTERS = {
    "langchain": ("langchain", "langchain_core", "langgraph"),
    "openai_agents": ("agents",),
    "pydantic_ai": ("pydantic_ai", "pydantic_core"),
}
"""Modules for frameworks, each imported by who uses it alone, and what it may import."""


def test_both_have_one_version() -> None:
    assert toolcrib_client.__version__ == toolcrib.version.__version__


def test_every_code_that_an_agent_can_get_has_its_error_and_there_is_no_other() -> None:
    assert set(problems.CODES) - _NOT_FOR_AGENTS - _OF_THE_REQUEST_ITSELF == set(errors.BY_CODE)


def test_every_request_is_a_route_of_agents() -> None:
    routes = {(line.method, line.path) for line in route_table.AGENTS}
    none: dict[str, Any] = {"tags": (), "servers": (), "namespaces": (), "min_score": None}
    asked = [
        exchange.listing(None),
        exchange.describing("a"),
        *exchange.loading(["a"]),
        exchange.calling("a", {}),
        exchange.searching("a", limit=1, **none),
        exchange.Asked("GET", "/v1/watch", reads=True),
    ]

    assert {(a.method, a.path.partition("?")[0]) for a in asked} <= routes


@pytest.mark.parametrize(
    ("here", "there", "renamed"),
    [
        (results.Tool, api.DescribedTool, set()),
        (results.Hit, search.SearchResult, set()),
        (results.SearchAnswer, search.SearchAnswer, {"hits"}),
        (results.LoadFailure, api.LoadError, set()),
        (results.LoadedTool, api.McpTool, {"tool_id", "model_name"}),
        (results.Loaded, api.LoadAnswer, {"failures"}),
        (results.CallResult, api.CallAnswer, set()),
    ],
)
def test_every_field_is_one_of_the_registrys_answers(here: Any, there: Any, renamed: set[str]) -> None:
    assert {f.name for f in dataclasses.fields(here)} - renamed <= set(there.model_fields)


def test_requests_are_what_the_registry_reads() -> None:
    body = exchange.searching("a", limit=3, tags=["t"], servers=["s"], namespaces=["n"], min_score=0.5).body
    assert body is not None
    read = search.SearchRequest.model_validate_json(body)

    assert (read.query, read.limit, read.tags, read.min_score) == ("a", 3, ("t",), 0.5)
    assert len(api.LoadRequest(tools=("a",) * exchange.BATCH).tools) == exchange.BATCH


def test_the_client_imports_nothing_but_its_two_dependencies_and_python() -> None:
    folder = Path(toolcrib_client.__file__).parent
    for path in folder.glob("*.py"):
        tree = ast.parse(path.read_text())
        named = {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        named |= {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        assert not named & {f"toolcrib_client.{adapter}" for adapter in ADAPTERS}, path.name
        roots = {name.partition(".")[0] for name in named} - set(sys.stdlib_module_names)
        assert roots <= {"anyio", "httpx2", "toolcrib_client", *ADAPTERS.get(path.stem, ())}, path.name
