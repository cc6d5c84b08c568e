"""The command line and the environment of `toolcrib-operator`, read into settings."""

from __future__ import annotations

import argparse
import os
import socket
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel

from toolcrib.errors import SettingsInvalid
from toolcrib.lint.hidden_text import Hidden
from toolcrib.resources import mistakes, quantities
from toolcrib.resources.quantities import Quota
from toolcrib.settings import Source
from toolcrib.version import __version__
from toolcrib_operator.settings import (
    AgentSettings,
    AnchorSettings,
    ElectionSettings,
    IndexSettings,
    LoopSettings,
    OperatorSettings,
    PolicySettings,
    ProbeSettings,
    PublisherSettings,
    RegistrationSettings,
    WatchSettings,
)


def _list(given: Any) -> Any:
    """The parts of a text, or of several, by comma or space."""
    texts = [given] if isinstance(given, str) else given
    if isinstance(texts, list) and all(isinstance(text, str) for text in texts):
        return tuple(part for text in texts for part in text.replace(",", " ").split())
    return given


def _size(text: str) -> str:
    quantities.in_bytes(text)
    return text


def _name(text: str | None) -> str | None:
    # an empty variable, as charts leave it, is none
    if text and text.count("/") != 1:
        raise ValueError("must be namespace/name")
    return text or None


_Names = Annotated[tuple[str, ...], BeforeValidator(_list)]
_Named = Annotated[str | None, AfterValidator(_name)]


