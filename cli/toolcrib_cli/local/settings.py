"""How the local mode is set: what `toolcrib up` was asked for, its registry's settings, what other commands are told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from toolcrib.lint.hidden_text import Hidden
from toolcrib_cli.local.hosts import Hosts
from toolcrib_cli.local.store import Store
from toolcrib_registry.calls.assertions import keys as assertion_keys
from toolcrib_registry.identity.issuer import LocalIssuer
from toolcrib_registry.settings import RegistrySettings
from toolcrib_registry.settings_sections import Assertion, Audit, Discovery, Egress, EmbedderSettings, Mcp
from toolcrib_registry.settings_sections import Store as StoreSettings

RUNTIME_NAMESPACE = "toolcrib-runtime"


@dataclass(frozen=True, slots=True)
class Options:
    """What `toolcrib up` was asked for."""

    port: int
    data: Path
    manifests: tuple[Path, ...]
    backends: dict[str, str]
    allow_hosts: tuple[str, ...] = ()
    """Hosts that url: backends may name, besides those of the hosts file."""
    allow_stdio: tuple[str, ...] = ()
    """ToolServers whose commands are started; `*`: all."""
    tour: bool = True
    embedder: str = "packaged"
    """packaged, none, or a folder with a model."""
    default_data: bool = False
    hidden_text: Hidden = Hidden.REFUSE
    trusted_labels: tuple[str, ...] = ()
    """Namespace labels that selectors may read; empty: the operator's default."""
    demo: bool = False
    """The packaged example too."""
    split_calls: bool = False
    compatible_names: bool = False
    """Which tools `/mcp` offers."""
    quota: tuple[int, int] = (0, 0)
    """Tools of a namespace, and their JSON bytes; 0: no limit."""


def settings_of(
    options: Options, store: Store, issuer: LocalIssuer, port: int, hosts: Hosts
) -> RegistrySettings:
    """The registry's settings for what `toolcrib up` was asked for."""
    return RegistrySettings(
        replica="local",
        port=port,
        public_port=port,
        issuers=(issuer.issuer,),
        allow_dev_issuer=True,
        discovery=Discovery(totals="all"),
        mcp=Mcp(split_calls=options.split_calls, compatible_names=options.compatible_names),
        store=StoreSettings(kind="embedded", path=str(store.folder)),
        embedder=embedder(options.embedder),
        # a tool on this machine may be called, but not the registry itself
        egress=Egress(allow=hosts.allow, loopback=True, forbidden=(f"127.0.0.1:{port}", f"[::1]:{port}")),
        backends=dict(hosts.backends),
        audit=Audit(path=str(store.path("decisions.jsonl")), key_file=str(store.audit_key())),
        assertion=Assertion(
            issuer=f"http://127.0.0.1:{port}", keys=str(assertion_keys.make_private(store.path("assertion")))
        ),
        registration=True,
        runtime_namespace=RUNTIME_NAMESPACE,
    )


def told(options: Options, store: Store, settings: RegistrySettings, hosts: Hosts) -> dict[str, object]:
    """What other commands are told of this local mode; nothing in it is secret."""
    shown = {"discovery", "metrics", "audit", "egress", "assertion"}
    told = settings.model_dump(mode="json", include=shown)
    told["egress"]["allow"] = list(hosts.allow)
    return {
        "manifests": [str(p.absolute()) for p in (*options.manifests, store.path("registrations"))],
        "hidden_text": options.hidden_text,
        "embedder": options.embedder,
        "backends": dict(hosts.backends),
        "settings": told,
    }


def embedder(chosen: str) -> EmbedderSettings:
    """`packaged`, `none`, or a folder with a model."""
    if chosen in ("packaged", "none"):
        return EmbedderSettings(kind=chosen)
    return EmbedderSettings(kind="onnx", path=chosen)
