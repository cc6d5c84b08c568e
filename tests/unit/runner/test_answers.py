"""Error answers become the runner's typed errors, and reach the model."""

import json

import pytest

from toolcrib_runner import answers
from toolcrib_runner.errors import ToolFailed
from toolcrib_runner.session import conversation


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{", b'{"code": 7, "detail": []}', b"[" * 100_000])
def test_any_error_answer_becomes_a_typed_error(body: bytes) -> None:
    for status in (301, 400, 401, 403, 404, 418, 429, 500, 503):
        assert str(answers.of_call("t", status, body, "soon"))
        assert str(answers.of_registry(status, body, None))


def test_a_tools_own_error_reaches_the_model() -> None:
    body = json.dumps(
        {"code": "tool_error", "detail": "refused (400)", "upstream": {"detail": "no such file"}}
    )
    error = answers.of_call("t", 422, body.encode(), None)
    assert isinstance(error, ToolFailed)
    assert json.loads(conversation.error_text(error))["error"]["answer"] == {"detail": "no such file"}


def test_what_is_wrong_with_arguments_reaches_the_model() -> None:
    body = json.dumps(
        {
            "code": "invalid_arguments",
            "detail": "no",
            "errors": [{"pointer": "/a", "message": "is not one of x"}],
        }
    )
    error = answers.of_call("t", 400, body.encode(), None)
    assert json.loads(conversation.error_text(error))["error"]["problems"] == ["/a: is not one of x"]
