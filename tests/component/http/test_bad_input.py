"""Bodies, hosts, origins and tokens that are refused: a precise problem document, and nothing else."""

import json
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from registry_harness import RunningRegistry, binding, running_registry, tool
from toolcrib_registry.http.host_rules import HostRules
from toolcrib_registry.settings import RegistrySettings


@pytest.fixture(scope="module")
def registry() -> Iterator[RunningRegistry]:
    with running_registry([tool("calculator")], [binding("bot")]) as r:
        yield r


def post(r: RunningRegistry, content: bytes, path: str = "/v1/describe", **headers: str) -> httpx.Response:
    given = {**r.auth("team", "bot"), "content-type": "application/json", **headers}
    return r.http.post(r.url + path, headers=given, content=content)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"tool": "a", "tool": "b"}', "'tool' appears twice"),
        (b'{"tool": {"a": 1, "a": 2}}', "'a' appears twice"),
        (b"[" * 100_000, "nested deeper than 32"),
        (b'{"tool":' + b'{"a":' * 40 + b"1" + b"}" * 41, "nested deeper than 32"),
        (b'{"tool": NaN}', "line 1"),
        (b'{"tool": 1e999}', "infinity"),
        (b'{"tool": "\\ud800"}', "line 1"),
        (b'{"tool": "\xff"}', "line 1"),
        (b'{"tool": ', "line 1"),
        (b'{"tool": ' + b"9" * 5000 + b"}", "infinity"),
    ],
)
def test_a_body_that_is_not_unambiguous_json_is_refused(
    registry: RunningRegistry, content: bytes, words: str
) -> None:
    answer = post(registry, content)

    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "invalid_json"
    assert words in answer.json()["detail"]


def test_an_oversized_body_is_refused_before_it_is_read(registry: RunningRegistry) -> None:
    declared = post(registry, b'{"tool": "' + b"x" * (1 << 20) + b'"}')
    streamed = registry.http.post(
        registry.url + "/v1/describe",
        headers={**registry.auth("team", "bot"), "content-type": "application/json"},
        content=(b"x" * 65_536 for _ in range(32)),
    )

    for answer in (declared, streamed):
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
        assert "1048576 bytes" in answer.json()["detail"]


def test_a_body_is_not_asked_for_where_there_is_no_identity(registry: RunningRegistry) -> None:
    parts = urlsplit(registry.url)
    assert parts.hostname
    with socket.create_connection((parts.hostname, parts.port or 80), timeout=5) as connection:
        connection.sendall(
            f"POST /tools/calculator HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: 1000000\r\n\r\n".encode()
        )
        assert connection.recv(4096).startswith(b"HTTP/1.1 401")


def test_an_unknown_field_and_a_wrong_type_are_named_without_echoing_what_was_sent(
    registry: RunningRegistry,
) -> None:
    unknown = post(registry, json.dumps({"tool": "a", "tol": "s3cret"}).encode())
    wrong = post(registry, json.dumps({"query": "x", "limit": "s3cret"}).encode(), "/v1/search")

    assert (unknown.status_code, unknown.json()["errors"][0]["field"]) == (400, "body.tol")
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (400, "body.limit")
    assert "s3cret" not in unknown.text + wrong.text


PLAIN_CURL = "application/x-www-form-urlencoded"


@pytest.mark.parametrize("path", ["/v1/describe", "/v1/search", "/v1/load", "/v1/call", "/tools/calculator"])
@pytest.mark.parametrize("kind", [PLAIN_CURL, "text/plain", "application/jsonx", "text/json", ""])
def test_a_body_that_is_not_announced_as_json_is_415_and_says_what_to_send(
    registry: RunningRegistry, path: str, kind: str
) -> None:
    answer = post(registry, b'{"tool": "calculator"}', path, **{"content-type": kind})
    missing = registry.http.post(registry.url + path, headers=registry.auth("team", "bot"), content=b"{}")

    for given in (answer, missing):
        assert (given.status_code, given.json()["code"]) == (415, "unsupported_media_type")
        assert given.json()["detail"] == "Send the body as JSON, with Content-Type: application/json."


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON; charset=utf-8", "application/vnd.toolcrib+json;v=1"]
)
def test_json_by_any_of_its_names_is_read(registry: RunningRegistry, kind: str) -> None:
    answer = post(registry, b'{"tool": "calculator"}', **{"content-type": kind})

    assert (answer.status_code, answer.json()["tool_id"]) == (200, "team/calculator")


