"""Secrets with the keys of models, for the Agents that the operator runs. Only whether there is a key is kept, no value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolcrib.resources import credential_hosts
from toolcrib.resources.agents import Agent
from toolcrib.resources.conditions import ConditionReason
from toolcrib_operator.kinds.kind import Kind, made
from toolcrib_operator.kinds.verdicts import Cause
from toolcrib_operator.objects import Entry, Ref

MODEL_KEY = "ModelKey"
"""What these Secrets are called in the World: a backend's credential is no model key."""
LABEL = "toolcrib.dev/model-key"


class ModelKeyKind(Kind):
    """Secrets that are labelled as model keys, in the namespaces in which agents are run."""

    name = MODEL_KEY
    plural = "secrets"
    selector = f"{LABEL}=true"
    watched = False

    def compact(self, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
        """Its hosts, and the names of its keys: the values go as soon as the page is read."""
        metadata = manifest.get("metadata") or {}
        kept = ("namespace", "name", "uid", "resourceVersion", "labels")
        hosts = credential_hosts.listed(metadata.get("annotations") or {})
        return {
            "metadata": {k: metadata[k] for k in kept if k in metadata},
            "hosts": hosts,
            "keys": _keys(manifest),
        }

    def read(self, manifest: Mapping[str, Any], *, condense: bool = True) -> Entry:
        """The same."""
        if "keys" not in manifest:
            manifest = self.compact(manifest)
        body = {"hosts": manifest["hosts"], "keys": manifest["keys"]}
        return made(self.name, manifest["metadata"], body=body)


MODEL_KEYS = ModelKeyKind()


def key_of_model(agent: Agent) -> Ref | None:
    """The Secret that an Agent names; None: it needs none."""
    model = agent.spec.model
    if model is None or model.api_key_secret_ref is None:
        return None
    return Ref(MODEL_KEY, f"{agent.metadata.namespace or 'default'}/{model.api_key_secret_ref.name}")


def lacking(agent: Agent, secret: Entry | None) -> Cause | None:
    """Why the agent may not have the key that it names; None: it may, or names none."""
    model, ref = agent.spec.model, key_of_model(agent)
    if model is None or ref is None or model.api_key_secret_ref is None:
        return None
    key, named = model.api_key_secret_ref.key, f"Secret {ref.key}"
    if secret is None or secret.labels.get(LABEL) != "true":
        message = f'{named} does not exist, or lacks the label {LABEL}: "true"'
        return Cause(ConditionReason.MODEL_KEY_MISSING, message)
    if key not in secret.body["keys"]:
        return Cause(ConditionReason.MODEL_KEY_MISSING, f"{named} has no key {key!r}, or its value is empty")
    allowed = credential_hosts.of_address(model.base_url or "")
    if allowed.isdisjoint(credential_hosts.entries(secret.body["hosts"])):
        wanted = min(allowed, key=lambda name: (len(name), name), default="")
        message = f"{named}: its annotation {credential_hosts.HOSTS} does not list {wanted!r}; add the host"
        return Cause(ConditionReason.MODEL_KEY_NOT_ALLOWED, message)
    return None


def _keys(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    data = {**(manifest.get("data") or {}), **(manifest.get("stringData") or {})}
    return tuple(sorted(key for key, value in data.items() if value))
