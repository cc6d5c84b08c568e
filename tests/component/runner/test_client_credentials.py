"""A token source that asks a token endpoint."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from stub_server import Answer, Asked, answering
from toolcrib_runner import ClientCredentials, TokenUnavailable


class Endpoint:
    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.status = 200
        self.answer: Any = None
        self.url = ""


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint()

    def answer(asked: Asked) -> Answer:
        basic = base64.b64decode(asked.headers["authorization"].removeprefix("Basic ")).decode()
        endpoint.asked.append((basic, asked.body.decode()))
        token = endpoint.answer or {"access_token": f"t{len(endpoint.asked)}", "expires_in": 100}
        return Answer(json.dumps(token).encode(), endpoint.status)

    with answering(answer) as port:
        endpoint.url = f"http://127.0.0.1:{port}/oauth/token"
        yield endpoint


def test_a_token_is_kept_until_shortly_before_it_expires_or_is_refused(endpoint: Endpoint) -> None:
    now = [0.0]
    source = ClientCredentials(endpoint.url, "heist/planner", "s3cret", clock=lambda: now[0])
    assert [source(), source()] == ["t1", "t1"]
    assert endpoint.asked == [("heist/planner:s3cret", "grant_type=client_credentials")]
    now[0] = 81
    assert source() == "t2"
    source.renew()
    assert source() == "t3"
    assert "s3cret" not in repr(source)


@pytest.mark.parametrize(
    ("status", "answer"),
    [(400, {"error": "invalid_client"}), (200, {"token": "x"}), (200, ["x"]), (200, {"access_token": "a b"})],
)
def test_an_endpoint_that_gives_no_token_is_said(endpoint: Endpoint, status: int, answer: Any) -> None:
    endpoint.status, endpoint.answer = status, answer
    with pytest.raises(TokenUnavailable) as refused:
        ClientCredentials(endpoint.url, "a", "s3cret")()
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("url", ["http://a..b/token", "http://xn--.b/token", "http://[::1/token"])
def test_an_endpoint_at_no_address_gives_no_token(url: str) -> None:
    with pytest.raises(TokenUnavailable, match="the token endpoint cannot be reached: "):
        ClientCredentials(url, "me", "hidden")()
