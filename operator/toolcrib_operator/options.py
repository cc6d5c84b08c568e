"""The command line and the environment of `toolcrib-operator`, read into settings."""

from __future__ import annotations

import argparse
import os
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from toolcrib.lint.hidden_text import Hidden
from toolcrib.resources import quantities
from toolcrib.resources.quantities import Quota
from toolcrib_operator.settings import (
    AnchorSettings,
    ElectionSettings,
    IndexSettings,
    LoopSettings,
    OperatorSettings,
    PolicySettings,
    PublisherSettings,
    RegistrationSettings,
    WatchSettings,
)


def parser(environ: Mapping[str, str]) -> argparse.ArgumentParser:
    """Every option; each one's default may stand in `TOOLCRIB_OPERATOR_<OPTION>` of `environ`."""
    parser = argparse.ArgumentParser("toolcrib-operator", description="Reconciles Tools and bindings.")

    def option(name: str, default: object, text: str, kind: Callable[[str], object] = str) -> None:
        variable = "TOOLCRIB_OPERATOR_" + name.upper().replace("-", "_")
        chosen = environ.get(variable, default)
        parser.add_argument(f"--{name}", default=chosen, type=kind, help=f"{text} [{variable}; {default}]")

    parser.add_argument("--registry-url", action="append", default=None, metavar="URL",
                        help="admin URL of a replica; repeat it for each [TOOLCRIB_OPERATOR_REGISTRY_URL]")  # fmt: skip
    option("registry-service", None, "namespace/name of the registry's Service, instead of URLs")
    option("registry-scheme", "http", "http or https, with --registry-service")
    option("registry-ca", None, "CA file of the registry's certificate; read again when it changes", Path)
    option(
        "registry-server-name",
        None,
        "name in the registry's certificate; with --registry-service NAME.NAMESPACE.svc, with URLs their host",
    )
    option("registry-port", 8081, "admin port of the replicas, with --registry-service", int)
    option("token-file", None, "bearer token for the admin channel; read at each use", Path)
    option(
        "kubeconfig", None, "kubeconfig; else the pod's service account, KUBECONFIG or ~/.kube/config", Path
    )
    option("host", "127.0.0.1", "where /healthz, /readyz and /metrics are served")
    option("port", 8090, "their port; 0 takes a free one and prints it", int)
    option("identity", "", "unique name of this process in the Lease")
    option("lease-namespace", "toolcrib-system", "namespace of the Lease")
    option("lease-name", "toolcrib-operator", "name of the Lease")
    option("lease-duration", 15.0, "seconds until another may take an unrenewed Lease", float)
    option("lease-renew", 10.0, "seconds without renewal until the leader ends itself", float)
    option("lease-retry", 2.0, "seconds between attempts and renewals", float)
    option("credential-namespaces", "", "namespaces whose labelled Secrets may go to backends, by comma")
    option(
        "cluster-domain",
        "cluster.local",
        "DNS domain of Services, as in the registry's egress.cluster_domain",
    )
    option(
        "trusted-namespace-labels", "kubernetes.io/metadata.name", "labels for namespaceSelectors, by comma"
    )
    option("removal-deadline", 60.0, "seconds that a deleted binding waits for replicas at most", float)
    option("quota-tools", 5000, "tools of a namespace that are accepted, the oldest ones; 0: no limit", int)
    option(
        "quota-bytes",
        "64Mi",
        "JSON bytes that the accepted tools of a namespace have together, as in 64Mi; 0: no limit",
        _bytes,
    )
    option("metric-grants", 2000, "bindings with series of their own in /metrics", int)
    option("metric-tools", 5000, "tools with series of their own in /metrics", int)
    option("heartbeat", 10.0, "seconds between heartbeats", float)
    option("inventory", 30.0, "seconds between inventories of the search index", float)
    option("prove-after", 20.0, "seconds of a silent watch until it is proven by a list", float)
    option(
        "runtime-namespace",
        "toolcrib-runtime",
        "namespace of runtime registrations; the orphan sweep spares it",
    )
    parser.add_argument(
        "--admission", choices=("policy", "external"),
        default=environ.get("TOOLCRIB_OPERATOR_ADMISSION", "policy"),
        help="policy: new grants take effect only while the admission policies of crds/ are in place; external: "
        "something else checks who may write grants [TOOLCRIB_OPERATOR_ADMISSION; policy]",
    )  # fmt: skip
    option(
        "hidden-text",
        "refuse",
        "refuse Tools with control, bidirectional, tag or zero-width characters in their texts; or warn",
    )
    option("service-account", None, "namespace/name of the operator's own account, as the policies have it")
    option(
        "audit-anchors",
        "toolcrib-audit-anchors",
        "ConfigMap, in the namespace of the Lease, that keeps the heads of decision logs; empty: none",
    )
    option("audit-anchor-interval", 60.0, "seconds between two anchors of a decision log", float)
    variable = "TOOLCRIB_OPERATOR_RUNTIME_REGISTRATION"
    parser.add_argument(
        "--runtime-registration", action=argparse.BooleanOptionalAction,
        default=environ.get(variable, "").lower() in ("1", "true", "yes", "on"),
        help=f"create the Tools that agents register at run time [{variable}; off]",
    )  # fmt: skip
    variable = "TOOLCRIB_OPERATOR_RELEASE_FINALIZERS"
    parser.add_argument(
        "--release-finalizers", action=argparse.BooleanOptionalAction,
        default=environ.get(variable, "").lower() in ("1", "true", "yes", "on"),
        help=f"take the Lease, remove our finalizer from every binding, end: for an uninstall [{variable}; off]",
    )  # fmt: skip
    return parser