class PodDefaults(BaseModel):
    """What the pods of all agents have beyond the rest, by the names that the chart has for them."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", hide_input_in_errors=True)

    resources: dict[str, Any] | None = None
    node_selector: dict[str, str] | None = None
    affinity: dict[str, Any] | None = None
    tolerations: list[dict[str, Any]] | None = None
    topology_spread_constraints: list[dict[str, Any]] | None = None
    priority_class_name: str | None = None
    runtime_class_name: str | None = None
    termination_grace_period_seconds: int | None = None
    host_aliases: list[dict[str, Any]] | None = None
    dns_config: dict[str, Any] | None = None
    pod_labels: dict[str, str] | None = None
    pod_annotations: dict[str, str] | None = None
    pod_security_context: dict[str, Any] | None = None
    security_context: dict[str, Any] | None = None
    extra_env: list[dict[str, Any]] | None = None


_POD = """a JSON object, as in '{"nodeSelector": {"disk": "ssd"}}'"""


def _pod(text: str) -> str:
    try:
        PodDefaults.model_validate_json(text or "{}")
    except ValidationError as error:
        told = error.errors(include_input=False, include_url=False)
        if told[0]["type"] == "json_invalid":
            raise ValueError(f"must be {_POD}: {told[0]['msg']}") from None
        if not told[0]["loc"]:
            raise ValueError(f"must be {_POD}") from None
        raise ValueError("; ".join(map(str, mistakes.findings(told, PodDefaults)))) from None
    return text


class OperatorOptions(BaseModel):
    """Every option of the operator, as it is given."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    registry_url: _Names = Field(default=(), description="admin URL of a replica; repeat it for each")
    registry_service: _Named = Field(
        default=None, description="namespace/name of the registry's Service, instead of --registry-url"
    )
    registry_scheme: Literal["http", "https"] = Field(
        default="http", description="http or https, with --registry-service"
    )
    registry_ca: Path | None = Field(
        default=None, description="CA file of the registry's certificate; read again when it changes"
    )
    registry_server_name: str | None = Field(
        default=None,
        description="name in the registry's certificate; default: NAME.NAMESPACE.svc with --registry-service, else the host of the URL",
    )
    registry_port: int = Field(
        default=8081, ge=1, le=65535, description="admin port of the replicas, with --registry-service"
    )
    token_file: Path | None = Field(
        default=None, description="bearer token for the admin channel; read at each use"
    )
    kubeconfig: Path | None = Field(
        default=None,
        description="kubeconfig file; default: the pod's service account, KUBECONFIG or ~/.kube/config",
    )
    host: str = Field(default="127.0.0.1", description="address for /healthz, /readyz and /metrics")
    port: int = Field(
        default=8090,
        ge=0,
        le=65535,
        description="port for /healthz, /readyz and /metrics; 0 takes a free one and prints it",
    )
    identity: str = Field(default="", description="unique name of this process in the Lease")
    lease_namespace: str = Field(default="toolcrib-system", description="namespace of the Lease")
    lease_name: str = Field(default="toolcrib-operator", description="name of the Lease")
    lease_duration: float = Field(
        default=15.0, description="seconds after which another operator may take an unrenewed Lease"
    )
    lease_renew: float = Field(
        default=10.0, description="seconds without renewal after which the leader stops"
    )
    lease_retry: float = Field(default=2.0, gt=0, description="seconds between attempts and renewals")
    credential_namespaces: _Names = Field(
        default=(), description="namespaces whose labelled Secrets may go to backends, comma-separated"
    )
    agent_namespaces: _Names = Field(
        default=(), description="namespaces in which the operator runs Agents, comma-separated"
    )
    agent_image: str = Field(
        default="", description="image of the Agents' pods, the only one; without it none is run"
    )
    agent_image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field(
        default="IfNotPresent", description="when nodes pull it: Always, IfNotPresent or Never"
    )
    agent_image_pull_secrets: _Names = Field(
        default=(), description="Secrets of those namespaces to pull it with, comma-separated"
    )
    agent_registry_url: str = Field(
        default="", description="the registry's address for Agents' pods, http(s)://host[:port]"
    )
    agent_audience: str = Field(
        default="toolcrib", min_length=1, description="audience of the tokens of Agents' pods"
    )
    agent_ca: str = Field(
        default="",
        description="ConfigMap of those namespaces, or ConfigMap/key, with the CA of the registry's certificate",
    )
    agent_pod: Annotated[str, AfterValidator(_pod)] = Field(
        default="",
        description="JSON object of what all Agents' pods have beyond the rest, such as resources, nodeSelector, tolerations",
    )
    cluster_domain: str = Field(
        default="cluster.local",
        description="DNS domain of Services, as in the registry's egress.cluster_domain",
    )
    trusted_namespace_labels: _Names = Field(
        default=("kubernetes.io/metadata.name",),
        description="labels that a namespaceSelector may use, comma-separated",
    )
    removal_deadline: float = Field(
        default=60.0, ge=0, description="maximum seconds that a deleted binding waits for replicas"
    )
    quota_tools: int = Field(
        default=5000, ge=0, description="maximum tools of a namespace; the oldest are accepted; 0: no limit"
    )
    quota_bytes: Annotated[str, AfterValidator(_size)] = Field(
        default="64Mi",
        description="maximum JSON bytes of a namespace's tools together, as in 64Mi; the oldest are accepted; 0: no limit",
    )
    metric_grants: int = Field(
        default=2000, ge=0, description="bindings with series of their own in /metrics"
    )
    metric_tools: int = Field(default=5000, ge=0, description="tools with series of their own in /metrics")
    heartbeat: float = Field(default=10.0, gt=0, description="seconds between heartbeats")
    inventory: float = Field(
        default=30.0, gt=0, description="seconds between inventories of the search index"
    )
    prove_after: float = Field(
        default=20.0, gt=0, description="seconds of silence after which a list checks a watch"
    )
    runtime_namespace: str = Field(
        default="toolcrib-runtime",
        description="namespace of runtime registrations; their index entries are never removed as orphans",
    )
    admission: Literal["policy", "external"] = Field(
        default="policy",
        description="policy: new grants take effect only while the admission policies of crds/ are in place; external: "
        "something else checks who may write grants",
    )
    hidden_text: Hidden = Field(
        default=Hidden.REFUSE,
        description="refuse: reject Tools with control, bidirectional, tag or zero-width characters in their texts;"
        " warn: accept them as Questionable",
    )
    service_account: _Named = Field(
        default=None, description="namespace/name of the operator's own account, as in the admission policies"
    )
    audit_anchors: str = Field(
        default="toolcrib-audit-anchors",
        description="ConfigMap in the namespace of the Lease that anchors the heads of decision logs; empty: none",
    )
    audit_anchor_interval: float = Field(
        default=60.0, gt=0, description="seconds between two anchors of a decision log"
    )
    backend_probe_interval: float = Field(
        default=60.0,
        ge=0,
        le=3600,
        description="seconds between two probes of a backend's host and port by a replica, at least 1; 0: no probes",
    )
    runtime_registration: bool = Field(
        default=False, description="create Tools for registrations at run time"
    )
    release_finalizers: bool = Field(
        default=False,
        description="take the Lease, remove Toolcrib's finalizer from every binding, then exit: for an uninstall",
    )

    @model_validator(mode="after")
    def _consistent(self) -> OperatorOptions:
        if bool(self.registry_url) == bool(self.registry_service) and not self.release_finalizers:
            raise ValueError(
                "specify either --registry-url (once for each replica) or --registry-service namespace/name"
            )
        if not self.lease_retry < self.lease_renew < self.lease_duration:
            raise ValueError(
                "--lease-retry must be below --lease-renew, and --lease-renew below --lease-duration"
            )
        if self.agent_namespaces and self.agent_image and not self.agent_registry_url:
            raise ValueError("--agent-namespaces needs --agent-registry-url: pods ask the registry there")
        return self

    def settings(self) -> OperatorSettings:
        """What the operator works with."""
        return OperatorSettings(
            registry_urls=self.registry_url,
            registry_service=self.registry_service,
            registry_port=self.registry_port,
            registry_scheme=self.registry_scheme,
            registry_ca=self.registry_ca,
            registry_server_name=self.registry_server_name or _service_name(self.registry_service),
            token_file=self.token_file,
            kubeconfig=self.kubeconfig,
            host=self.host,
            port=self.port,
            identity=self.identity or f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4().hex[:8]}",
            loop=LoopSettings(
                removal_deadline=self.removal_deadline,
                trusted_namespace_labels=self.trusted_namespace_labels,
                credential_namespaces=self.credential_namespaces,
                agents=self._agents(),
                quota=Quota(self.quota_tools, quantities.in_bytes(self.quota_bytes)),
                cluster_domain=self.cluster_domain.lower().removesuffix("."),
                metric_grants=self.metric_grants,
                metric_tools=self.metric_tools,
                hidden_text=self.hidden_text,
            ),
            publisher=PublisherSettings(heartbeat=self.heartbeat),
            index=IndexSettings(inventory=self.inventory, spared_namespace=self.runtime_namespace),
            election=ElectionSettings(
                self.lease_namespace, self.lease_name, self.lease_duration, self.lease_renew, self.lease_retry
            ),
            watch=WatchSettings(prove_after=self.prove_after, unproven_after=self.prove_after + 10.0),
            policies=PolicySettings(_user(self.service_account)) if self.admission == "policy" else None,
            anchors=AnchorSettings(self.audit_anchors, self.audit_anchor_interval)
            if self.audit_anchors
            else None,
            probes=ProbeSettings(max(1.0, self.backend_probe_interval))
            if self.backend_probe_interval
            else None,
            registration=RegistrationSettings(self.runtime_namespace) if self.runtime_registration else None,
            release_finalizers=self.release_finalizers,
        )

    def _agents(self) -> AgentSettings:
        ca, _, key = self.agent_ca.partition("/")
        return AgentSettings(
            namespaces=tuple(dict.fromkeys(self.agent_namespaces)),
            image=self.agent_image,
            pull_policy=self.agent_image_pull_policy,
            pull_secrets=self.agent_image_pull_secrets,
            registry_url=self.agent_registry_url,
            audience=self.agent_audience,
            ca_config_map=ca,
            ca_key=key or "ca.crt",
            pod=PodDefaults.model_validate_json(self.agent_pod or "{}").model_dump(
                by_alias=True, exclude_unset=True
            ),
        )


