"""ToolServer: a server whose tools are imported as Tools, and how the registry reaches it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from toolcrib import names
from toolcrib.resources import durations
from toolcrib.resources.addresses import PATH, URL, ServiceReference, address_rules
from toolcrib.resources.backends import Auth, McpTransport, SecretKeyReference
from toolcrib.resources.conditions import Conditions
from toolcrib.resources.meta import ListOf, Model, ObjectMeta, Rule, Scope, unique
from toolcrib.resources.tools import Approval, ToolAnnotations

GLOB = r"^[^\x00-\x1f\x7f]{1,128}$"
"""A tool's name at its server, or a glob of names."""
WORD = r"^[^\x00]*$"
"""A word of a command."""
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
"""A name of an environment variable."""
Word = Annotated[str, Field(pattern=WORD, max_length=4096)]
MOST_OVERRIDES = 128
MOST_INSTRUCTIONS = 2_048
MIN_REFRESH, MAX_REFRESH = 10.0, 86_400.0
DEFAULT_GRACE, MAX_GRACE = 600.0, 86_400.0
DEFAULT_PATH = "/mcp"
REFRESH = {Approval.MANUAL: 60.0, Approval.AUTOMATIC: 300.0}
"""Seconds between two looks at a server that tells of no changes, where `refreshInterval` is absent."""


class ServerState(StrEnum):
    """Whether the tools of a server are there; those of a disabled one are absent everywhere."""

    ACTIVE = "Active"
    DISABLED = "Disabled"


class EnvironmentVariable(Model):
    """A variable of a command's environment: its value, or the key of a Secret that holds it."""

    name: str = Field(pattern=VARIABLE, max_length=128, description="Its name.")
    value: str | None = Field(default=None, max_length=4096, description="Its value, if it is no secret.")
    secret_key_ref: SecretKeyReference | None = Field(
        default=None, description="The Secret key that holds its value."
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.value) != has(self.secretKeyRef)",
            "set either value or secretKeyRef",
            lambda e: (e.value is None) != (e.secret_key_ref is None),
        ),
    )


def _one_value(env: tuple[EnvironmentVariable, ...]) -> tuple[EnvironmentVariable, ...]:
    unique(tuple(e.name for e in env))
    return env


class McpServer(Model):
    """Where an MCP server is, and how the registry calls it."""

    url: str | None = Field(
        default=None,
        pattern=URL,
        max_length=2048,
        description="Its MCP endpoint; the registry's egress.allow must list the host.",
    )
    service: ServiceReference | None = Field(
        default=None, description="A Service of the ToolServer's own namespace."
    )
    path: str | None = Field(
        default=None,
        pattern=PATH,
        max_length=1024,
        description="Path of the MCP endpoint at the Service, /mcp if absent.",
    )
    command: Annotated[tuple[Word, ...], ListOf(1, 64)] | None = Field(
        default=None,
        description="A program and its arguments, started without a shell and spoken to over standard input and output."
        " Only the local mode starts one (toolcrib up --allow-stdio); a cluster refuses it.",
    )
    env: Annotated[
        tuple[EnvironmentVariable, ...],
        Field(
            max_length=64,
            strict=False,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
        AfterValidator(_one_value),
    ] = Field(default=(), description="The environment of command, besides PATH and HOME.")
    transport: McpTransport = Field(
        default=McpTransport.STREAMABLE_HTTP, strict=False, description="StreamableHTTP."
    )
    timeout: str = Field(
        default="30s",
        pattern=durations.DURATION,
        max_length=9,
        description="Deadline of one call, at most 5m.",
    )
    auth: Auth | None = Field(default=None, description="How the registry authenticates to it.")
    assertion: bool | None = Field(
        default=None,
        description="Whether each call carries a Toolcrib-Assertion: a JWT, valid for one minute, that names the caller."
        " Default: true for service, false for url.",
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.command)",
            "command runs in the local mode only (toolcrib up --allow-stdio); in a cluster set service or url",
        ),
        Rule(
            "(has(self.service) ? 1 : 0) + (has(self.url) ? 1 : 0) + (has(self.command) ? 1 : 0) == 1",
            "set either service or url",
            lambda m: sum(x is not None for x in (m.service, m.url, m.command)) == 1,
        ),
        Rule(
            "!has(self.command) || !(has(self.auth) || has(self.path) || has(self.assertion))",
            "auth, path and assertion need service or url",
            lambda m: m.command is None or (m.auth, m.path, m.assertion) == (None, None, None),
        ),
        Rule(
            "!has(self.env) || size(self.env) == 0 || has(self.command)",
            "env needs command",
            lambda m: not m.env or m.command is not None,
        ),
        *address_rules("?#{", "path must not have a query, a fragment, a .. segment or an {argument}"),
        Rule(
            "!has(self.auth) || !has(self.auth.header) || !(self.auth.header.lowerAscii().startsWith('mcp-')"
            " || self.auth.header.lowerAscii() == 'accept')",
            "this header belongs to MCP; choose another",
            lambda m: m.auth is None or m.auth.header is None or not _of_mcp(m.auth.header.lower()),
        ),
    )


