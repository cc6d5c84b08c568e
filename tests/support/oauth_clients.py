"""Backends of Tools, and `mcp` of ToolServers, that name an OAuth client: rows of tables of manifests, good and bad."""

from typing import Any

REF = {"name": "client", "key": "secret"}
URL = "https://idp.example/token"
AT = {"name": "idp", "port": 8080, "path": "/token"}


def client(kind: str = "ClientCredentials", **oauth: Any) -> dict[str, Any]:
    """Of that type, with these fields of `oauth`."""
    return {"type": kind, "secretKeyRef": REF, "oauth": oauth}


_TOOLS: list[dict[str, Any]] = [
    client(tokenUrl=URL),
    client(
        tokenUrl=URL, scope="read https://a.example/x", resource="urn:a:b", audience="a", clientIdKey="id"
    ),
    client(tokenUrl=URL, clientAuthentication="Post"),
    client(tokenUrl=URL, clientAuthentication=None, scope=None),
    client(tokenService=AT),
    client(tokenService={**AT, "path": "/realms/a..b/token?tenant=c"}, scope="read"),
    client("TokenExchange"),
    client("TokenExchange", audience="https://a.example/?b=c"),
]
_SERVERS: list[dict[str, Any]] = [
    *_TOOLS,
    client(),
    client(resource="https://a.example/mcp"),
    client("TokenExchange", tokenUrl=URL),
    client("TokenExchange", tokenService=AT),
]
_BAD: list[dict[str, Any]] = [
    {"type": "ClientCredentials", "secretKeyRef": REF},
    {"type": "TokenExchange", "secretKeyRef": REF},
    {"type": "Bearer", "secretKeyRef": REF, "oauth": {"tokenUrl": URL}},
    client("clientcredentials", tokenUrl=URL),
    client(tokenUrl="ftp://a"),
    client(tokenUrl="https://a/" + "x" * 2048),
    client(tokenUrl=URL, scope=""),
    client(tokenUrl=URL, scope="a  b"),
    client(tokenUrl=URL, scope='a"b'),
    client(tokenUrl=URL, scope="a\\b"),
    client(tokenUrl=URL, scope="a\nb"),
    client(tokenUrl=URL, resource="a"),
    client(tokenUrl=URL, resource="https://a/#b"),
    client(tokenUrl=URL, resource="https://a/ b"),
    client(tokenUrl=URL, audience=""),
    client(tokenUrl=URL, audience="a b"),
    client(tokenUrl=URL, clientIdKey="a b"),
    client(tokenUrl=URL, clientAuthentication="basic"),
    client(tokenUrl=URL, clientSecret="x"),
    client(tokenUrl=URL, tokenService=AT),
    client(tokenService={"name": "idp", "port": 8080}),
    client(tokenService={**AT, "namespace": "bank"}),
    client(tokenService={**AT, "name": "idp.bank"}),
    client(tokenService={**AT, "name": "idp.bank.svc"}),
    client(tokenService={**AT, "port": 0}),
    client(tokenService={**AT, "port": 65536}),
    client(tokenService={**AT, "path": "token"}),
    client(tokenService={**AT, "path": "/a b"}),
    client(tokenService={**AT, "path": "/a/../b"}),
    client(tokenService={**AT, "path": "/a/.."}),
    client(tokenService={**AT, "path": "/a#b"}),
    client(tokenService={**AT, "path": "/" + "x" * 1024}),
    {**client(tokenUrl=URL), "header": "X-A"},
    {**client(tokenUrl=URL), "secretKeyRef": None},
]
_BAD_OF_TOOLS: list[dict[str, Any]] = [
    *_BAD,
    client(),
    client("TokenExchange", tokenUrl=URL),
    client("TokenExchange", tokenService=AT),
]


def _backends(auths: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"http": {"service": {"name": "tools", "port": 8080}}, "auth": each} for each in auths]


def _servers(auths: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"url": "https://a", "auth": each} for each in auths]


TOOLS, BAD_TOOLS = _backends(_TOOLS), _backends(_BAD_OF_TOOLS)
SERVERS, BAD_SERVERS = _servers(_SERVERS), _servers(_BAD)
