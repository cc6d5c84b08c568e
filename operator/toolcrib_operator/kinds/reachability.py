"""The condition BackendReachable: what EndpointSlices or a replica's probes say, told only once it is no chance.

What a backend says for the first time is told at once. Another result is told when it came twice in a row (probes), or
has lasted (EndpointSlices, which tell of changes only). Until then the condition stays as it is.
"""

from __future__ import annotations

from toolcrib.resources.conditions import ConditionReason
from toolcrib.wire.probes import MOST_BACKENDS, BackendProbe, ProbeOutcome
from toolcrib.wire.publish import PublishedTool
from toolcrib_operator.kinds import statuses
from toolcrib_operator.kinds.records import Record
from toolcrib_operator.kinds.verdicts import Cause, Reached
from toolcrib_operator.objects import Entry

BACKEND_REACHABLE = "BackendReachable"
_NO_PROBE = (
    ConditionReason.ENDPOINTS_READY,
    ConditionReason.NO_READY_ENDPOINTS,
    ConditionReason.SERVICE_MISSING,
)
"""What EndpointSlices say: where a replica then probes the backend after all, its first result is the first one."""
OFF = Reached(None, Cause(ConditionReason.NOT_PROBED, "Probing of backends is off."))
DISABLED = Reached(None, Cause(ConditionReason.NOT_PROBED, "Backends of disabled tools are not probed."))
LEFT_OUT = Reached(
    None,
    Cause(
        ConditionReason.NOT_PROBED,
        f"The registry probes {MOST_BACKENDS:,} backends at most, and this one is not among them.",
    ),
)
_WAITING = Reached(None, Cause(ConditionReason.NOT_PROBED), settled=False)

_SAID: dict[ProbeOutcome, tuple[ConditionReason, str]] = {
    ProbeOutcome.CONNECTED: (ConditionReason.CONNECTED, "The registry connected to {place}."),
    ProbeOutcome.REFUSED: (
        ConditionReason.REFUSED,
        "{place} refuses connections. Check that the server runs and listens there.",
    ),
    ProbeOutcome.TIMED_OUT: (
        ConditionReason.TIMED_OUT,
        "{place} did not accept a connection in time. Check firewalls and network policies.",
    ),
    ProbeOutcome.NAME_NOT_FOUND: (
        ConditionReason.NAME_NOT_FOUND,
        "The host name of {place} cannot be resolved. Check it in the Tool's backend, and the cluster's DNS.",
    ),
    ProbeOutcome.TLS_FAILED: (
        ConditionReason.TLS_FAILED,
        "The TLS handshake with {place} failed, or its certificate is not trusted. Check the port and the certificate.",
    ),
    ProbeOutcome.UNREACHABLE: (
        ConditionReason.UNREACHABLE,
        "The registry cannot connect to {place}. Check the address and the network's routes.",
    ),
    ProbeOutcome.EGRESS_REFUSED: (
        ConditionReason.EGRESS_REFUSED,
        "The registry's egress rules refuse {place}. Calls answer egress_refused. "
        "Add the host to egress.allow; in the local mode, to hosts.yaml.",
    ),
    ProbeOutcome.NO_ADDRESS: (
        ConditionReason.NO_ADDRESS,
        "The registry knows no address of Service {backend}. Specify it with --backend {backend}=host:port.",
    ),
}


def probed(probe: BackendProbe) -> Reached:
    """What a probe says."""
    if probe.outcome is None:
        return LEFT_OUT if probe.settled else _WAITING
    reason, text = _SAID[probe.outcome]
    message = text.format(place=probe.place or probe.backend, backend=probe.backend)
    return Reached(probe.outcome is ProbeOutcome.CONNECTED, Cause(reason, message), probe.settled)


def observed(
    tool: PublishedTool, endpoints: Reached | None, probe: BackendProbe | None, *, probing: bool
) -> Reached | None:
    """What is known of a tool's backend; None where it has none, or is started and not dialled.

    Args:
        tool: as it is published.
        endpoints: what its Service's EndpointSlices say; None: they were not asked.
        probe: what a replica says. It knows the way to a Service that the registry's own settings move.
        probing: whether replicas are asked to probe at all.
    """
    if tool.backend is None or tool.backend.program is not None:
        return None
    if probe is not None and not (endpoints and probe.outcome in (None, ProbeOutcome.NO_ADDRESS)):
        return probed(probe)
    if endpoints is not None:
        return endpoints
    return (_WAITING if tool.active else DISABLED) if probing else OFF


def told(
    entry: Entry, tool: PublishedTool, seen: Reached, record: Record, now: float, *, settle: float
) -> tuple[Reached, float | None]:
    """What the condition says, and when to look again.

    Args:
        entry: the object, with its status as it is written.
        tool: as it is published.
        seen: what is known of its backend now.
        record: remembers since when something else is seen than the condition tells.
        now: seconds since the epoch.
        settle: how long something else must have been seen, in seconds.
    """
    before = _before(entry, tool)
    if before is None or before.cause.reason is seen.cause.reason:
        record.turned = None
        return seen, None
    if not seen.settled and before.cause.reason not in _NO_PROBE:
        record.turned = None
        return before, None
    if record.turned is None or record.turned[0] is not seen.cause.reason:
        record.turned = (seen.cause.reason, now)
    # asked again before it is written, it must say the same: `turned` goes once it stands in the status
    at = record.turned[1] + settle
    return (before, at) if at > now else (seen, None)


def _before(entry: Entry, tool: PublishedTool) -> Reached | None:
    """What the condition told of the same backend; None where it told nothing yet."""
    found = statuses.condition(entry.status, BACKEND_REACHABLE)
    kept = statuses.kept(entry.status, BACKEND_REACHABLE)
    if found is None or kept is None or found.get("status") == "Unknown":
        return None
    if entry.status.get("routeDigest") != tool.route_digest:
        return None
    return Reached(*kept)
