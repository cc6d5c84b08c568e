"""The operator's knobs as plain data, grouped by topic. Only `main` reads them from the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolcrib.lint.hidden_text import Hidden
from toolcrib.resources.quantities import Quota


@dataclass(frozen=True)
class AgentSettings:
    """What the operator runs for Agents, and where. Times are in seconds."""

    namespaces: tuple[str, ...] = ()
    """Those in which it runs Agents, by a Role in each; nowhere else."""

    image: str = ""
    """Of every agent: none chooses its own. Empty: none is run."""

    pull_policy: str = "IfNotPresent"
    """When nodes pull it."""

    pull_secrets: tuple[str, ...] = ()
    """Secrets of each of the namespaces."""

    registry_url: str = ""
    """The registry's address, for pods."""

    audience: str = "toolcrib"
    """Of the tokens that pods get."""

    ca_config_map: str = ""
    """The ConfigMap, in each of the namespaces, with what the registry's certificate is verified by; empty: the system's."""

    ca_key: str = "ca.crt"
    """Its key there."""

    pod: Mapping[str, Any] = field(default_factory=dict)
    """What all pods have beyond the rest: fields as in `options.PodDefaults`."""

    every: float = 3.0
    """Between two looks at the workloads."""

    backoff: tuple[float, float] = (1.0, 60.0)
    """First and longest wait after a failed write of one workload; jittered."""

    grants_within: float = 30.0
    """How long a task waits for its account's first tool, and for replicas to confirm the bindings that name the account."""


@dataclass(frozen=True)
class LoopSettings:
    """How the loop writes to the API server. Times are in seconds."""

    hold_back: float = 2.0
    """A status whose only news is that something is pending waits this long: mostly the news gets better."""

    takeover_hold: float = 30.0
    """The same for objects that a former leader has already assessed, counted from the takeover."""

    rewrite_every: float = 60.0
    """`matchedTools` and what follows from it is rewritten at most this often."""

    removal_deadline: float = 60.0
    """A deleted binding goes this long after its deletionTimestamp even if a replica has not confirmed."""

    removal_least: float = 5.0
    """The replicas get at least this long to confirm, even if the deadline passed while no operator was there."""

    concurrency: int = 8
    """Writes to the API server at a time."""

    finalizers: bool = True
    """Whether bindings get the finalizer that makes `kubectl delete` wait for the replicas."""

    trusted_namespace_labels: tuple[str, ...] = ("kubernetes.io/metadata.name",)
    """Labels that a namespaceSelector may use: only admins may be able to set them (the API server sets this one)."""

    accounts: bool = True
    """Whether the UIDs of bound ServiceAccounts are published, so that tokens of deleted ones are refused. Not in the
    local mode: the tokens of its issuer carry none, and manifests need not declare all accounts (`accounts.Declared`)."""

    services: bool = True
    """Whether the addresses of Services are read and published. Not in the local mode: `--backend` says where they are."""

    programs: tuple[str, ...] = ()
    """`namespace/name` of ToolServers whose commands may be started, `*` for all. In the local mode alone: a cluster's API
    server refuses commands, and its operator does too."""

    trials_every: float = 1.0
    """Between two turns of the trials of tools: a look that is due waits no longer."""

    endpoints_settle: float = 5.0
    """What EndpointSlices say of a Tool's Service must last this long before its condition says something else."""

    metric_grants: int = 2000
    """Bindings with series of their own in the operator's metrics."""

    metric_tools: int = 5000
    """Tools with series of their own there."""

    look_within: float = 0.5
    """A turn that brings a new grant waits this long for a fresh look at the admission policies; then the grant waits alone."""

    hidden_text: Hidden = Hidden.REFUSE
    """What becomes of Tools whose texts hide characters: refused, or used and called Questionable."""
    quota: Quota | None = field(default_factory=Quota)
    """Of each namespace. None: another operator judges it, and what its statuses say holds."""

    credential_namespaces: tuple[str, ...] | None = None
    """Namespaces whose labelled Secrets may be sent to backends; None means every namespace (local mode)."""

    agents: AgentSettings | None = None
    """None: whether agents are run is no matter, as in the local mode."""

    cluster_domain: str = "cluster.local"
    """The cluster's DNS domain, in small letters: whole names of Services in `toolcrib.dev/hosts` end in it."""


@dataclass(frozen=True)
class PublisherSettings:
    """How the replicas are kept up to date."""

    heartbeat: float = 10.0
    """Seconds between heartbeats to a replica."""

    discover: float = 2.0
    """Seconds between looks at the list of replicas."""

    backoff: tuple[float, float] = (0.2, 15.0)
    """First and longest wait after a failed request, in seconds; jittered."""

    history: int = 64
    """Steps kept for replicas that are a little behind; one that is further gets a full snapshot."""

    recheck: float = 60.0
    """Seconds at least between full snapshots to a replica whose hash alone is another than the operator's."""


