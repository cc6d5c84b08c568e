"""The outbound guard: which hosts and addresses may be reached, however they are spelled."""

from ipaddress import IPv4Address, IPv6Address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.wire.backends import PublishedBackend
from toolcrib_registry import own_hosts
from toolcrib_registry.outbound import hosts
from toolcrib_registry.outbound.errors import EgressRefused, NoAddress
from toolcrib_registry.outbound.guard import (
    EgressPolicy,
    EgressRule,
    check_address,
    check_url,
    dns_name,
    target,
)
from toolcrib_registry.settings_sections import Store

OPEN = EgressPolicy(allow=("*",))
"""Every host is allowed, so that only the address decides."""

_SPELLINGS = """
127.0.0.1 127.1 127.0.1 2130706433 0x7f000001 0x7f.1 0177.0.0.1 0x7f.0x0.0x0.0x1 017700000001 127.0.0.1. 127.00.0.1
localhost LOCALHOST localhost. 127.255.255.254 0 0.0.0.0 0x0 00.0.0.0
10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 3232235777 0xc0a80101 0300.0250.0.1
169.254.169.254 169.254.170.2 0xa9fea9fe 2852039166 100.100.100.200 168.63.129.16 192.0.0.192
100.64.0.1 100.127.255.255 192.0.2.1 198.51.100.7 203.0.113.9 198.18.0.1 198.19.255.255 192.88.99.1
224.0.0.1 239.255.255.250 240.0.0.1 255.255.255.255
[::1] [::] [0:0:0:0:0:0:0:1] [::ffff:127.0.0.1] [::ffff:7f00:1] [::ffff:10.0.0.1] [::ffff:169.254.169.254]
[::127.0.0.1] [::7f00:1] [::ffff:0:127.0.0.1] [64:ff9b::127.0.0.1] [64:ff9b::7f00:1] [64:ff9b::a9fe:a9fe]
[64:ff9b:1::1] [2002:7f00:1::] [2002:a00:1::1] [2001:0:7f00:1::] [2001::1] [2001:db8::1] [3fff::1] [5f00::1]
[fe80::1] [fe80::1%25eth0] [febf::1] [fec0::1] [fc00::1] [fd00:ec2::254] [fd20:ce::254] [ff02::1] [100::1]
[2001:10::1] [2001:20::1] [2606:4700::5efe:7f00:1] [2606:4700::200:5efe:10.0.0.1] [4000::1] [1::1] [::1%lo]
"""
FORBIDDEN_HOSTS = _SPELLINGS.split()

UNREADABLE = [
    "http://127.0.0.1%2f@example.com/",
    "http://user@example.com/",
    "http://user:pass@127.0.0.1/",
    "http://exam%70le.com/",
    "http://%31%32%37.0.0.1/",
    "http://example.com\\@127.0.0.1/",
    "http://example.com#@127.0.0.1/",
    "http://example.com/#f",
    "http://①②⑦.0.0.1/",
    "http://１２７.0.0.1/",
    "http://exämple.com/",
    "http://example。com/",
    "http://[::1/",
    "http://::1/",
    "http://1.2.3.4.5/",
    "http://256.1.1.1/",
    "http://1.2.3/",
    "http://example.0x7f/",
    "http://example.com:0/",
    "http://example.com:65536/",
    "http://example.com:٨٠/",
    "http://example.com:80:80/",
    "http:///path",
    "http://.example.com/",
    "http://example..com/",
    "http://-example.com/",
    "http://exam\tple.com/",
    "http://example.com/a b",
    "http://example.com/\r\nX: y",
    " http://example.com/",
    "http://example.com/\n",
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:70/_",
    "//example.com/",
    "http:example.com",
    "http://[v1.x]/",
    "http://[fe80::1%25lo]/",
    f"http://{'a' * 64}.com/",
    f"http://{'a.' * 130}com/",
]


@pytest.mark.parametrize("host", FORBIDDEN_HOSTS)
def test_a_forbidden_address_is_refused_in_every_spelling(host: str) -> None:
    with pytest.raises(EgressRefused):
        check_url(f"http://{host}/", OPEN)


@pytest.mark.parametrize("url", UNREADABLE)
def test_a_url_that_two_readers_could_read_differently_is_refused(url: str) -> None:
    with pytest.raises(EgressRefused):
        check_url(url, OPEN)


@pytest.mark.parametrize(
    "ip",
    ["8.8.8.8", "1.1.1.1", "172.15.255.255", "172.32.0.1", "100.128.0.1", "2606:4700:4700::1111", "64:ff9b::8.8.8.8",
     "::ffff:8.8.8.8", "192.31.196.1", "2620:4f:8000::1"],
)  # fmt: skip
def test_a_public_unicast_address_is_accepted(ip: str) -> None:
    check_address(ip, EgressPolicy())


