"""Imported Tools at the API server: server-side apply by a field manager of their own, and deletion.

What is taken over is decided here by uid, and by the admission policy `operator`: it lets the operator's account change
and delete a Tool only where a ToolServer controls it before and after.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from toolcrib_operator.adapters.kube import APPLY_PATCH, Kube, Refused
from toolcrib_operator.errors import ClusterUnavailable, Gone, Invalid
from toolcrib_operator.kinds.kind import Kind
from toolcrib_operator.kinds.table import KINDS
from toolcrib_operator.objects import Ref

MANAGER = "toolcrib-import"


class KubeApplier:
    """Writes objects as the port `Applier` says."""

    def __init__(self, kube: Kube, kinds: Iterable[Kind] = KINDS) -> None:
        self._kube = kube
        self._kinds = {kind.name: kind for kind in kinds}

    async def apply(self, manifest: Mapping[str, Any], *, uid: str | None) -> dict[str, Any]:
        """Apply it; fields that others wrote in the place of ours are ours again, their other fields stay."""
        metadata = manifest["metadata"]
        path = self._kinds[manifest["kind"]].path(metadata["namespace"], metadata["name"])
        # with a uid nothing is made and no other object of the name is touched
        body = {**manifest, "metadata": metadata | ({} if uid is None else {"uid": uid})}
        query = {"fieldManager": MANAGER, "force": "true", "fieldValidation": "Strict"}
        try:
            made: dict[str, Any] = await self._kube.request(
                "PATCH", path, query=query, body=body, content_type=APPLY_PATCH
            )
        except Refused as error:
            if error.status in (400, 413, 422):
                raise Invalid(error.message) from error
            raise ClusterUnavailable(f"the API server refused to write {path}: {error}") from error
        return made

    async def delete(self, ref: Ref, *, uid: str) -> None:
        """Delete it."""
        path = self._kinds[ref.kind].path(ref.namespace, ref.name)
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        try:
            await self._kube.request("DELETE", path, body=body)
        except Gone:
            return
        except Refused as error:
            raise ClusterUnavailable(f"the API server refused to delete {path}: {error}") from error