def parse(argv: Sequence[str] | None, environ: Mapping[str, str]) -> OperatorSettings:
    """Settings from arguments, else from variables, else defaults.

    Raises SystemExit, with a message, on bad usage.
    """
    usage = parser(environ)
    a = usage.parse_args(argv)
    urls = environ.get("TOOLCRIB_OPERATOR_REGISTRY_URL", "").split()
    found = tuple(a.registry_url if a.registry_url is not None else urls)
    if bool(found) == bool(a.registry_service) and not a.release_finalizers:
        usage.error("give either --registry-url (for each replica) or --registry-service namespace/name")
    if a.registry_service and a.registry_service.count("/") != 1:
        usage.error(f"--registry-service is namespace/name, not {a.registry_service!r}")
    if a.admission not in ("policy", "external"):
        usage.error(f"TOOLCRIB_OPERATOR_ADMISSION is policy or external, not {a.admission!r}")
    if a.hidden_text not in tuple(Hidden):
        usage.error(f"--hidden-text is refuse or warn, not {a.hidden_text!r}")
    if a.service_account and a.service_account.count("/") != 1:
        usage.error(f"--service-account is namespace/name, not {a.service_account!r}")
    if a.quota_tools < 0:
        usage.error(f"--quota-tools is a number of tools, or 0 for no limit, not {a.quota_tools}")
    if not a.lease_retry < a.lease_renew < a.lease_duration:
        usage.error("the lease needs --lease-retry < --lease-renew < --lease-duration")
    return OperatorSettings(
        registry_urls=found,
        registry_service=a.registry_service,
        registry_port=a.registry_port,
        registry_scheme=a.registry_scheme,
        registry_ca=a.registry_ca,
        registry_server_name=a.registry_server_name or _service_name(a.registry_service),
        token_file=a.token_file,
        kubeconfig=a.kubeconfig,
        host=a.host,
        port=a.port,
        identity=a.identity or f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4().hex[:8]}",
        loop=LoopSettings(
            removal_deadline=a.removal_deadline,
            trusted_namespace_labels=_list(a.trusted_namespace_labels),
            credential_namespaces=_list(a.credential_namespaces),
            quota=Quota(a.quota_tools, a.quota_bytes),
            cluster_domain=a.cluster_domain.lower().removesuffix("."),
            metric_grants=a.metric_grants,
            metric_tools=a.metric_tools,
            hidden_text=Hidden(a.hidden_text),
        ),
        publisher=PublisherSettings(heartbeat=a.heartbeat),
        index=IndexSettings(inventory=a.inventory, spared_namespace=a.runtime_namespace),
        election=ElectionSettings(
            a.lease_namespace, a.lease_name, a.lease_duration, a.lease_renew, a.lease_retry
        ),
        watch=WatchSettings(prove_after=a.prove_after, unproven_after=a.prove_after + 10.0),
        policies=PolicySettings(_user(a.service_account)) if a.admission == "policy" else None,
        anchors=AnchorSettings(a.audit_anchors, a.audit_anchor_interval) if a.audit_anchors else None,
        registration=RegistrationSettings(a.runtime_namespace) if a.runtime_registration else None,
        release_finalizers=a.release_finalizers,
    )


def _service_name(service: str | None) -> str | None:
    if service is None:
        return None
    namespace, name = service.split("/")
    return f"{name}.{namespace}.svc"


def _bytes(text: str) -> int:
    try:
        return quantities.in_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _user(account: str | None) -> str | None:
    return f"system:serviceaccount:{account.replace('/', ':')}" if account else None


def _list(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.replace(",", " ").split() if part)
