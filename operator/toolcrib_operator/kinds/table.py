"""Every kind that the operator knows: the one list to add a kind to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolcrib.resources.kinds import Resource
from toolcrib_operator.kinds.access_request import ACCESS_REQUEST_KIND
from toolcrib_operator.kinds.agent import AGENT_KIND
from toolcrib_operator.kinds.binding import BINDING, CLUSTER_BINDING
from toolcrib_operator.kinds.canary import CANARY_KIND
from toolcrib_operator.kinds.kind import Kind
from toolcrib_operator.kinds.model_key import MODEL_KEYS
from toolcrib_operator.kinds.namespace import NAMESPACES
from toolcrib_operator.kinds.secret import SECRETS
from toolcrib_operator.kinds.server import TOOL_SERVER
from toolcrib_operator.kinds.service import ENDPOINT_SLICES, SERVICES
from toolcrib_operator.kinds.service_account import SERVICE_ACCOUNTS
from toolcrib_operator.kinds.tool import TOOL_KIND
from toolcrib_operator.objects import Entry

KINDS: tuple[Kind, ...] = (
    TOOL_KIND,
    TOOL_SERVER,
    BINDING,
    CLUSTER_BINDING,
    AGENT_KIND,
    ACCESS_REQUEST_KIND,
    CANARY_KIND,
    SERVICE_ACCOUNTS,
    NAMESPACES,
    SERVICES,
    ENDPOINT_SLICES,
    SECRETS,
    MODEL_KEYS,
)

WATCHED = tuple(kind.name for kind in KINDS if kind.watched)


def entry_of(kind: str, manifest: Mapping[str, Any] | Resource, *, condense: bool = True) -> Entry:
    """An object as the World keeps it; `condense` as of a `World`."""
    if not isinstance(manifest, Mapping):
        manifest = manifest.model_dump(by_alias=True, mode="json", exclude_none=True)
    return next(k for k in KINDS if k.name == kind).read(manifest, condense=condense)
