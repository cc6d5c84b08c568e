"""The client library and the registry agree: routes, fields, codes, versions."""

import ast
import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

import toolcrib
import toolcrib_client
from registry_harness import running_registry
from toolcrib.wire import api, search
from toolcrib_client import errors, exchange, results
from toolcrib_registry.http import problems

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
    "metrics": ("prometheus_client",),
    "langchain": ("langchain", "langchain_core", "langgraph"),
    "openai_agents": ("agents",),
    "pydantic_ai": ("pydantic_ai", "pydantic_core"),
}
"""Modules for extras, each imported by who uses it alone, and what it may import."""


def test_both_have_one_version() -> None:
    assert toolcrib_client.__version__ == toolcrib.version.__version__


def test_every_code_that_an_agent_can_get_has_its_error_and_there_is_no_other() -> None:
    assert set(problems.CODES) - _NOT_FOR_AGENTS - _OF_THE_REQUEST_ITSELF == set(errors.BY_CODE)


ASKED = [
    exchange.listing(None),
    exchange.describing("a"),
    *exchange.loading(["a"]),
    exchange.calling("a", {}),
    exchange.searching("a", limit=1, tags=["t"], servers=["s"], namespaces=["n"], min_score=0.5),
    exchange.Asked("GET", exchange.WATCH, reads=True),
]
"""Every request there is, with every field it can have."""


@pytest.fixture(scope="module")
def document() -> Iterator[dict[str, Any]]:
    """`/openapi.json` of a registry."""
    with running_registry([], []) as registry:
        yield httpx2.get(f"{registry.url}/openapi.json", trust_env=False).json()


def route(document: dict[str, Any], asked: exchange.Asked) -> dict[str, Any]:
    """What the document says of a request."""
    found: dict[str, Any] = document["paths"][asked.path.partition("?")[0]][asked.method.lower()]
    return found


def resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The schema that it refers to."""
    found: dict[str, Any] = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: asked.path)
def test_every_request_is_one_of_the_registrys_document(
    document: dict[str, Any], asked: exchange.Asked
) -> None:
    about = route(document, asked)
    fields = set(json.loads(asked.body)) if asked.body else set()

    if asked.body:
        content = about["requestBody"]["content"]["application/json"]
        assert fields <= set(resolved(document, content["schema"])["properties"])
    query = {part.partition("=")[0] for part in asked.path.partition("?")[2].split("&") if part}
    assert query <= {p["name"] for p in about.get("parameters", ()) if p["in"] == "query"}


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: asked.path)
def test_every_code_that_the_document_names_for_a_request_has_its_error(
    document: dict[str, Any], asked: exchange.Asked
) -> None:
    answers = route(document, asked)["responses"].values()
    problems_of = [a.get("content", {}).get("application/problem+json", {}) for a in answers]
    named = {code for problem in problems_of for code in problem.get("examples", ())}

    assert named
    assert named - _OF_THE_REQUEST_ITSELF <= set(errors.BY_CODE)


@pytest.mark.parametrize(
    ("here", "there", "renamed"),
    [
        (results.Tool, "DescribedTool", set()),
        (results.Hit, "SearchResult", set()),
        (results.SearchAnswer, "SearchAnswer", {"hits"}),
        (results.LoadFailure, "LoadError", set()),
        (results.LoadedTool, "McpTool", {"tool_id", "model_name", "input_schema"}),
        (results.Loaded, "LoadAnswer", {"failures"}),
        (results.CallResult, "CallAnswer", set()),
    ],
)
def test_every_field_is_one_of_the_registrys_answers(
    document: dict[str, Any], here: Any, there: str, renamed: set[str]
) -> None:
    said = document["components"]["schemas"][there]["properties"]

    assert {f.name for f in dataclasses.fields(here)} - renamed <= set(said)


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
