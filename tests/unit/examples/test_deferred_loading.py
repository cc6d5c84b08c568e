"""The recipes for deferred loading are requests that the providers' own packages take and send as they are."""

import json
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import openai
import pytest
from openai.types.responses import ToolSearchToolParam, tool_param
from pydantic import TypeAdapter

from provider_payloads import ANTHROPIC

EXAMPLES = Path(__file__).parents[3] / "examples" / "mcp"


def recipe(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((EXAMPLES / name).read_text())
    return found


def refused(request: httpx.Request) -> httpx.Response:
    """The provider, which keeps the request and answers nothing."""
    SENT.append(json.loads(request.content))
    return httpx.Response(418, json={"error": {"message": "no"}})


SENT: list[dict[str, Any]] = []


def test_openais_package_sends_the_recipe_as_it_is() -> None:
    payload = recipe("openai-tool-search.json")
    http = httpx.Client(transport=httpx.MockTransport(refused))
    with openai.OpenAI(
        api_key="-", base_url="https://example.com/v1", http_client=http, max_retries=0
    ) as client:
        with pytest.raises(openai.APIStatusError, match="418"):
            client.responses.create(**payload)

    assert SENT.pop() == payload


def test_openais_types_know_every_field_of_the_recipe() -> None:
    mcp, search = recipe("openai-tool-search.json")["tools"]

    for kind, value in ((tool_param.Mcp, mcp), (ToolSearchToolParam, search)):
        assert TypeAdapter(kind).validate_python(value, strict=True)
        assert set(value) <= set(kind.__annotations__)
    assert mcp["defer_loading"] is True
    assert mcp["server_url"].endswith("/mcp/direct")


def test_the_recipe_for_anthropic_has_the_fields_of_its_api() -> None:
    payload = recipe("anthropic-mcp-toolset.json")

    jsonschema_rs.validator_for(ANTHROPIC).validate(payload)
    (server,) = payload["mcp_servers"]
    assert [t["mcp_server_name"] for t in payload["tools"] if t["type"] == "mcp_toolset"] == [server["name"]]


def test_no_recipe_holds_a_token() -> None:
    assert [f.name for f in EXAMPLES.glob("*.json") if "authorization" in f.read_text().lower()] == []
