"""The ConfigMap that holds the anchors of decision logs."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from toolcrib_operator.adapters.kube import MERGE_PATCH, Kube, Refused
from toolcrib_operator.errors import ClusterUnavailable, Conflict, Gone
from toolcrib_operator.ports import StoredAnchors

KEY = "anchors.json"
_LABELS = {"app.kubernetes.io/part-of": "toolcrib", "app.kubernetes.io/component": "audit-anchors"}


class KubeAnchors:
    """One ConfigMap of one namespace."""

    def __init__(self, kube: Kube, namespace: str, name: str) -> None:
        self._kube, self._name = kube, name
        self._collection = f"/api/v1/namespaces/{quote(namespace)}/configmaps"

    async def read(self) -> StoredAnchors | None:
        """What it holds, or None."""
        try:
            found = await self._kube.request("GET", f"{self._collection}/{quote(self._name)}")
        except Gone:
            return None
        except Refused as error:
            raise ClusterUnavailable(f"the ConfigMap {self._name} cannot be read: {error}") from error
        text = (found.get("data") or {}).get(KEY, "")
        return StoredAnchors(text, found["metadata"]["resourceVersion"])

    async def write(self, text: str, resource_version: str) -> None:
        """Create it, or change exactly that version of it."""
        metadata: dict[str, Any] = {"name": self._name, "labels": _LABELS}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {KEY: text}}
        try:
            if not resource_version:
                await self._kube.request("POST", self._collection, body=body)
                return
            metadata["resourceVersion"] = resource_version
            path = f"{self._collection}/{quote(self._name)}"
            await self._kube.request("PATCH", path, body=body, content_type=MERGE_PATCH)
        except Gone as error:
            raise Conflict(f"the ConfigMap {self._name} or its namespace is gone") from error
        except Refused as error:
            raise ClusterUnavailable(f"the ConfigMap {self._name} cannot be written: {error}") from error
