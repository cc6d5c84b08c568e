"""Client-side tool search for the Claude API: a search of the registry becomes `tool_reference` blocks.

    python examples/mcp/client_side_search.py REGISTRY-URL TOKEN-FILE QUESTION

Prints the request that follows a search: the definitions that were found, deferred, and the search's result that refers
to them. It needs nothing but Python. Each question to `/mcp` is one POST: no handshake, no session.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

SEARCH = {
    "name": "search_tools",
    "description": "Find tools by what they do. Search before you say that you cannot do something.",
    "input_schema": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
}
"""The one tool that is always in the prompt."""


class Registry:
    """A registry's `/mcp`, as the identity of a token."""

    def __init__(self, url: str, token: str) -> None:
        self._url = f"{url.rstrip('/')}/mcp"
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def call(self, tool: str, arguments: dict[str, Any], *, direct: bool = False) -> dict[str, Any]:
        """The result of one call; `direct` calls a tool by the name that the model has for it."""
        params = {"name": tool, "arguments": arguments}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        address = f"{self._url}/direct" if direct else self._url
        request = urllib.request.Request(address, json.dumps(message).encode(), self._headers)
        with urllib.request.urlopen(request, timeout=30) as response:
            answer: dict[str, Any] = json.load(response)
        if "error" in answer:
            raise RuntimeError(answer["error"]["message"])
        result: dict[str, Any] = answer["result"]
        return result


def definitions(registry: Registry, query: str) -> list[dict[str, Any]]:
    """What a search finds, as tools of the Claude API that stay out of the prompt until something refers to them."""
    hits = registry.call("search_tools", {"query": query})["structuredContent"]["tools"]
    loaded = registry.call("load_tools", {"tool_ids": [hit["tool_id"] for hit in hits]})["structuredContent"][
        "tools"
    ]
    return [
        {
            "name": tool["_meta"]["toolcrib.dev/model-name"],  # its name at /mcp/direct, too
            "description": tool["description"],
            "input_schema": tool["inputSchema"],
            "defer_loading": True,
        }
        for tool in loaded
    ]


def references(found: list[dict[str, Any]], tool_use_id: str) -> dict[str, Any]:
    """The result of the model's search: names, which the API replaces by the definitions."""
    content = [{"type": "tool_reference", "tool_name": tool["name"]} for tool in found]
    return {"type": "tool_result", "tool_use_id": tool_use_id, "content": content or "Nothing fits."}


def request_after(registry: Registry, question: str, search: dict[str, Any]) -> dict[str, Any]:
    """The next request, once the model has answered the question with `search`, a `tool_use` of `search_tools`."""
    found = definitions(registry, search["input"]["query"])
    return {
        "model": "claude-opus-4-6",
        "max_tokens": 1024,
        "tools": [SEARCH, *found],
        "messages": [
            {"role": "user", "content": question},
            {"role": "assistant", "content": [search]},
            {"role": "user", "content": [references(found, search["id"])]},
        ],
    }


def main() -> None:
    """Print the request; what the model would have searched for is the question itself."""
    if len(sys.argv) != 4:
        raise SystemExit("usage: python examples/mcp/client_side_search.py REGISTRY-URL TOKEN-FILE QUESTION")
    url, file, question = sys.argv[1:]
    search = {"type": "tool_use", "id": "toolu_01", "name": "search_tools", "input": {"query": question}}
    registry = Registry(url, Path(file).read_text().strip())
    print(json.dumps(request_after(registry, question, search), indent=2))


if __name__ == "__main__":
    main()
