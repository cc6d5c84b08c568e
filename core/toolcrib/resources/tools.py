"""Tool: one callable capability, the scopes that gate it, and the backend that executes it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import Field

from toolcrib import names
from toolcrib.resources import durations
from toolcrib.resources.conditions import Condition
from toolcrib.resources.meta import (
    DnsLabel,
    DnsSubdomain,
    ListOf,
    Model,
    ObjectMeta,
    Rule,
    Scope,
    ServerName,
    ToolName,
    Whole,
)

JsonSchema = Annotated[
    dict[str, Any], Field(json_schema_extra={"type": "object", "x-kubernetes-preserve-unknown-fields": True})
]
URL = r"^https?://([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?(/[!-~]*)?$"
PATH = r"^/[!-~]*$"
PLACEHOLDER = r"\{([^{}/]+)\}"
"""Where an argument stands in the path of a backend's address; the group is its name."""
SECRET_KEY = r"^[-._a-zA-Z0-9]{1,253}$"
HEADER = r"^[A-Za-z0-9-]{1,64}$"
MAX_TIMEOUT = 300.0
ASSERTION_HEADER = "toolcrib-assertion"
"""The header of the call assertion, as headers are compared: in lower case."""


class ScopeMatch(StrEnum):
    """Whether one of the tool's scopes suffices or all are needed."""

    ANY = "Any"
    ALL = "All"


class ToolState(StrEnum):
    """Whether agents see the tool; a deprecated one stays visible and callable."""

    ACTIVE = "Active"
    DEPRECATED = "Deprecated"
    DISABLED = "Disabled"


class AuthType(StrEnum):
    """How a credential is presented to the backend."""

    BEARER = "Bearer"
    BASIC = "Basic"
    HEADER = "Header"


class Method(StrEnum):
    """HTTP methods a backend may be called with."""

    GET = "GET"
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"


class ToolAnnotations(Model):
    """MCP's behaviour hints. They have no defaults: absent is not false."""

    read_only_hint: bool | None = Field(default=None, description="The tool does not change anything.")
    destructive_hint: bool | None = Field(default=None, description="The tool may destroy something.")
    idempotent_hint: bool | None = Field(
        default=None,
        description="Calling again with the same arguments changes nothing more; such calls may be retried.",
    )
    open_world_hint: bool | None = Field(default=None, description="The tool reaches out of a closed domain.")


class ServiceReference(Model):
    """A Service of the tool's own namespace."""

    name: DnsLabel = Field(description="Name of the Service, in the namespace of the Tool.")
    port: Whole = Field(ge=1, le=65535, description="Port number of the Service.")


class HttpBackend(Model):
    """A plain HTTP endpoint: arguments go out as JSON, the answer comes back."""

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
        description="Path at the Service, / if absent. {argument} is replaced by that argument, percent-encoded.",
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

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.service) != has(self.url)",
            "exactly one of service and url must be set",
            lambda b: (b.service is None) != (b.url is None),
        ),
        Rule(
            "!has(self.url) || !has(self.path)",
            "path goes with service; write the path into url",
            lambda b: b.url is None or b.path is None,
        ),
        Rule(
            "!has(self.path) || !(self.path.contains('/../') || self.path.endsWith('/..') || self.path.contains('?') || self.path.contains('#'))",
            "path has no query, no fragment and no .. segment",
            lambda b: (
                b.path is None
                or not ("/../" in b.path or b.path.endswith("/..") or "?" in b.path or "#" in b.path)
            ),
        ),
        Rule(
            "duration(self.timeout) <= duration('5m')",
            "timeout is at most 5m",
            lambda b: durations.seconds(b.timeout) <= MAX_TIMEOUT,
        ),
    )


class SecretKeyReference(Model):
    """A key of a Secret of the tool's own namespace that is labelled as a backend credential."""

    name: DnsSubdomain = Field(description="Name of the Secret.")
    key: str = Field(pattern=SECRET_KEY, max_length=253, description="Key within the Secret.")


_FORBIDDEN_HEADERS = (
    "host", "content-length", "content-type", "transfer-encoding", "connection", "upgrade", "te", "trailer",
    "keep-alive", "proxy-authorization", "expect", ASSERTION_HEADER,
)  # fmt: skip


class Auth(Model):
    """How the registry authenticates to the backend; the caller's own token is never forwarded."""

    type: AuthType = Field(strict=False, description="Bearer, Basic (the value is user:password) or Header.")
    header: str | None = Field(
        default=None, pattern=HEADER, max_length=64, description="Header name, for type Header."
    )
    secret_key_ref: SecretKeyReference = Field(description="Where the value is.")

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "(self.type == 'Header') == has(self.header)",
            "header is set exactly when type is Header",
            lambda a: (a.type is AuthType.HEADER) == (a.header is not None),
        ),
        Rule(
            "!has(self.header) || !(self.header.lowerAscii() in ["
            + ", ".join(f"'{h}'" for h in _FORBIDDEN_HEADERS)
            + "])",
            "this header belongs to the connection or to the registry; choose another",
            lambda a: a.header is None or a.header.lower() not in _FORBIDDEN_HEADERS,
        ),
    )


class NoBackend(Model):
    """Nothing executes the tool yet: it is listed, and its calls answer 503 `no_backend`."""


