"""The verdict on a Tool: its fields, its schemas, its name among others, its credential."""

from __future__ import annotations

from collections.abc import Iterable

from toolcrib import publishing
from toolcrib.errors import Finding, SchemaUnsafe
from toolcrib.lint import hidden_text
from toolcrib.lint.hidden_text import Hidden
from toolcrib.lint.weaknesses import Weakness
from toolcrib.resources.conditions import ConditionReason
from toolcrib.resources.tools import Tool
from toolcrib.schemas import safety as schema_safety
from toolcrib_operator.kinds.service import NOT_ASKED, ServiceVerdict
from toolcrib_operator.kinds.verdicts import Cause, ToolVerdict
from toolcrib_operator.world import Entry

NameKey = tuple[str, str, str]


def name_key(tool: Tool) -> NameKey:
    """What must be unique: namespace, server and name (DESIGN §4, Names)."""
    return (tool.metadata.namespace or "default", tool.spec.server or "", tool.name)


def name_owner(entries: Iterable[Entry]) -> Entry | None:
    """Which of several Tools with one name keeps it: the oldest; of equally old ones the lower uid.

    Objects that are being deleted do not count.
    """
    alive = (e for e in entries if e.deleting is None)
    return min(alive, key=lambda e: (e.created, e.uid, e.ref.key), default=None)


def assess_tool(
    entry: Entry, *, owner: Entry | None, credential: Cause | None, service: ServiceVerdict = NOT_ASKED,
    hidden: Hidden = Hidden.REFUSE,
) -> ToolVerdict:  # fmt: skip
    """Whether a Tool is used, and what is published of it.

    Args:
        entry: the object.
        owner: which object keeps its name (`name_owner`); None if that is not in question.
        credential: what is wrong with the Secret that its backend needs, if anything.
        service: what is known of the Service that its backend names.
        hidden: what becomes of hidden characters in its texts.
    """
    tool = entry.resource
    if not isinstance(tool, Tool):
        return ToolVerdict(None, invalid(entry.findings))
    for field, schema in (("inputSchema", tool.spec.input_schema), ("outputSchema", tool.spec.output_schema)):
        if schema is None:
            continue
        try:
            schema_safety.check(schema, arguments=field == "inputSchema")
        except SchemaUnsafe as error:
            return ToolVerdict(None, Cause(ConditionReason.SCHEMA_UNSAFE, f"spec.{field}{error}"))
    found = list(hidden_text.places(tool.spec))
    if found and hidden is Hidden.REFUSE:
        return ToolVerdict(None, Cause(ConditionReason.HIDDEN_TEXT, hidden_text.message(found)))
    if owner is not None and owner.ref != entry.ref:
        where = f"server {tool.spec.server!r}" if tool.spec.server else "tools without a server"
        message = (
            f"{owner.ref} is older and has the name {tool.name!r} among {where}: rename or delete one of them"
        )
        return ToolVerdict(None, Cause(ConditionReason.NAME_CONFLICT, message))
    if service.refusal is not None:
        return ToolVerdict(None, service.refusal)
    try:
        published = publishing.tool(tool, cluster_ip=service.cluster_ip)
    except ValueError as error:
        return ToolVerdict(None, Cause(ConditionReason.INVALID, f"spec: {error}"))
    odd = tuple(
        Weakness(ConditionReason.HIDDEN_TEXT, *place.said, hidden_text.HINT)
        for place in found[: hidden_text.MOST_PLACES]
    )
    return ToolVerdict(published, service=service.missing, credential=credential, weaknesses=odd)


def invalid(findings: tuple[Finding, ...]) -> Cause:
    """All findings in one message."""
    return Cause(ConditionReason.INVALID, "; ".join(map(str, findings)))
