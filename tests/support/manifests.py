"""Manifests of Toolcrib's kinds, and of the objects that their tools stand on, as tests apply them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from toolcrib.resources import API_VERSION


def manifest(kind: str, name: str, namespace: str | None = None, /, **spec: Any) -> dict[str, Any]:
    """An object of one of Toolcrib's kinds; without namespace one of the cluster."""
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def tool(name: str, namespace: str = "heist", /, **spec: Any) -> dict[str, Any]:
    """A Tool manifest."""
    body = {
        "scopes": [f"{name}:use"],
        "description": f"Answers what tests ask of {name}",
        "backend": {"http": {"service": {"name": "example-tools", "port": 8080}, "path": f"/tools/{name}"}},
    }
    return manifest("Tool", name, namespace, **body | spec)


def binding(name: str, scopes: Iterable[str], namespace: str = "heist", **spec: Any) -> dict[str, Any]:
    """An AgentScopeBinding manifest for the service account of its own name."""
    body = {"subjects": [{"kind": "ServiceAccount", "name": name}], "scopes": list(scopes)}
    return manifest("AgentScopeBinding", name, namespace, **body | spec)


def cluster_binding(name: str, scopes: Iterable[str], **spec: Any) -> dict[str, Any]:
    """A ClusterAgentScopeBinding manifest for `heist/name`."""
    subject = {"kind": "ServiceAccount", "namespace": "heist", "name": name}
    body = {"subjects": [subject], "scopes": list(scopes)}
    return manifest("ClusterAgentScopeBinding", name, **body | spec)


def service(
    name: str = "example-tools",
    /,
    namespace: str = "heist",
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """The Service that tools of `tool` name, as an API server has it; of `spec` a None takes a field away."""
    body = {
        "selector": {"app": name},
        "clusterIP": "10.96.0.17",
        "ports": [{"port": 8080, "protocol": "TCP"}],
    } | spec
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "labels": labels or {}},
        "spec": {k: v for k, v in body.items() if v is not None},
    }


_OWNER = {
    "apiVersion": "v1",
    "kind": "Service",
    "name": "example-tools",
    "uid": "uid-example-tools",
    "controller": True,
}
_OWN = {"kind": "Pod", "name": "example-tools-0", "namespace": "heist"}


def endpoint_slice(
    name: str = "example-tools-a",
    *,
    manager: str | None = "endpointslice-controller.k8s.io",
    owner: dict[str, Any] | None = _OWNER,
    targets: Sequence[dict[str, Any] | None] = (_OWN,),
) -> dict[str, Any]:
    """An EndpointSlice of `service()`, as its controller makes it; one endpoint for each of `targets`."""
    labels = {"kubernetes.io/service-name": "example-tools"}
    if manager is not None:
        labels["endpointslice.kubernetes.io/managed-by"] = manager
    endpoints = [
        {"addresses": [f"10.244.0.{i + 1}"]} | ({} if target is None else {"targetRef": target})
        for i, target in enumerate(targets)
    ]
    metadata: dict[str, Any] = {"name": name, "namespace": "heist", "labels": labels}
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": metadata,
        "addressType": "IPv4",
        "ports": [{"port": 8080}],
        "endpoints": endpoints,
    }
