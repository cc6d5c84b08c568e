"""The outbound guard: outbound is an allowlist (DESIGN §5). Pure; the client enforces what it says at the socket.

`target` decides from names alone where a call would go and by which rule; `check_address` decides
on each address that the name resolves to, and the client dials that very address.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Protocol

from toolcrib.resources import credential_hosts
from toolcrib.wire.backends import PublishedBackend, PublishedProgram
from toolcrib_registry.outbound import addresses, hosts
from toolcrib_registry.outbound.errors import EgressRefused, HostNotAllowed, NoAddress

__all__ = [
    "EgressPolicy",
    "EgressRefused",
    "EgressRule",
    "PolicySource",
    "ReplaceablePolicy",
    "Target",
    "check_address",
    "check_url",
    "dns_name",
    "service_target",
    "target",
    "trusted",
]


_WITH_PORT = re.compile(r"(\[[^\]]*\]|[^:\[\]]*):([0-9]+)")
REMEMBERED = 4_096
"""Places of which it is remembered where their calls go. A refusal is not."""


class EgressRule(StrEnum):
    """By which rule an address is judged."""

    PUBLIC = "public"  # url: backends: allowlisted host, public unicast (and loopback where opened)
    SERVICE = "service"  # service: backends: the published cluster IP, in private or cluster ranges
    MAPPED = "mapped"  # --backend ns/service=host:port: exactly as the operator of the registry wrote it
    PROGRAM = "program"  # an MCP server that the local mode starts; nothing is dialled
    TRUSTED = "trusted"  # key servers, from the registry's own configuration


@dataclass(frozen=True, eq=False)
class EgressPolicy:
    """What may be reached. Fixed at start; equal only to itself, so that what it says of a place can be remembered.

    Attributes:
        allow: hosts and globs (`api.example.com`, `*.example.com`) that url: backends may name, each with a port
            (`api.example.com:8443`) or open on all of them. `*` also spans dots.
        loopback: url: backends may name loopback hosts (the local mode), without an entry in `allow`.
        forbidden: networks, addresses, `address:port`, or host names (`name.namespace.svc` is a Service) that nothing
            but `backends` may reach: the registry's, the store's and the API server's own. A host name also closes the
            addresses that it resolves to (`forbidden_hosts`, `check_address`).
        cluster: the cluster's service and pod ranges: closed to url: backends. Where set, Services are called there
            and nowhere else; else in any private range.
        backends: `namespace/service` → `host:port`, for a registry outside the cluster.
        cluster_domain: the cluster's DNS domain: Services have names under it.
        programs: `namespace/server` of ToolServers whose commands may be started; `*`: all. Never any but in the local mode.
    """

    allow: tuple[str, ...] = ()
    loopback: bool = False
    forbidden: tuple[str, ...] = ()
    cluster: tuple[str, ...] = ()
    backends: Mapping[str, str] = field(default_factory=dict)
    cluster_domain: str = "cluster.local"
    programs: Collection[str] = ()

    def __post_init__(self) -> None:
        """Read every entry now, so that a wrong one stops the start and not a call.

        Raises:
            ValueError: naming the entry.
        """
        try:
            object.__setattr__(self, "cluster_domain", hosts.canonical(self.cluster_domain))
        except EgressRefused as refused:
            raise ValueError(f"egress.cluster_domain {self.cluster_domain!r}: {refused.reason}") from None
        for text in self.allow:
            _entry(text)
        for text in self.forbidden:
            _name(text) or _rule(text)
        for text in self.cluster:
            _rule(text)
        for service, place in self.backends.items():
            try:
                hosts.split_host_port(place)
            except EgressRefused as refused:
                raise ValueError(f"backend {service}={place}: {refused.reason}") from None
            if service.count("/") != 1:
                raise ValueError(f"backend {service!r} is not namespace/service")

    @property
    def current(self) -> EgressPolicy:
        """Itself: a policy is the source of one that never changes."""
        return self

    @property
    def forbidden_names(self) -> tuple[str, ...]:
        """The host names of `forbidden` as they are asked of DNS: whole, with a final dot."""
        names = {name for text in self.forbidden if (name := _name(text)) is not None}
        return tuple(sorted(f"{n}.{self.cluster_domain}." if n.endswith(".svc") else f"{n}." for n in names))


class PolicySource(Protocol):
    """Says which policy is in effect. Ask it for each decision."""

    @property
    def current(self) -> EgressPolicy:
        """The policy in effect."""
        ...


class ReplaceablePolicy:
    """A policy of which the hosts that may be called change while it is used (the local mode's hosts file)."""

    def __init__(self, policy: EgressPolicy) -> None:
        self.current = policy

    def open(self, allow: tuple[str, ...], backends: Mapping[str, str]) -> None:
        """Take these in place of `allow` and `backends`; all else stays.

        Raises:
            ValueError: naming the entry that is wrong; nothing has changed.
        """
        self.current = replace(self.current, allow=allow, backends=backends)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request goes. `host` is named in the request, in TLS too; `names` are what a credential may list.

    `address` is the IP address that is dialled; None: whatever `host` resolves to, each address checked. `authority` is
    `host:port` as the Host header has it, the port left out where it is the scheme's own; `origin` is
    `scheme://host:port` of what is dialled. Requests with the same `pool` may share connections.
    """

    scheme: str
    host: str
    port: int
    path: str
    reach: EgressRule
    names: frozenset[str]
    address: str | None = None
    program: PublishedProgram | None = field(default=None, repr=False, hash=False)
    authority: str = field(init=False, repr=False, compare=False)
    origin: str = field(init=False, repr=False, compare=False)
    pool: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Written once: a place is remembered, and called again and again."""
        object.__setattr__(self, "authority", self._with_port(self.host))
        object.__setattr__(self, "origin", f"{self.scheme}://{self._with_port(self.address or self.host)}")
        object.__setattr__(self, "pool", f"{self.reach.value} {self.origin} {self.host}")

    def _with_port(self, host: str) -> str:
        host = f"[{host}]" if ":" in host else host
        return host if self.port == hosts.DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


def target(backend: PublishedBackend, *, namespace: str, policy: EgressPolicy) -> Target:
    """Where calls of a tool of `namespace` with this backend go.

    Raises:
        NoAddress: no address of the Service has been published.
        EgressRefused: the Service is of another namespace, the host is not allowed, or the address may not be dialled.
    """
    if backend.service_name is not None:
        return service_target(
            backend.service_name, backend.service_namespace, backend.service_port, backend.cluster_ip, backend.path,
            namespace, policy,
        )  # fmt: skip
    if backend.program is not None:
        return _program(backend.program, namespace, policy)
    if backend.url is None:
        raise EgressRefused("the backend names neither a service nor a url")
    return check_url(backend.url, policy)


@lru_cache(maxsize=REMEMBERED)
def check_url(url: str, policy: EgressPolicy) -> Target:
    """Where a url: backend goes, by its text; names are resolved and checked when they are dialled.

    Raises:
        EgressRefused: not a plain http(s) URL, a host that is not allowed, or an address that is not public.
    """
    place = hosts.split_url(url)
    _check_name(place.host, policy)
    literal = hosts.address(place.host)
    local = place.host == "localhost" or (literal is not None and addresses.is_loopback(literal))
    if not (local and policy.loopback) and not any(_allows(a, place) for a in policy.allow):
        raise HostNotAllowed(place.host, place.port)
    if literal is not None:
        check_address(str(literal), policy, port=place.port)
    elif place.host == "localhost" and not policy.loopback:
        raise EgressRefused("localhost is loopback")
    names = credential_hosts.of_url(place.scheme, place.host, place.port)
    return Target(place.scheme, place.host, place.port, place.path, EgressRule.PUBLIC, names)


def _program(program: PublishedProgram, namespace: str, policy: EgressPolicy) -> Target:
    server = program.server
    if server.partition("/")[0] != namespace or not {server, "*"} & set(policy.programs):
        raise EgressRefused(f"the command of ToolServer {server} may not be started here")
    return Target("http", server, 80, "/", EgressRule.PROGRAM, frozenset(), program=program)


def trusted(url: str) -> Target:
    """A place that the registry's own configuration names: an issuer's keys.

    Raises:
        EgressRefused: not a plain http(s) URL.
    """
    place = hosts.split_url(url)
    return Target(place.scheme, place.host, place.port, place.path, EgressRule.TRUSTED, frozenset())


def dns_name(host: str, reach: EgressRule) -> str:
    """The name to ask DNS for. With a final dot, so that no search list has a say in it.

    Otherwise, inside a cluster, `api.com` might be a Service `api` in a namespace `com`.

    Raises:
        EgressRefused: it is a Service; those are dialled at their published address and never looked up.
    """
    if reach is EgressRule.SERVICE:
        raise EgressRefused("a Service is only called at its published address")
    return f"{host}." if reach is EgressRule.PUBLIC and "." in host else host


def check_address(
    ip: str,
    policy: EgressPolicy,
    *,
    reach: EgressRule = EgressRule.PUBLIC,
    port: int | None = None,
    closed: Collection[addresses.Address] = (),
) -> None:
    """Accept the address for dialling, or say why not.

    Args:
        ip: an IP address.
        policy: the registry's own.
        reach: the rule by which it is judged.
        port: the port to be dialled; None: any.
        closed: what the policy's forbidden names resolve to.

    Raises:
        EgressRefused: with the kind of address it is.
    """
    if reach is EgressRule.MAPPED:
        return
    try:
        literal = ip_address(ip)
    except ValueError:
        raise EgressRefused("not an IP address") from None
    if reach is EgressRule.TRUSTED:
        # private is fine, the API server is; but a discovery document must not lead to a metadata service
        if (kind := addresses.special(literal)) is not None and ("link-local" in kind or "metadata" in kind):
            raise EgressRefused(f"{ip} is {kind}")
        return
    plain = addresses.unwrap(literal)
    if plain in closed or any(_name(t) is None and _covers(t, plain, port) for t in policy.forbidden):
        raise EgressRefused(f"{ip} belongs to the registry, its store or the API server")
    in_cluster = any(_covers(text, plain, port) for text in policy.cluster)
    kind = addresses.special(literal)
    if reach is EgressRule.SERVICE:
        never = kind is not None and ("link-local" in kind or kind in ("loopback", "metadata service"))
        if never or not (in_cluster or addresses.in_service_range(literal)):
            raise EgressRefused(f"a Service cannot have the address {ip} ({kind or 'public'})")
        if policy.cluster and not in_cluster:
            raise EgressRefused(f"{ip} is not in egress.cluster")
    elif in_cluster:
        raise EgressRefused(f"{ip} is in the cluster's own ranges; use a service backend")
    elif kind is not None and not (policy.loopback and kind == "loopback"):
        raise EgressRefused(f"{ip} is not a public address ({kind})")


@lru_cache(maxsize=REMEMBERED)
def service_target(
    name: str,
    of: str | None,
    port: int | None,
    cluster_ip: str | None,
    path: str,
    namespace: str,
    policy: EgressPolicy,
) -> Target:
    """Where requests to the Service `name` of namespace `of` go, on behalf of `namespace`: the same one, else nowhere.

    Raises:
        NoAddress: none has been published.
        EgressRefused: it is of another namespace, or its address may not be dialled.
    """
    if of != namespace or port is None:
        raise EgressRefused("a Service is only called for tools of its own namespace")
    dns = hosts.canonical(f"{name}.{namespace}.svc")
    names = credential_hosts.of_service(name, namespace, port, policy.cluster_domain)
    mapped = policy.backends.get(f"{namespace}/{name}")
    if mapped is not None:
        host, port = hosts.split_host_port(mapped)
        return Target("http", host, port, path, EgressRule.MAPPED, names)
    _check_name(dns, policy)
    if cluster_ip is None:
        raise NoAddress(namespace, name, port)
    check_address(cluster_ip, policy, reach=EgressRule.SERVICE, port=port)
    return Target("http", dns, port, path, EgressRule.SERVICE, names, address=cluster_ip)


def _allows(text: str, place: hosts.Location) -> bool:
    pattern, port = _entry(text)
    return port in (None, place.port) and pattern.fullmatch(place.host) is not None


@lru_cache(maxsize=1_024)
def _entry(text: str) -> tuple[re.Pattern[str], int | None]:
    """An entry of `allow`: a host, or a glob of hosts with `*` and `?`; and its port, None: any."""
    host, port = text.lower(), None
    try:
        if (parts := _WITH_PORT.fullmatch(host)) is not None:
            host, port = parts[1], int(parts[2])
            if not 0 < port <= 65_535:
                raise EgressRefused("the port is not a number from 1 to 65535")
        if "*" not in host and "?" not in host:
            host = hosts.canonical(host)
        else:
            hosts.canonical(host.replace("*", "a").replace("?", "a"))
    except EgressRefused as refused:
        raise ValueError(
            f"egress.allow {text!r}: {refused.reason}; write a host or a glob of hosts, with a port if only that is meant"
        ) from None
    return re.compile(re.escape(host).replace(r"\*", ".*").replace(r"\?", ".")), port


def _check_name(host: str, policy: EgressPolicy) -> None:
    """Refuse a host that `forbidden` names, also where either of them is written with the cluster's domain."""
    domain = f".{policy.cluster_domain}"
    short = host.removesuffix(domain)
    names = (_name(text) for text in policy.forbidden)
    if any(name is not None and name.removesuffix(domain) == short for name in names):
        raise EgressRefused(f"{host} belongs to the registry, its store or the API server")


@lru_cache(maxsize=256)
def _name(text: str) -> str | None:
    """The host name that an entry of `forbidden` is, None for the other forms."""
    try:
        host = hosts.canonical(text)
    except EgressRefused:
        return None
    # a name of one label is too easily a typing mistake for something else
    return host if hosts.address(host) is None and "." in host else None


@lru_cache(maxsize=256)
def _rule(text: str) -> tuple[addresses.Network, int | None]:
    """A network or address, or `address:port` / `[v6]:port`."""
    try:
        return ip_network(text, strict=False), None
    except ValueError:
        pass
    try:
        host, port = hosts.split_host_port(text)
        return ip_network(host), port
    except (ValueError, EgressRefused):
        raise ValueError(f"{text!r} is neither a network, an address nor address:port") from None


def _covers(text: str, ip: addresses.Address, port: int | None) -> bool:
    network, only_port = _rule(text)
    if network.version != ip.version or ip not in network:
        return False
    return only_port is None or port is None or only_port == port