def _of_mcp(header: str) -> bool:
    return header.startswith("mcp-") or header == "accept"


Glob = Annotated[str, Field(pattern=GLOB, max_length=128)]
Tags = Annotated[tuple[Annotated[str, Field(pattern=names.TAG, max_length=64)], ...], ListOf(0, 16)]


class Import(Model):
    """Which tools of the server become Tools, and when the list is read again."""

    include: Annotated[tuple[Glob, ...], ListOf(1, 64)] = Field(
        default=("*",), description="Names at the server, or globs (*, ?); all tools if absent."
    )
    exclude: Annotated[tuple[Glob, ...], ListOf(0, 64)] = Field(
        default=(), description="Tools that match one of these are not imported."
    )
    refresh_interval: str | None = Field(
        default=None,
        pattern=durations.DURATION,
        max_length=9,
        description="How often the list is read where the server tells of no changes, 10s to 24h. If absent: 1m with "
        "approval Manual, else 5m.",
    )
    approval: Approval | None = Field(
        default=None,
        strict=False,
        description="Manual: new and changed tools are quarantined until they are approved. Automatic: they are used as they "
        "come. If absent: Manual for url and command, Automatic for service.",
    )
    shrink_grace: str | None = Field(
        default=None,
        pattern=durations.DURATION,
        max_length=9,
        description="How long tools stay after the server's list came empty or shrank by more than half, at most 24h; 10m if "
        "absent.",
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.refreshInterval) || (duration(self.refreshInterval) >= duration('10s')"
            " && duration(self.refreshInterval) <= duration('24h'))",
            "refreshInterval must be 10s to 24h",
            lambda i: (
                i.refresh_interval is None
                or MIN_REFRESH <= durations.seconds(i.refresh_interval) <= MAX_REFRESH
            ),
        ),
        Rule(
            "!has(self.shrinkGrace) || duration(self.shrinkGrace) <= duration('24h')",
            "shrinkGrace must be at most 24h",
            lambda i: i.shrink_grace is None or durations.seconds(i.shrink_grace) <= MAX_GRACE,
        ),
    )


class Defaults(Model):
    """Values of every imported tool, unless an override sets others."""

    scopes: Annotated[tuple[Scope, ...], ListOf(1, 16)] = Field(description="The scopes that open the tools.")
    tags: Tags = Field(default=(), description="Words to filter by.")


class Override(Model):
    """What one tool gets instead."""

    tool: Annotated[str, Field(pattern=GLOB, max_length=128)] = Field(
        description="Its name at the server, written out."
    )
    scopes: Annotated[tuple[Scope, ...], ListOf(1, 8)] | None = Field(
        default=None, description="The scopes that open it."
    )
    tags: Tags | None = Field(default=None, description="Words to filter by.")
    title: str | None = Field(default=None, max_length=256, description="A name for people.")
    description: str | None = Field(
        default=None, max_length=4096, description="What it does, for models and for search."
    )
    annotations: ToolAnnotations | None = Field(
        default=None, description="MCP's behaviour hints; the registry ignores those that the server sends."
    )


def _one_each(overrides: tuple[Override, ...]) -> tuple[Override, ...]:
    unique(tuple(o.tool for o in overrides))
    return overrides


