"""Validating manifests without a cluster, against the schemas that the package kubernetes-validate brings along.

The package itself reads 2 MB of JSON for every object; here each schema is read once and compiled.
"""

import functools
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema_rs
import yaml

from chart import ROOT, Object, named

# The oldest and the newest version that the chart says it supports, and one between.
VERSIONS = ("1.31", "1.34", "1.37")

# Kinds of other projects: no schema here, so at least what each must have.
FOREIGN: dict[str, tuple[str, ...]] = {
    "monitoring.coreos.com/v1/ServiceMonitor": ("selector.matchLabels", "endpoints"),
    "monitoring.coreos.com/v1/PodMonitor": ("selector.matchLabels", "podMetricsEndpoints"),
    "monitoring.coreos.com/v1/PrometheusRule": ("groups",),
    "gateway.networking.k8s.io/v1/HTTPRoute": ("parentRefs", "rules"),
    "gateway.networking.k8s.io/v1/BackendTLSPolicy": (
        "targetRefs",
        "validation.hostname",
        "validation.caCertificateRefs",
    ),
    "cert-manager.io/v1/Certificate": ("secretName", "issuerRef.name"),
    "cert-manager.io/v1/Issuer": (),
    "cilium.io/v2/CiliumNetworkPolicy": ("endpointSelector.matchLabels", "egress"),
}


def problems(item: Object, version: str) -> list[str]:
    """What a Kubernetes of this version would refuse in the object, unknown fields included; empty: nothing."""
    kind = f"{item['apiVersion']}/{item['kind']}"
    if kind in FOREIGN:
        return [f"{named(item)}: {path} is missing" for path in FOREIGN[kind] if not _at(item["spec"], path)]
    ours = item["apiVersion"].startswith("toolcrib.dev/")
    validator = _own(item["kind"]) if ours else _built_in(item["apiVersion"], item["kind"], version)
    return [
        f"{named(item)}: {'.'.join(map(str, error.instance_path))}: {error.message}"
        for error in validator.iter_errors(item)
    ]


@functools.cache
def _built_in(api_version: str, kind: str, version: str) -> jsonschema_rs.Draft202012Validator:
    group, _, number = api_version.rpartition("/")
    short = f"{group.partition('.')[0]}-{number}" if group else number
    schema = _read(version, f"{kind.lower()}-{short}.json")
    return jsonschema_rs.Draft202012Validator(schema, registry=_definitions(version))


@functools.cache
def _definitions(version: str) -> jsonschema_rs.Registry:
    definitions = _read(version, "_definitions.json")
    return jsonschema_rs.Registry([(definitions["$id"], definitions)])


def _read(version: str, file: str) -> dict[str, Any]:
    # found without importing it: that takes seconds, for checks of formats that nobody asks for here
    package = find_spec("kubernetes_validate")
    assert package is not None
    assert package.origin is not None
    folder = Path(package.origin).parent / "kubernetes-json-schema" / f"v{version}.0-local-strict"
    content: dict[str, Any] = json.loads((folder / file).read_bytes())
    return content


@functools.cache
def _own(kind: str) -> jsonschema_rs.Draft202012Validator:
    definition = yaml.safe_load((ROOT / "crds" / f"{kind.lower()}s.yaml").read_text(encoding="utf-8"))
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return jsonschema_rs.Draft202012Validator(schema)


def _at(value: Any, path: str) -> Any:
    for part in path.split("."):
        value = (value or {}).get(part)
    return value
