"""Deployments and Jobs of Agents at the API server: server-side apply for the first, creation for the second; deletion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from toolcrib_operator.adapters.kube import APPLY_PATCH, Kube, Refused
from toolcrib_operator.errors import ClusterUnavailable, Conflict, Gone, Invalid, NotListable
from toolcrib_operator.objects import Ref
from toolcrib_operator.workloads.names import MANAGER, SELECTOR

_PLACES = {"Deployment": ("apps/v1", "deployments"), "Job": ("batch/v1", "jobs")}
_PAGE = "200"
_NOISE = "managedFields"


class KubeWorkloads:
    """Reads and writes workloads as the port `Workloads` says."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def there(self, namespace: str) -> Sequence[Mapping[str, Any]]:
        """Those with our labels, of both kinds."""
        found: list[dict[str, Any]] = []
        for kind, (version, _) in _PLACES.items():
            token = ""
            while True:
                query = {"labelSelector": SELECTOR, "limit": _PAGE} | ({"continue": token} if token else {})
                try:
                    answer = await self._kube.request("GET", _path(kind, namespace), query=query)
                except (Gone, Refused) as error:
                    raise NotListable(f"{kind}s of {namespace} cannot be listed: {error}") from error
                for item in answer.get("items") or ():
                    item["metadata"].pop(_NOISE, None)
                    found.append({**item, "apiVersion": version, "kind": kind})
                token = answer["metadata"].get("continue") or ""
                if not token:
                    break
        return found

    async def apply(self, manifest: Mapping[str, Any], *, uid: str | None) -> dict[str, Any]:
        """A Deployment without a `uid` conflicts with one that is there: our fields would be somebody else's."""
        metadata, kind = manifest["metadata"], manifest["kind"]
        place = _path(kind, metadata["namespace"])
        query = {"fieldManager": MANAGER, "fieldValidation": "Strict"}
        method, path, content_type, body = "POST", place, "application/json", dict(manifest)
        if kind == "Deployment":
            method, path, content_type = "PATCH", f"{place}/{quote(metadata['name'])}", APPLY_PATCH
            query["force"] = "false" if uid is None else "true"
            body["metadata"] = metadata | ({} if uid is None else {"uid": uid})
        try:
            made: dict[str, Any] = await self._kube.request(
                method, path, query=query, body=body, content_type=content_type
            )
        except Refused as error:
            if error.status == 422 and "metadata.uid: " in error.message:  # of another object
                raise Conflict(error.message) from error
            if error.status in (400, 413, 422):
                raise Invalid(error.message) from error
            raise ClusterUnavailable(
                f"the API server refused to write {kind} {metadata['name']}: {error}"
            ) from error
        made["metadata"].pop(_NOISE, None)
        return made

    async def delete(self, ref: Ref, *, uid: str) -> None:
        """Delete it, and its pods after it."""
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Background",
        }
        try:
            await self._kube.request(
                "DELETE", f"{_path(ref.kind, ref.namespace or '')}/{quote(ref.name)}", body=body
            )
        except Gone:
            return
        except Refused as error:
            raise ClusterUnavailable(f"the API server refused to delete {ref}: {error}") from error


def _path(kind: str, namespace: str) -> str:
    version, plural = _PLACES[kind]
    return f"/apis/{version}/namespaces/{quote(namespace)}/{plural}"