class Backend(Model):
    """What executes the tool: exactly one kind of backend (MCP backends come with ToolServer)."""

    http: HttpBackend | None = Field(default=None, description="A plain HTTP endpoint.")
    none: NoBackend | None = Field(
        default=None, description="{}: nothing yet; the tool is listed, and its calls answer 503 no_backend."
    )
    auth: Auth | None = Field(default=None, description="How the registry authenticates to it.")
    assertion: bool | None = Field(
        default=None,
        description="Whether each call carries a Toolcrib-Assertion: a JWT of one minute that says who calls. If absent: for "
        "service, not for url, since it tells the caller's name.",
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.http) != has(self.none)",
            "exactly one backend must be set: http or none",
            lambda b: (b.http is None) != (b.none is None),
        ),
        Rule(
            "!has(self.auth) || has(self.http)",
            "auth goes with http",
            lambda b: b.auth is None or b.http is not None,
        ),
        Rule(
            "!has(self.assertion) || has(self.http)",
            "assertion goes with http",
            lambda b: b.assertion is None or b.http is not None,
        ),
    )


class ToolSpec(Model):
    """What agents see of the tool, which scopes open it, and what executes it."""

    name: ToolName | None = Field(
        default=None, description="What agents see; metadata.name if absent. Immutable."
    )
    server: ServerName | None = Field(
        default=None, description="The server that the tool belongs to, if any. Immutable, its absence too."
    )
    title: str | None = Field(default=None, max_length=256, description="A name for people; display only.")
    description: str = Field(
        default="", max_length=4096, description="What the tool does, for models and for search."
    )
    scopes: Annotated[tuple[Scope, ...], ListOf(1, 16)] = Field(description="The scopes that open the tool.")
    scope_match: ScopeMatch = Field(
        default=ScopeMatch.ANY,
        strict=False,
        description="Any: one of the scopes suffices. All: every one is needed.",
    )
    tags: Annotated[tuple[Annotated[str, Field(pattern=names.TAG, max_length=64)], ...], ListOf(0, 16)] = (
        Field(default=(), description="Words to filter by.")
    )
    examples: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=512)], ...], ListOf(0, 16, "atomic")
    ] = Field(
        default=(),
        description="Sample requests in a user's words; they are indexed and lift search a lot.",
    )
    input_schema: JsonSchema = Field(
        default_factory=lambda: {"type": "object"},
        description="JSON schema of the arguments; {type: object} if absent.",
    )
    output_schema: JsonSchema | None = Field(default=None, description="JSON schema of the result.")
    returns: str | None = Field(default=None, max_length=1024, description="What comes back, in words.")
    annotations: ToolAnnotations | None = Field(default=None, description="MCP's behaviour hints.")
    state: ToolState = Field(
        default=ToolState.ACTIVE, strict=False, description="Active, Deprecated (still callable) or Disabled."
    )
    replaced_by: ToolName | None = Field(
        default=None, description="What to use instead, for a deprecated tool."
    )
    message: str | None = Field(default=None, max_length=512, description="Why it is deprecated or disabled.")
    backend: Backend = Field(description="What executes the tool.")

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.scopes.all(s, !s.lowerAscii().startsWith('registry:'))",
            "scopes registry:* are the registry's own powers; no Tool may carry one",
            lambda s: not any(names.is_reserved_scope(x) for x in s.scopes),
        ),
        Rule(
            "has(self.server) == has(oldSelf.server) && (!has(self.server) || self.server == oldSelf.server)",
            "spec.server is immutable, absent or not: delete the Tool and create it again with the other server",
        ),
        Rule(
            "!has(self.replacedBy) || self.state == 'Deprecated'",
            "replacedBy goes with state: Deprecated",
            lambda s: s.replaced_by is None or s.state is ToolState.DEPRECATED,
        ),
    )


class ToolStatus(Model):
    """What the operator observed; it changes only when an edit changes it."""

    observed_generation: int | None = Field(
        default=None, ge=0, description="The generation that was assessed."
    )
    name: str | None = Field(default=None, max_length=128, description="The name that agents see.")
    tool_id: str | None = Field(
        default=None, max_length=320, description="namespace/name, the id on every route."
    )
    digest: str | None = Field(
        default=None, max_length=80, description="sha256 of the definition that a model reads."
    )
    route_digest: str | None = Field(
        default=None, max_length=80, description="sha256 of what a call depends on."
    )
    conditions: Annotated[
        tuple[Condition, ...],
        Field(
            max_length=16,
            strict=False,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = Field(default=(), description="Ready, Accepted, Indexed, Questionable.")


class Tool(Model):
    """A Tool object as it stands in the cluster or in a manifest."""

    api_version: str = ""
    kind: str = "Tool"
    metadata: ObjectMeta = Field(strict=False)
    spec: ToolSpec
    status: ToolStatus | None = None

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "(has(self.spec.name) ? self.spec.name : self.metadata.name)"
            " == (has(oldSelf.spec.name) ? oldSelf.spec.name : oldSelf.metadata.name)",
            "spec.name is immutable: delete the Tool and create it under the new name",
        ),
        Rule(
            "has(self.spec.name) || size(self.metadata.name) <= 128",
            "metadata.name is longer than the 128 characters of a tool's name: set spec.name",
            lambda t: t.spec.name is not None or len(t.metadata.name) <= 128,
        ),
        Rule(
            "!((has(self.spec.name) ? self.spec.name : self.metadata.name) in ["
            + ", ".join(f"'{n}'" for n in sorted(names.RESERVED_TOOL_NAMES))
            + "])",
            "this tool name is reserved: it is a word of the registry's own routes; choose another spec.name",
            lambda t: t.name not in names.RESERVED_TOOL_NAMES,
        ),
    )

    @property
    def tool_id(self) -> str:
        """`namespace/name`."""
        return names.tool_id(self.metadata.namespace or "default", self.metadata.name)

    @property
    def name(self) -> str:
        """What agents see."""
        return self.spec.name or self.metadata.name
