"""A call that waits for a person, as an object of a cluster and as replicas know it. Pure; nothing is lost between the two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolcrib import names
from toolcrib.resources import durations
from toolcrib.resources.conditions import timestamp
from toolcrib.resources.confirmations import KIND, PLURAL, CallConfirmation
from toolcrib.resources.meta import API_VERSION
from toolcrib.wire.confirmations import CallDecision, ConfirmableCall


def path(namespace: str | None = None, name: str | None = None) -> str:
    """Where such objects are: all, those of a namespace, or one."""
    within = "" if namespace is None else f"/namespaces/{namespace}"
    return f"/apis/{API_VERSION}{within}/{PLURAL}" + ("" if name is None else f"/{name}")


def manifest_of(call: ConfirmableCall) -> dict[str, Any]:
    """The object that a call waits as."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": call.id, "namespace": call.namespace},
        "spec": {
            "tool": call.tool_id.partition("/")[2],
            "agent": call.agent,
            "issuer": call.issuer,
            "subject": call.subject,
            "names": list(call.names),
            "arguments": call.arguments,
            **({"hiddenCharacters": call.hidden} if call.hidden else {}),
            "askedAt": timestamp(call.asked_at),
            "expiresAt": timestamp(call.expires_at),
            "seal": call.seal,
        },
    }


def call_of(body: Mapping[str, Any]) -> ConfirmableCall:
    """The call of an object, with what was decided.

    Raises:
        ValueError: it is not such an object.
    """
    found = CallConfirmation.model_validate({key: body.get(key) for key in ("metadata", "spec")})
    spec = found.spec
    return ConfirmableCall(
        id=found.metadata.name,
        tool_id=names.tool_id(found.metadata.namespace or "default", spec.tool),
        agent=spec.agent,
        issuer=spec.issuer,
        subject=spec.subject,
        names=spec.names,
        arguments=spec.arguments,
        hidden=spec.hidden_characters or 0,
        asked_at=int(durations.instant(spec.asked_at)),
        expires_at=int(durations.instant(spec.expires_at)),
        seal=spec.seal,
        decision=None if spec.decision is None else CallDecision(spec.decision),
        decided_by=spec.decided_by or "",
        accepted_hidden=spec.accepted_hidden_characters or 0,
    )
