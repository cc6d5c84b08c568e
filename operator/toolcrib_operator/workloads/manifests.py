"""The workload of an Agent, as server-side apply takes it: fields of ours and no others. Pure.

There is no list of tools in it: an agent starts with a URL and an identity.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from toolcrib.resources.agents import Agent
from toolcrib.resources.meta import API_VERSION
from toolcrib_operator.settings import AgentSettings
from toolcrib_operator.workloads import names

Manifest = dict[str, Any]

WRITTEN = "toolcrib.dev/written"
"""An annotation of Deployments: the digest of what was written, so that what is written no more goes from there."""
PORT = 8092
"""Of the runner's /healthz, /readyz and /metrics."""
_USER = 65532
_STATE, _TOKEN, _CA, _KEY = (
    "/var/lib/toolcrib",
    "/var/run/secrets/toolcrib",
    "/etc/toolcrib/ca",
    "/var/run/secrets/model",
)
_RESOURCES = {"requests": {"cpu": "20m", "memory": "96Mi"}, "limits": {"memory": "256Mi"}}
_OF_POD = (
    "nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "priorityClassName", "runtimeClassName",
    "terminationGracePeriodSeconds", "hostAliases", "dnsConfig",
)  # fmt: skip
"""Of the defaults, the fields of a pod's spec."""


def workload(agent: Agent, settings: AgentSettings) -> Manifest:
    """The Job or Deployment of an Agent that has `spec.run`."""
    run, digest = agent.spec.run, agent.run_digest
    assert run is not None
    assert digest is not None
    if run.task is not None:
        template = _template(agent, settings, [])
        template["spec"]["restartPolicy"] = "Never"
        # a second attempt would call tools again that have acted already
        spec: Manifest = {"backoffLimit": 0, "template": template}
        return _object("batch/v1", "Job", names.job(agent.metadata.name, digest), agent) | {"spec": spec}
    template = _template(agent, settings, ["--keep-serving"])
    template["spec"]["containers"][0] |= {
        "startupProbe": _probe("/healthz", periodSeconds=2, failureThreshold=60),
        "livenessProbe": _probe("/healthz", periodSeconds=10, timeoutSeconds=5),
    }
    spec = {
        "replicas": 1 if run.replicas is None else run.replicas,
        "revisionHistoryLimit": 3,
        "selector": {"matchLabels": names.selected_by(agent.metadata.name)},
        "template": template,
    }
    made = _object("apps/v1", "Deployment", names.deployment(agent.metadata.name), agent) | {"spec": spec}
    written = json.dumps(made, sort_keys=True).encode()
    made["metadata"]["annotations"] = {WRITTEN: hashlib.sha256(written).hexdigest()[:32]}
    return made


