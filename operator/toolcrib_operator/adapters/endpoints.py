"""Where the registry's replicas are: a fixed list of URLs, or the EndpointSlices of a Service, ready or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from urllib.parse import quote

from toolcrib_operator.adapters.kube import Kube, Refused
from toolcrib_operator.errors import ClusterUnavailable, Gone, ReplicasUnknown
from toolcrib_operator.ports import Replica

Make = Callable[[str], Replica]


class UrlReplicas:
    """Replicas at fixed admin URLs."""

    def __init__(self, urls: Sequence[str], make: Make) -> None:
        self._replicas = [make(url.rstrip("/")) for url in urls]

    async def current(self) -> Sequence[Replica]:
        """All of them."""
        return self._replicas


class ServiceReplicas:
    """Every address in the EndpointSlices of a Service; not-ready ones too: a replica needs policy to get ready."""

    def __init__(self, kube: Kube, service: str, port: int, make: Make, *, scheme: str = "http") -> None:
        """`service` is `namespace/name`."""
        namespace, name = service.split("/", 1)
        self._path = f"/apis/discovery.k8s.io/v1/namespaces/{quote(namespace)}/endpointslices"
        self._query = {"labelSelector": f"kubernetes.io/service-name={name}"}
        self._kube, self._port, self._scheme, self._make = kube, port, scheme, make
        self._replicas: dict[str, Replica] = {}

    async def current(self) -> Sequence[Replica]:
        """All of them."""
        try:
            answer = await self._kube.request("GET", self._path, query=self._query)
        except (ClusterUnavailable, Gone, Refused) as error:
            raise ReplicasUnknown(f"the EndpointSlices cannot be listed: {error}") from error
        urls = set()
        for item in answer.get("items") or ():
            for endpoint in item.get("endpoints") or ():
                for address in endpoint.get("addresses") or ():
                    host = f"[{address}]" if ":" in address else address
                    urls.add(f"{self._scheme}://{host}:{self._port}")
        self._replicas = {url: self._replicas.get(url) or self._make(url) for url in sorted(urls)}
        return list(self._replicas.values())
