"""The admin channel: what the leading operator sends to every replica of the registry.

A publish is `{from, to, bindings, tools, removed}`. It is applied only where the replica's revision equals
`from`; otherwise the replica answers 409 and gets a full snapshot (`from` absent). (DESIGN §6, Publishing.)
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer
from pydantic_core import PydanticSerializationError, from_json, to_json

from toolcrib import names
from toolcrib.canary import assignment
from toolcrib.digest import approval_digest
from toolcrib.resources.bindings import SubjectKind
from toolcrib.resources.tools import ScopeMatch, ToolState
from toolcrib.wire.backends import PublishedBackend
from toolcrib.wire.canaries import CanaryCounts
from toolcrib.wire.condensed import expanded
from toolcrib.wire.model import Wire
from toolcrib.wire.probes import MOST_BACKENDS

_DISABLED = ToolState.DISABLED  # looked up once: each decision asks for it


class Revision(Wire):
    """`(epoch, seq)`: the epoch grows at every takeover, seq with every publish."""

    epoch: int = Field(ge=0, lt=1 << 63)
    seq: int = Field(ge=0, lt=1 << 63)

    def __str__(self) -> str:
        return f"{self.epoch}.{self.seq}"

    def __lt__(self, other: Revision) -> bool:
        return (self.epoch, self.seq) < (other.epoch, other.seq)


def packed(schema: Any) -> Any:
    """A JSON object as compact JSON."""
    if not isinstance(schema, dict):
        return schema
    try:
        return to_json(schema)
    except PydanticSerializationError as error:
        raise ValueError("not plain JSON") from error


def unpacked(schema: bytes) -> dict[str, Any]:
    """What `packed` made it from, whether it was condensed since or not."""
    # a cache of what stands in schemas would only hold memory: reading is not faster by it
    read: dict[str, Any] = from_json(expanded(schema), cache_strings=False)
    return read


Packed = Annotated[
    bytes,
    BeforeValidator(packed, json_schema_input_type=dict[str, Any]),
    PlainSerializer(unpacked, return_type=dict[str, Any]),
]
"""A JSON object, held as text; the operator condenses it (`wire.condensed`)."""


class PublishedTool(Wire):
    """A tool as a replica holds it: the definition agents read and the route a call takes."""

    tool_id: str
    uid: str
    generation: int = 0
    namespace: str
    name: str
    server: str | None = None
    title: str | None = None
    description: str = ""
    scopes: tuple[str, ...]
    scope_match: ScopeMatch = ScopeMatch.ANY
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    packed_input: Annotated[Packed, Field(alias="input_schema")] = b'{"type":"object"}'
    packed_output: Annotated[Packed | None, Field(alias="output_schema")] = None
    returns: str | None = None
    annotations: dict[str, bool] = Field(default_factory=dict)
    state: ToolState = ToolState.ACTIVE
    replaced_by: str | None = None
    message: str | None = None
    digest: str
    route_digest: str
    backend: PublishedBackend | None = None
    fallback: tuple[str, ...] = Field(
        default=(), description="ids of tools to call while its backend is down; see `toolcrib.fallbacks`"
    )
    source: str = "manifest"
    source_digests: dict[str, str] = Field(
        default_factory=dict,
        exclude=True,  # replicas need the digest alone, which covers them
        description="what its server says of it and no Tool holds, as digests; never sent",
    )
    quarantined: bool = Field(
        default=False, description="it is not what was approved: not listed, not callable"
    )
    candidate: Candidate | None = Field(default=None, description="the trial of another definition")
    trial: str | None = Field(default=None, description="it is a candidate: the uid of its ToolCanary")
    confirm: bool = Field(default=False, description="a person confirms each call of it")

    model_config = ConfigDict(frozen=True, extra="ignore", serialize_by_alias=True)

    @property
    def input_schema(self) -> dict[str, Any]:
        """The schema of its arguments, parsed at each use: as objects it takes up to thirty times its JSON."""
        return unpacked(self.packed_input)

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """The schema of its answer, if it has one; parsed at each use."""
        return None if self.packed_output is None else unpacked(self.packed_output)

    @property
    def active(self) -> bool:
        """Whether agents may see it at all; deprecated tools are."""
        return self.state is not _DISABLED and not self.quarantined

    @property
    def repeatable(self) -> bool:
        """Whether calling it once more changes nothing more, as its author says."""
        hints = self.annotations
        return hints.get("idempotentHint") is True or hints.get("readOnlyHint") is True

    @property
    def approval_digest(self) -> str:
        """What `spec.approvedDigest` must be for it to be used as it is, where approval is Manual."""
        return approval_digest(self.digest, self.route_digest)

    @property
    def index_id(self) -> str:
        """Its id in the search index, where a candidate stands beside the tool that it is of."""
        return self.tool_id if self.trial is None else names.candidate_id(self.tool_id)


class Candidate(Wire):
    """What some callers get in the tool's place, where they may use it.

    A replica of an earlier version ignores it: everyone gets the tool's own definition.
    """

    canary: str = Field(description="uid of the ToolCanary")
    share: int = Field(ge=0, le=100, description="percent of the callers")
    replacement: str | None = Field(
        default=None,
        description="id of the tool that it is made of: its callers must be allowed that one too",
    )
    tool: PublishedTool

    def chooses(self, issuer: str, subject: str) -> bool:
        """Whether the caller is among those that get it."""
        return assignment.chosen(self.canary, self.share, issuer, subject)


class PublishedServer(Wire):
    """A ToolServer that offers resources or prompts.

    For the authorizer each is one more name of the server, which no tool can have: `parts` are what stands for them.
    """

    server_id: str = Field(description="namespace/name")
    parts: tuple[PublishedTool, ...]


class PublishedSubject(Wire):
    """A subject with its namespace filled in; an Agent is already the service account its pods run as."""

    kind: SubjectKind
    namespace: str | None = None
    name: str | None = None
    issuer: str | None = None
    client_id: str | None = None

    @property
    def tenant(self) -> str | None:
        """Namespace of the subject, or its issuer if it has none (`Identity.tenant`)."""
        return self.namespace or self.issuer


class PublishedLimits(Wire):
    """How much each subject may call by a binding; None: no such limit."""

    per_minute: int | None = None
    per_day: int | None = None
    concurrent: int | None = None


class PublishedAccount(Wire):
    """A ServiceAccount that some binding names, as it is now: a token of an earlier one of that name is void."""

    namespace: str
    name: str
    uid: str

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class PublishedBinding(Wire):
    """A binding as a replica holds it. `namespaces` is its territory; None means every namespace."""

    uid: str
    generation: int = 0
    kind: str
    namespace: str | None = None
    name: str
    subjects: tuple[PublishedSubject, ...]
    namespaces: tuple[str, ...] | None
    lists_namespaces: bool = Field(
        default=False,
        description="a cluster binding whose namespaces are written out, not selected by labels",
    )
    scopes: tuple[str, ...] = ()
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    deny_scopes: tuple[str, ...] = ()
    servers: tuple[str, ...] | None = None
    not_before: float | None = Field(default=None, description="seconds since the epoch")
    expires_at: float | None = Field(default=None, description="seconds since the epoch")
    limits: PublishedLimits | None = None
    suspends: bool = Field(
        default=False,
        description="an Agent that is suspended: its subjects get nothing. It denies every tool besides, since a replica of"
        " an earlier version knows denials alone",
    )

    @property
    def ref(self) -> str:
        """`Kind namespace/name`, for logs and explanations."""
        return f"{self.kind} {self.namespace + '/' if self.namespace else ''}{self.name}"

    @property
    def denies(self) -> bool:
        """Whether it denies anything: that holds whatever becomes of its grant."""
        return bool(self.deny or self.deny_scopes)


class Removed(Wire):
    """What a publish takes away."""

    tools: tuple[str, ...] = ()
    servers: tuple[str, ...] = Field(default=(), description="namespace/name")
    bindings: tuple[str, ...] = Field(default=(), description="uids")
    accounts: tuple[str, ...] = Field(default=(), description="namespace/name")


class Publish(Wire):
    """One step from one revision to the next; with `base` None it is a full snapshot."""

    base: Annotated[Revision | None, Field(alias="from")] = None
    to: Revision
    bindings: tuple[PublishedBinding, ...] = ()
    tools: tuple[PublishedTool, ...] = ()
    servers: tuple[PublishedServer, ...] = ()
    accounts: tuple[PublishedAccount, ...] | None = Field(
        default=None,
        description="bound ServiceAccounts; None in a full snapshot: the leader does not know them, none is checked",
    )
    removed: Removed = Removed()
    age: float = Field(
        default=0.0,
        ge=0,
        description="seconds for which the leader could not prove its view of the cluster; 0: it is proven",
    )

    model_config = ConfigDict(
        frozen=True, extra="ignore", validate_by_name=True, validate_by_alias=True, serialize_by_alias=True
    )


class SnapshotChunk(Wire):
    """A part of a full snapshot. A replica keeps it apart until the commit: nothing is answered from it.

    The first one (`number` 0) begins a stage and replaces an earlier one; the others follow in order.
    """

    to: Revision
    stage: str = Field(pattern="^[0-9a-f]{32}$", description="chosen by the operator for this one delivery")
    number: int = Field(ge=0, lt=1 << 31)
    bindings: tuple[PublishedBinding, ...] = ()
    tools: tuple[PublishedTool, ...] = ()
    servers: tuple[PublishedServer, ...] = ()
    accounts: tuple[PublishedAccount, ...] | None = Field(
        default=None,
        description="bound ServiceAccounts; None in all chunks: the leader does not know them, none is checked",
    )


class SnapshotCommit(Wire):
    """Everything has been staged: swap it in, whole, or refuse it."""

    to: Revision
    stage: str = Field(pattern="^[0-9a-f]{32}$")
    chunks: int = Field(ge=1, lt=1 << 31)
    digest: str = Field(
        pattern="^[0-9a-f]{64}$", description="sha256 of the chunks' bodies, one after the other"
    )
    age: float = Field(
        default=0.0,
        ge=0,
        description="seconds for which the leader could not prove its view of the cluster; 0: it is proven",
    )


class Heartbeat(Wire):
    """The leader is alive and its own view of the cluster is proven; sent every 10 s."""

    revision: Revision
    hash: str
    unreachable: tuple[str, ...] = Field(
        default=(),
        max_length=MOST_BACKENDS,
        description="places of backends (`place_key`) whose Tools have `BackendReachable=False`. No policy: searches alone"
        " go by it",
    )


class AuditHead(Wire):
    """The last record of a replica's decision log: what the operator keeps where the registry cannot write."""

    chain: str = Field(
        pattern=r"^[A-Za-z0-9._@-]{1,400}$",
        description="identifies the chain: the replica's name and when it began",
    )
    seq: int = Field(ge=0, lt=1 << 63)
    hash: str = Field(pattern="^[0-9a-f]{64}$", description="of the record, as it stands in the chain")