def _object(api_version: str, kind: str, name: str, agent: Agent) -> Manifest:
    owner = {
        "apiVersion": API_VERSION,
        "kind": "Agent",
        "name": agent.metadata.name,
        "uid": agent.metadata.uid,
        "controller": True,
        # true would take a right over the Agent's finalizers
        "blockOwnerDeletion": False,
    }
    metadata = {
        "name": name,
        "namespace": agent.metadata.namespace,
        "labels": names.labels(agent.metadata.name),
        "ownerReferences": [owner],
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def _template(agent: Agent, settings: AgentSettings, more: list[str]) -> Manifest:
    pod = settings.pod
    metadata: Manifest = {
        "labels": {**(pod.get("podLabels") or {}), **names.labels(agent.metadata.name)},
    }
    if annotations := pod.get("podAnnotations"):
        metadata["annotations"] = dict(annotations)
    restricted = {
        "runAsNonRoot": True,
        "runAsUser": _USER,
        "runAsGroup": _USER,
        "fsGroup": _USER,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    volumes, mounts = _volumes(agent, settings)
    spec: Manifest = {
        "serviceAccountName": agent.service_account,
        "automountServiceAccountToken": False,
        # a Service named like us would become variables such as TOOLCRIB_URL, which read as settings
        "enableServiceLinks": False,
        "securityContext": _over(restricted, pod.get("podSecurityContext")),
        "containers": [_container(agent, settings, more) | {"volumeMounts": mounts}],
        "volumes": volumes,
        **{name: copy.deepcopy(pod[name]) for name in _OF_POD if pod.get(name)},
    }
    if settings.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in settings.pull_secrets]
    return {"metadata": metadata, "spec": spec}


def _container(agent: Agent, settings: AgentSettings, more: list[str]) -> Manifest:
    confined = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    return {
        "name": "agent",
        "image": settings.image,
        "imagePullPolicy": settings.pull_policy,
        "args": ["agent", "run", f"--name={agent.metadata.name}", *more, f"--state={_STATE}"],
        "env": [*_environment(agent, settings), *copy.deepcopy(settings.pod.get("extraEnv") or [])],
        "ports": [{"name": "metrics", "containerPort": PORT, "protocol": "TCP"}],
        # ready: it has discovered its tools once
        "readinessProbe": _probe("/readyz", periodSeconds=2, timeoutSeconds=5),
        "resources": copy.deepcopy(settings.pod.get("resources") or _RESOURCES),
        "securityContext": _over(confined, settings.pod.get("securityContext")),
    }


def _environment(agent: Agent, settings: AgentSettings) -> list[Manifest]:
    spec = agent.spec
    run, model = spec.run, spec.model
    assert run is not None
    said: dict[str, str | None] = {
        "TOOLCRIB_URL": settings.registry_url,
        "TOOLCRIB_TOKEN_FILE": f"{_TOKEN}/token",
        "TOOLCRIB_CA_FILE": f"{_CA}/ca.crt" if settings.ca_config_map else None,
        "TOOLCRIB_METRICS_HOST": "0.0.0.0",  # noqa: S104 -- of its pod
        "TOOLCRIB_METRICS_PORT": str(PORT),
        "TOOLCRIB_MODE": spec.mode,
        "TOOLCRIB_CORE_TOOLS": ",".join(spec.core) if spec.core else None,
        "TOOLCRIB_TASK": run.task,
        # a run without tools would count as one that succeeded
        "TOOLCRIB_REQUIRE_REGISTRY": "true" if run.task is not None else None,
        "TOOLCRIB_SYSTEM_PROMPT": run.system_prompt,
    }
    if model is not None:
        keyed = model.api_key_secret_ref is not None
        said |= {
            "TOOLCRIB_MODEL": model.name,
            "TOOLCRIB_MODEL_URL": model.base_url,
            "TOOLCRIB_MODEL_KEY_FILE": f"{_KEY}/api-key" if keyed else None,
        }
    # the kubelet would put variables in the place of $(…), and takes two $ for one
    return [{"name": name, "value": value.replace("$", "$$")} for name, value in said.items() if value]


def _volumes(agent: Agent, settings: AgentSettings) -> tuple[list[Manifest], list[Manifest]]:
    token = {"audience": settings.audience, "expirationSeconds": 3600, "path": "token"}
    volumes: list[Manifest] = [
        {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
        {"name": "state", "emptyDir": {"sizeLimit": "64Mi"}},
        {"name": "token", "projected": {"sources": [{"serviceAccountToken": token}]}},
    ]
    mounts: list[Manifest] = [
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 -- a volume of its own
        {"name": "state", "mountPath": _STATE},
        {"name": "token", "mountPath": _TOKEN, "readOnly": True},
    ]
    if settings.ca_config_map:
        items = [{"key": settings.ca_key, "path": "ca.crt"}]
        volumes.append({"name": "ca", "configMap": {"name": settings.ca_config_map, "items": items}})
        mounts.append({"name": "ca", "mountPath": _CA, "readOnly": True})
    key = None if agent.spec.model is None else agent.spec.model.api_key_secret_ref
    if key is not None:
        secret = {
            "secretName": key.name,
            "defaultMode": 0o440,
            "items": [{"key": key.key, "path": "api-key"}],
        }
        volumes.append({"name": "model-key", "secret": secret})
        mounts.append({"name": "model-key", "mountPath": _KEY, "readOnly": True})
    return volumes, mounts


def _probe(path: str, **times: int) -> Manifest:
    return {"httpGet": {"path": path, "port": "metrics"}, **times}


def _over(base: Mapping[str, Any], changes: Mapping[str, Any] | None) -> Manifest:
    """`base` with changes, in depth; null takes a field away."""
    made = dict(base)
    for name, value in (changes or {}).items():
        if value is None:
            made.pop(name, None)
        elif isinstance(value, Mapping) and isinstance(made.get(name), Mapping):
            made[name] = _over(made[name], value)
        else:
            made[name] = copy.deepcopy(value)
    return made
