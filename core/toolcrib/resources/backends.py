"""What executes a tool: where it is, how it is called, and how the registry authenticates to it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from toolcrib import names
from toolcrib.resources import durations
from toolcrib.resources.addresses import EITHER, PATH, URL, ServiceReference, TokenService, address_rules
from toolcrib.resources.meta import DnsSubdomain, Model, Rule
from toolcrib.resources.placing import (
    ASSERTION_HEADER,
    HEADER,
    PLACEHOLDER,
    BodyKind,
    HttpParameter,
    ParameterPlace,
    lower_ascii,
    one_place_each,
    parameter_rules,
)

__all__ = ["ASSERTION_HEADER", "HEADER", "PLACEHOLDER"]

SECRET_KEY = r"^[-._a-zA-Z0-9]{1,253}$"
OAUTH_SCOPE = r"^[!#-\[\]-~]+( [!#-\[\]-~]+)*$"
"""Scopes as a token endpoint takes them, separated by single spaces (RFC 6749, appendix A.4)."""
RESOURCE = r"^[A-Za-z][A-Za-z0-9+.-]*:[!\"$-~]+$"
"""An absolute URI without a fragment (RFC 8707)."""
AUDIENCE = r"^[!-~]+$"
MCP_NAME = r"^[^\x00-\x1f\x7f]{1,128}$"
"""A tool's name at its server: servers use more than the characters that MCP recommends."""


class AuthType(StrEnum):
    """How a credential is presented to the backend."""

    BEARER = "Bearer"
    BASIC = "Basic"
    HEADER = "Header"
    CLIENT_CREDENTIALS = "ClientCredentials"
    TOKEN_EXCHANGE = "TokenExchange"


class ClientAuthentication(StrEnum):
    """How an OAuth client proves to the token endpoint who it is."""

    BASIC = "Basic"
    POST = "Post"


class Method(StrEnum):
    """HTTP methods a backend may be called with."""

    GET = "GET"
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"


class McpTransport(StrEnum):
    """How an MCP server is spoken to."""

    STREAMABLE_HTTP = "StreamableHTTP"


class HttpBackend(Model):
    """A plain HTTP endpoint: arguments go out as `parameters` and `body` say, the answer comes back."""

    service: ServiceReference | None = Field(
        default=None, description="A Service of the Tool's own namespace."
    )
    url: str | None = Field(
        default=None,
        pattern=URL,
        max_length=2048,
        description="An address elsewhere; the registry's egress.allow must list its host.",
    )
    path: str | None = Field(
        default=None,
        pattern=PATH,
        max_length=1024,
        description="Path at the Service; default: /. {argument} is replaced by that argument, percent-encoded.",
    )
    method: Method = Field(
        default=Method.POST,
        strict=False,
        description="HTTP method; GET and DELETE send arguments as the query.",
    )
    timeout: str = Field(
        default="10s",
        pattern=durations.DURATION,
        max_length=9,
        description="Deadline of one call, at most 5m.",
    )

    parameters: (
        Annotated[
            tuple[HttpParameter, ...],
            Field(
                min_length=1,
                max_length=64,
                strict=False,
                json_schema_extra={
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["argument"],
                },
            ),
            AfterValidator(one_place_each),
        ]
        | None
    ) = Field(
        default=None,
        description="Where single arguments go. All others go in the body; with body none, in the query.",
    )
    body: BodyKind | None = Field(
        default=None,
        strict=False,
        description="How arguments that no parameter places are sent: json; form (lists repeat the name); deepForm (lists and"
        " objects with brackets, a[0], a[b]); none: in the query. Default: none for GET and DELETE, else json.",
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        EITHER,
        *address_rules("?#", "path must not have a query, a fragment or a .. segment"),
        *parameter_rules(),
        Rule(
            "!has(self.body) || self.body == 'none' || self.method != 'GET'",
            "a GET request has no body: set body to none, or choose another method",
            lambda h: h.body in (None, BodyKind.NONE) or h.method is not Method.GET,
        ),
    )


class SecretKeyReference(Model):
    """A key of a Secret of the tool's own namespace that is labelled as a backend credential."""

    name: DnsSubdomain = Field(description="Name of the Secret.")
    key: str = Field(pattern=SECRET_KEY, max_length=253, description="Key within the Secret.")


FORBIDDEN_HEADERS = (
    "host", "content-length", "content-type", "transfer-encoding", "connection", "upgrade", "te", "trailer",
    "keep-alive", "proxy-authorization", "expect", ASSERTION_HEADER,
)  # fmt: skip


class OAuthClient(Model):
    """An OAuth client, by which the registry obtains access tokens for the backend."""

    token_url: str | None = Field(
        default=None,
        pattern=URL,
        max_length=2048,
        description="The token endpoint; egress.allow must list its host. If it and tokenService are absent, the MCP server's"
        " metadata names it (RFC 9728, RFC 8414). With TokenExchange it serves lists of tools alone: callers' tokens go to"
        " their issuer.",
    )
    token_service: TokenService | None = Field(
        default=None,
        description="The token endpoint, where it is a Service of the object's own namespace; instead of tokenUrl.",
    )
    client_id_key: str = Field(
        default="client-id",
        pattern=SECRET_KEY,
        max_length=253,
        description="Key of the client id in the Secret of secretKeyRef.",
    )
    client_authentication: ClientAuthentication = Field(
        default=ClientAuthentication.BASIC,
        strict=False,
        description="How id and secret are sent: Basic (a header) or Post (in the body).",
    )
    scope: str | None = Field(
        default=None,
        pattern=OAUTH_SCOPE,
        max_length=1024,
        description="Scopes to ask for, separated by spaces. If absent, the authorization server decides.",
    )
    resource: str | None = Field(
        default=None,
        pattern=RESOURCE,
        max_length=2048,
        description="The resource that the token is for (RFC 8707). If absent and the token endpoint was found by metadata,"
        " the resource that the metadata names.",
    )
    audience: str | None = Field(
        default=None,
        pattern=AUDIENCE,
        max_length=1024,
        description="The audience that the token is for (RFC 8693; some servers want it with client credentials, too).",
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.tokenUrl) || !has(self.tokenService)",
            "set tokenUrl or tokenService, not both",
            lambda o: o.token_url is None or o.token_service is None,
        ),
    )

    @property
    def found(self) -> bool:
        """Whether the token endpoint is named by metadata of the server."""
        return self.token_url is None and self.token_service is None


