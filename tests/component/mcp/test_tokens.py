"""A model pays for the meta-tools with each request, so they are few and short."""

from mcp_requests import VERSIONS, ask
from mcp_tokens import MOST, SETS, tokens
from registry_harness import running_registry
from toolcrib_registry.mcp import tool_texts


def test_the_default_meta_tools_take_at_most_400_tokens() -> None:
    with running_registry() as r:
        listed = [ask(r, "/mcp", "tools/list", version=v).json()["result"]["tools"] for v in VERSIONS]

    assert all(tools == listed[0] for tools in listed)
    assert tokens(listed[0]) == tokens(tool_texts.offered()) <= MOST


def test_with_calls_that_read_and_calls_that_write_they_take_no_more() -> None:
    assert tokens(tool_texts.offered(**SETS["mcp.split_calls"])) <= MOST
