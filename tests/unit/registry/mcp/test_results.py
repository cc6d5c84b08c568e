"""Results as each revision has them."""

import json

import pytest

from mcp_client import OWN, STATELESS, VERSIONS, valid_result
from toolcrib_registry.calls.backends.port import ToolAnswer
from toolcrib_registry.mcp import messages, results


@pytest.mark.parametrize("version", VERSIONS)
def test_each_revision_has_its_own_fields(version: str) -> None:
    found = json.loads(results.complete(version, {"tools": []}, meta={"a": 1}, keep_ms=5))
    if version == STATELESS:
        assert found.pop("_meta").keys() == {"a", f"{OWN}serverInfo"}
        assert found == {"tools": [], "resultType": "complete", "ttlMs": 5, "cacheScope": "private"}
    else:
        assert found == {"tools": [], "_meta": {"a": 1}}
    assert ("ttlMs" in json.loads(results.complete(version, {}))) is False


def test_no_tool_can_say_that_another_server_answered() -> None:
    answer = ToolAnswer(b"1", "application/json", is_json=True, meta={f"{OWN}serverInfo": "evil"})
    found = json.loads(results.of_tool(STATELESS, answer))
    assert found["_meta"][f"{OWN}serverInfo"]["name"] == "toolcrib"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "raw", [b"", b"null", b" [1]", b'{"a":1}', b'\n\t {"a":1}', b'"x"', b"1e400", b"true"]
)
def test_what_a_tool_answers_is_valid_in_each_revision(version: str, raw: bytes) -> None:
    answer = ToolAnswer(raw, "application/json", is_json=True)
    body = json.loads(messages.answered(1, results.of_tool(version, answer)))
    found = valid_result(body, "tools/call", version)
    is_object = raw.strip().startswith(b"{")
    assert ("structuredContent" in found) is (bool(raw) and (is_object or version == STATELESS))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_failure_says_its_code_and_when_to_try_again(version: str) -> None:
    body = json.loads(messages.answered(1, results.of_failure(version, "limit_exceeded", "Wait.", 3)))
    found = valid_result(body, "tools/call", version)
    assert (found["isError"], found["content"]) == (True, [{"type": "text", "text": "Wait."}])
    assert found["_meta"]["toolcrib.dev/code"] == "limit_exceeded"
    assert found["_meta"]["toolcrib.dev/retry-after"] == 3
