"""Whether the Service behind a Tool stays in its namespace, and its address (DESIGN §5).

A Service may lead anywhere: an ExternalName to any host, a headless one or one without a selector to any address that
somebody wrote down, and every EndpointSlice with its name in a label adds endpoints. The registry dials for callers
who cannot reach those places themselves. So a Service is used only if its selector alone says where it leads.
There may be very many of both, and few facts of them are kept.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from toolcrib.resources.addresses import ServiceReference
from toolcrib.resources.conditions import ConditionReason
from toolcrib.resources.servers import ToolServer
from toolcrib.resources.tools import Tool
from toolcrib_operator.kinds.facts import Facts
from toolcrib_operator.kinds.kind import Change, Kind, made
from toolcrib_operator.kinds.verdicts import Cause, Reached
from toolcrib_operator.objects import NOTHING, Entry, Ref

SERVICE = "Service"
ENDPOINT_SLICE = "EndpointSlice"
_PLACE = frozenset({"namespace", "name", "resourceVersion"})
_REMEDY = "Use a Service with a selector and a cluster IP"


@dataclass(frozen=True, slots=True)
class ServiceVerdict:
    """What is known of the Service of one Tool.

    Attributes:
        cluster_ip: what the registry dials; None unless there is neither `refusal` nor `missing`.
        refusal: why the Tool is not accepted.
        missing: what has to be there before the Tool is Ready.
        endpoints: whether somebody answers at the Tool's port; None: nobody asked.
        token_ip: as `cluster_ip`, of the Service that gives access tokens.
    """

    cluster_ip: str | None = None
    refusal: Cause | None = None
    missing: Cause | None = None
    endpoints: Reached | None = None
    token_ip: str | None = None


NOT_ASKED = ServiceVerdict()
"""Of a Tool that names no Service, and where nobody reads Services: the registry knows the way, or refuses."""


@dataclass(frozen=True, slots=True)
class Named:
    """A Service that a Tool or a ToolServer names: always one of its own namespace.

    Attributes:
        key: `namespace/name`.
        port: of the Service.
        field: where it is named.
    """

    key: str
    port: int
    field: str


def service_of(resource: Tool | ToolServer) -> Named | None:
    """The Service that a tool's backend names, or that a server is."""
    if isinstance(resource, ToolServer):
        return _named(resource, resource.spec.mcp.service, "spec.mcp.service")
    http = resource.spec.backend.http
    return None if http is None else _named(resource, http.service, "spec.backend.http.service")


def token_service_of(resource: Tool | ToolServer) -> Named | None:
    """The Service that gives access tokens for a tool's backend or a server."""
    auth = resource.auth
    if auth is None or auth.oauth is None:
        return None
    place = "mcp" if isinstance(resource, ToolServer) else "backend"
    return _named(resource, auth.oauth.token_service, f"spec.{place}.auth.oauth.tokenService")


def services_of(resource: Tool | ToolServer) -> tuple[Ref, ...]:
    """All that it names."""
    named = (service_of(resource), token_service_of(resource))
    return tuple(dict.fromkeys(Ref(SERVICE, each.key) for each in named if each is not None))


def _named(resource: Tool | ToolServer, reference: ServiceReference | None, field: str) -> Named | None:
    if reference is None:
        return None
    return Named(f"{resource.metadata.namespace or 'default'}/{reference.name}", reference.port, field)


