"""Backends whose authors place arguments: those that may be, and those that may not."""

from typing import Any

Backend = dict[str, Any]
SERVICE: Backend = {"service": {"name": "tools", "port": 8080}}
ELSEWHERE: Backend = {"url": "https://a.example/{id}?b=c"}


def http(**fields: Any) -> Backend:
    return {"http": {**SERVICE, **fields}}


def placed(*parameters: Backend, **fields: Any) -> Backend:
    return http(**{"path": "/x/{id}", "parameters": list(parameters), **fields})


def header(name: str) -> Backend:
    return placed({"argument": "a", "in": "header", "name": name})


OVERRIDING = (
    "X-HTTP-Method-Override", "X-Method-Override", "x-http-method", "X-Original-Method", "X-HTTP-Host-Override", "X-Host",
    "X-Original-URL", "X-Rewrite-URL", "X-Original-Host", "Base-Url", "X-Remote-User", "X-Remote-Group", "Remote-User",
    "REMOTE-ADDR", "X-Auth-Request-Email", "X-WebAuth-User", "Sudo", "X-Forwarded-Host", "X-Forwarded", "X-Forward-For",
    "Forwarded-For", "X-Real-IP", "True-Client-IP", "X-Cluster-Client-IP", "CF-Connecting-IP", "X-Envoy-Original-Path",
)  # fmt: skip
"""Headers from which frameworks and proxies take method, host, path, user or the client's address."""


GOOD: list[Backend] = [
    placed(
        {"argument": "id", "in": "path"},
        {"argument": "q", "in": "query"},
        {"argument": "X-Trace", "in": "header"},
    ),
    placed(
        {"argument": "an id", "in": "path", "name": "id"}, {"argument": "id", "in": "query", "name": "ID"}
    ),
    {"http": {**ELSEWHERE, "parameters": [{"argument": "id", "in": "path"}]}},
    placed({"argument": "ä", "in": "query"}, {"argument": "Ä", "in": "query"}),
    header("x" * 64),
    *map(
        header,
        ("X-Api-Version", "If-Match", "X-Http", "Remote", "X-Originator", "Override", "X-Client-Ip-Address"),
    ),
    *(placed({"argument": f"a{i}", "in": "query"}) for i in range(2)),
    http(parameters=None, body=None),
    placed(*({"argument": f"{i}" * 64, "in": "query", "name": f"n{i}" + "x" * 120} for i in range(64))),
    *(http(body=b) for b in ("json", "form", "deepForm", "none")),
    http(method="DELETE", body="json"),
    http(method="GET", body="none"),
]
BAD: list[Backend] = [
    placed(),
    placed({"argument": "a", "in": "cookie"}),
    placed({"argument": "a"}),
    placed({"in": "query"}),
    http(body="xml"),
    placed({"argument": "a", "in": "path"}),
    placed({"argument": "id}", "in": "path"}),
    http(parameters=[{"argument": "id", "in": "path"}]),
    {
        "http": {
            "url": "https://a.example/?c={b}",
            "parameters": [{"argument": "a", "in": "path", "name": "b"}],
        }
    },
    placed({"argument": "a}/{b", "in": "path"}, path="/{a}/{b}"),
    placed({"argument": "a b", "in": "header"}),
    placed({"argument": "id", "in": "query"}, {"argument": "id", "in": "header"}),
    header("a_b"),
    header("x" * 65),
    header(""),
    placed(
        {"argument": "a", "in": "header", "name": "X-A"}, {"argument": "b", "in": "header", "name": "x-a"}
    ),
    placed({"argument": "a", "in": "query", "name": "c"}, {"argument": "b", "in": "query", "name": "C"}),
    placed(*({"argument": f"a{i}", "in": "query"} for i in range(65))),
    placed({"argument": "a\n", "in": "query"}),
    *map(header, OVERRIDING),
    *map(
        header,
        (
            "Host",
            "content-length",
            "Transfer-Encoding",
            "Connection",
            "AUTHORIZATION",
            "Cookie",
            "Proxy-Anything",
            "Content-Type",
            "Toolcrib-Assertion",
            "toolcrib-x",
            "X-Request-Id",
            "Idempotency-Key",
            "traceparent",
            "User-Agent",
            "Accept",
            "Upgrade",
            "X-FORWARDED-User",
            "Set-Cookie",
            "impersonate-extra-a",
            "Via",
        ),
    ),
    *(http(method="GET", body=b) for b in ("json", "form", "deepForm")),
    {
        **header("x-key"),
        "auth": {"type": "Header", "header": "X-Key", "secretKeyRef": {"name": "n", "key": "k"}},
    },
]
