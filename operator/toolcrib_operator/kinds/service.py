"""Whether the Service behind a Tool stays in its namespace, and its address (DESIGN §5). Pure.

A Service may lead anywhere: an ExternalName to any host, a headless one or one without a selector to any address that
somebody wrote down, and every EndpointSlice with its name in a label adds endpoints. The registry dials for callers
who cannot reach those places themselves. So a Service is used only if its selector alone says where it leads.
`toolcrib_operator.service_facts` has what is read of the objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from toolcrib.resources.conditions import ConditionReason
from toolcrib.resources.tools import Tool
from toolcrib_operator.kinds.verdicts import Cause

_REMEDY = "Use a Service with a selector and a cluster IP"


@dataclass(frozen=True, slots=True)
class ServiceVerdict:
    """What is known of the Service of one Tool.

    Attributes:
        cluster_ip: what the registry dials; None unless there is neither `refusal` nor `missing`.
        refusal: why the Tool is not accepted.
        missing: what has to be there before the Tool is Ready.
    """

    cluster_ip: str | None = None
    refusal: Cause | None = None
    missing: Cause | None = None


NOT_ASKED = ServiceVerdict()
"""Of a Tool that names no Service, and where nobody reads Services: the registry knows the way, or refuses."""


def service_of(tool: Tool) -> str | None:
    """`namespace/name` of the Service that the tool's backend names."""
    http = tool.spec.backend.http
    if http is None or http.service is None:
        return None
    return f"{tool.metadata.namespace or 'default'}/{http.service.name}"


def assess_service(
    tool: Tool, service: Mapping[str, Any] | None, foreign: Iterable[tuple[str, str]]
) -> ServiceVerdict:
    """Whether calls of a Tool may go to the Service that it names.

    Args:
        tool: it names a Service.
        service: the facts of that Service (`service_facts`), None if there is none.
        foreign: name and reason of each EndpointSlice that bears the Service's name and is not its controller's.
    """
    key, http = service_of(tool), tool.spec.backend.http
    assert key is not None
    assert http is not None
    assert http.service is not None
    if service is None:
        return _missing(
            f"Service {key} does not exist. Create it, or correct spec.backend.http.service.name."
        )
    if (why := service.get("unsupported")) is not None:
        return _refused(f"Service {key} {why}. {_REMEDY}.")
    for name, reason in sorted(foreign):
        return _refused(
            f"EndpointSlice {name} of Service {key} {reason}. {_REMEDY}, and delete that EndpointSlice."
        )
    if not service["ip"]:
        return _missing(f"Service {key} has no cluster IP yet.")
    if (port := http.service.port) not in service["ports"]:
        has = ", ".join(map(str, service["ports"])) or "none"
        return _missing(f"Service {key} has no TCP port {port} (it has: {has}). Correct one of the two.")
    return ServiceVerdict(cluster_ip=service["ip"])


def _missing(message: str) -> ServiceVerdict:
    return ServiceVerdict(missing=Cause(ConditionReason.SERVICE_MISSING, message))


def _refused(message: str) -> ServiceVerdict:
    return ServiceVerdict(refusal=Cause(ConditionReason.SERVICE_UNSUPPORTED, message))
