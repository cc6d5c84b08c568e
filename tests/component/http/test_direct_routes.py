"""What the edge answers past FastAPI, held against FastAPI with the same models: generated requests, good and bad.

Both sides are asked in process, since a server before them would refuse some.
"""

import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pytest

from reference_routes import ROUTES, reference
from registry_harness import RunningRegistry, binding, mint, running_registry, tool
from toolcrib.identity import Identity
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.calls.arguments import CheckedArguments
from toolcrib_registry.calls.backends.port import ToolAnswer
from toolcrib_registry.calls.errors import InvalidArguments, UpstreamTimeout
from toolcrib_registry.http import direct
from toolcrib_registry.http.app import create_app
from toolcrib_registry.http.direct import Asked, Direct, Sendable

Scope = dict[str, Any]
Answer = tuple[int, list[tuple[bytes, bytes]], bytes]
COUNT = 2_000


class Backends:
    """Tools that answer by their name, always the same."""

    async def call(
        self, tool: PublishedTool, arguments: CheckedArguments, request_id: str, caller: Identity, *_: object
    ) -> ToolAnswer:
        match tool.name:
            case "text":
                return ToolAnswer("Zwölf ☂".encode(), "text/plain", False, elapsed=0.5)
            case "empty":
                return ToolAnswer(b"", "application/json", True, elapsed=0.25)
            case "large":
                return ToolAnswer(json.dumps(["x" * 200_000]).encode(), "application/json", True, elapsed=1.0)
            case "slow":
                raise UpstreamTimeout("no complete response within 30 s")
            case "strict":
                raise InvalidArguments("wrong", [{"pointer": "/a", "message": "no"}])
            case "broken":
                raise RuntimeError("a programming error")
        return ToolAnswer(b'{"given":%s}' % arguments.body, "application/json", True, elapsed=0.0042)


NAMES = ("calculator", "text", "empty", "large", "slow", "strict")
HIDDEN = "vault"


@pytest.fixture(scope="module")
def registry() -> Iterator[RunningRegistry]:
    tools = [
        tool(name, description=f"The {name}: adds, counts and tells.", scopes=("all:use",))
        for name in (*NAMES, "broken")
    ]
    tools += [tool(HIDDEN), *(tool("twin", namespace=name, scopes=("all:use",)) for name in ("one", "other"))]
    with running_registry(
        tools,
        [binding("bot", ("all:use",)), binding("bot", ("all:use",), namespace=None, name="everywhere")],
        backend=Backends(),
    ) as r:
        yield r


def odd_text(rng: random.Random) -> str:
    return rng.choice(
        ["", "a", "☂", "\x00", "\n", "x" * 600, "é" * 40, "../..", "%2e", "a b", '"', "\U0001f40d"]
    )


def value(rng: random.Random, depth: int = 3) -> Any:
    leaves: list[Any] = [None, True, 0, -1, 1.5, 1e300, 2**53 + 1, 2**64, -(2**63) - 1, odd_text(rng), "6*7"]
    match rng.randrange(4) if depth else 0:
        case 2:
            return [value(rng, depth - 1) for _ in range(rng.randrange(4))]
        case 3:
            return {odd_text(rng) or "k": value(rng, depth - 1) for _ in range(rng.randrange(4))}
    return rng.choice(leaves)


def name_of(rng: random.Random) -> str:
    known = [*NAMES, "team/text", "team/calculator", "other/twin", "twin", HIDDEN, "nothing", "team/nothing"]
    return rng.choice(known) if rng.random() < 0.9 else odd_text(rng)


def call_body(rng: random.Random) -> Any:
    body: dict[str, Any] = {"tool": name_of(rng), "arguments": {"expression": "6*7", "n": value(rng)}}
    match rng.randrange(10):
        case 0:
            del body["tool"]
        case 1:
            body["tool"] = value(rng)
        case 2:
            body["arguments"] = value(rng)
        case 3:
            body[odd_text(rng)] = value(rng)
        case 4:
            del body["arguments"]
    return body


def search_body(rng: random.Random) -> Any:
    body: dict[str, Any] = {"query": rng.choice(["adds and counts", "the text", "☂", "", "x" * 10_001])}
    fields = {
        "limit": [1, 5.0, 0, 101, "5", True, 2.5, None], "min_score": [0, 0.5, 2, "x", None], "tags": [[], ["a"], "a", [1], ["x" * 65]],
        "search_mode": ["hybrid", "lexical", "dense", "compat", "none", 1], "servers": [["s"], None], "namespaces": [["team"], ["other"]],
        "top_k_servers": [1, 0, None], "states": [["Active"], ["Gone"], ["Active", "Active", "Active"]], "qury": ["x"], "query": [None, 1, []],
    }  # fmt: skip
    for name in rng.sample(sorted(fields), rng.randrange(3)):
        body[name] = rng.choice(fields[name])
    return body


