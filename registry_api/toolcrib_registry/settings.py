"""The registry's settings: one YAML file, overridden by `TOOLCRIB_*` variables and by flags, checked as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from toolcrib.errors import SettingsInvalid
from toolcrib.identity import Issuer, ScopesPolicy, check_issuers
from toolcrib.settings import Source
from toolcrib_registry import strict_yaml
from toolcrib_registry.identity import cluster_issuer, resources
from toolcrib_registry.settings_limits import CounterStore, Limits
from toolcrib_registry.settings_oauth import SCOPE_TOKEN, OAuth
from toolcrib_registry.settings_sections import (
    ASSERTION_ISSUER,
    COLLECTION_PREFIX,
    Assertion,
    Audit,
    Discovery,
    Egress,
    EmbedderSettings,
    Mcp,
    MetricsListener,
    Search,
    Section,
    Store,
    Tls,
)
from toolcrib_registry.strict_yaml import InvalidYaml

_PUBLIC_URL = r"^https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?$"


class RegistrySettings(Section):
    """Everything the registry can be told."""

    replica: str = Field(default="registry", description="This replica's name; the pod's name in a cluster.")
    host: str = Field(default="127.0.0.1", description="Address of the agents' listener.")
    port: int = Field(default=8080, ge=0, le=65535, description="Its port; 0 takes a free one.")
    tls: Tls = Tls()
    admin_host: str = Field(default="127.0.0.1", description="Address of the admin listener.")
    admin_port: int = Field(default=8081, ge=0, le=65535, description="Its port; 0 takes a free one.")
    admin_tls: Tls = Tls()
    metrics: MetricsListener = MetricsListener()
    public_host: str = Field(default="127.0.0.1", description="What discovery shows as every tool's host.")
    public_port: int = Field(default=8080, ge=1, le=65535, description="What discovery shows as port.")
    public_url: str | None = Field(
        default=None,
        pattern=_PUBLIC_URL,
        description="Where clients reach the registry: scheme, host and port, without a path. `/mcp` and `/mcp/direct` below it name "
        "the protected resources of OAuth. Absent: made of public_host and public_port, with https where tls is set or the port is 443.",
    )
    allowed_hosts: tuple[str, ...] = Field(
        default=("localhost", "127.0.0.1", "[::1]"),
        description="Host names accepted in requests, besides public_host; *.example.com for every name "
        "below a domain, * for any.",
    )
    allowed_origins: tuple[str, ...] = Field(
        default=(), description="Web origins, besides the registry's own, whose requests are accepted."
    )
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = Field(
        default=(),
        description="Networks (CIDR) of proxies such as ingress controllers and gateways: on the agents' listener connections_per_peer does not "
        "count for them, since one peer stands for many clients. X-Forwarded-For is never read.",
    )
    issuers: tuple[Issuer, ...] = Field(
        default=(), description="Token issuers that are trusted to identify agents."
    )
    allow_dev_issuer: bool = Field(
        default=False,
        description="Accept issuers with scopes token, and keys fetched over plain HTTP. For the local mode.",
    )
    admin_issuer: str | None = Field(
        default=None, description="The `iss` of admin tokens, one of issuers. Absent: the cluster's."
    )
    admin_audience: str = Field(
        default="toolcrib-admin",
        min_length=1,
        description="The `aud` of admin tokens. No issuer of agents may accept it.",
    )
    admin_subjects: tuple[str, ...] = Field(
        default=(), description="Subjects that may publish: their `sub`, compared exactly."
    )
    oauth: OAuth = OAuth()
    discovery: Discovery = Discovery()
    store: Store = Store()
    embedder: EmbedderSettings = EmbedderSettings()
    search: Search = Search()
    mcp: Mcp = Mcp()
    egress: Egress = Egress()
    backends: dict[str, str] = Field(
        default_factory=dict,
        description="Addresses of Services outside a cluster: namespace/service → host:port.",
    )
    limits: Limits = Limits()
    counters: CounterStore = CounterStore()
    policy_max_age: float = Field(
        default=900.0,
        gt=0,
        description="Seconds without an operator heartbeat after which calls are refused.",
    )
    drain_seconds: float = Field(
        default=0.0,
        ge=0,
        le=600,
        description="Seconds after SIGTERM in which the registry still answers, but is not ready, so that "
        "clients move away.",
    )
    finish_seconds: float = Field(
        default=30.0,
        gt=0,
        le=3600,
        description="Seconds after that for requests in progress to finish, such as a tool's longest call.",
    )
    audit: Audit = Audit()
    assertion: Assertion = Assertion()
    registration: bool = Field(default=False, description="Enable POST /tools/register.")
    runtime_namespace: str = Field(
        default="toolcrib-runtime", description="Namespace of the Tools that are registered at run time."
    )

    @model_validator(mode="before")
    @classmethod
    def _renamed(cls, data: Any) -> Any:
        """`decision_log`, a path, is the older name of `audit`."""
        if not isinstance(data, dict) or "decision_log" not in data:
            return data
        data = dict(data)
        path = data.pop("decision_log")
        if path is not None and data.setdefault("audit", path) is not path:
            raise ValueError("decision_log is the old name of audit.path: set audit.path alone")
        return data

    @model_validator(mode="after")
    def _consistent(self) -> RegistrySettings:
        check_issuers(self.issuers)
        if self.admin_issuer is not None and self.admin_issuer not in {i.issuer for i in self.issuers}:
            raise ValueError("admin_issuer is not listed in issuers")
        if any(self.admin_audience in i.audience for i in self.issuers):
            raise ValueError(
                "an issuer's audience contains admin_audience, so any agent's token could publish: use "
                "different audiences"
            )
        self._check_resources()
        return self

    def _check_resources(self) -> None:
        """Raises ValueError: a protected resource's URL means something else, or clients are sent to a stranger."""
        for url in (resources.url(self.own_url, path) for path in resources.PATHS):
            if url == self.admin_audience:
                raise ValueError(
                    f"admin_audience is {url}, so tokens for that path could publish: use another one"
                )
            for issuer in self.issuers:
                if url in issuer.closed_audiences:
                    raise ValueError(f"public_url: {url} is the API server's own audience")
                if url in issuer.audience:
                    raise ValueError(
                        f"the audience of issuer {issuer.issuer} contains {url}: it is accepted on that path already, "
                        "and would be accepted on all others. Remove it, and name another audience for the other paths"
                    )
        unknown = {*(self.oauth.authorization_servers or ())} - {i.issuer for i in self.issuers}
        if unknown:
            raise ValueError(f"oauth.authorization_servers: not in issuers: {', '.join(sorted(unknown))}")

    @property
    def admin_issuer_settings(self) -> Issuer | None:
        """The issuer of admin tokens with the admin audience in the place of the agents'."""
        for issuer in self.issuers:
            if issuer.issuer == self.admin_issuer or (self.admin_issuer is None and issuer.cluster):
                return issuer.model_copy(update={"audience": (self.admin_audience,)})
        return None

    @property
    def authorization_servers(self) -> tuple[str, ...]:
        """The issuers where MCP clients can log in. The cluster's and the local one have no login for people."""
        if self.oauth.authorization_servers is not None:
            return self.oauth.authorization_servers
        return tuple(
            i.issuer
            for i in self.issuers
            if not i.cluster
            and i.scopes is not ScopesPolicy.LOCAL
            and i.issuer.lower().startswith(("https://", "http://"))
        )

    @property
    def assertion_issuer(self) -> str:
        """`iss` of call assertions."""
        return self.assertion.issuer or self.own_url

    @property
    def own_url(self) -> str:
        """The registry's public URL, without a slash at its end."""
        if self.public_url is not None:
            return self.public_url
        secure = self.tls.cert_file is not None or self.public_port == 443
        scheme, usual = ("https", 443) if secure else ("http", 80)
        host = self.public_host
        host = f"[{host}]" if ":" in host and not host.startswith("[") else host
        return f"{scheme}://{host}" + ("" if self.public_port == usual else f":{self.public_port}")

    @property
    def useless(self) -> str | None:
        """Why nothing will ever be answered with these settings; None: something may be."""
        if not self.issuers:
            return (
                "issuers is empty: every token is refused, so no operator can publish and no agent has access"
            )
        if self.admin_issuer_settings is None or not self.admin_subjects:
            return (
                "admin_issuer and admin_subjects name no one: no operator can publish, so agents have no "
                "tools"
            )
        return None

    def refuse_dev_issuers(self) -> None:
        """What `serve` checks before anything starts.

        Raises:
            SettingsInvalid: an issuer whose tokens alone decide, or whose keys come, or tokens go, over plain HTTP, without `allow_dev_issuer`.
        """
        loose = (ScopesPolicy.TOKEN, ScopesPolicy.LOCAL)
        names = [i.issuer for i in self.issuers if i.scopes in loose]
        if names and not self.allow_dev_issuer:
            raise SettingsInvalid(
                [
                    f"issuers: {', '.join(names)}: scopes token and local are for the local mode (allow_dev_issuer)"
                ]
            )
        plain = [i.issuer for i in self.issuers if i.keys_over_http]
        if plain and not self.allow_dev_issuer:
            raise SettingsInvalid(
                [
                    f"issuers: {', '.join(plain)}: keys over plain HTTP can be tampered with. Use an https jwks_uri or a jwks_file; "
                    "http is for the local mode (allow_dev_issuer)"
                ]
            )
        plain = [i.issuer for i in self.issuers if (i.exchange_url or "").lower().startswith("http:")]
        if plain and not self.allow_dev_issuer:
            raise SettingsInvalid(
                [
                    f"issuers: {', '.join(plain)}: exchange_url is plain HTTP, and callers' tokens go there. Use https; http is for "
                    "the local mode (allow_dev_issuer)"
                ]
            )


