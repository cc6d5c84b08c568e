"""Where a published tool is called, and what authenticates the call: no secret, only which one."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from toolcrib.resources.backends import AuthType, ClientAuthentication, McpTransport, Method
from toolcrib.resources.placing import BodyKind, ParameterPlace
from toolcrib.wire.model import Wire


class SecretReference(Wire):
    """Which key of which Secret authenticates to a backend; never the value."""

    namespace: str
    name: str
    key: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}/{self.key}"


class PublishedTokenService(Wire):
    """A token endpoint at a Service; `cluster_ip` is its address as the operator read it; None: it has not read one."""

    namespace: str
    name: str
    port: int
    path: str
    cluster_ip: str | None = None

    def __str__(self) -> str:
        return f"Service {self.namespace}/{self.name}:{self.port}{self.path}"


class PublishedOAuth(Wire):
    """Where and how access tokens of a backend are obtained; `PublishedAuth.secret` is the client's secret.

    `token_url` and `token_service` None: the MCP server's metadata names it.
    """

    client_id: SecretReference
    token_url: str | None = None
    token_service: PublishedTokenService | None = None
    client_authentication: ClientAuthentication = ClientAuthentication.BASIC
    scope: str | None = None
    resource: str | None = None
    audience: str | None = None


class PublishedAuth(Wire):
    """How to authenticate to a backend. `oauth` is there for types ClientCredentials and TokenExchange alone."""

    type: AuthType
    header: str | None = None
    secret: SecretReference
    oauth: PublishedOAuth | None = None


class PublishedMcp(Wire):
    """Which tool of which MCP server a call is for; the address stands beside it."""

    server: str = Field(description="namespace/name of the ToolServer")
    tool: str = Field(description="the tool's name at the server")
    transport: McpTransport = McpTransport.STREAMABLE_HTTP


class PublishedParameter(Wire):
    """An argument and the part of the request that it fills."""

    argument: str
    place: ParameterPlace
    name: str = Field(description="of the placeholder, query parameter or header")


class PublishedProgram(Wire):
    """An MCP server that the local mode starts."""

    server: str = Field(description="namespace/name of the ToolServer")
    command: tuple[str, ...] = Field(min_length=1)
    values: dict[str, str] = Field(default_factory=dict, description="variables of its environment")
    secrets: dict[str, SecretReference] = Field(default_factory=dict, description="further ones, by Secret")


ADDRESSES: dict[str, Any] = {"cluster_ip": True, "auth": {"oauth": {"token_service": {"cluster_ip": True}}}}
"""Fields of a backend that are others in every cluster, and after a Service was recreated."""


class PublishedBackend(Wire):
    """Where a call goes: a Service `namespace/name:port` with a path, a full URL, or a program of the local mode.

    `cluster_ip` is the Service's address as the operator read it; None: it has not read one. `mcp` None: plain HTTP.
    """

    service_namespace: str | None = None
    service_name: str | None = None
    service_port: int | None = None
    cluster_ip: str | None = None
    url: str | None = None
    path: str = "/"
    method: Method = Method.POST
    timeout: float = Field(default=10.0, gt=0, description="seconds")
    auth: PublishedAuth | None = None
    assertion: bool | None = None
    mcp: PublishedMcp | None = None
    parameters: tuple[PublishedParameter, ...] | None = None
    body: BodyKind | None = None
    program: PublishedProgram | None = None

    @property
    def has_place(self) -> bool:
        """Whether it says where calls go."""
        return not (self.url is None and self.service_name is None and self.program is None)

    @property
    def asserted(self) -> bool:
        """Whether its calls carry an assertion: those of a Service do, unless the tool says otherwise."""
        return self.service_name is not None if self.assertion is None else self.assertion

    @property
    def exchanges(self) -> bool:
        """Whether it takes tokens of its callers, exchanged at their issuer."""
        return self.auth is not None and self.auth.type is AuthType.TOKEN_EXCHANGE

    @property
    def personal(self) -> bool:
        """Return True if it learns who calls: its answers may differ by caller."""
        return self.exchanges or self.asserted

    @property
    def token_service(self) -> PublishedTokenService | None:
        """The Service that gives access tokens for it, if one does."""
        return None if self.auth is None or self.auth.oauth is None else self.auth.oauth.token_service

    @property
    def service(self) -> str | None:
        """`namespace/name`, the key of `--backend`."""
        return f"{self.service_namespace}/{self.service_name}" if self.service_name else None
