"""What the World keeps of Services and EndpointSlices: there may be very many, and few facts of them matter. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NAME_LABEL = "kubernetes.io/service-name"
MANAGER_LABEL = "endpointslice.kubernetes.io/managed-by"
CONTROLLER = "endpointslice-controller.k8s.io"
"""kube-controller-manager's own: it takes endpoints from the Service's selector and nowhere else."""

_TYPES = ("ClusterIP", "NodePort", "LoadBalancer")
_NOTHING: dict[str, Any] = {}


def service_facts(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a Service: `ip`, the TCP `ports`, and `unsupported`, which says why it is not used."""
    spec = manifest.get("spec") or {}
    kind, ip = spec.get("type") or "ClusterIP", spec.get("clusterIP") or ""
    if kind not in _TYPES:
        return {"unsupported": f"is of type {kind}"}
    if ip == "None":
        return {"unsupported": "is headless (clusterIP: None)"}
    if not spec.get("selector"):
        return {"unsupported": "has no selector, so its endpoints can be any address"}
    ports = tuple(p["port"] for p in spec.get("ports") or () if p.get("protocol", "TCP") == "TCP")
    return {"ip": ip, "ports": ports}


def slice_facts(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of an EndpointSlice: nothing where the controller made it; else its `service` and why it is `foreign`."""
    metadata = manifest.get("metadata") or {}
    labels = metadata.get("labels") or {}
    service = labels.get(NAME_LABEL)
    if not service:
        return _NOTHING
    if (manager := labels.get(MANAGER_LABEL)) != CONTROLLER:
        return {"service": service, "foreign": f"is managed by {manager!r}" if manager else "has no manager"}
    if not any(_is_service(owner, service) for owner in metadata.get("ownerReferences") or ()):
        return {"service": service, "foreign": "is not owned by the Service"}
    for endpoint in manifest.get("endpoints") or ():
        target = endpoint.get("targetRef") or {}
        if target.get("kind") != "Pod" or target.get("namespace") != metadata.get("namespace"):
            return {"service": service, "foreign": "has an endpoint that is no Pod of the namespace"}
    return _NOTHING


def compact_slice(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """An EndpointSlice with what `slice_facts` reads and no more: there may be very many, of a thousand endpoints each."""
    targets = {
        (t.get("kind"), t.get("namespace"))
        for t in ((e.get("targetRef") or {}) for e in manifest.get("endpoints") or ())
    }
    endpoints = [{"targetRef": {"kind": kind, "namespace": namespace}} for kind, namespace in targets]
    return {"metadata": manifest.get("metadata") or {}, "endpoints": endpoints}


def _is_service(owner: Mapping[str, Any], name: str) -> bool:
    return (owner.get("kind"), owner.get("name"), owner.get("controller")) == ("Service", name, True)
