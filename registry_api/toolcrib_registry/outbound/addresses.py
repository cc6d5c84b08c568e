"""Which IP addresses are public unicast, by an explicit table.

Sources: the IANA IPv4 and IPv6 Special-Purpose Address Registries (RFC 6890, RFC 8190; as of 2026), RFC 4291
(mapped, compatible), RFC 6052 and RFC 8215 (NAT64), RFC 3056 (6to4), RFC 4380 (Teredo), RFC 5214 (ISATAP), RFC 3879
(site-local), RFC 9637 (3fff::/20), RFC 9602 (5f00::/16), and the vendors' pages for metadata addresses. Python's
`is_global` is not used: it has let multicast, IPv4 within IPv6 and newer registrations through.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_V4: tuple[tuple[IPv4Network, str], ...] = tuple(
    (IPv4Network(text), what)
    for text, what in (
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared (CGNAT)"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved for protocols"),
        ("192.0.2.0/24", "documentation"),
        ("192.88.99.0/24", "6to4 relay"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "benchmarking"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("255.255.255.255/32", "broadcast"),
        ("240.0.0.0/4", "reserved"),
    )
)
_V6: tuple[tuple[IPv6Network, str], ...] = tuple(
    (IPv6Network(text), what)
    for text, what in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("::/96", "IPv4-compatible"),
        ("::ffff:0:0:0/96", "IPv4-translated"),
        ("64:ff9b:1::/48", "local NAT64"),
        ("100::/64", "discard"),
        ("100:0:0:1::/64", "dummy prefix"),
        ("2001::/32", "Teredo"),
        ("2001::/23", "reserved for protocols"),
        ("2001:db8::/32", "documentation"),
        ("2002::/16", "6to4"),
        ("3fff::/20", "documentation"),
        ("5f00::/16", "segment routing"),
        ("fc00::/7", "unique local"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
    )
)
_GLOBAL_V6 = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
_SERVICE_RANGES: tuple[Network, ...] = (
    IPv4Network("10.0.0.0/8"),
    IPv4Network("172.16.0.0/12"),
    IPv4Network("192.168.0.0/16"),
    IPv6Network("fc00::/7"),
)
_METADATA: frozenset[Address] = frozenset({
    IPv4Address("169.254.169.254"),  # AWS, Azure, GCP, OpenStack and others
    IPv4Address("169.254.170.2"),  # AWS ECS
    IPv4Address("169.254.170.23"),  # AWS EKS pod identity
    IPv4Address("168.63.129.16"),  # Azure WireServer: in a public range
    IPv4Address("100.100.100.200"),  # Alibaba
    IPv4Address("192.0.0.192"),  # Oracle
    IPv6Address("fd00:ec2::254"),  # AWS
    IPv6Address("fd00:ec2::23"),  # AWS EKS pod identity
    IPv6Address("fd20:ce::254"),  # GCP
})  # fmt: skip


def unwrap(address: Address) -> Address:
    """The IPv4 address that an IPv6 form delivers to (mapped, NAT64), else the address itself."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def special(address: Address) -> str | None:
    """What makes the address other than public unicast (`loopback`, `private`, …); None for a public one."""
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        return "link-local (zone id)"
    address = unwrap(address)
    if address in _METADATA:
        return "metadata service"
    if isinstance(address, IPv4Address):
        return next((what for network, what in _V4 if address in network), None)
    found = next((what for network, what in _V6 if address in network), None)
    if found is None and address not in _GLOBAL_V6:
        return "not global unicast"
    if found is None and (int(address) >> 32) & 0xFDFFFFFF == 0x5EFE:
        return "ISATAP"
    return found


def in_service_range(address: Address) -> bool:
    """Whether a Service or a pod may have it: RFC 1918 or unique local, and no metadata service."""
    if isinstance(address, IPv6Address) and (address.scope_id is not None or unwrap(address) != address):
        return False
    return address not in _METADATA and any(
        address.version == network.version and address in network for network in _SERVICE_RANGES
    )


def is_loopback(address: Address) -> bool:
    """127.0.0.0/8 and ::1, however spelled."""
    return special(address) == "loopback"
