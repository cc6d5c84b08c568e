"""A token source that asks a token endpoint."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

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

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            basic = base64.b64decode(self.headers["authorization"].removeprefix("Basic ")).decode()
            endpoint.asked.append((basic, body))
            answer = endpoint.answer or {"access_token": f"t{len(endpoint.asked)}", "expires_in": 100}
            content = json.dumps(answer).encode()
            self.send_response(endpoint.status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    endpoint.url = f"http://127.0.0.1:{server.server_address[1]}/oauth/token"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield endpoint
    server.shutdown()
    thread.join()
    server.server_close()


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
