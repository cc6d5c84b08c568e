"""Access requests of a cluster, with the rights of a kubeconfig: what its owner may grant is checked at admission."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolcrib_cli import kube_requests
from toolcrib_cli.kube_requests import Hints
from toolcrib_cli.requesting.asked import Asked, rejecting
from toolcrib_operator.adapters.kube import MERGE_PATCH, Kube

MANAGER = "toolcrib-access"
_HINTS = Hints(
    denied="ask somebody with that right; docs/guides/access-for-a-while.md says who may do what",
    conflict="somebody has decided or changed it meanwhile: toolcrib access requests --all",
    gone="is it still there?",
)


class ClusterRequests:
    """Those of a cluster."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    def objects(self, namespace: str | None) -> list[Mapping[str, Any]]:
        """As `Source`."""
        kinds = ("AccessRequest", "Tool", "ToolServer")
        return [each for kind in kinds for each in kube_requests.listed(self._kube, kind, namespace, _HINTS)]

    def username(self) -> str | None:
        """As `Source`."""
        return kube_requests.username(self._kube, _HINTS)

    def grant(self, binding: Mapping[str, Any]) -> None:
        """As `Source`; admission asks for the verbs `grant` and `equip`."""
        metadata = binding["metadata"]
        request = self._kube.request(
            "POST",
            kube_requests.path("AgentScopeBinding", metadata["namespace"]),
            query={"fieldManager": MANAGER, "fieldValidation": "Strict"},
            body=dict(binding),
        )
        kube_requests.asked(request, f"approve {metadata['namespace']}/{metadata['name']}", _HINTS)

    def revoke(self, binding: Mapping[str, Any]) -> None:
        """As `Source`."""
        namespace, name = binding["metadata"]["namespace"], binding["metadata"]["name"]
        request = self._kube.request("DELETE", kube_requests.path("AgentScopeBinding", namespace, name))
        kube_requests.asked(request, f"delete {namespace}/{name} again", _HINTS)

    def reject(self, asked: Asked, reason: str) -> None:
        """As `Source`."""
        metadata = asked.request.metadata
        body = {"metadata": {"resourceVersion": metadata.resource_version, "annotations": rejecting(reason)}}
        request = self._kube.request(
            "PATCH",
            kube_requests.path("AccessRequest", metadata.namespace, metadata.name),
            query={"fieldManager": MANAGER},
            body=body,
            content_type=MERGE_PATCH,
        )
        kube_requests.asked(request, f"reject {asked.key}", _HINTS)