_MAY_BE_EMPTY = ("audit_anchors", "trusted_namespace_labels")
"""Options of which an empty variable is a value: no anchors, and no label that is trusted."""
SOURCE = Source(OperatorOptions, "TOOLCRIB_OPERATOR_", empty=lambda field: field in _MAY_BE_EMPTY)
"""Flags before variables: `TOOLCRIB_OPERATOR_` and the option."""


def parser() -> argparse.ArgumentParser:
    """Every option."""
    made = argparse.ArgumentParser("toolcrib-operator", description="Reconciles Tools and bindings.")
    SOURCE.add_flags(made)
    version = f"toolcrib-operator {__version__}"
    made.add_argument("--version", action="version", version=version, help="Print the version and exit.")
    return made


def parse(argv: Sequence[str] | None, environ: Mapping[str, str]) -> OperatorSettings:
    """Settings from arguments, else from variables, else defaults.

    Raises SystemExit, with a message that names every problem, on bad usage.
    """
    usage = parser()
    try:
        return SOURCE.read(vars(usage.parse_args(argv)), environ).settings()
    except SettingsInvalid as invalid:
        usage.error(str(invalid))


def _service_name(service: str | None) -> str | None:
    if service is None:
        return None
    namespace, name = service.split("/")
    return f"{name}.{namespace}.svc"


def _user(account: str | None) -> str | None:
    return f"system:serviceaccount:{account.replace('/', ':')}" if account else None
