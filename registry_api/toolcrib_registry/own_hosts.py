"""Where the registry's own servers are, as entries of `egress.forbidden`: no tool's backend may be there."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from toolcrib_registry.settings_sections import CounterStore, Store


def of_store(settings: Store) -> tuple[str, ...]:
    """The search index."""
    if settings.kind == "embedded":
        return ()
    places = ((settings.host, settings.http_port), (settings.grpc_host or settings.host, settings.grpc_port))
    return tuple(entry for host, port in places for entry in _closed(host, port))


def of_counters(settings: CounterStore) -> tuple[str, ...]:
    """The store of counters."""
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
