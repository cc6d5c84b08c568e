"""The Lease object, by coordination.k8s.io/v1."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from toolcrib_operator.adapters.kube import Kube, Refused
from toolcrib_operator.errors import ClusterUnavailable, Conflict, Gone
from toolcrib_operator.ports import Lease


class KubeLease:
    """One Lease of one namespace."""

    def __init__(self, kube: Kube, namespace: str, name: str, *, timeout: float = 5.0) -> None:
        self._kube, self._namespace, self._name, self._timeout = kube, namespace, name, timeout
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace)}/leases"
        self._acquired = ""

    async def read(self) -> Lease | None:
        """The Lease, or None."""
        try:
            path = f"{self._collection}/{quote(self._name)}"
            return _read(await self._kube.request("GET", path, seconds=self._timeout))
        except Gone:
            return None
        except Refused as error:
            raise ClusterUnavailable(f"the Lease cannot be read: {error}") from error

    async def write(self, lease: Lease, *, acquired: bool) -> Lease:
        """Create or replace it."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        if acquired or not self._acquired:
            self._acquired = now
        metadata: dict[str, Any] = {"name": self._name, "namespace": self._namespace}
        spec = {
            "holderIdentity": lease.holder,
            "leaseDurationSeconds": max(1, round(lease.duration)),
            "acquireTime": self._acquired,
            "renewTime": now,
            "leaseTransitions": lease.transitions,
        }
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        method, path = "POST", self._collection
        if lease.resource_version:
            metadata["resourceVersion"] = lease.resource_version
            method, path = "PUT", f"{self._collection}/{quote(self._name)}"
        try:
            return _read(await self._kube.request(method, path, body=body, seconds=self._timeout))
        except Gone as error:
            if method == "POST":
                raise ClusterUnavailable(
                    f"the namespace {self._namespace} of the Lease is missing"
                ) from error
            raise Conflict("the Lease was deleted") from error
        except Refused as error:
            raise ClusterUnavailable(f"the Lease cannot be written: {error}") from error


def _read(body: Any) -> Lease:
    spec = body.get("spec") or {}
    return Lease(
        holder=spec.get("holderIdentity") or "",
        transitions=spec.get("leaseTransitions") or 0,
        renewed=spec.get("renewTime") or "",
        duration=float(spec.get("leaseDurationSeconds") or 0),
        resource_version=body["metadata"]["resourceVersion"],
    )
