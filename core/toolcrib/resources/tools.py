"""Tool: one callable capability, the scopes that gate it, and the backend that executes it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import Field

from toolcrib import names
from toolcrib.resources.backends import Auth, Backend
from toolcrib.resources.conditions import Conditions
from toolcrib.resources.meta import (
    DnsSubdomain,
    ListOf,
    Model,
    ObjectMeta,
    Rule,
    Scope,
    ServerName,
    ToolName,
)

JsonSchema = Annotated[
    dict[str, Any],
    Field(
        json_schema_extra={
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            # one owner of the whole: nobody adds to a schema that an import writes
            "x-kubernetes-map-type": "atomic",
        }
    ),
]


DIGEST = r"^sha256:[0-9a-f]{64}$"
Sha256 = Annotated[str, Field(pattern=DIGEST, max_length=71)]
MOST_APPROVED = 16_384
REJECTED_DIGEST = "toolcrib.dev/rejected-digest"
REJECTED_REASON = "toolcrib.dev/rejected-reason"
"""Annotations that `toolcrib approvals reject` leaves for people. Nothing is decided by them."""
CONFIRM = "toolcrib.dev/confirm"
"""Annotation of a Tool: a person confirms each call. Its one value is `always`; any other counts the same."""
ALWAYS = "always"


class ScopeMatch(StrEnum):
    """Whether one of the tool's scopes suffices or all are needed."""

    ANY = "Any"
    ALL = "All"


class ToolState(StrEnum):
    """Whether agents see the tool; a deprecated one stays visible and callable."""

    ACTIVE = "Active"
    DEPRECATED = "Deprecated"
    DISABLED = "Disabled"


class Approval(StrEnum):
    """Whether new and changed tools are used as they come, or wait until somebody approves them."""

    AUTOMATIC = "Automatic"
    MANUAL = "Manual"


class ToolAnnotations(Model):
    """MCP's behaviour hints. They have no defaults: absent is not false."""

    read_only_hint: bool | None = Field(default=None, description="The tool does not change anything.")
    destructive_hint: bool | None = Field(default=None, description="The tool may destroy something.")
    idempotent_hint: bool | None = Field(
        default=None,
        description="A repeated call with the same arguments changes nothing more; the registry may retry it.",
    )
    open_world_hint: bool | None = Field(
        default=None, description="The tool interacts with an open world, such as the web."
    )


class SourceDigests(Model):
    """What a tool's server says of it and no Tool holds, as digests: none of it reaches a model, and a change is a change."""

    annotations: Sha256 | None = Field(
        default=None, description="sha256 of the annotations that the server sends."
    )
    icons: Sha256 | None = Field(default=None, description="sha256 of its icons.")
    meta: Sha256 | None = Field(default=None, description="sha256 of its _meta.")
    instructions: Sha256 | None = Field(
        default=None, description="sha256 of the instructions that the server gives for all its tools."
    )