@dataclass(frozen=True)
class IndexSettings:
    """How the search index is kept up to date."""

    inventory: float = 30.0
    """Seconds between inventories."""

    batch: int = 64
    """Tools of one request, at most 200."""

    backoff: tuple[float, float] = (0.5, 30.0)
    """First and longest wait after a failure, in seconds; jittered."""

    unavailable_after: int = 3
    """Failures in a row until waiting tools say IndexUnavailable."""

    spared_namespace: str | None = "toolcrib-runtime"
    """Entries of this namespace are never swept as orphans: runtime registrations live there."""


@dataclass(frozen=True)
class ProbeSettings:
    """How backends are probed. Times are in seconds."""

    every: float = 60.0
    """Between two probes of one host and port."""

    ask: float = 10.0
    """Between two requests to the replica that probes."""

    writes: float = 50.0
    """Statuses a second that are looked at because of a report: a host may have thousands of tools."""

    backoff: tuple[float, float] = (1.0, 30.0)
    """First and longest wait after a failed request; jittered."""


@dataclass(frozen=True)
class ImportSettings:
    """How the tools of servers are imported. Times are in seconds."""

    seconds: float = 45.0
    """How long a replica goes on watching without another request."""

    wait: float = 8.0
    """How long it waits for a change before it answers; one that is silent for 4 s more is replaced by another."""

    servers: int = 4
    """Imports at a time."""

    writes: int = 3
    """Tools that one of them writes at a time."""

    again: float = 30.0
    """Until it is looked again whether tools that were left out may be imported."""

    backoff: tuple[float, float] = (0.2, 30.0)
    """First and longest wait after a failure; jittered."""


@dataclass(frozen=True)
class ElectionSettings:
    """The Lease; client-go's defaults."""

    namespace: str = "toolcrib-system"
    name: str = "toolcrib-operator"
    lease: float = 15.0
    renew: float = 10.0
    retry: float = 2.0


@dataclass(frozen=True)
class WatchSettings:
    """When a silent watch must be proven."""

    prove_after: float = 20.0
    """Seconds of silence until a metadata-only list compares resourceVersions."""

    unproven_after: float = 30.0
    """Seconds of silence without proof until there are no heartbeats any more."""

    secrets: float = 10.0
    """Seconds between reads of the labelled Secrets."""


@dataclass(frozen=True)
class PolicySettings:
    """How the admission policies are looked after. Times are in seconds."""

    account: str | None = None
    """The operator's user name, as one of the policies has it."""

    every: float = 2.0
    """Between looks."""

    settle: float = 6.0
    """Policies that were put back count for nothing until then: an API server takes about 4 s to enforce them."""

    stale_after: float = 30.0
    """Without an answer for this long, `/readyz` and the metric say that they cannot be read."""


@dataclass(frozen=True)
class RegistrationSettings:
    """How runtime registrations become Tools. Times are in seconds."""

    namespace: str = "toolcrib-runtime"
    """Where, and nowhere else."""

    wait: float = 10.0
    """How long a request for a replica's outbox stays open."""

    in_force: float = 3.0
    """How long all replicas get to confirm a new Tool before its caller is answered anyway."""

    backoff: tuple[float, float] = (0.2, 5.0)
    """First and longest wait after a failed request, in seconds; jittered."""


@dataclass(frozen=True)
class AnchorSettings:
    """How the heads of decision logs are kept. Times are in seconds."""

    name: str = "toolcrib-audit-anchors"
    """The ConfigMap, in the namespace of the Lease."""

    every: float = 60.0
    """Between two looks at the heads; only what has changed is written."""

    look: float = 2.0
    """The same as long as no replica has told its head, and after somebody else has written."""

    retry: float = 15.0
    """After a failure."""


@dataclass(frozen=True)
class OperatorSettings:
    """Everything the operator process needs to know."""

    registry_urls: tuple[str, ...] = ()
    registry_service: str | None = None
    registry_port: int = 8081
    registry_scheme: str = "http"
    registry_ca: Path | None = None
    registry_server_name: str | None = None
    """What the replicas' certificates are verified against; None: the host of the URL."""
    token_file: Path | None = None
    kubeconfig: Path | None = None
    host: str = "127.0.0.1"
    port: int = 8090
    identity: str = ""
    loop: LoopSettings = field(default_factory=LoopSettings)
    publisher: PublisherSettings = field(default_factory=PublisherSettings)
    index: IndexSettings = field(default_factory=IndexSettings)
    election: ElectionSettings = field(default_factory=ElectionSettings)
    watch: WatchSettings = field(default_factory=WatchSettings)
    policies: PolicySettings | None = None
    """None: something else checks who may write grants."""
    anchors: AnchorSettings | None = None
    """None: the heads of decision logs are not kept."""
    probes: ProbeSettings | None = field(default_factory=ProbeSettings)
    """None: no backend is probed."""
    registration: RegistrationSettings | None = None
    """None: runtime registrations are not served."""
    release_finalizers: bool = False
    """Do nothing but remove the finalizer from every binding, then end: for an uninstall."""