def content(rng: random.Random, made: Any) -> bytes:
    text = json.dumps(made, ensure_ascii=rng.random() < 0.5).encode()
    match rng.randrange(24):
        case 0:
            return b""
        case 1:
            return json.dumps(value(rng)).encode()
        case 2:
            return text[: rng.randrange(len(text))]
        case 3:
            return rng.choice([b"\xef\xbb\xbf", b" ", b"\n\t", b"\xff", b"\x00", b"[", b"{"]) + text
        case 4:
            return text + rng.choice([b" ", b"}", b"\xff", b",", b"\x00"])
        case 5:
            return b'{"tool": "text", "tool": "empty", "arguments": {}}'
        case 6:
            return b'{"tool": "calculator", "arguments": {"a": %s}}' % rng.choice(
                [b"NaN", b"Infinity", b"1e999", b"-0", b"-0.0", b"0" * 9, b"9" * 40, b'"\\ud800"', b'"\\u0000"', b"01", b"1.", b".5", b"'a'"]
            )  # fmt: skip
        case 7:
            deep = rng.choice([29, 30, 31, 40, 20_000])
            return b'{"tool": "calculator", "arguments": {"a": ' + b"[" * deep + b"]" * deep + b"}}"
        case 8:
            size = rng.choice([15_000, 17_000, 70_000, 1 << 20, (1 << 20) + 1])
            return json.dumps({"tool": "calculator", "arguments": {"a": "x" * size}}).encode()
        case 9:
            return text.decode().encode(rng.choice(["utf-16", "utf-16-le", "utf-32"]))
    return text


def request(rng: random.Random, tokens: list[bytes]) -> tuple[Scope, list[Any]]:
    """A scope, and what `receive` gives: pieces of the body, perhaps with the client gone before the end."""
    route = rng.choice(["call", "call", "tool", "tool", "search"])
    made = (
        call_body(rng)
        if route == "call"
        else search_body(rng)
        if route == "search"
        else {"expression": "6*7", "n": value(rng)}
    )
    path = {"call": "/v1/call", "search": "/v1/search"}.get(route) or "/tools/" + name_of(rng)
    if rng.random() < 0.1:
        path = rng.choice([
            path + "/", path.upper(), "/" + path, path + "%2f", unquote(path + "%0a"), unquote("/tools/%ff%fe"), "/tools/" + "x" * 512,
            "/tools/" + "x" * 513, "/tools/", "/tools", "/tools/a/b/c", "/v1/calls", "/v1", "/nothing", path + "\0",
        ])  # fmt: skip
    body = content(rng, made)
    headers = [(b"host", rng.choice([b"127.0.0.1"] * 80 + [b"127.0.0.1:80", b"evil.test", b"[::1]"]))]
    kinds = [b"application/json"] * 40 + [
        b"application/json; charset=utf-8", b"APPLICATION/JSON", b"application/problem+json", b"application/ld+json;x=y", b" application/json ",
        b"application/json;", b"application/jsonx", b"text/plain", b"", b"application/x-www-form-urlencoded", b"multipart/form-data; boundary=x",
        b"application/json, text/plain", b"application/+json", b"application/a/b+json", b"application/\xe9+json", b"json", b"*/*",
    ]  # fmt: skip
    headers += [(b"content-type", rng.choice(kinds)) for _ in range(rng.choice([0] + [1] * 18 + [2]))]
    lengths = [str(len(body)).encode()] * 30 + [b"", b"abc", b"-1", b"99999999999", b"20000", b"0", b"+5"]
    headers += [(b"content-length", rng.choice(lengths))] if rng.random() < 0.8 else []
    authorization = [tokens[0]] * 40 + [
        *tokens[1:],
        b"Basic YTpi",
        b"bearer " + tokens[0].split()[1],
        b"Bearer",
        b"",
        b"\xff",
    ]
    headers += [
        (b"authorization", rng.choice(authorization)) for _ in range(rng.choice([0] + [1] * 30 + [2]))
    ]
    headers += (
        [(b"origin", rng.choice([b"http://127.0.0.1", b"https://evil.test", b"null"]))]
        if rng.random() < 0.05
        else []
    )
    headers += [
        (b"x-request-id", rng.choice([b"one", b"one two", b"x" * 200, b"\xff"]))
        for _ in range(rng.choice([0, 1, 1, 2]))
    ]
    if rng.random() < 0.2:
        headers.append(rng.choice([
            (b"accept", b"text/html"), (b"if-none-match", b"*"), (b"expect", b"100-continue"), (b"content-encoding", b"gzip"),
            (b"x-" + b"y" * 500, b"z" * 5_000), (b"cookie", b"a=b"), (b"transfer-encoding", b"chunked"), (b"x-forwarded-for", b"1.2.3.4"),
        ]))  # fmt: skip
    rng.shuffle(headers)
    scope: Scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http", "root_path": "",
        "method": rng.choice(["POST"] * 80 + ["GET", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "post", "BREW"]),
        "path": path, "raw_path": path.encode(errors="replace"), "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 9),
        "query_string": rng.choice([b""] * 60 + [b"a=1", b"tool=x", b"token=abc", b"%ff=%00", b"access_token"]), "headers": headers,
    }  # fmt: skip
    cuts = sorted(rng.randrange(len(body) + 1) for _ in range(rng.choice([0, 0, 0, 1, 3])))
    pieces: list[Any] = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    if rng.random() < 0.02:
        pieces[-1] = None
    return scope, pieces


