"""The simple discovery protocol, on the real app and a real port."""

import httpx

from registry_harness import binding, running_registry, tool

KEYS = {"name", "endpoint", "scopes", "description", "parameters", "returns", "host", "port"}


def test_a_caller_discovers_exactly_its_tools() -> None:
    tools = [tool("calculator"), tool("secret_tool")]
    with running_registry(tools, [binding("bot")]) as r:
        answer = httpx.get(r.url + "/", headers=r.auth("team", "bot"))

    assert answer.status_code == 200
    assert [t["name"] for t in answer.json()["tools"]] == ["calculator"]
    assert set(answer.json()["tools"][0]) == KEYS
