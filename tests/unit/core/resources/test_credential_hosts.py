"""Which entries of `toolcrib.dev/hosts` let a credential go where."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.resources import credential_hosts

SCHEMES = st.sampled_from(["http", "https"])
PORTS = st.sampled_from([80, 443, 8080, 8443])
HOSTS = st.sampled_from(["api.example.com", "8.8.8.8", "2606:4700::1"])


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


@given(SCHEMES, HOSTS, PORTS)
def test_a_host_alone_means_https_on_443_and_nothing_else(scheme: str, host: str, port: int) -> None:
    allowed = bracketed(host) in credential_hosts.of_url(scheme, host, port)

    assert allowed == ((scheme, port) == ("https", 443))


@given(SCHEMES, HOSTS, PORTS, SCHEMES, PORTS)
def test_what_is_written_out_means_that_place_alone(
    scheme: str, host: str, port: int, other_scheme: str, other_port: int
) -> None:
    whole = f"{other_scheme}://{bracketed(host)}:{other_port}"
    names = credential_hosts.of_url(scheme, host, port)

    assert (whole in names) == ((scheme, port) == (other_scheme, other_port))
    assert (f"{bracketed(host)}:{other_port}" in names) == ((scheme, port) == ("https", other_port))
    default = 443 if other_scheme == "https" else 80
    assert (f"{other_scheme}://{bracketed(host)}" in names) == ((scheme, port) == (other_scheme, default))


@pytest.mark.parametrize(
    "entry", ["files", "Files.heist.svc", "files.heist.svc.", "files.heist.svc.cluster.local", "files:8080"]
)
def test_a_services_name_means_the_port_that_its_tool_names(entry: str) -> None:
    for port in (8080, 9090):
        names = credential_hosts.of_service("files", "heist", port)
        allowed = not names.isdisjoint(credential_hosts.entries([entry]))
        assert allowed == (port == 8080 or ":" not in entry)


@pytest.mark.parametrize("namespace", ["dev", "com", "heist"])
def test_a_service_is_never_taken_for_a_domain_of_the_same_spelling(namespace: str) -> None:
    """A Service `example` in a namespace `dev` must not get what is meant for https://example.dev."""
    names = credential_hosts.of_service("example", namespace, 80)

    assert names.isdisjoint(credential_hosts.entries([f"example.{namespace}", f"example.{namespace}:80"]))


@pytest.mark.parametrize("entry", ["*", "files.bank", "file", "http://files", "https://files:8080", ""])
def test_no_other_entry_means_the_service(entry: str) -> None:
    names = credential_hosts.of_service("files", "heist", 8080)

    assert names.isdisjoint(credential_hosts.entries([entry]))


@pytest.mark.parametrize(
    "entry", ["API.example.com", " api.example.com ", "api.example.com.", "https://api.example.com/"]
)
def test_spelling_does_not_matter(entry: str) -> None:
    assert "api.example.com" in credential_hosts.entries([entry]) or (
        "https://api.example.com" in credential_hosts.entries([entry])
    )


@pytest.mark.parametrize(
    "entry",
    ["https://Login.example.com/a/Token", "login.example.com/a/Token", "login.example.com:443/a/Token"],
)
def test_an_entry_with_a_path_lists_that_endpoint_alone(entry: str) -> None:
    entries = credential_hosts.entries(credential_hosts.listed({credential_hosts.HOSTS: f"other, {entry}"}))
    host = ("https", "login.example.com", 443)

    assert not credential_hosts.of_endpoint(*host, "/a/Token").isdisjoint(entries)
    for path in ("/a/token", "/a/Token/", "/a", "/", "", "/a/Token?b"):
        assert credential_hosts.of_endpoint(*host, path).isdisjoint(entries)
    assert credential_hosts.of_endpoint("http", host[1], 80, "/a/Token").isdisjoint(entries)
    assert credential_hosts.of_url(*host).isdisjoint(entries), "it lets no backend have the credential"
