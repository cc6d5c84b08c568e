"""Settings of OAuth: the registry's public URL, where clients log in, and what must not be mixed up."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from toolcrib_registry.settings import RegistrySettings

ROOT = Path(__file__).parents[3]
CLUSTER = {"issuer": "https://cluster.test", "audience": ["toolcrib"], "cluster": True, "scopes": "bindings"}
LOGIN = {"issuer": "https://login.test", "audience": ["toolcrib"]}
DEX = {"issuer": "https://dex.test", "audience": ["toolcrib"], "scopes": "bindings"}
LOCAL = {"issuer": "https://local.test", "audience": ["toolcrib"], "scopes": "local"}
NO_URL = {"issuer": "accounts", "audience": ["toolcrib"]}
ALL = (CLUSTER, LOGIN, DEX, LOCAL, NO_URL)


def settings(**fields: Any) -> RegistrySettings:
    return RegistrySettings.model_validate(fields)


@pytest.mark.parametrize(
    ("fields", "url"),
    [
        ({"public_url": "https://crib.example"}, "https://crib.example"),
        ({"public_url": "http://[::1]:8080", "public_host": "other", "public_port": 1}, "http://[::1]:8080"),
        ({"public_host": "crib.example", "public_port": 8443}, "http://crib.example:8443"),
    ],
)
def test_the_public_url_is_set_or_made_of_host_and_port(fields: dict[str, Any], url: str) -> None:
    found = settings(**fields)

    assert found.own_url == found.assertion_issuer == url


@pytest.mark.parametrize(
    "url", ["", "crib.example", "https://crib.example/", "https://crib.example/path", "ftp://crib.example",
            "https://user@crib.example", "https://crib.example?x", 'https://a"b', "https://a b"]
)  # fmt: skip
def test_a_public_url_is_scheme_host_and_port_alone(url: str) -> None:
    with pytest.raises(ValidationError, match="public_url"):
        settings(public_url=url)


def test_clients_log_in_at_every_issuer_but_the_clusters_and_the_local_one() -> None:
    assert settings(issuers=ALL).authorization_servers == ("https://login.test", "https://dex.test")
    assert settings(issuers=(CLUSTER,)).authorization_servers == ()


@pytest.mark.parametrize("chosen", [[], ["https://dex.test"]])
def test_the_issuers_where_clients_log_in_can_be_chosen(chosen: list[str]) -> None:
    found = settings(issuers=ALL, oauth={"authorization_servers": chosen})

    assert found.authorization_servers == tuple(chosen)


def test_clients_are_sent_to_no_stranger() -> None:
    with pytest.raises(ValidationError, match=r"not in issuers: https://evil\.test"):
        settings(issuers=ALL, oauth={"authorization_servers": ["https://evil.test"]})


@pytest.mark.parametrize("scope", ["offline_access", "", "two words", 'a"b', "a\\b", "ä"])
def test_scopes_are_tokens_and_never_offline_access(scope: str) -> None:
    with pytest.raises(ValidationError, match="scopes_supported"):
        settings(oauth={"scopes_supported": ["calculator:use", scope]})


@pytest.mark.parametrize("path", ["/mcp", "/mcp/direct"])
def test_a_protected_resource_is_no_audience_of_anything_else(path: str) -> None:
    base = "https://crib.example"
    with pytest.raises(ValidationError, match="is accepted on that path already"):
        settings(public_url=base, issuers=({**LOGIN, "audience": ["toolcrib", base + path]},))
    with pytest.raises(ValidationError, match="could publish"):
        settings(public_url=base, admin_audience=base + path)
    with pytest.raises(ValidationError, match="the API server's own audience"):
        settings(public_url=base, issuers=({**CLUSTER, "issuer": base + path},))


def test_step_up_is_off() -> None:
    assert settings().discovery.step_up is False


def test_the_settings_that_the_guide_shows_are_settings() -> None:
    guide = (ROOT / "docs/guides/identity-providers.md").read_text(encoding="utf-8")
    section = guide.partition("## MCP clients that log in")[2]
    shown = yaml.safe_load(section.partition("```yaml\n")[2].partition("```")[0])

    found = settings(**shown)

    assert found.own_url == "https://toolcrib.example.com"
    assert found.oauth.scopes_supported == ("calculator:use",)
    assert found.authorization_servers == ("https://keycloak.example.com/realms/agents",)