class Auth(Model):
    """How the registry authenticates to the backend; the caller's own token is never forwarded."""

    type: AuthType = Field(
        strict=False,
        description="Bearer, Basic (the value is user:password), Header, ClientCredentials (OAuth 2.0: the client's own"
        " tokens) or TokenExchange (RFC 8693: tokens for the caller, of the issuer that made the caller's token).",
    )
    header: str | None = Field(
        default=None, pattern=HEADER, max_length=64, description="Header name, for type Header."
    )
    secret_key_ref: SecretKeyReference = Field(
        description="The Secret key that holds the credential; for ClientCredentials and TokenExchange the client secret."
    )
    oauth: OAuthClient | None = Field(
        default=None,
        description="The OAuth client, for types ClientCredentials and TokenExchange; {} takes all defaults.",
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "(self.type in ['ClientCredentials', 'TokenExchange']) == has(self.oauth)",
            "set oauth if type is ClientCredentials or TokenExchange, and only then",
            lambda a: (
                (a.type in (AuthType.CLIENT_CREDENTIALS, AuthType.TOKEN_EXCHANGE)) == (a.oauth is not None)
            ),
        ),
        Rule(
            "(self.type == 'Header') == has(self.header)",
            "set header if type is Header, and only then",
            lambda a: (a.type is AuthType.HEADER) == (a.header is not None),
        ),
        Rule(
            "!has(self.header) || !(self.header.lowerAscii() in ["
            + ", ".join(f"'{h}'" for h in FORBIDDEN_HEADERS)
            + "])",
            "this header is reserved for the connection or the registry; choose another",
            lambda a: a.header is None or a.header.lower() not in FORBIDDEN_HEADERS,
        ),
    )


class NoBackend(Model):
    """Nothing executes the tool yet: it is listed, and its calls answer 503 `no_backend`."""


class ServerReference(Model):
    """A ToolServer of the tool's own namespace."""

    name: str = Field(pattern=names.DNS_SUBDOMAIN, max_length=63, description="Name of the ToolServer.")


class McpBackend(Model):
    """A tool of an MCP server: address and credential stand in the ToolServer."""

    server_ref: ServerReference = Field(description="The ToolServer, in the namespace of the Tool.")
    tool: str = Field(
        pattern=MCP_NAME, max_length=128, description="The tool's name at the server, as tools/call names it."
    )


class Backend(Model):
    """What executes the tool: exactly one kind of backend."""

    http: HttpBackend | None = Field(default=None, description="A plain HTTP endpoint.")
    mcp: McpBackend | None = Field(default=None, description="A tool of a ToolServer.")
    none: NoBackend | None = Field(
        default=None, description="{}: no program yet; the tool is listed, and calls answer 503 no_backend."
    )
    auth: Auth | None = Field(
        default=None,
        description="How the registry authenticates to an http backend; for mcp, the ToolServer has it.",
    )
    assertion: bool | None = Field(
        default=None,
        description="Whether each call carries a Toolcrib-Assertion: a JWT, valid for one minute, that names the caller."
        " Default: true for service, false for url.",
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "(has(self.http) ? 1 : 0) + (has(self.mcp) ? 1 : 0) + (has(self.none) ? 1 : 0) == 1",
            "set exactly one backend: http, mcp or none",
            lambda b: sum(x is not None for x in (b.http, b.mcp, b.none)) == 1,
        ),
        Rule(
            "!has(self.auth) || has(self.http)",
            "auth needs backend http; for mcp, set auth in the ToolServer",
            lambda b: b.auth is None or b.http is not None,
        ),
        Rule(
            "!has(self.auth) || !has(self.auth.oauth)"
            " || (has(self.auth.oauth.tokenUrl) || has(self.auth.oauth.tokenService))"
            " == (self.auth.type == 'ClientCredentials')",
            "set auth.oauth.tokenUrl or tokenService with ClientCredentials, and only then: callers' tokens go to their issuer",
            lambda b: (
                b.auth is None
                or b.auth.oauth is None
                or b.auth.oauth.found != (b.auth.type is AuthType.CLIENT_CREDENTIALS)
            ),
        ),
        Rule(
            "!has(self.assertion) || has(self.http)",
            "assertion needs backend http; for mcp, set assertion in the ToolServer",
            lambda b: b.assertion is None or b.http is not None,
        ),
        Rule(
            "!has(self.auth) || !has(self.auth.header) || !has(self.http) || !has(self.http.parameters)"
            " || !self.http.parameters.exists(p, p.__in__ == 'header'"
            " && (has(p.name) ? p.name : p.argument).lowerAscii() == self.auth.header.lowerAscii())",
            "auth.header holds the credential; no argument can fill it",
            lambda b: b.auth is None or b.auth.header is None or not _fills(b.http, b.auth.header),
        ),
    )


def _fills(http: HttpBackend | None, header: str) -> bool:
    """Whether an argument fills this header."""
    given = () if http is None else http.parameters or ()
    return any(
        p.place is ParameterPlace.HEADER and lower_ascii(p.sent_as) == lower_ascii(header) for p in given
    )