SOURCE = Source(
    RegistrySettings,
    "TOOLCRIB_",
    parse=strict_yaml.parse,
    empty=lambda _: True,
    older=("decision_log",),
    forms={
        _PUBLIC_URL: "an http:// or https:// address without a path, as in https://toolcrib.example.com",
        SCOPE_TOKEN: "a scope: printable ASCII without spaces, quotes and backslashes",
        COLLECTION_PREFIX: "a capital letter, then at most 127 letters, digits or '_'",
        ASSERTION_ISSUER: "an http:// or https:// address",
    },
)
"""Variables are `TOOLCRIB_` and the field, and are read as YAML."""


def from_env(
    environ: Mapping[str, str], config_file: str | None = None, flags: Mapping[str, Any] | None = None
) -> RegistrySettings:
    """The settings of a file (`config_file`, else `TOOLCRIB_CONFIG`, else none), of variables, and of flags.

    Raises:
        SettingsInvalid: naming every field that is wrong.
    """
    path = config_file or environ.get("TOOLCRIB_CONFIG")
    data, problems = SOURCE.collected(_from_file(path) if path else {}, environ)
    if isinstance(issuers := data.get("issuers"), list):
        data["issuers"] = [_completed(entry, number, problems) for number, entry in enumerate(issuers)]
    return SOURCE.checked({**data, **(flags or {})}, problems)


def _completed(entry: Any, number: int, problems: list[str]) -> Any:
    try:
        return cluster_issuer.completed(entry)
    except ValueError as error:
        problems.append(f"issuers.{number}: {error}")
        # said once: that `issuer` is missing follows from it
        return {**entry, "issuer": f"unknown-{number}"}


def _from_file(path: str) -> dict[str, Any]:
    try:
        data = strict_yaml.parse(Path(path).read_text())
    except (OSError, UnicodeDecodeError, InvalidYaml) as error:
        raise SettingsInvalid([f"the configuration file cannot be read: {error}"]) from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise SettingsInvalid(["the configuration file must be a mapping of settings"])
    return data