@pytest.mark.parametrize(
    "ip", ["", "example.com", "127.1", "2130706433", "0x7f000001", "1.2.3.4/8", "fe80::1%eth0"]
)
def test_what_is_no_address_or_has_a_zone_is_not_dialled(ip: str) -> None:
    with pytest.raises(EgressRefused):
        check_address(ip, EgressPolicy())


@given(st.integers(0, 2**128 - 1))
def test_no_accepted_ipv6_address_lies_outside_global_unicast_or_hides_a_private_ipv4(number: int) -> None:
    address = IPv6Address(number)
    try:
        check_address(str(address), EgressPolicy())
    except EgressRefused:
        return
    embedded = address.ipv4_mapped or (
        IPv4Address(number & 0xFFFFFFFF) if number >> 32 == 0x64FF9B << 64 else None
    )
    assert embedded is None or embedded.is_global
    assert embedded is not None or number >> 125 == 1


@given(st.integers(0, 2**32 - 1))
def test_the_mapped_form_of_an_ipv4_address_gets_the_same_verdict(number: int) -> None:
    def verdict(ip: str) -> bool:
        try:
            check_address(ip, EgressPolicy())
        except EgressRefused:
            return False
        return True

    plain = verdict(str(IPv4Address(number)))
    assert plain == verdict(str(IPv6Address((0xFFFF << 32) + number)))
    assert plain == verdict(str(IPv6Address((0x64FF9B << 96) + number)))
    assert not plain or IPv4Address(number).is_global


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("Example.COM", "example.com"),
        ("example.com.", "example.com"),
        ("8.8.8.8", "8.8.8.8"),
        ("[2606:4700:0::1]", "2606:4700::1"),
        ("xn--exmple-cua.com", "xn--exmple-cua.com"),
    ],
)
def test_a_host_has_one_canonical_form(written: str, meant: str) -> None:
    assert hosts.canonical(written) == meant


def test_only_hosts_of_the_allowlist_are_reached() -> None:
    policy = EgressPolicy(allow=("api.example.com", "*.Tools.example"))
    assert check_url("https://API.example.com./v1?x=1", policy).path == "/v1?x=1"
    assert check_url("https://a.tools.example:8443/", policy).port == 8443
    for host in (
        "example.com",
        "evil-api.example.com",
        "api.example.com.evil.com",
        "tools.example",
        "8.8.8.8",
    ):
        with pytest.raises(EgressRefused, match=r"egress\.allow"):
            check_url(f"https://{host}/", policy)


def test_an_allowlist_may_name_addresses_and_spell_hosts_freely() -> None:
    policy = EgressPolicy(allow=("8.8.8.8", "[2606:4700::1]", "API.example.com.", "*.xa"))
    for host in ("8.8.8.8", "[2606:4700:0::1]", "api.example.com", "b.xa"):
        check_url(f"http://{host}/", policy)


def test_without_an_allowlist_nothing_is_reached() -> None:
    with pytest.raises(EgressRefused):
        check_url("https://example.com/", EgressPolicy())


def test_the_laptop_opens_loopback_and_nothing_else() -> None:
    policy = EgressPolicy(loopback=True, forbidden=("127.0.0.1:8080",))
    for host in ("127.0.0.1", "localhost", "[::1]"):
        assert check_url(f"http://{host}:9000/", policy).reach is EgressRule.PUBLIC
    for host in ("10.0.0.1", "169.254.169.254", "[fe80::1]", "example.com", "127.1"):
        with pytest.raises(EgressRefused):
            check_url(f"http://{host}/", policy)
    with pytest.raises(EgressRefused, match="registry"):
        check_url("http://127.0.0.1:8080/v1/admin/publish", policy)


@pytest.mark.parametrize("entry", ["weaviate.crib.svc", "Weaviate.crib.svc.", "weaviate.crib.svc.Corp.local"])
def test_a_forbidden_host_is_refused_as_a_service_and_as_a_url(entry: str) -> None:
    policy = EgressPolicy(allow=("*",), forbidden=(entry,), cluster_domain="corp.Local.")
    ours = PublishedBackend(service_name="weaviate", service_namespace="crib", service_port=8080, path="/")
    with pytest.raises(EgressRefused, match="store"):
        target(ours, namespace="crib", policy=policy)
    for host in ("weaviate.crib.svc", "weaviate.crib.svc.corp.local", "WEAVIATE.crib.svc."):
        with pytest.raises(EgressRefused, match="store"):
            check_url(f"http://{host}/", policy)
    other = ours.model_copy(update={"service_namespace": "heist", "cluster_ip": "10.96.0.9"})

    assert target(other, namespace="heist", policy=policy).host == "weaviate.heist.svc"


