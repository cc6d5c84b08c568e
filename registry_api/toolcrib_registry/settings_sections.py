"""The sections of the registry's settings, each a group of fields that belong together."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

COLLECTION_PREFIX = r"^[A-Z][A-Za-z0-9_]{0,127}$"
ASSERTION_ISSUER = r"^https?://[!-~]+$"


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Tls(Section):
    """Certificate and key of a listener; both or neither. Files that change are read again."""

    cert_file: str | None = Field(default=None, description="PEM certificate chain.")
    key_file: str | None = Field(default=None, description="PEM private key.")

    @model_validator(mode="after")
    def _both(self) -> Tls:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("set cert_file and key_file together")
        return self


class Discovery(Section):
    """What discovery says."""

    totals: Literal["visible", "all"] = Field(
        default="visible", description="What total_registered counts: the caller's tools, or all active ones."
    )
    anonymous: Literal["none", "list"] = Field(
        default="none", description="list: a caller without a token may list definitions, never call."
    )
    step_up: bool = Field(
        default=False,
        description="On /mcp and /mcp/direct, answer 403 `insufficient_scope` where a binding grants the "
        "called tool but the token lacks its scope, so that the client can request the scope. "
        "This tells the caller that the tool exists. Off: the tool is absent.",
    )


class Store(Section):
    """The search index."""

    kind: Literal["embedded", "weaviate"] = Field(
        default="embedded", description="Which index: embedded in the process, or a Weaviate server."
    )
    path: str = Field(default="toolcrib-data", description="embedded: folder of the index.")
    host: str = Field(default="localhost", description="weaviate: its host.")
    http_port: int = Field(default=8080, ge=1, le=65535, description="weaviate: its HTTP port.")
    grpc_host: str | None = Field(default=None, description="weaviate: host of its gRPC port, if different.")
    grpc_port: int = Field(default=50051, ge=1, le=65535, description="weaviate: its gRPC port.")
    tls: bool = Field(default=False, description="weaviate: use TLS on both ports.")
    ca_file: str | None = Field(
        default=None,
        description="weaviate: CA bundle to use instead of the system's; read again when it changes.",
    )
    api_key_file: str | None = Field(
        default=None, description="weaviate: file with the API key; read again when it changes."
    )
    replicas: int = Field(
        default=1,
        ge=1,
        le=99,
        description="weaviate: replication factor of new collections; at most the number of nodes.",
    )
    collection_prefix: str = Field(
        default="ToolcribTools",
        pattern=COLLECTION_PREFIX,
        description="weaviate: prefix of collection names; must differ between installations on one server.",
    )

    @model_validator(mode="after")
    def _ca_with_tls(self) -> Store:
        if self.ca_file is not None and not self.tls:
            raise ValueError("ca_file needs tls: true")
        return self


class EmbedderSettings(Section):
    """What turns text into vectors."""

    kind: Literal["packaged", "onnx", "openai", "none"] = Field(
        default="packaged",
        description="packaged: the model in the image; onnx: a model in a folder; openai: an "
        "OpenAI-compatible endpoint; none: search by words alone.",
    )
    path: str | None = Field(
        default=None, description="onnx: folder with model.onnx and tokenizer.json of a sentence model."
    )
    base_url: str | None = Field(default=None, description="openai: base URL of the endpoint.")
    model: str | None = Field(default=None, description="openai: the model.")
    dimension: int | None = Field(default=None, ge=1, le=8192, description="openai: length of its vectors.")
    api_key_file: str | None = Field(
        default=None, description="openai: file with the API key; read again when it changes."
    )
    query_seconds: float = Field(
        default=2.0,
        gt=0,
        le=30,
        description="Seconds that a search waits for its vector. After that it ranks by words alone, and "
        "says so.",
    )
    request_seconds: float = Field(
        default=30.0, gt=0, le=100, description="openai: seconds for one request of up to 64 texts."
    )
    cache_path: str | None = Field(
        default=None,
        description="Folder for the vectors of tools' texts, so that none is computed twice. Absent: the "
        "folder of the embedded index; in memory with weaviate.",
    )
    cache_bytes: int = Field(
        default=256 << 20,
        ge=1 << 20,
        description="Maximum bytes of those vectors; the least recently used are removed first. In memory at "
        "most 64 MiB.",
    )

    @model_validator(mode="after")
    def _named(self) -> EmbedderSettings:
        if self.kind == "openai" and not (self.base_url and self.model and self.dimension):
            raise ValueError("an openai embedder needs base_url, model and dimension")
        if self.kind == "onnx" and not self.path:
            raise ValueError("an onnx embedder needs path, a folder with model.onnx and tokenizer.json")
        return self


class Mcp(Section):
    """What clients of the Model Context Protocol get."""

    split_calls: bool = Field(
        default=False,
        description="Offer call_read_tool and call_write_tool instead of call_tool, so that a client can ask "
        "its user only before writes. A tool only reads if its annotation readOnlyHint is true.",
    )
    compatible_names: bool = Field(
        default=False,
        description="Also offer intelligent_tool_finder, search_registry and invoke_mcp_tool, for agents of "
        "the MCP Gateway & Registry project.",
    )
    request_access: bool = Field(
        default=False,
        description="Also offer request_access, by which an agent asks people for a tool. Only tools of namespaces "
        "labelled `toolcrib.dev/requests: enabled` can be asked for.",
    )
    list_bytes: int = Field(
        default=64 << 20,
        ge=1 << 20,
        description="Maximum bytes of encoded tool lists that a replica keeps for /mcp/direct. Callers with "
        "the same view share one.",
    )


class Search(Section):
    """How a replica searches."""

    resident_bytes: int = Field(
        default=256 << 20,
        ge=0,
        description="Maximum bytes of tools' vectors that a replica holds in memory, so that searches do not "
        "need the index: 1.5 KiB a tool with the packaged model, so 170,000 tools. If not all "
        "fit, none is held, and a search over more than 200 visible tools ranks by meaning only "
        "the nearest that the index returns.",
    )


class Egress(Section):
    """Where calls may go, besides Services."""

    allow: tuple[str, ...] = Field(
        default=(),
        description="Hosts (or globs) that url: backends may name, each with a port (`api.example.com:8443`) or without.",
    )
    loopback: bool = Field(
        default=False, description="Allow url: backends on loopback addresses; for laptops."
    )
    forbidden: tuple[str, ...] = Field(
        default=(),
        description="Addresses, networks, address:port and host names that are never called, such as the API "
        "server's and the registry's. The store's own host is always included. A host name also "
        "closes the addresses that it resolves to.",
    )
    cluster: tuple[str, ...] = Field(
        default=(),
        description="The cluster's Service and pod ranges: url: backends must not be in them. If set, "
        "service: backends are only called there.",
    )
    cluster_domain: str = Field(
        default="cluster.local",
        min_length=1,
        description="The cluster's DNS domain, by which names of Services are recognized.",
    )


class Audit(Section):
    """The decision log. A plain text in its place is its path."""

    path: str | None = Field(
        default=None, description="File to append records to; `-` for standard output. Absent: no log."
    )
    mode: Literal["lenient", "strict"] = Field(
        default="lenient",
        description="If a record cannot be written: lenient continues and records in the chain how many were "
        "lost; strict refuses calls (503 audit_unavailable), because each call's record must be "
        "on disk before the call is made.",
    )
    key_file: str | None = Field(
        default=None,
        description="File with the secret (at least 32 bytes) that chains records and hashes arguments. "
        "Absent: a chain without a key, and no arguments.",
    )
    arguments: Literal["hash", "omit", "plain"] = Field(
        default="hash", description="How a call's arguments are recorded; hash: as a keyed hash."
    )
    max_bytes: int = Field(
        default=64 << 20, ge=4096, description="Size in bytes at which the file is rotated."
    )
    keep: int = Field(
        default=15, ge=1, le=100_000, description="Rotated files to keep; the oldest are deleted."
    )
    queue: int = Field(
        default=10_000, ge=10, le=1_000_000, description="Records that may wait to be written."
    )
    fold_seconds: float = Field(
        default=60.0,
        gt=0,
        le=3600,
        description="Repeated refusals are recorded once, then as a count at this interval in seconds.",
    )
    strict_seconds: float = Field(
        default=2.0, gt=0, le=60, description="strict: seconds that a call waits for its record."
    )

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, data: Any) -> Any:
        return {"path": data} if isinstance(data, str) else data

    @model_validator(mode="after")
    def _somewhere(self) -> Audit:
        if self.mode == "strict" and self.path is None:
            raise ValueError("mode strict needs a path: set audit.path")
        return self


class Assertion(Section):
    """The assertion that backends of Services get with each call."""

    issuer: str | None = Field(
        default=None,
        pattern=ASSERTION_ISSUER,
        description="`iss`, the same for all replicas. Absent: the registry's public URL.",
    )
    keys: str | None = Field(
        default=None,
        description="Folder with signing.pem and, while keys are rotated, previous.pem: P-256 private keys, "
        "read again when they change. Absent: each process makes its own key, which suits one "
        "replica.",
    )


class MetricsListener(Section):
    """`/metrics`: where it is served, and what it tells."""

    host: str = Field(default="127.0.0.1", description="Address of the metrics listener.")
    port: int = Field(default=8091, ge=0, le=65535, description="Its port; 0 takes a free one.")
    tls: Tls = Tls()
    reasons: Literal["not_permitted", "full"] = Field(
        default="not_permitted",
        description="What denials of tools outside the caller's view show: `not_permitted` without a rule, "
        "as the caller was told, or (full) their reason and rule. With full, anyone who may "
        "scrape can tell a hidden tool from an absent one.",
    )