class ReplicaState(Wire):
    """What a replica says of itself, also as the answer to publish and heartbeat."""

    replica: str
    revision: Revision | None = None
    hash: str = ""
    ready: bool = False
    audit: AuditHead | None = None
    features: tuple[str, ...] = Field(default=(), description="what it enforces beyond the first version")
    canaries: tuple[CanaryCounts, ...] = Field(
        default=(), description="what it counted of the trials of tools"
    )


class Credential(Wire):
    """One secret value and the hosts it may be sent to. It lives in memory only and is never shown."""

    namespace: str
    name: str
    key: str
    hosts: tuple[str, ...]
    value: str = Field(repr=False)


class Credentials(Wire):
    """All credentials of the cluster that tools refer to; replaces what the replica had."""

    epoch: int
    credentials: tuple[Credential, ...] = ()


def fingerprint(item: PublishedTool | PublishedServer | PublishedBinding | PublishedAccount) -> int:
    """A number that changes whenever anything of the item changes.

    Fields at their defaults are left out: one that a later version adds changes nothing while it is not used.
    """
    written = item.model_dump_json(exclude_defaults=True)
    return int.from_bytes(hashlib.sha256(written.encode()).digest())


HASH_MODULUS = 1 << 256


def hash_text(total: int) -> str:
    """The snapshot hash: the sum of its items' fingerprints modulo 2^256, so that it is kept up incrementally."""
    return f"{total % HASH_MODULUS:064x}"