def test_the_stores_own_host_is_forbidden_without_being_named() -> None:
    def entries(**store: object) -> set[str]:
        return set(own_hosts.of_store(Store.model_validate({"kind": "weaviate", **store})))

    assert entries(host="weaviate.crib.svc") == {"weaviate.crib.svc"}
    assert entries(host="w.crib.svc", grpc_host="g.crib.svc") == {"w.crib.svc", "g.crib.svc"}
    assert entries(host="127.0.0.1", http_port=1, grpc_port=2) == {"127.0.0.1:1", "127.0.0.1:2"}
    assert entries(host="Localhost", http_port=1, grpc_port=2) == {
        f"{ip}:{port}" for ip in ("127.0.0.1", "[::1]") for port in (1, 2)
    }
    assert entries(host="weaviate.crib") == {"weaviate.crib", "weaviate.crib.svc"}
    assert own_hosts.of_store(Store()) == ()


def test_the_registrys_own_and_the_clusters_addresses_are_refused_to_urls() -> None:
    policy = EgressPolicy(allow=("*",), forbidden=("34.1.2.3", "35.0.0.0/8"), cluster=("34.118.224.0/20",))
    for ip in ("34.1.2.3", "35.9.9.9", "34.118.225.1"):
        with pytest.raises(EgressRefused):
            check_address(ip, policy)
    check_address("34.118.225.1", policy, reach=EgressRule.SERVICE)
    with pytest.raises(EgressRefused):
        check_address("34.1.2.3", policy, reach=EgressRule.SERVICE)


def service(
    namespace: str = "heist", name: str = "files", ip: str | None = "10.96.0.17", port: int = 80
) -> PublishedBackend:
    return PublishedBackend(
        service_namespace=namespace, service_name=name, service_port=port, cluster_ip=ip, path="/read"
    )


def test_a_service_backend_is_a_service_of_the_tools_own_namespace() -> None:
    place = target(service(), namespace="heist", policy=EgressPolicy())
    assert (place.host, place.port, place.path, place.reach) == (
        "files.heist.svc",
        80,
        "/read",
        EgressRule.SERVICE,
    )
    with pytest.raises(EgressRefused, match="own namespace"):
        target(service("kube-system"), namespace="heist", policy=EgressPolicy())


@pytest.mark.parametrize(("ip", "dialled"), [("10.96.0.17", "10.96.0.17"), ("fd12::17", "[fd12::17]")])
def test_a_service_is_dialled_at_its_published_address_under_its_own_name(ip: str, dialled: str) -> None:
    place = target(service(ip=ip, port=8080), namespace="heist", policy=EgressPolicy())

    assert (place.origin, place.authority) == (f"http://{dialled}:8080", "files.heist.svc:8080")


def test_a_service_without_a_published_address_is_not_looked_up() -> None:
    with pytest.raises(NoAddress):
        target(service(ip=None), namespace="heist", policy=EgressPolicy())
    with pytest.raises(EgressRefused, match="published address"):
        dns_name("files.heist.svc", EgressRule.SERVICE)


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_a_published_address_is_dialled_only_within_the_clusters_ranges(
    ip: IPv4Address | IPv6Address,
) -> None:
    ranges = ("10.96.0.0/12", "34.118.224.0/20", "fd12::/64")
    try:
        place = target(service(ip=str(ip)), namespace="heist", policy=EgressPolicy(cluster=ranges))
    except EgressRefused:
        return

    assert any(ip in ip_network(r) for r in ranges)
    assert place.address == str(ip)


@pytest.mark.parametrize("ip", ["10.96.0.17", "34.118.225.1", "fd12::17"])
def test_a_published_address_in_the_clusters_ranges_is_dialled(ip: str) -> None:
    policy = EgressPolicy(cluster=("10.96.0.0/12", "34.118.224.0/20", "fd12::/64"))

    assert target(service(ip=ip), namespace="heist", policy=policy).address == ip


@pytest.mark.parametrize("ip", ["10.112.0.1", "192.168.1.1", "fd13::1"])
def test_where_the_clusters_ranges_are_set_no_other_private_address_is_a_service(ip: str) -> None:
    policy = EgressPolicy(cluster=("10.96.0.0/12", "fd12::/64"))

    with pytest.raises(EgressRefused, match=r"egress\.cluster"):
        target(service(ip=ip), namespace="heist", policy=policy)


@pytest.mark.parametrize("reach", [EgressRule.PUBLIC, EgressRule.SERVICE])
@pytest.mark.parametrize("ip", ["34.9.9.9", "::ffff:34.9.9.9", "64:ff9b::34.9.9.9"])
def test_what_a_forbidden_name_resolves_to_is_refused_by_address(ip: str, reach: EgressRule) -> None:
    closed = frozenset({IPv4Address("34.9.9.9")})
    policy = EgressPolicy(cluster=("34.0.0.0/8",) if reach is EgressRule.SERVICE else ())

    with pytest.raises(EgressRefused, match="store"):
        check_address(ip, policy, reach=reach, closed=closed)