def assess_service(
    named: Named,
    service: Mapping[str, Any] | None,
    foreign: Iterable[tuple[str, str]],
    ready: Collection[str] = (),
) -> ServiceVerdict:
    """Whether requests may go to a Service that a Tool or a ToolServer names.

    Args:
        named: the Service.
        service: its facts, None if there is none.
        foreign: name and reason of each EndpointSlice that bears the Service's name and is not its controller's.
        ready: names of the ports for which one of its EndpointSlices has a ready endpoint.
    """
    key = named.key
    if service is None:
        return _missing(f"Service {key} does not exist. Create it, or correct {named.field}.name.")
    if (why := service.get("unsupported")) is not None:
        return _refused(f"Service {key} {why}. {_REMEDY}.")
    for name, reason in sorted(foreign):
        return _refused(
            f"EndpointSlice {name} of Service {key} {reason}. {_REMEDY}, and delete that EndpointSlice."
        )
    if not service["ip"]:
        return _missing(f"Service {key} has no cluster IP yet.")
    if (port := named.port) not in service["ports"]:
        has = ", ".join(map(str, service["ports"])) or "none"
        return _missing(f"Service {key} has no TCP port {port} (it has: {has}). Correct one of the two.")
    if service["names"][service["ports"].index(port)] in ready:
        endpoints = Reached(True, Cause(ConditionReason.ENDPOINTS_READY))
    else:
        message = f"Service {key} has no ready endpoint for port {port}. Check its pods and its selector."
        endpoints = Reached(False, Cause(ConditionReason.NO_READY_ENDPOINTS, message))
    return ServiceVerdict(cluster_ip=service["ip"], endpoints=endpoints)


def _missing(message: str) -> ServiceVerdict:
    cause = Cause(ConditionReason.SERVICE_MISSING, message)
    return ServiceVerdict(missing=cause, endpoints=Reached(False, cause))


def _refused(message: str) -> ServiceVerdict:
    return ServiceVerdict(refusal=Cause(ConditionReason.SERVICE_UNSUPPORTED, message))


class ServiceKind(Kind):
    """Services that Tools name."""

    name = SERVICE
    plural = "services"

    def read(self, manifest: Mapping[str, Any], *, condense: bool = True) -> Entry:
        """Its facts."""
        return made(self.name, _placed(manifest), body=service_facts(manifest))


