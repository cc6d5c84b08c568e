"""Which Secret may be sent where: the rules for backend credentials (DESIGN §4, Credentials)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Mapping
from typing import Any

from toolcrib.resources import credential_hosts
from toolcrib.resources.backends import HttpBackend
from toolcrib.resources.conditions import ConditionReason
from toolcrib.resources.credential_hosts import HOSTS as HOSTS
from toolcrib.resources.servers import McpServer, ToolServer
from toolcrib.resources.tools import Tool
from toolcrib.wire.publish import Credential
from toolcrib_operator.kinds.kind import Kind, made
from toolcrib_operator.kinds.verdicts import Cause
from toolcrib_operator.objects import Entry, Ref

SECRET = "Secret"

LABEL = "toolcrib.dev/backend-credential"


class SecretKind(Kind):
    """Secrets of backends: those that are labelled, in the namespaces whose Secrets may be read."""

    name = SECRET
    plural = "secrets"
    selector = f"{LABEL}=true"
    watched = False

    def read(self, manifest: Mapping[str, Any], *, condense: bool = True) -> Entry:
        """Its data and annotations."""
        metadata = manifest.get("metadata") or {}
        body = {"annotations": metadata.get("annotations") or {}, "data": manifest.get("data") or {},
                "stringData": manifest.get("stringData") or {}}  # fmt: skip
        return made(self.name, metadata, body=body)


SECRETS = SecretKind()


def secret_of(resource: Tool | ToolServer) -> Ref | None:
    """The Secret that a tool's backend or a server needs, in its own namespace."""
    if resource.auth is None:
        return None
    return Ref(SECRET, f"{resource.metadata.namespace or 'default'}/{resource.auth.secret_key_ref.name}")


def assess_credential(
    resource: Tool | ToolServer, secret: Entry | None, *, allowed: Collection[str] | None, domain: str
) -> tuple[tuple[Credential, ...], Cause | None]:
    """The credential of a tool's backend or of a server, or what is wrong with it; ((), None) if it needs none.

    Of an OAuth client it is two values of one Secret: the client's secret goes to the token endpoint, and what is obtained for
    it to the backend, so the Secret must list both.

    Args:
        resource: whose.
        secret: the Secret it names, if it exists and may be read.
        allowed: namespaces whose Secrets the operator reads; None means all.
        domain: the cluster's DNS domain: a Service's whole name ends in it.

    No message ever holds a value.
    """
    auth, ref = resource.auth, secret_of(resource)
    if auth is None or ref is None or ref.namespace is None:
        return (), None
    key = auth.secret_key_ref.key
    if allowed is not None and ref.namespace not in allowed:
        message = f"{ref}: the operator may not read Secrets of this namespace; an administrator can add it to credentials.namespaces"
        return (), Cause(ConditionReason.CREDENTIAL_MISSING, message)
    oauth = auth.oauth
    values: dict[str, str] = {}
    for each_key in (key,) if oauth is None else (key, oauth.client_id_key):
        value, cause = secret_value(secret, ref, each_key)
        if value is None:
            return (), cause
        values[each_key] = value
    assert secret is not None
    hosts = credential_hosts.listed(secret.body["annotations"])
    place = resource.spec.mcp if isinstance(resource, ToolServer) else resource.spec.backend.http
    names = frozenset() if place is None else hosts_of(place, ref.namespace, domain)
    places = [names]
    if oauth is not None and oauth.token_url is not None:
        places.append(credential_hosts.of_address(oauth.token_url))
    if oauth is not None and (at := oauth.token_service) is not None:
        places.append(credential_hosts.of_service(at.name, ref.namespace, at.port, domain))
    for each in places:
        if each.isdisjoint(credential_hosts.entries(hosts)):
            wanted = min(each, key=lambda name: (len(name), name), default="")
            return (), Cause(
                ConditionReason.CREDENTIAL_NOT_ALLOWED,
                f"{ref}: its annotation {HOSTS} does not list {wanted!r}; add the host",
            )
    found = (
        Credential(namespace=ref.namespace, name=ref.name, key=each_key, hosts=hosts, value=value)
        for each_key, value in values.items()
    )
    return tuple(found), None


def secret_value(secret: Entry | None, ref: Ref, key: str) -> tuple[str | None, Cause | None]:
    """One value of a labelled Secret, or what is wrong; no message ever holds a value."""
    if secret is None:
        message = f'{ref} does not exist, or lacks the label {LABEL}: "true"'
        return None, Cause(ConditionReason.CREDENTIAL_MISSING, message)
    if secret.labels.get(LABEL) != "true":
        return None, Cause(ConditionReason.CREDENTIAL_NOT_ALLOWED, f'{ref} lacks the label {LABEL}: "true"')
    if (value := _value(secret, key)) is None:
        message = f"{ref} has no key {key!r}, or its value is empty or not text"
        return None, Cause(ConditionReason.CREDENTIAL_MISSING, message)
    return value, None


def hosts_of(place: HttpBackend | McpServer, namespace: str, domain: str) -> frozenset[str]:
    """Every entry of the annotation that allows a backend's calls."""
    if place.service is not None:
        return credential_hosts.of_service(place.service.name, namespace, place.service.port, domain)
    return credential_hosts.of_address(place.url or "")


def _value(secret: Entry, key: str) -> str | None:
    plain = secret.body["stringData"].get(key)
    if isinstance(plain, str):
        return plain
    encoded = secret.body["data"].get(key)
    if not isinstance(encoded, str):
        return None
    try:
        return base64.b64decode(encoded, validate=True).decode().rstrip("\r\n")
    except (binascii.Error, UnicodeDecodeError):
        return None
