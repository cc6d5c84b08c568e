"""The scripted endpoint says what it is, answers the same every time and survives odd requests."""

import socket
from collections.abc import Iterator

import httpx
import pytest

from toolcrib_runner import scripted


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with scripted.serving() as url, httpx.Client(base_url=url, trust_env=False) as client:
        yield client


def test_it_says_what_it_is(client: httpx.Client) -> None:
    assert [m["id"] for m in client.get("/models").json()["data"]] == ["toolcrib-scripted"]
    answer = client.post(
        "/chat/completions", json={"model": "x", "messages": [{"role": "user", "content": "hi"}]}
    )
    assert answer.json()["model"] == "toolcrib-scripted"
    assert answer.json()["system_fingerprint"] == "toolcrib-scripted-1"
    assert "x-toolcrib-scripted" in answer.headers
    assert "I am a script" in answer.json()["choices"][0]["message"]["content"]


def test_the_same_request_has_the_same_answer(client: httpx.Client) -> None:
    request = {"model": "x", "messages": [{"role": "user", "content": 'call a {"b": 1}'}]}
    first, second = (client.post("/chat/completions", json=request).content for _ in range(2))
    assert first == second
    assert b'"tool_calls"' in first


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"{}", b'{"messages": 3}', b'{"messages": [3]}', b'{"messages": [], "tools": [3]}',
        b'{"messages": [], "stream": true}', b'{"messages": [{"role": "user"}, {"tool_calls": [{}]}]}',
    ],
)  # fmt: skip
def test_odd_requests_are_refused_or_answered(client: httpx.Client, body: bytes) -> None:
    assert client.post("/chat/completions", content=body).status_code in (200, 400)


def test_input_is_bounded(client: httpx.Client) -> None:
    with pytest.raises(httpx.HTTPError):
        # The answer may not be read any more: the connection is closed before the body is.
        client.post("/chat/completions", content=b"x" * (scripted.MAX_BODY + 1)).raise_for_status()


def test_elsewhere_is_nothing(client: httpx.Client) -> None:
    assert client.get("/other").status_code == 404
    assert client.post("/other", json={}).status_code == 404


@pytest.mark.parametrize("beyond", [False, True], ids=["taken", "no port"])
def test_where_it_cannot_listen_it_says_so_in_a_line(
    beyond: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = 70_000 if beyond else taken.getsockname()[1]
        assert scripted.main(["--port", str(port)]) == 1
    why = "no such port" if beyond else "Address already in use"
    assert capsys.readouterr().err == f"error: cannot listen on 127.0.0.1:{port}: {why}\n"