@pytest.mark.parametrize("parameter", ["access_token", "token", "Access_Token", "id_token"])
@pytest.mark.parametrize("path", ["/", "/v1/tools", "/health"])
def test_a_token_in_a_query_string_is_refused(registry: RunningRegistry, path: str, parameter: str) -> None:
    answer = registry.http.get(f"{registry.url}{path}?{parameter}=abc.def.ghi")

    assert (answer.status_code, answer.json()["code"]) == (400, "token_in_query")
    assert "abc.def.ghi" not in answer.text


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io:80", ""])
def test_a_foreign_host_is_421(registry: RunningRegistry, host: str) -> None:
    answer = registry.http.get(registry.url, headers={"Host": host})

    assert (answer.status_code, answer.json()["code"]) == (421, "wrong_host")


def test_a_wildcard_is_every_name_below_the_domain_and_not_the_domain() -> None:
    """As in the host names of a Gateway or an Ingress, which the chart hands on."""
    rules = HostRules(RegistrySettings(allowed_hosts=("*.Example.com",), public_host="toolcrib.svc"))
    for host in ("a.example.com", "A.example.com:8443", "a.b.example.com", "a.example.com.", "toolcrib.svc"):
        assert rules.check([host.encode()], []) is None, host
    for host in ("example.com", ".example.com", "badexample.com", "a.example.com.evil", "*.example.com", ""):
        assert rules.check([host.encode()], []) is not None, host


def test_a_foreign_origin_is_403_and_ones_own_is_not(registry: RunningRegistry) -> None:
    foreign = registry.http.get(registry.url, headers={"Origin": "http://evil.example"})
    null = registry.http.get(registry.url, headers={"Origin": "null"})
    own = registry.http.get(registry.url, headers={"Origin": registry.url})

    assert (foreign.status_code, null.status_code, own.status_code) == (403, 403, 200)


@pytest.mark.parametrize("path", ["/", "/v1/tools", "/mcp", "/healthz"])
def test_two_origins_are_refused_though_each_were_let_in(registry: RunningRegistry, path: str) -> None:
    own = registry.url
    for second in (own, "http://evil.example", "null", ""):
        for pair in ((own, second), (second, own)):
            headers = [("Origin", origin) for origin in pair]
            answer = registry.http.get(registry.url + path, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (403, "origin_refused"), (path, pair)


def test_the_framework_s_own_refusals_are_problem_documents(registry: RunningRegistry) -> None:
    nowhere = registry.http.get(registry.url + "/nowhere")
    method = registry.http.delete(registry.url + "/stats")
    root = registry.http.post(registry.url + "/", json={})

    assert (nowhere.status_code, nowhere.json()["code"]) == (404, "not_found")
    assert (method.status_code, method.json()["code"]) == (405, "method_not_allowed")
    assert method.headers["allow"] == "GET"
    assert root.status_code == 405


def test_without_an_identity_v1_answers_401_with_a_challenge(registry: RunningRegistry) -> None:
    for path in ("/v1/tools", "/v1/watch", "/v1/nowhere"):
        answer = registry.http.get(registry.url + path)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
        assert answer.headers["www-authenticate"].startswith("Bearer")
    bad = registry.http.get(registry.url + "/v1/tools", headers={"Authorization": "Bearer a.b.c"})
    assert (bad.status_code, bad.json()["code"]) == (401, "invalid_token")
    assert 'error="invalid_token"' in bad.headers["www-authenticate"]


def test_a_sane_request_id_comes_back_and_another_is_replaced(registry: RunningRegistry) -> None:
    for path in ("/", "/health", "/nowhere"):
        sane = registry.http.get(registry.url + path, headers={"X-Request-Id": "abc-1"})
        odd = registry.http.get(registry.url + path, headers={"X-Request-Id": "a b\tc" + "x" * 100})
        assert sane.headers["x-request-id"] == "abc-1"
        assert len(odd.headers["x-request-id"]) == 16


def test_endless_headers_end_the_connection(registry: RunningRegistry) -> None:
    parts = urlsplit(registry.url)
    assert parts.hostname
    ended = False
    with socket.create_connection((parts.hostname, parts.port or 80), timeout=5) as connection:
        connection.sendall(f"GET / HTTP/1.1\r\nHost: {parts.netloc}\r\n".encode())
        try:
            for i in range(10_000):
                connection.sendall(f"X-Filler-{i}: {'x' * 1000}\r\n".encode())
        except OSError:
            ended = True
    assert ended
    assert registry.http.get(registry.url + "/health").status_code == 200
