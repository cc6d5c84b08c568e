"""Hosts that are opened: alone or with a port, and others while the registry runs."""

import pytest

from toolcrib_registry.outbound.errors import EgressRefused
from toolcrib_registry.outbound.guard import EgressPolicy, ReplaceablePolicy, check_url


def test_an_entry_with_a_port_opens_that_port_alone() -> None:
    policy = EgressPolicy(allow=("api.example.com:8443", "*.tools.example:443", "[2606:4700::1]:80"))
    for url in ("https://api.example.com:8443/", "https://a.tools.example/", "http://[2606:4700::1]/"):
        check_url(url, policy)
    for url in ("https://api.example.com/", "http://a.tools.example/", "https://[2606:4700::1]/"):
        with pytest.raises(EgressRefused, match=r"egress\.allow"):
            check_url(url, policy)


def test_a_replaced_policy_decides_from_the_next_question_on() -> None:
    source = ReplaceablePolicy(EgressPolicy(forbidden=("10.0.0.7",)))
    with pytest.raises(EgressRefused):
        check_url("https://api.example.com/", source.current)
    source.open(("api.example.com",), {"heist/files": "127.0.0.1:9001"})
    check_url("https://api.example.com/", source.current)
    assert source.current.forbidden == ("10.0.0.7",), "only hosts and backends are replaced"
    with pytest.raises(ValueError, match="no host"):
        source.open(("no host",), {})
    check_url("https://api.example.com/", source.current)
    source.open((), {})
    with pytest.raises(EgressRefused):
        check_url("https://api.example.com/", source.current)