class EndpointSliceKind(Kind):
    """EndpointSlices: which ones bear a Service's name without being its controller's, and which ports are ready."""

    name = ENDPOINT_SLICE
    group = "discovery.k8s.io"
    plural = "endpointslices"

    def compact(self, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
        """One of many endpoints is as one of a few."""
        return compact_slice(manifest)

    def read(self, manifest: Mapping[str, Any], *, condense: bool = True) -> Entry:
        """Its facts."""
        return made(self.name, _placed(manifest), body=slice_facts(manifest))

    def touched(self, change: Change, facts: Facts) -> Collection[Ref]:
        """The tools of the Service whose name it bears, or bore."""
        service = None if change.entry is None else change.entry.body.get("service")
        named = facts.slices.put(change.ref, service and f"{change.ref.namespace}/{service}")
        return {user for key in named for user in facts.users(Ref(SERVICE, key))}


SERVICES = ServiceKind()
ENDPOINT_SLICES = EndpointSliceKind()


def backend_service(resource: Tool | ToolServer, facts: Facts) -> ServiceVerdict:
    """What is known of the Service that a tool's backend names or that a server is, and of the one that gives tokens for it."""
    if not facts.settings.services:
        return NOT_ASKED
    own, tokens = _known(service_of(resource), facts), _known(token_service_of(resource), facts)
    if tokens is NOT_ASKED:
        return own
    return replace(
        own,
        token_ip=tokens.cluster_ip,
        refusal=own.refusal or tokens.refusal,
        missing=own.missing or tokens.missing,
    )


def _known(named: Named | None, facts: Facts) -> ServiceVerdict:
    if named is None:
        return NOT_ASKED
    service = facts.objects.get(Ref(SERVICE, named.key))
    slices = [(ref, facts.objects.get(ref)) for ref in facts.slices.of(named.key)]
    foreign = [
        (ref.name, entry.body["foreign"]) for ref, entry in slices if entry and "foreign" in entry.body
    ]
    ready = {port for _, entry in slices if entry for port in entry.body.get("ready", ())}
    return assess_service(named, None if service is None else service.body, foreign, ready)


def _placed(manifest: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in (manifest.get("metadata") or {}).items() if k in _PLACE}


NAME_LABEL = "kubernetes.io/service-name"
MANAGER_LABEL = "endpointslice.kubernetes.io/managed-by"
CONTROLLER = "endpointslice-controller.k8s.io"
"""kube-controller-manager's own: it takes endpoints from the Service's selector and nowhere else."""

_TYPES = ("ClusterIP", "NodePort", "LoadBalancer")


def service_facts(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a Service: `ip`, the TCP `ports` and their `names`; or `unsupported`, why it is not used."""
    spec = manifest.get("spec") or {}
    kind, ip = spec.get("type") or "ClusterIP", spec.get("clusterIP") or ""
    if kind not in _TYPES:
        return {"unsupported": f"is of type {kind}"}
    if ip == "None":
        return {"unsupported": "is headless (clusterIP: None)"}
    if not spec.get("selector"):
        return {"unsupported": "has no selector, so its endpoints can be any address"}
    ports = _tcp(spec.get("ports"))
    return {"ip": ip, "ports": tuple(p["port"] for p in ports), "names": _names(ports)}


def slice_facts(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of an EndpointSlice: its `service`, names of the `ready` ports, and why it is `foreign`, if it is."""
    metadata = manifest.get("metadata") or {}
    labels = metadata.get("labels") or {}
    service = labels.get(NAME_LABEL)
    if not service:
        return NOTHING
    service = sys.intern(service)
    if (foreign := _foreign(manifest, service)) is not None:
        return {"service": service, "foreign": foreign}
    ready = any(_is_ready(endpoint) for endpoint in manifest.get("endpoints") or ())
    return {"service": service, "ready": _names(_tcp(manifest.get("ports"))) if ready else ()}


def _foreign(manifest: Mapping[str, Any], service: str) -> str | None:
    """Why it is not the controller's, of pods of its namespace."""
    metadata = manifest.get("metadata") or {}
    if (manager := (metadata.get("labels") or {}).get(MANAGER_LABEL)) != CONTROLLER:
        return f"is managed by {manager!r}" if manager else "has no manager"
    if not any(_is_service(owner, service) for owner in metadata.get("ownerReferences") or ()):
        return "is not owned by the Service"
    for endpoint in manifest.get("endpoints") or ():
        target = endpoint.get("targetRef") or {}
        if target.get("kind") != "Pod" or target.get("namespace") != metadata.get("namespace"):
            return "has an endpoint that is no Pod of the namespace"
    return None


def compact_slice(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """An EndpointSlice with what `slice_facts` reads and no more: there may be very many, of a thousand endpoints each."""
    kinds = {
        ((target := e.get("targetRef") or {}).get("kind"), target.get("namespace"), _is_ready(e))
        for e in manifest.get("endpoints") or ()
    }
    endpoints = [
        {"targetRef": {"kind": kind, "namespace": namespace}, "conditions": {"ready": ready}}
        for kind, namespace, ready in kinds
    ]
    ports = [{"name": p.get("name"), "protocol": p.get("protocol")} for p in manifest.get("ports") or ()]
    return {"metadata": manifest.get("metadata") or {}, "ports": ports, "endpoints": endpoints}


def _is_ready(endpoint: Mapping[str, Any]) -> bool:
    """An endpoint that says nothing counts as ready, as Kubernetes has it."""
    return (endpoint.get("conditions") or {}).get("ready") is not False


def _tcp(ports: Iterable[Mapping[str, Any]] | None) -> list[Mapping[str, Any]]:
    return [p for p in ports or () if (p.get("protocol") or "TCP") == "TCP"]


def _names(ports: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """By which a Service's port and its endpoints' find each other. Equal tuples are one object: most have one port."""
    return _shared_names(tuple(sys.intern(p.get("name") or "") for p in ports))


@lru_cache(maxsize=1_024)
def _shared_names(names: tuple[str, ...]) -> tuple[str, ...]:
    return names


def _is_service(owner: Mapping[str, Any], name: str) -> bool:
    return (owner.get("kind"), owner.get("name"), owner.get("controller")) == ("Service", name, True)