def test_forbidden_names_are_looked_up_by_their_whole_names() -> None:
    policy = EgressPolicy(
        forbidden=("10.0.0.1", "Weaviate.crib.svc", "w.example.com.", "1.2.3.4:80", "x.crib.svc.corp.local"),
        cluster_domain="corp.local",
    )

    assert policy.forbidden_names == (
        "w.example.com.",
        "weaviate.crib.svc.corp.local.",
        "x.crib.svc.corp.local.",
    )


def test_a_service_name_cannot_lead_elsewhere() -> None:
    for name in ("evil.com/", "a@b", "x y", "", "a#", "..", "files:80"):
        with pytest.raises(EgressRefused):
            target(service(name=name), namespace="heist", policy=EgressPolicy())


def test_outside_a_cluster_a_service_is_where_the_mapping_says() -> None:
    policy = EgressPolicy(backends={"heist/files": "127.0.0.1:9001"})
    place = target(service(), namespace="heist", policy=policy)
    assert (place.origin, place.reach) == ("http://127.0.0.1:9001", EgressRule.MAPPED)
    assert "files.heist.svc" in place.names
    assert "127.0.0.1" not in place.names


@pytest.mark.parametrize(
    "ip", ["127.0.0.1", "::1", "169.254.169.254", "fe80::1", "fd00:ec2::254", "8.8.8.8", "::ffff:10.0.0.1",
           "0.0.0.0", "100.100.100.200", "64:ff9b::a00:1", "2606:4700::1", "224.0.0.1"],
)  # fmt: skip
def test_a_service_that_resolves_out_of_the_clusters_ranges_is_refused(ip: str) -> None:
    with pytest.raises(EgressRefused):
        check_address(ip, EgressPolicy(cluster=("127.0.0.0/8", "169.254.0.0/16")), reach=EgressRule.SERVICE)


@pytest.mark.parametrize("ip", ["10.96.0.17", "172.20.1.1", "192.168.9.9", "fd12::1"])
def test_a_service_may_have_a_private_address(ip: str) -> None:
    check_address(ip, EgressPolicy(), reach=EgressRule.SERVICE)


def test_a_key_server_may_be_private_but_no_metadata_service() -> None:
    for ip in ("127.0.0.1", "10.96.0.1", "8.8.8.8", "fd00::1"):
        check_address(ip, EgressPolicy(forbidden=("10.96.0.1",)), reach=EgressRule.TRUSTED)
    for ip in ("169.254.169.254", "::ffff:a9fe:a9fe", "fd00:ec2::254", "168.63.129.16", "fe80::1"):
        with pytest.raises(EgressRefused):
            check_address(ip, EgressPolicy(), reach=EgressRule.TRUSTED)


@pytest.mark.parametrize(
    "wrong",
    [
        {"allow": ("https://example.com",)},
        {"allow": ("example.com:0",)},
        {"allow": ("example.com:65536",)},
        {"allow": ("example.com:https",)},
        {"allow": ("example.com/path",)},
        {"allow": ("127.1",)},
        {"forbidden": ("nonsense",)},
        {"cluster": ("10.0.0.0/40",)},
        {"cluster_domain": "corp local"},
        {"backends": {"heist/files": "127.1:80"}},
        {"backends": {"heist/files": "localhost"}},
        {"backends": {"files": "localhost:80"}},
    ],
)
def test_a_wrong_policy_entry_stops_the_start(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        EgressPolicy(**wrong)  # type: ignore[arg-type]


def test_where_a_backend_is_called_is_remembered_for_each_policy_alone() -> None:
    backend = PublishedBackend(
        service_namespace="team", service_name="echo", service_port=80, cluster_ip="10.0.0.7", path="/x"
    )
    open_policy, shut = EgressPolicy(), EgressPolicy(forbidden=("10.0.0.7",))

    found = target(backend, namespace="team", policy=open_policy)
    assert target(backend, namespace="team", policy=open_policy) is found
    with pytest.raises(EgressRefused):
        target(backend, namespace="team", policy=shut)
    with pytest.raises(EgressRefused):
        target(backend, namespace="other", policy=open_policy)

    moved = backend.model_copy(update={"cluster_ip": "10.0.0.8"})
    assert target(moved, namespace="team", policy=shut).address == "10.0.0.8"
    allowed = EgressPolicy(allow=("api.example.com",))
    assert check_url("https://api.example.com/", allowed) is check_url("https://api.example.com/", allowed)
    with pytest.raises(EgressRefused):
        check_url("https://api.example.com/", open_policy)