async def asked(app: Any, scope: Scope, pieces: list[Any]) -> Answer:
    left, sent = list(pieces), list[Any]()

    async def receive() -> Any:
        if not left or left[0] is None:
            return {"type": "http.disconnect"}
        piece = left.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(left)}

    async def send(message: Any) -> None:
        sent.append(message)

    try:
        await app(json_copy(scope), receive, send)
    except RuntimeError as error:
        assert "a programming error" in str(error)  # noqa: PT017
    start, *parts = sent
    body = b"".join(part.get("body", b"") for part in parts)
    assert [part.get("more_body", False) for part in parts] == [True] * (len(parts) - 1) + [False]
    fresh = next(v for k, v in start["headers"] if k == b"x-request-id")
    sane = fresh in (b"one", b"x")
    headers = [(k, v if k != b"x-request-id" or sane else b"fresh") for k, v in start["headers"]]
    return start["status"], headers, body


def json_copy(scope: Scope) -> Scope:
    """Of its own for each side: both write into it."""
    return {**scope, "headers": list(scope["headers"])}


def compared(registry: RunningRegistry, count: int, seed: int) -> dict[int, int]:
    """Ask both `count` times; how often each status was answered."""
    deps = registry.registry.deps
    apps = create_app(deps), reference(deps)
    bot = "system:serviceaccount:team:bot"
    tokens = [
        b"Bearer " + mint(subject, **claims).encode()
        for subject, claims in ((bot, {}), ("system:serviceaccount:team:stranger", {}), (bot, {"ttl": -5.0}), (bot, {"audience": "x"}))
    ]  # fmt: skip
    rng, statuses = random.Random(seed), dict[int, int]()

    async def both(scope: Scope, pieces: list[Any]) -> tuple[Answer, Answer]:
        return await asked(apps[0], scope, pieces), await asked(apps[1], scope, pieces)

    for number in range(count):
        scope, pieces = request(rng, tokens)
        mine, theirs = registry.on_loop(lambda s=scope, p=pieces: both(s, p))  # type: ignore[misc]
        about = (seed, number, scope["method"], scope["path"][:80], scope["headers"], str(pieces)[:300])
        assert mine == theirs, about
        statuses[mine[0]] = statuses.get(mine[0], 0) + 1
    return statuses


def test_generated_requests_are_answered_as_fastapi_answers_them(
    registry: RunningRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_directly = Counter[tuple[str, str]]()

    def counted(route: tuple[str, str], answer: Direct) -> Direct:
        async def count(request: Asked) -> Sendable:
            asked_directly[route] += 1
            return await answer(request)

        return count

    monkeypatch.setattr(direct, "ROUTES", {r: counted(r, answer) for r, answer in direct.ROUTES.items()})
    statuses = compared(registry, COUNT, seed=14)

    assert {route: asked_directly[route] > COUNT / 20 for route in ROUTES} == dict.fromkeys(ROUTES, True)
    assert {200, 400, 401, 403, 404, 405, 409, 413, 415, 421, 504} <= set(statuses), statuses
    assert statuses[200] > COUNT / 10, statuses


def test_what_breaks_is_told_alike(registry: RunningRegistry) -> None:
    deps = registry.registry.deps
    scope, _ = request(random.Random(3), [b"Bearer x"])
    headers = [
        (b"host", b"127.0.0.1"),
        (b"content-type", b"application/json"),
        (b"authorization", b"Bearer " + mint("system:serviceaccount:team:bot").encode()),
    ]
    scope |= {"method": "POST", "path": "/tools/broken", "query_string": b"", "headers": headers}

    answers = [
        registry.on_loop(lambda app=app: asked(app, scope, [b"{}"]))
        for app in (create_app(deps), reference(deps))
    ]  # type: ignore[misc]

    assert answers[0] == answers[1]
    assert answers[0][0] == 500