class ToolServerSpec(Model):
    """A server, which of its tools are imported, and what opens them."""

    mcp: McpServer = Field(description="An MCP server.")
    import_: Import = Field(
        default_factory=Import,
        alias="import",
        description="Which tools are imported, and when.",
    )
    defaults: Defaults = Field(description="Values of every imported tool.")
    overrides: Annotated[
        tuple[Override, ...],
        Field(
            max_length=MOST_OVERRIDES,
            strict=False,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["tool"]},
        ),
        AfterValidator(_one_each),
    ] = Field(default=(), description="Other values for single tools.")
    resources: bool = Field(
        default=True,
        description="Whether its resources are served to callers that hold one of defaults.scopes.",
    )
    prompts: bool = Field(
        default=True,
        description="Whether its prompts are served to callers that hold one of defaults.scopes.",
    )
    state: ServerState = Field(
        default=ServerState.ACTIVE,
        strict=False,
        description="Active, or Disabled: its tools, resources and prompts are absent everywhere.",
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.defaults.scopes.all(s, !s.lowerAscii().startsWith('registry:'))",
            "registry:* scopes are powers of the registry; a Tool cannot carry one",
            lambda s: not any(map(names.is_reserved_scope, s.defaults.scopes)),
        ),
        Rule(
            "!has(self.overrides) || self.overrides.all(o, !has(o.scopes) || o.scopes.all(s, !s.lowerAscii().startsWith('registry:')))",
            "registry:* scopes are powers of the registry; an override cannot set one",
            lambda s: not any(names.is_reserved_scope(x) for o in s.overrides for x in o.scopes or ()),
        ),
        Rule(
            "!has(self.overrides) || self.overrides.all(o, !(o.tool.contains('*') || o.tool.contains('?')))",
            "an override names one tool; write its name out, without * and ?",
            lambda s: not any("*" in o.tool or "?" in o.tool for o in s.overrides),
        ),
    )

    @property
    def approval(self) -> Approval:
        """Whether its tools need approval: those of a server outside the cluster, unless it says otherwise."""
        return self.import_.approval or (Approval.AUTOMATIC if self.mcp.service else Approval.MANUAL)

    @property
    def refresh(self) -> float:
        """Seconds between two looks at a server that tells of no changes."""
        written = self.import_.refresh_interval
        return REFRESH[self.approval] if written is None else durations.seconds(written)

    @property
    def grace(self) -> float:
        """Seconds for which tools stay that a list lacks which came empty or shrank by more than half."""
        written = self.import_.shrink_grace
        return DEFAULT_GRACE if written is None else durations.seconds(written)


class ServerInfo(Model):
    """What the server says of itself."""

    name: str | None = Field(default=None, max_length=256, description="Its name.")
    version: str | None = Field(default=None, max_length=128, description="Its version.")


class ToolServerStatus(Model):
    """What the operator observed."""

    observed_generation: int | None = Field(
        default=None, ge=0, description="The generation that the operator assessed."
    )
    server_info: ServerInfo | None = Field(default=None, description="What the server says of itself.")
    protocol_version: str | None = Field(
        default=None, max_length=32, description="The version of MCP that it speaks."
    )
    tool_count: int | None = Field(default=None, ge=0, description="Tools in its list.")
    set_digest: str | None = Field(
        default=None,
        max_length=80,
        description="sha256 of its list: names, definitions and the server's instructions.",
    )
    instructions: str | None = Field(
        default=None,
        max_length=MOST_INSTRUCTIONS,
        description="What the server tells models of all its tools, escaped and cut. No model gets it from Toolcrib.",
    )
    instructions_digest: str | None = Field(
        default=None,
        max_length=80,
        description="sha256 of the whole instructions, as spec.sourceDigests of its tools has it.",
    )
    approved_instructions: str | None = Field(
        default=None,
        max_length=MOST_INSTRUCTIONS,
        description="The instructions with which all its tools were approved last, escaped and cut.",
    )
    approved_instructions_digest: str | None = Field(
        default=None, max_length=80, description="sha256 of the whole approved instructions."
    )
    conditions: Conditions = Field(default=(), description="Ready, Accepted, Verified, Imported, Drifted.")


class ToolServer(Model):
    """A ToolServer object as it stands in the cluster or in a manifest."""

    api_version: str = ""
    kind: str = "ToolServer"
    metadata: ObjectMeta = Field(strict=False)
    spec: ToolServerSpec
    status: ToolServerStatus | None = None

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "size(self.metadata.name) <= 63",
            "metadata.name is longer than the 63 characters of a server's name: choose a shorter one",
            lambda s: len(s.metadata.name) <= 63,
        ),
    )

    @property
    def server_id(self) -> str:
        """`namespace/name`."""
        return names.tool_id(self.metadata.namespace or "default", self.metadata.name)

    @property
    def auth(self) -> Auth | None:
        """How the registry authenticates to it."""
        return self.spec.mcp.auth

    @property
    def disabled(self) -> bool:
        """Whether its tools are absent everywhere."""
        return self.spec.state is ServerState.DISABLED
