"""Which Host and Origin headers are answered."""

from __future__ import annotations

from toolcrib_registry.http.problems import ProblemError
from toolcrib_registry.settings import RegistrySettings


class HostRules:
    """Which Host and Origin headers are answered (against DNS rebinding and foreign pages)."""

    def __init__(self, settings: RegistrySettings) -> None:
        names = {h.lower() for h in settings.allowed_hosts} | {settings.public_host.lower()}
        names.add(_name_of(settings.own_url.partition("://")[2].lower()))
        self._any = "*" in names
        self._domains = tuple(n[1:] for n in names if n.startswith("*."))
        self._hosts = frozenset(n for n in names if not n.startswith("*."))
        self._origins = frozenset(o.lower().rstrip("/") for o in settings.allowed_origins)

    def check(self, hosts: list[bytes], origins: list[bytes]) -> ProblemError | None:
        """What is wrong with them, if anything."""
        host = hosts[0].decode("latin-1").lower() if len(hosts) == 1 else ""
        if not self._any and not self._serves(_name_of(host)):
            return ProblemError(
                "wrong_host",
                "The Host header names a host that this registry does not serve. Add it to allowed_hosts.",
            )
        if len(origins) > 1:
            return ProblemError("origin_refused", "Send at most one Origin header.")
        for origin in origins:
            text = origin.decode("latin-1").lower().rstrip("/")
            if text not in self._origins and text not in (f"http://{host}", f"https://{host}"):
                return ProblemError("origin_refused", "Origin not allowed. Add it to allowed_origins.")
        return None

    def _serves(self, name: str) -> bool:
        """Whether the name is one of ours, or below a domain of ours: `*.…`, as Gateways and Ingresses have it."""
        return name in self._hosts or (name.endswith(self._domains) and not name.startswith((".", "*")))


def _name_of(host: str) -> str:
    """The host without its port; IPv6 in brackets."""
    if host.startswith("["):
        return host[: host.find("]") + 1]
    return host.rsplit(":", 1)[0].rstrip(".")
