"""What calls may reach: the registry's own servers, wherever the settings put them, are never among it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from toolcrib_registry.outbound.guard import EgressPolicy
from toolcrib_registry.settings_limits import CounterStore
from toolcrib_registry.settings_sections import Egress, Store


def policy(egress: Egress, store: Store, counters: CounterStore, backends: Mapping[str, str]) -> EgressPolicy:
    """The egress policy of these settings.

    Raises:
        ValueError: an entry is wrong.
    """
    return EgressPolicy(
        allow=egress.allow,
        loopback=egress.loopback,
        forbidden=(*egress.forbidden, *of_store(store), *of_counters(counters)),
        cluster=egress.cluster,
        backends=backends,
        cluster_domain=egress.cluster_domain,
    )


def of_store(settings: Store) -> tuple[str, ...]:
    """The search index, as entries of `egress.forbidden`."""
    if settings.kind == "embedded":
        return ()
    places = ((settings.host, settings.http_port), (settings.grpc_host or settings.host, settings.grpc_port))
    return tuple(entry for host, port in places for entry in _closed(host, port))


def of_counters(settings: CounterStore) -> tuple[str, ...]:
    """The store of counters, likewise."""
    if settings.kind == "memory" or settings.url is None:
        return ()
    parts = urlsplit(settings.url)
    return tuple(_closed(parts.hostname or "", parts.port or 6379))


def _closed(host: str, port: int) -> Iterator[str]:
    name = host.lower().removesuffix(".")
    if ":" in host:
        yield f"[{host.strip('[]')}]:{port}"
    elif name.replace(".", "").isdigit():
        yield f"{name}:{port}"
    elif name == "localhost":
        yield from (f"127.0.0.1:{port}", f"[::1]:{port}")
    elif "." in name:  # any other single label is found by a search list, which calls do not use
        yield name
        if name.count(".") == 1:  # by a search list this may be a Service and its namespace
            yield f"{name}.svc"
