"""Settings of the registry that a cluster needs: an issuer that nobody has to write down, a drain, Weaviate."""

import json
from pathlib import Path
from typing import Any

import jwt
import pytest

from toolcrib.errors import SettingsInvalid
from toolcrib_registry import strict_yaml
from toolcrib_registry.settings import RegistrySettings, from_env

JWKS = "https://kubernetes.default.svc/openid/v1/jwks"


def read(folder: Path, **data: Any) -> RegistrySettings:
    path = folder / "registry.yaml"
    path.write_text(json.dumps(data))
    return from_env({}, str(path))


def token_file(folder: Path, **claims: Any) -> str:
    path = folder / "token"
    path.write_text(jwt.encode({"sub": "x", **claims}, "k" * 32) + "\n")
    return str(path)


def cluster_issuer(**fields: Any) -> dict[str, Any]:
    return {"cluster": True, "audience": ["toolcrib"], "scopes": "bindings", **fields}


@pytest.mark.parametrize(
    "name", ["https://oidc.eks.eu-west-1.amazonaws.com/id/42", "https://kubernetes.default.svc.cluster.local"]
)
def test_the_cluster_issuer_is_told_by_the_pods_own_token(tmp_path: Path, name: str) -> None:
    found = read(tmp_path, issuers=[cluster_issuer(token_file=token_file(tmp_path, iss=name))])

    (issuer,) = found.issuers
    assert issuer.issuer == name
    assert issuer.jwks_uri == JWKS
    assert found.admin_issuer_settings is not None
    assert found.admin_issuer_settings.issuer == name


def test_what_is_written_down_is_not_read_from_the_token(tmp_path: Path) -> None:
    token = token_file(tmp_path, iss="https://other")
    (named,) = read(tmp_path, issuers=[cluster_issuer(issuer="https://mine", token_file=token)]).issuers
    (keyed,) = read(tmp_path, issuers=[cluster_issuer(jwks_uri="https://keys", token_file=token)]).issuers

    assert (named.issuer, named.jwks_uri) == ("https://mine", None)
    assert (keyed.issuer, keyed.jwks_uri) == ("https://other", "https://keys")


def test_only_the_clusters_issuer_may_be_left_out(tmp_path: Path) -> None:
    token = token_file(tmp_path, iss="https://other")

    with pytest.raises(SettingsInvalid, match=r"issuers\.0\.issuer: required, but missing"):
        read(tmp_path, issuers=[{"audience": ["toolcrib"], "token_file": token}])
    with pytest.raises(SettingsInvalid, match=r"issuers\.0\.issuer: required, but missing"):
        read(tmp_path, issuers=[cluster_issuer()])


