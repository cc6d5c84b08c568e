"""Objects of the cluster: lists, metadata-only lists, and the compare-and-swap writes of statuses and finalizers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from pydantic_core import to_json

from toolcrib.resources import API_VERSION, admission
from toolcrib_operator.adapters.kube import MERGE_PATCH, Kube, Refused
from toolcrib_operator.errors import ClusterUnavailable, Gone, Invalid, NotListable
from toolcrib_operator.kinds.kind import Kind
from toolcrib_operator.kinds.model_key import MODEL_KEY
from toolcrib_operator.kinds.secret import SECRET
from toolcrib_operator.kinds.table import KINDS
from toolcrib_operator.objects import Entry, Ref, key_of
from toolcrib_operator.ports import Event, Listing, Written

METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_PAGE_BYTES = 256 << 10
"""Of a page of large objects: one of less is followed by one of twice as many, up to `Kind.most`; one of more by `Kind.page`."""


class Cluster:
    """Reads and writes objects as the ports say."""

    def __init__(
        self,
        kube: Kube,
        *,
        credential_namespaces: Sequence[str] | None = (),
        agent_namespaces: Sequence[str] = (),
        as_entries: bool = False,
        kinds: Iterable[Kind] = KINDS,
    ) -> None:
        """
        Args:
            kube: the API server.
            credential_namespaces: those whose labelled Secrets are listed; None means all namespaces.
            agent_namespaces: those whose Secrets with model keys are listed.
            as_entries: Tools are listed as the `World` keeps them, which takes a fraction of the manifests' memory.
            kinds: all that there are.
        """
        self._kube = kube
        self._kinds = {kind.name: kind for kind in kinds}
        self._as_entries = as_entries
        self._within = {SECRET: credential_namespaces, MODEL_KEY: agent_namespaces}
        self._policies_held: Sequence[Mapping[str, Any]] = ()
        self._policies_at: set[tuple[str, str, str]] | None = None

    async def list(self, kind: str) -> Listing:
        """All objects of a kind, as it says; of one that is not watched (Secrets) those of its namespaces."""
        one = self._kinds[kind]
        query = {"labelSelector": one.selector} if one.selector else {}
        accept = METADATA_ONLY if one.bare else "application/json"
        namespaces = self._within.get(kind)
        if one.watched or namespaces is None:
            return await self._pages(kind, one.path(), query, accept, one)
        found: list[dict[str, Any]] = []
        problems = []
        for namespace in namespaces:
            try:
                found += (await self._pages(kind, one.path(namespace), query, accept, one)).objects
            except NotListable as error:  # its tools lack a credential; no others are touched
                problems.append(f"namespace {namespace}: {error}")
        return Listing(found, "", "; ".join(problems))

    async def versions(self, kind: str) -> dict[str, str]:
        """Key to resourceVersion, by a metadata-only list."""
        one = self._kinds[kind]
        listing = await self._pages(kind, one.path(), {}, METADATA_ONLY, one)
        return {key_of(o): o["metadata"]["resourceVersion"] for o in listing.objects}

    async def policies(self) -> Sequence[Mapping[str, Any]]:
        """Admission policies and their bindings that are labelled as ours; specs are read where a version is new."""
        if {_versioned(item) for item in await self._policies(METADATA_ONLY)} != self._policies_at:
            self._policies_held = await self._policies("application/json")
            self._policies_at = {_versioned(item) for item in self._policies_held}
        return self._policies_held

    async def _policies(self, accept: str) -> Sequence[Mapping[str, Any]]:
        found: list[dict[str, Any]] = []
        query = {"labelSelector": f"{admission.LABEL}={admission.PART_OF}"}
        for kind, plural in admission.PLURALS.items():
            path = f"/apis/{admission.API_VERSION}/{plural}"
            listing = await self._pages(kind, path, query, accept, Kind(), seconds=3)
            found += [item | {"kind": kind} for item in listing.objects]
        return found

    async def write_status(self, ref: Ref, *, resource_version: str, status: Mapping[str, Any]) -> Written:
        """Merge-patch `/status`, and nothing but the status."""
        body = {"metadata": {"resourceVersion": resource_version}, "status": dict(status)}
        return await self._patch(f"{self._object(ref)}/status", body)

    async def write_finalizers(
        self, ref: Ref, *, resource_version: str, finalizers: Sequence[str]
    ) -> Written:
        """Merge-patch the finalizers, and nothing else."""
        body = {"metadata": {"resourceVersion": resource_version, "finalizers": list(finalizers)}}
        return await self._patch(self._object(ref), body)

    async def create(self, kind: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Create one object of our kinds; unknown fields are refused. Never changes one that is there."""
        path = self._kinds[kind].path(manifest["metadata"].get("namespace"))
        query = {"fieldValidation": "Strict"}
        try:
            made: dict[str, Any] = await self._kube.request("POST", path, query=query, body=dict(manifest))
        except Refused as error:
            if error.status in (400, 422):
                raise Invalid(error.message) from error
            raise ClusterUnavailable(f"the API server refused POST {path}: {error}") from error
        return made

    async def write_event(self, event: Event) -> None:
        """Create a core Event; those of cluster objects stand in `default`, where `kubectl describe` looks."""
        at = datetime.fromtimestamp(event.at, UTC)
        stamp = at.strftime("%Y-%m-%dT%H:%M:%SZ")
        namespace = event.ref.namespace or "default"
        name = f"{event.ref.name[:200]}.{int(event.at * 1e9):x}"
        involved = {
            "apiVersion": API_VERSION,
            "kind": event.ref.kind,
            "name": event.ref.name,
            "uid": event.uid,
        }
        body = {
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": involved | ({"namespace": event.ref.namespace} if event.ref.namespace else {}),
            "type": event.type,
            "reason": event.reason,
            "message": event.message,
            "source": {"component": "toolcrib-operator"},
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }
        await self._write("POST", f"/api/v1/namespaces/{quote(namespace)}/events", body, "application/json")

    async def _kept(self, kind: Kind, items: Sequence[dict[str, Any]]) -> Iterable[Any]:
        """What is kept of a page."""
        if _is_large(kind) and self._as_entries:
            return await asyncio.to_thread(lambda: [kind.read(item) for item in items])
        return map(kind.compact, items)

    def _object(self, ref: Ref) -> str:
        return self._kinds[ref.kind].path(ref.namespace, ref.name)

    async def _patch(self, path: str, body: Any) -> Written:
        answer = await self._write("PATCH", path, body, MERGE_PATCH)
        metadata = answer["metadata"]
        finalizers = tuple(metadata.get("finalizers") or ())
        return Written(metadata["resourceVersion"], answer.get("status") or {}, finalizers)

    async def _write(self, method: str, path: str, body: Any, content_type: str) -> Any:
        try:
            return await self._kube.request(method, path, body=body, content_type=content_type)
        except Refused as error:
            raise ClusterUnavailable(f"the API server refused {method} {path}: {error}") from error

    async def _pages(
        self, name: str, path: str, query: Mapping[str, str], accept: str, kind: Kind, *, seconds: float = 30
    ) -> Listing:
        found: list[Any] = []
        token = ""
        limit = kind.page
        while True:
            page = dict(query) | {"limit": str(limit)} | ({"continue": token} if token else {})
            try:
                answer = await self._kube.request("GET", path, query=page, accept=accept, seconds=seconds)
            except Gone as error:
                raise NotListable(f"{name} is not known to the API server{kind.absent}") from error
            except Refused as error:
                if error.status == 410 and token:  # the snapshot of the pages has gone: begin again
                    found, token = [], ""
                    continue
                raise NotListable(f"{name} cannot be listed: {error}") from error
            if not isinstance(answer, dict) or not isinstance(answer.get("metadata"), dict):
                raise NotListable(
                    f"{name} cannot be listed: the response is not a Kubernetes list; check the address of the API server"
                )
            items = answer.pop("items", None) or []
            # a page at a time: the endpoints of a large cluster do not fit into memory
            if accept == METADATA_ONLY:
                size = len(to_json(items)) if _is_large(kind) else 0
                kept: list[Any] = [_bare(item) for item in items]
            else:
                kept = list(await self._kept(kind, items))
                size = sum(entry.size for entry in kept if isinstance(entry, Entry))
            del items  # the next page is parsed before this one would go
            found += kept
            if size:
                limit = kind.page if size > _PAGE_BYTES else min(2 * limit, kind.most)
            token = answer["metadata"].get("continue") or ""
            if not token:
                return Listing(found, answer["metadata"].get("resourceVersion") or "")


def _bare(item: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of an object without its managedFields: of a large Tool these are larger than its spec."""
    return {**item, "metadata": {k: v for k, v in item["metadata"].items() if k != "managedFields"}}


def _versioned(manifest: Mapping[str, Any]) -> tuple[str, str, str]:
    metadata = manifest["metadata"]
    return manifest["kind"], metadata["uid"], metadata["resourceVersion"]


def _is_large(kind: Kind) -> bool:
    """Whether pages follow the size of what is in them."""
    return kind.page < kind.most
