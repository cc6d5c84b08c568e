"""Objects of the cluster: lists, metadata-only lists, and the compare-and-swap writes of statuses and finalizers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from pydantic_core import to_json

from toolcrib.resources import API_VERSION, GROUP, KINDS, VERSION, admission
from toolcrib_operator.adapters.kube import MERGE_PATCH, Kube, Refused
from toolcrib_operator.errors import ClusterUnavailable, Gone, Invalid, NotListable
from toolcrib_operator.kinds.credential import LABEL
from toolcrib_operator.ports import Event, Listing, Written
from toolcrib_operator.service_facts import compact_slice
from toolcrib_operator.world import (
    ENDPOINT_SLICE,
    NAMESPACE,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    Entry,
    Ref,
    entry_of,
    key_of,
)

METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
PAGE = 10
"""Tools of the first answer: a page is parsed at once, and a Tool of 100 KB, with its managedFields, may take 4 MB then."""
_MOST = 500
"""Other objects of one answer."""
_MOST_TOOLS = 160
_PAGE_BYTES = 256 << 10
"""Of a page of Tools: one of less is followed by one of twice as many, up to `_MOST_TOOLS`; one of more by `PAGE`."""


class Cluster:
    """Reads and writes objects as the ports say."""

    def __init__(
        self, kube: Kube, *, credential_namespaces: Sequence[str] | None = (), as_entries: bool = False
    ) -> None:
        """
        Args:
            kube: the API server.
            credential_namespaces: those whose labelled Secrets are listed; None means all namespaces.
            as_entries: Tools are listed as the `World` keeps them, which takes a fraction of the manifests' memory.
        """
        self._kube = kube
        self._as_entries = as_entries
        self._credential_namespaces = credential_namespaces
        self._policies_held: Sequence[Mapping[str, Any]] = ()
        self._policies_at: set[tuple[str, str, str]] | None = None

    async def list(self, kind: str) -> Listing:
        """All objects of a kind; of Secrets the labelled ones of the credential namespaces, of ServiceAccounts the metadata,
        of EndpointSlices what `compact_slice` keeps."""
        if kind == SERVICE_ACCOUNT:
            return await self._pages(kind, _collection(kind), {}, METADATA_ONLY)
        if kind != SECRET:
            return await self._pages(kind, _collection(kind), {}, "application/json")
        if self._credential_namespaces is None:
            return await self._pages(kind, "/api/v1/secrets", _SELECTED, "application/json")
        found: list[dict[str, Any]] = []
        problems = []
        for namespace in self._credential_namespaces:
            path = f"/api/v1/namespaces/{quote(namespace)}/secrets"
            try:
                found += (await self._pages(kind, path, _SELECTED, "application/json")).objects
            except NotListable as error:  # its tools lack a credential; no others are touched
                problems.append(f"namespace {namespace}: {error}")
        return Listing(found, "", "; ".join(problems))

    async def versions(self, kind: str) -> dict[str, str]:
        """Key to resourceVersion, by a metadata-only list."""
        listing = await self._pages(kind, _collection(kind), {}, METADATA_ONLY)
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
            listing = await self._pages(kind, path, query, accept, seconds=3)
            found += [item | {"kind": kind} for item in listing.objects]
        return found

    async def write_status(self, ref: Ref, *, resource_version: str, status: Mapping[str, Any]) -> Written:
        """Merge-patch `/status`, and nothing but the status."""
        body = {"metadata": {"resourceVersion": resource_version}, "status": dict(status)}
        return await self._patch(f"{_object(ref)}/status", body)

    async def write_finalizers(
        self, ref: Ref, *, resource_version: str, finalizers: Sequence[str]
    ) -> Written:
        """Merge-patch the finalizers, and nothing else."""
        body = {"metadata": {"resourceVersion": resource_version, "finalizers": list(finalizers)}}
        return await self._patch(_object(ref), body)

    async def create(self, kind: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Create one object of our kinds; unknown fields are refused. Never changes one that is there."""
        ours = KINDS[kind]
        within = f"/namespaces/{quote(manifest['metadata']['namespace'])}" if ours.namespaced else ""
        path, query = f"/apis/{GROUP}/{VERSION}{within}/{ours.plural}", {"fieldValidation": "Strict"}
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

    async def _kept(self, kind: str, items: Sequence[dict[str, Any]]) -> Iterable[Any]:
        """What is kept of a page."""
        if kind == ENDPOINT_SLICE:
            return map(compact_slice, items)
        if kind == "Tool" and self._as_entries:
            return await asyncio.to_thread(lambda: [entry_of(kind, item) for item in items])
        return items

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
        self, kind: str, path: str, query: Mapping[str, str], accept: str, *, seconds: float = 30
    ) -> Listing:
        found: list[Any] = []
        token = ""
        limit = PAGE if kind == "Tool" else _MOST
        while True:
            page = dict(query) | {"limit": str(limit)} | ({"continue": token} if token else {})
            try:
                answer = await self._kube.request("GET", path, query=page, accept=accept, seconds=seconds)
            except Gone as error:
                hint = " (is the CRD installed? kubectl apply -f crds/)" if kind in KINDS else ""
                raise NotListable(f"{kind} is not known to the API server{hint}") from error
            except Refused as error:
                if error.status == 410 and token:  # the snapshot of the pages has gone: begin again
                    found, token = [], ""
                    continue
                raise NotListable(f"{kind} cannot be listed: {error}") from error
            if not isinstance(answer, dict) or not isinstance(answer.get("metadata"), dict):
                raise NotListable(f"{kind} cannot be listed: what answers is no API server")
            items = answer.pop("items", None) or []
            # a page at a time: the endpoints of a large cluster do not fit into memory
            if accept == METADATA_ONLY:
                size = len(to_json(items)) if kind == "Tool" else 0
                kept: list[Any] = [_bare(item) for item in items]
            else:
                kept = list(await self._kept(kind, items))
                size = sum(entry.size for entry in kept if isinstance(entry, Entry))
            del items  # the next page is parsed before this one would go
            found += kept
            if size:
                limit = PAGE if size > _PAGE_BYTES else min(2 * limit, _MOST_TOOLS)
            token = answer["metadata"].get("continue") or ""
            if not token:
                return Listing(found, answer["metadata"].get("resourceVersion") or "")


def _bare(item: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of an object without its managedFields: of a large Tool these are larger than its spec."""
    return {**item, "metadata": {k: v for k, v in item["metadata"].items() if k != "managedFields"}}


def _versioned(manifest: Mapping[str, Any]) -> tuple[str, str, str]:
    metadata = manifest["metadata"]
    return manifest["kind"], metadata["uid"], metadata["resourceVersion"]


_SELECTED = {"labelSelector": f"{LABEL}=true"}


def _collection(kind: str) -> str:
    if kind == NAMESPACE:
        return "/api/v1/namespaces"
    if kind == SERVICE_ACCOUNT:
        return "/api/v1/serviceaccounts"
    if kind == SERVICE:
        return "/api/v1/services"
    if kind == ENDPOINT_SLICE:
        return "/apis/discovery.k8s.io/v1/endpointslices"
    return f"/apis/{GROUP}/{VERSION}/{KINDS[kind].plural}"


def _object(ref: Ref) -> str:
    within = f"/namespaces/{quote(ref.namespace)}" if ref.namespace else ""
    return f"/apis/{GROUP}/{VERSION}{within}/{KINDS[ref.kind].plural}/{quote(ref.name)}"