class ToolSpec(Model):
    """What agents see of the tool, which scopes open it, and what executes it."""

    name: ToolName | None = Field(
        default=None, description="The name that agents see; default: metadata.name. Immutable."
    )
    server: ServerName | None = Field(
        default=None,
        description="The server that the tool belongs to, if any. Cannot be changed, added or removed.",
    )
    title: str | None = Field(default=None, max_length=256, description="A name for people; display only.")
    description: str = Field(
        default="", max_length=4096, description="What the tool does, for models and for search."
    )
    scopes: Annotated[tuple[Scope, ...], ListOf(1, 16)] = Field(description="The scopes that open the tool.")
    scope_match: ScopeMatch = Field(
        default=ScopeMatch.ANY,
        strict=False,
        description="Any: a caller needs one of the scopes. All: a caller needs every scope.",
    )
    tags: Annotated[tuple[Annotated[str, Field(pattern=names.TAG, max_length=64)], ...], ListOf(0, 16)] = (
        Field(default=(), description="Words to filter by.")
    )
    examples: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=512)], ...], ListOf(0, 16, "atomic")
    ] = Field(
        default=(),
        description="Sample requests in a user's words; search finds the tool by them.",
    )
    input_schema: JsonSchema = Field(
        default_factory=lambda: {"type": "object"},
        description="JSON schema of the arguments; default: {type: object}.",
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
    source_digests: SourceDigests | None = Field(
        default=None,
        description="Digests of what the server says of the tool and no Tool holds. The import writes them where approval is"
        " Manual; they are part of status.digest.",
    )
    approval: Approval | None = Field(
        default=None,
        strict=False,
        description="Manual: while approvedDigest is not that of the tool as it is, the tool is quarantined: not listed, not "
        "callable. Automatic, or absent: it is used as it is.",
    )
    approved_digest: str | None = Field(
        default=None,
        pattern=DIGEST,
        max_length=71,
        description="status.approvalDigest of what was approved. Writing it needs the verb approve on the Tool.",
    )
    backend: Backend = Field(description="What executes the tool.")
    fallback: Annotated[tuple[DnsSubdomain, ...], ListOf(0, 4, "atomic")] = Field(
        default=(),
        description="Tools of this namespace, by metadata.name, to call while the backend is down, in this order. The tool "
        "has to be idempotent; a fallback needs the same scopes and scopeMatch, has to be idempotent, too, and must set each of"
        " readOnlyHint: true, destructiveHint: false and openWorldHint: false that the tool sets. The caller's grants decide"
        " about it as about any tool.",
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.scopes.all(s, !s.lowerAscii().startsWith('registry:'))",
            "registry:* scopes are powers of the registry; a Tool cannot carry one",
            lambda s: not any(names.is_reserved_scope(x) for x in s.scopes),
        ),
        Rule(
            "has(self.server) == has(oldSelf.server) && (!has(self.server) || self.server == oldSelf.server)",
            "spec.server cannot be changed, added or removed: delete the Tool and create it again",
        ),
        Rule(
            "!has(self.replacedBy) || self.state == 'Deprecated'",
            "replacedBy needs state: Deprecated",
            lambda s: s.replaced_by is None or s.state is ToolState.DEPRECATED,
        ),
        Rule(
            "!has(self.backend.mcp) || (has(self.server) && self.server == self.backend.mcp.serverRef.name)",
            "a tool of a ToolServer belongs to it: set spec.server to the name in backend.mcp.serverRef",
            lambda s: s.backend.mcp is None or s.server == s.backend.mcp.server_ref.name,
        ),
        Rule(
            "!has(self.fallback) || size(self.fallback) == 0 || (has(self.annotations) &&"
            " ((has(self.annotations.idempotentHint) && self.annotations.idempotentHint) ||"
            " (has(self.annotations.readOnlyHint) && self.annotations.readOnlyHint)))",
            "fallback needs annotations.idempotentHint or readOnlyHint: true, since a call may be made twice",
            lambda s: (
                not s.fallback
                or (
                    s.annotations is not None
                    and True in (s.annotations.idempotent_hint, s.annotations.read_only_hint)
                )
            ),
        ),
    )


class ToolStatus(Model):
    """What the operator observed."""

    observed_generation: int | None = Field(
        default=None, ge=0, description="The generation that the operator assessed."
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
    approval_digest: str | None = Field(
        default=None,
        max_length=80,
        description="What spec.approvedDigest must be for the tool to be used as it is; only where approval is Manual.",
    )
    approved_definition: str | None = Field(
        default=None,
        max_length=MOST_APPROVED,
        description="The definition and the route that were approved last, as JSON; what is large in it is there as a digest.",
    )
    conditions: Conditions = Field(
        default=(), description="Ready, Accepted, Indexed, Approved, Questionable, FallbackUsable."
    )


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
            "spec.name cannot be changed: delete the Tool and create it under the new name",
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
            "this tool name is reserved for a route of the registry; choose another spec.name",
            lambda t: t.name not in names.RESERVED_TOOL_NAMES,
        ),
        Rule(
            "!has(self.spec.fallback) || !(self.metadata.name in self.spec.fallback)",
            "a tool cannot be its own fallback",
            lambda t: t.metadata.name not in t.spec.fallback,
        ),
    )

    @property
    def auth(self) -> Auth | None:
        """How the registry authenticates to its backend."""
        return self.spec.backend.auth

    @property
    def tool_id(self) -> str:
        """`namespace/name`."""
        return names.tool_id(self.metadata.namespace or "default", self.metadata.name)

    @property
    def name(self) -> str:
        """What agents see."""
        return self.spec.name or self.metadata.name

    @property
    def confirm(self) -> bool:
        """Whether a person confirms each call."""
        return CONFIRM in self.metadata.annotations
