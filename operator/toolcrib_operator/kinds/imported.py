"""What a ToolServer's status says of its server and of the import of its tools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from toolcrib.imports.definitions import LeftOut
from toolcrib.resources.conditions import ConditionReason
from toolcrib.resources.servers import MOST_INSTRUCTIONS
from toolcrib.text import escape, truncate
from toolcrib.wire.imports import ServerOutcome, ServerSeen
from toolcrib_operator.kinds import statuses
from toolcrib_operator.kinds.verdicts import Cause
from toolcrib_operator.objects import Entry

VERIFIED, IMPORTED = "Verified", "Imported"
MOST_TOLD = 8
"""Tools that a message names."""


@dataclass(frozen=True, slots=True)
class Carried:
    """How far the import of a list has come.

    Attributes:
        imported: Tools that there are for it.
        held: Tools that it lacks and that are kept, since it shrank.
        left_out: tools that no Tool was written for.
        done: whether everything is written; else `problem` says what is in the way, if anything is.
        instructions: what the server says of all its tools, cut.
        instructions_digest: of the whole; None: it says nothing.
    """

    imported: int = 0
    held: int = 0
    left_out: tuple[LeftOut, ...] = ()
    done: bool = False
    problem: str = ""
    instructions: str = ""
    instructions_digest: str | None = None


@dataclass(frozen=True, slots=True)
class ImportState:
    """What a replica says of a server, and what became of its list; None: nothing yet."""

    seen: ServerSeen | None = None
    carried: Carried | None = None


_SAID = {
    ServerOutcome.UNREACHABLE: ConditionReason.UNREACHABLE,
    ServerOutcome.SERVER_ERROR: ConditionReason.SERVER_ERROR,
    ServerOutcome.RATE_LIMITED: ConditionReason.RATE_LIMITED,
    ServerOutcome.AUTHENTICATION_FAILED: ConditionReason.AUTHENTICATION_FAILED,
    ServerOutcome.LOGIN_REQUIRED: ConditionReason.LOGIN_REQUIRED,
    ServerOutcome.TRANSPORT_UNSUPPORTED: ConditionReason.TRANSPORT_UNSUPPORTED,
    ServerOutcome.PROTOCOL_ERROR: ConditionReason.PROTOCOL_ERROR,
    ServerOutcome.TOO_LARGE: ConditionReason.TOO_LARGE,
    ServerOutcome.EGRESS_REFUSED: ConditionReason.EGRESS_REFUSED,
    ServerOutcome.NO_ADDRESS: ConditionReason.NO_ADDRESS,
    ServerOutcome.CREDENTIAL_PENDING: ConditionReason.CREDENTIAL_MISSING,
    ServerOutcome.CREDENTIAL_REFUSED: ConditionReason.CREDENTIAL_NOT_ALLOWED,
}
_UNREAD = Cause(ConditionReason.NOT_YET_IMPORTED)
Row = tuple[bool | None, Cause]


def verified(entry: Entry, state: ImportState | None) -> tuple[Row, bool]:
    """Whether the server answered a handshake and gave a whole list, and whether that is news that may still come."""
    seen = None if state is None else state.seen
    if seen is None or seen.outcome is ServerOutcome.PENDING:
        return _kept(entry, VERIFIED) or (None, _UNREAD), True
    if seen.outcome is ServerOutcome.LISTED:
        return (True, Cause(ConditionReason.VERIFIED)), False
    message = seen.detail
    if seen.metadata_url is not None:
        message = f"{message} The server's login is described at {seen.metadata_url}."
    return (False, Cause(_SAID[seen.outcome], message.strip())), False


def imported(entry: Entry, state: ImportState | None) -> tuple[Row, bool]:
    """Whether its list stands as Tools, and whether that is news that may still come."""
    carried = None if state is None else state.carried
    if carried is None:
        return _kept(entry, IMPORTED) or (False, _UNREAD), True
    if not carried.done:
        if carried.problem:
            return (False, Cause(ConditionReason.IMPORT_FAILED, carried.problem)), False
        return _kept(entry, IMPORTED) or (False, Cause(ConditionReason.IMPORTING)), True
    if carried.held:
        message = (
            f"The server's list lacks {carried.held} of the tools that are here, more than half: they stay until"
            " spec.import.shrinkGrace is over. Check the server."
        )
        return (False, Cause(ConditionReason.SHRUNK, message)), False
    if carried.left_out:
        reason, told = ConditionReason.TOOLS_LEFT_OUT, _named(carried.left_out)
        message = f"{carried.imported} tools are imported, {len(carried.left_out)} are left out: {told}"
        return (True, Cause(reason, message)), False
    return (True, Cause(ConditionReason.IMPORTED)), False


def shrunk_since(entry: Entry) -> str | None:
    """Since when the status says that the list shrank."""
    found = statuses.condition(entry.status, IMPORTED)
    if found is None or found.get("reason") != ConditionReason.SHRUNK:
        return None
    return str(found.get("lastTransitionTime") or "") or None


def fields(
    entry: Entry, state: ImportState | None, approved: Callable[[str | None], bool]
) -> dict[str, object]:
    """What the server says of itself, and of its last whole list; nothing where nothing is known.

    Args:
        entry: the ToolServer.
        state: what is known.
        approved: whether all its tools are approved, and with instructions of this digest.
    """
    seen = None if state is None else state.seen
    if seen is None or seen.set_digest is None:
        return {}
    info = {"name": seen.server_name, "version": seen.server_version}
    carried = None if state is None else state.carried
    said: dict[str, object] = {}
    if carried is not None and carried.done:
        text = truncate(escape(truncate(carried.instructions, MOST_INSTRUCTIONS)), MOST_INSTRUCTIONS) or None
        said = {"instructions": text, "instructionsDigest": carried.instructions_digest}
        if approved(carried.instructions_digest):
            said |= {
                "approvedInstructions": text,
                "approvedInstructionsDigest": carried.instructions_digest,
            }
        else:
            kept = ("approvedInstructions", "approvedInstructionsDigest")
            said |= {key: entry.status.get(key) for key in kept}
    return {
        "serverInfo": {key: value for key, value in info.items() if value is not None} or None,
        "protocolVersion": seen.protocol_version,
        "toolCount": seen.tools,
        "setDigest": seen.set_digest,
        **said,
    }


def _kept(entry: Entry, kind: str) -> Row | None:
    """The condition as it is written."""
    found = statuses.condition(entry.status, kind)
    kept = statuses.kept(entry.status, kind)
    if (
        found is None
        or kept is None
        or kept[1].reason in (ConditionReason.NOT_ACCEPTED, ConditionReason.DISABLED)
    ):
        return None
    return (None if found.get("status") == "Unknown" else kept[0]), kept[1]


def _named(left_out: Sequence[LeftOut]) -> str:
    told = "; ".join(map(str, left_out[:MOST_TOLD]))
    more = len(left_out) - MOST_TOLD
    return told + (f"; and {more} more" if more > 0 else "")
