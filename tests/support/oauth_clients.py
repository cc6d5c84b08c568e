"""Values of `auth` that name an OAuth client, by whether a Tool or a ToolServer may have them: rows of tables of manifests."""

from typing import Any

REF = {"name": "client", "key": "secret"}
URL = "https://idp.example/token"


def client(kind: str = "ClientCredentials", **oauth: Any) -> dict[str, Any]:
    """Of that type, with these fields of `oauth`."""
    return {"type": kind, "secretKeyRef": REF, "oauth": oauth}


GOOD_OF_TOOLS: list[dict[str, Any]] = [
    client(tokenUrl=URL),
    client(
        tokenUrl=URL, scope="read https://a.example/x", resource="urn:a:b", audience="a", clientIdKey="id"
    ),
    client(tokenUrl=URL, clientAuthentication="Post"),
    client(tokenUrl=URL, clientAuthentication=None, scope=None),
    client("TokenExchange"),
    client("TokenExchange", audience="https://a.example/?b=c"),
]
GOOD_OF_SERVERS: list[dict[str, Any]] = [
    *GOOD_OF_TOOLS,
    client(),
    client(resource="https://a.example/mcp"),
    client("TokenExchange", tokenUrl=URL),
]
BAD: list[dict[str, Any]] = [
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
    {**client(tokenUrl=URL), "header": "X-A"},
    {**client(tokenUrl=URL), "secretKeyRef": None},
]
BAD_OF_TOOLS: list[dict[str, Any]] = [*BAD, client(), client("TokenExchange", tokenUrl=URL)]
