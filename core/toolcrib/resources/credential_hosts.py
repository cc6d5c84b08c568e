"""How the annotation `toolcrib.dev/hosts` of a backend's Secret may name the place that its value goes to. Pure.

For a URL a host alone means https on port 443: a credential that was meant for a provider's API must not go out in
plain text, or to whatever else listens on that host. Other ports, and http, are written out. An entry with a path allows
no backend: it is a token endpoint, the only one of its host that a server's metadata may name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

HOSTS = "toolcrib.dev/hosts"
"""The annotation of a Secret that lists where its values may go."""
_DEFAULTS = {"http": 80, "https": 443}


def of_url(scheme: str, host: str, port: int) -> frozenset[str]:
    """Every entry that allows a `url:` backend: `host` and `host:port` for https, `scheme://host[:port]` for both.

    The host is in lower case, an IPv6 address without brackets; entries have them.
    """
    host = f"[{host}]" if ":" in host else host
    places = {f"{host}:{port}"} | ({host} if port == _DEFAULTS[scheme] else set())
    return frozenset({f"{scheme}://{place}" for place in places} | (places if scheme == "https" else set()))


def of_endpoint(scheme: str, host: str, port: int, path: str) -> frozenset[str]:
    """Every entry that allows a token endpoint which metadata names: that URL, port and `https://` written out or not."""
    return (
        frozenset(f"{place}{path}" for place in of_url(scheme, host, port))
        if path.strip("/")
        else frozenset()
    )


def of_address(text: str) -> frozenset[str]:
    """`of_url` of an http or https address; empty where it is none."""
    try:
        url = urlsplit(text)
        host, port = url.hostname, url.port or (443 if url.scheme == "https" else 80)
    except ValueError:
        return frozenset()
    return of_url(url.scheme, host.removesuffix("."), port) if host else frozenset()


def of_service(name: str, namespace: str, port: int, domain: str = "cluster.local") -> frozenset[str]:
    """Every entry that allows a `service:` backend: the Service's names, which mean the port that the Tool names.

    Not `name.namespace`: in a namespace `dev` or `com` that is a domain of somebody else's.
    """
    full = f"{name}.{namespace}.svc"
    names = (name, full, f"{full}.{domain}")
    return frozenset({*names, *(f"{n}:{port}" for n in names)})


def listed(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """The entries of a Secret's annotation, as they are written."""
    return tuple(annotations.get(HOSTS, "").replace(",", " ").split())


def entries(written: Iterable[str]) -> frozenset[str]:
    """The entries of an annotation in the spelling of `of_url`, `of_endpoint` and `of_service`: only paths have upper case."""
    return frozenset(map(_entry, written))


def _entry(written: str) -> str:
    scheme, slashes, rest = written.strip().rpartition("://")
    host, slash, path = rest.partition("/")
    place = f"{scheme}{slashes}{host}".lower().removesuffix(".")
    return f"{place}{slash}{path}" if path else place