def test_a_token_file_that_tells_no_issuer_is_named_with_the_remedy(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    (tmp_path / "text").write_text("no token")

    for path, words in (
        (str(nowhere), "cannot be read: No such file"),
        (str(tmp_path / "text"), "holds no token that can be read"),
        (token_file(tmp_path), "names no issuer"),
        (token_file(tmp_path, iss=""), "names no issuer"),
    ):
        with pytest.raises(SettingsInvalid) as raised:
            read(tmp_path, issuers=[cluster_issuer(token_file=path)], port=-1)
        told = str(raised.value)
        assert path in told
        assert words in told
        assert "set the issuer" in told
        assert "port:" in told  # with all other mistakes


def test_the_token_of_the_cluster_cannot_make_its_own_audience_do(tmp_path: Path) -> None:
    token = token_file(tmp_path, iss="https://oidc.example/id")
    with pytest.raises(SettingsInvalid, match="API server's own"):
        read(tmp_path, issuers=[cluster_issuer(audience=["https://oidc.example/id"], token_file=token)])


@pytest.mark.parametrize(
    ("store", "words"),
    [
        ({"ca_file": "/ca.crt"}, "tls: true"),
        ({"replicas": 0}, "store.replicas"),
        ({"collection_prefix": "lower"}, "store.collection_prefix"),
        ({"collection_prefix": "With-dash"}, "store.collection_prefix"),
    ],
)
def test_a_wrong_store_is_named(tmp_path: Path, store: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsInvalid, match=words):
        read(tmp_path, store={"kind": "weaviate", **store})


@pytest.mark.parametrize(
    ("counters", "said"),
    [
        ({"kind": "redis"}, "url must be redis://"),
        ({"kind": "redis", "url": "redis://:hunter2@redis"}, "without a user or password"),
        ({"kind": "redis", "url": "redis://redis?password=hunter2"}, "without a user or password"),
        ({"kind": "redis", "url": "http://redis"}, "url must be redis://"),
        ({"kind": "redis", "url": "redis://redis:hunter2"}, "url must be redis://"),
        ({"kind": "redis", "url": "redis://redis/hunter2"}, "url must be redis://"),
        ({"kind": "redis", "url": "redis://redis", "ca_file": "/ca"}, "rediss://"),
        ({"kind": "redis", "url": "redis://redis", "username": "x"}, "password_file"),
        ({"kind": "redis", "url": "redis://redis", "password": "hunter2"}, "unknown field"),
        ({"timeout": 0}, "greater than 0"),
    ],
)
def test_a_store_of_counters_that_cannot_be_meant_is_refused_and_no_secret_shown(
    counters: dict[str, object], said: str
) -> None:
    with pytest.raises(SettingsInvalid, match=said) as error:
        from_env({"TOOLCRIB_COUNTERS": json.dumps(counters)})
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize("url", ["redis://redis", "rediss://redis.limits.svc:6380/15", "redis://[::1]:7000/"])
def test_a_store_of_counters_is_named_by_its_address(url: str) -> None:
    settings = from_env({"TOOLCRIB_COUNTERS__KIND": "redis", "TOOLCRIB_COUNTERS__URL": url})
    assert settings.counters.url == url
    assert from_env({}).counters.kind == "memory"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("port: 1\ncounters: {}\nport: 2\n", "line 3: the key 'port' appears twice"),
        (
            "limits:\n  watch_streams: 7\n  watch_streams: 9\n",
            "line 3: the key 'watch_streams' appears twice",
        ),
        ('port: 1\n"port": 2\n', "line 2: the key 'port' appears twice"),
        ("audit: {path: a, path: hunter2}", "line 1: the key 'path' appears twice"),
        ("port: [1, hunter2", "line 1: "),
        ("port: *hunter2", "line 1: not valid YAML"),
        ("--- 1\n--- hunter2\n", "not valid YAML"),
    ],
)
def test_a_key_that_stands_twice_is_refused_by_its_name_and_no_value_shown(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "registry.yaml"
    path.write_text(text)

    with pytest.raises(SettingsInvalid) as error:
        from_env({}, str(path))

    assert "the configuration file cannot be read" in str(error.value)
    assert said in str(error.value)
    assert "hunter2" not in str(error.value)


def test_a_key_that_stands_twice_in_a_variable_is_refused_with_the_variables_name() -> None:
    with pytest.raises(SettingsInvalid) as error:
        from_env({"TOOLCRIB_LIMITS": "{watch_streams: 7, watch_streams: 9}"})

    assert "TOOLCRIB_LIMITS: cannot be read: line 1: the key 'watch_streams' appears twice" in str(
        error.value
    )


def test_what_a_merge_key_brings_may_be_overridden() -> None:
    merged = strict_yaml.parse("a: &a {x: 1, y: 2}\nb: &b {<<: *a, x: 3}\nc: {<<: *b, y: 4}\n")

    assert merged == {"a": {"x": 1, "y": 2}, "b": {"x": 3, "y": 2}, "c": {"x": 3, "y": 4}}


@pytest.mark.parametrize(
    ("settings", "issuer"),
    [
        ({}, "http://127.0.0.1:8080"),
        ({"public_port": 80}, "http://127.0.0.1"),
        ({"public_host": "crib.example.com", "public_port": 443}, "https://crib.example.com"),
        (
            {
                "public_host": "crib.example.com",
                "public_port": 443,
                "tls": {"cert_file": "c", "key_file": "k"},
            },
            "https://crib.example.com",
        ),
        ({"public_host": "::1", "public_port": 80}, "http://[::1]"),
        ({"public_host": "[::1]", "public_port": 80}, "http://[::1]"),
        ({"assertion": {"issuer": "https://crib.example.com/x"}}, "https://crib.example.com/x"),
    ],
)
def test_assertions_are_issued_by_the_public_url(settings: dict[str, Any], issuer: str) -> None:
    assert RegistrySettings.model_validate(settings).assertion_issuer == issuer


@pytest.mark.parametrize("issuer", ["", "crib.example.com", "ftp://crib.example.com", "https://a b"])
def test_an_issuer_of_assertions_that_is_no_url_is_refused(tmp_path: Path, issuer: str) -> None:
    with pytest.raises(SettingsInvalid, match=r"assertion\.issuer"):
        read(tmp_path, assertion={"issuer": issuer})


def test_callers_tokens_are_not_exchanged_over_plain_http() -> None:
    issuer = {
        "issuer": "https://login.example",
        "audience": ["toolcrib"],
        "exchange_url": "http://login.example/t",
    }
    settings = RegistrySettings.model_validate({"issuers": [issuer]})

    with pytest.raises(SettingsInvalid, match="exchange_url is plain HTTP"):
        settings.refuse_dev_issuers()
    settings.model_copy(update={"allow_dev_issuer": True}).refuse_dev_issuers()
