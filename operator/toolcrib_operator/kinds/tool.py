"""Tools: their fields, their schemas, their name among others, their credential, their place in the quota."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace

from toolcrib import fallbacks, names, publishing
from toolcrib.errors import SchemaUnsafe
from toolcrib.lint import hidden_text
from toolcrib.lint.hidden_text import Hidden
from toolcrib.lint.weaknesses import Weakness
from toolcrib.resources.conditions import ConditionReason
from toolcrib.resources.kinds import Resource
from toolcrib.resources.servers import ToolServer
from toolcrib.resources.tools import Tool, ToolState
from toolcrib.schemas import safety as schema_safety
from toolcrib.wire.probes import place_key
from toolcrib.wire.publish import Credential, PublishedTool
from toolcrib_operator.kinds.approval import APPROVED, approval
from toolcrib_operator.kinds.approval import fields as approval_fields
from toolcrib_operator.kinds.candidates import served, tried
from toolcrib_operator.kinds.facts import SERVER, TOOLS, Batch, Facts
from toolcrib_operator.kinds.kind import Change, Governed, Situation, Told
from toolcrib_operator.kinds.questions import summary
from toolcrib_operator.kinds.quotas import TOOL, as_written
from toolcrib_operator.kinds.reachability import BACKEND_REACHABLE, observed, told
from toolcrib_operator.kinds.records import Record
from toolcrib_operator.kinds.secret import assess_credential, secret_of
from toolcrib_operator.kinds.server import backend_server, server_of
from toolcrib_operator.kinds.service import NOT_ASKED, ServiceVerdict, backend_service, services_of
from toolcrib_operator.kinds.statuses import Desired, Progress, condition, holds, status
from toolcrib_operator.kinds.trials import CANARY
from toolcrib_operator.kinds.verdicts import Cause, Published, Reached, ToolVerdict, invalid
from toolcrib_operator.objects import Entry, Ref
from toolcrib_operator.packing import PackedTool, packed_tool, shared

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
    server: ToolServer | None = None, hidden: Hidden = Hidden.REFUSE, read: Resource | None = None,
) -> ToolVerdict:  # fmt: skip
    """Whether a Tool is used, and what is published of it.

    Args:
        entry: the object.
        owner: which object keeps its name (`name_owner`); None if that is not in question.
        credential: what is wrong with the Secret that its backend needs, if anything.
        service: what is known of the Service that its backend or its server names.
        server: the ToolServer that its backend names.
        hidden: what becomes of hidden characters in its texts.
        read: its `resource`, where it was read already.
    """
    tool = entry.resource if read is None else read
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
        published = publishing.tool(
            tool, cluster_ip=service.cluster_ip, token_ip=service.token_ip, server=server
        )
    except ValueError as error:
        return ToolVerdict(None, Cause(ConditionReason.INVALID, f"spec: {error}"))
    odd = tuple(
        Weakness(ConditionReason.HIDDEN_TEXT, *place.said, hidden_text.HINT)
        for place in found[: hidden_text.MOST_PLACES]
    )
    return ToolVerdict(
        published, service=service.missing, credential=credential, endpoints=service.endpoints, weaknesses=odd,
        approval=approval(tool, published, entry.status),
    )  # fmt: skip


def tool_status(
    entry: Entry, verdict: ToolVerdict, progress: Progress, now: float, reached: Reached | None = None,
    fallback: Cause | None = None,
) -> Desired:  # fmt: skip
    """Status of a Tool: Ready, Accepted, Indexed, Questionable; what is known of its backend and of its fallbacks, if any."""
    rows: list[tuple[str, bool | None, Cause]]
    tool = verdict.published
    if tool is None:
        refusal = verdict.refusal or Cause(ConditionReason.INVALID)
        if refusal.reason is ConditionReason.QUOTA_EXCEEDED:
            refusal = as_written(refusal, told_quota(entry))
        rows = [("Ready", False, Cause(ConditionReason.NOT_ACCEPTED, refusal.message)), ("Accepted", False, refusal),
                ("Indexed", False, Cause(ConditionReason.NOT_ACCEPTED)),
                ("Questionable", False, Cause(ConditionReason.NOT_ACCEPTED))]  # fmt: skip
        return Desired(
            status(
                entry, rows, now, name=None, toolId=None, digest=None, routeDigest=None, approvalDigest=None
            )
        )
    same = entry.status.get("digest") == tool.digest
    indexed = progress.indexed
    if indexed is None:
        indexed = same and holds(entry.status, "Indexed")
    approved = verdict.approval
    index = (
        Cause(ConditionReason.INDEXED)
        if indexed
        else progress.index_problem or Cause(ConditionReason.NOT_INDEXED)
    )
    published = progress.published or holds(entry.status, "Ready", generation=entry.generation)
    waiting = (published, indexed) != (True, True) and progress.index_problem is None
    if tool.state is ToolState.DISABLED:
        ready = Cause(ConditionReason.DISABLED, tool.message or "")
    elif approved is not None and approved.reason is not ConditionReason.APPROVED:
        ready = Cause(ConditionReason.QUARANTINED, approved.message)
    elif (lacking := verdict.service or verdict.credential) is not None:
        ready = lacking
    elif not published:
        none = progress.replicas == 0
        ready = Cause(ConditionReason.NO_REPLICAS if none else ConditionReason.NOT_PUBLISHED)
    elif not indexed:
        ready = index
    else:
        ready = Cause(ConditionReason.READY)
    odd, question = summary(verdict.weaknesses)
    rows = [("Ready", ready.reason is ConditionReason.READY, ready), ("Accepted", True, Cause(ConditionReason.ACCEPTED)),
            ("Indexed", indexed, index), ("Questionable", odd, question)]  # fmt: skip
    if approved is not None:
        rows.append((APPROVED, approved.reason is ConditionReason.APPROVED, approved))
    if reached is not None:
        rows.append((BACKEND_REACHABLE, reached.value, reached.cause))
    if fallback is not None:
        rows.append(("FallbackUsable", fallback.reason is ConditionReason.FALLBACK_USABLE, fallback))
    fields = {
        "name": tool.name,
        "toolId": tool.tool_id,
        "digest": tool.digest,
        "routeDigest": tool.route_digest,
        **approval_fields(tool, approved, entry.status),
    }
    return Desired(status(entry, rows, now, **fields), provisional=waiting)


def fallback_cause(tool: PublishedTool, tools: Mapping[str, PublishedTool]) -> Cause | None:
    """Whether each fallback of a tool is called in its place, by what is published; None where it names none."""
    if not tool.fallback:
        return None
    problems = [said for each in tool.fallback if (said := fallbacks.problem(tool, each, tools)) is not None]
    if problems:
        return Cause(ConditionReason.FALLBACK_REFUSED, "; ".join(problems))
    return Cause(ConditionReason.FALLBACK_USABLE)


def told_quota(entry: Entry) -> Cause | None:
    """The refusal for want of room that its status tells of; None if it tells of none."""
    found = condition(entry.status, "Accepted")
    if found is None or found.get("reason") != ConditionReason.QUOTA_EXCEEDED:
        return None
    return Cause(ConditionReason.QUOTA_EXCEEDED, str(found.get("message") or ""))


def fallbacks_of(tool: Tool) -> list[str]:
    """The ids of the tools that it names as its fallbacks."""
    return [names.tool_id(tool.metadata.namespace or "default", each) for each in tool.spec.fallback]


class ToolKind(Governed):
    """Tools."""

    name = TOOL
    plural = "tools"
    slot = TOOLS
    tells_questions = False  # the weak descriptions of an imported catalog are no thousand events
    page = 10  # a page is parsed at once, and a Tool of 100 KB, with its managedFields, may take 4 MB then
    most = 160

    def kept(self, resource: Resource, *, condense: bool) -> Resource | PackedTool:
        """Packed, where JSON can carry it."""
        packed = packed_tool(resource, condense=condense) if isinstance(resource, Tool) else None
        return super().kept(resource, condense=condense) if packed is None else packed

    def keys(self, entry: Entry) -> Sequence[Hashable]:
        """Its name first; its fallbacks, its Secret, its Services, its ToolServer."""
        tool = entry.head
        if not isinstance(tool, Tool):
            return ()
        secret, server = secret_of(tool), server_of(tool)
        return (
            name_key(tool),
            *(Ref(self.name, key) for key in fallbacks_of(tool)),
            *(() if server is None else (server,)),
            *(() if secret is None else (secret,)),
            *services_of(tool),
        )

    def touched(self, change: Change, facts: Facts) -> Collection[Ref]:
        """Itself, who shares its name or words, before or now, what falls back on it, its canaries, and what those try it for."""
        head = None if change.entry is None else change.entry.head
        alike = facts.lint.update(change.ref.key, head if isinstance(head, Tool) else None)
        named = (*change.before[:1], *change.after[:1])
        holders = (other for name in named for other in facts.links.of(name))
        canaries = [ref for ref in facts.links.of(change.ref) if ref.kind == CANARY]
        tried_for = (facts.records[ref].keys[0] for ref in canaries)
        return {
            change.ref,
            *holders,
            *(Ref(self.name, key) for key in alike),
            *self._led_to(change.ref, facts),
            *canaries,
            *(ref for ref in tried_for if isinstance(ref, Ref)),
        }

    def _led_to(self, tool: Ref, facts: Facts) -> Collection[Ref]:
        """The tools that name it as a fallback, and those that name these."""
        found, due = {tool}, [tool]
        while due:
            new = {ref for ref in facts.links.of(due.pop()) if ref.kind == self.name} - found
            found |= new
            due += new
        return found

    def ends(self, entry: Entry, facts: Facts) -> bool:
        """It is being deleted, or its namespace takes it with it."""
        return entry.deleting is not None or entry.ref.namespace in facts.ending

    def assess(self, entry: Entry, record: Record, facts: Facts) -> ToolVerdict:
        """`assess_tool`, with what is known of its canary; unless its namespace has no room for it."""
        tool, settings = entry.resource, facts.settings  # read once: it is packed
        verdict, record.credentials = self._alone(entry, tool, facts)
        published = verdict.published
        if published is None or not isinstance(tool, Tool):
            self.forget(record, facts)
            return verdict
        verdict = replace(verdict, weaknesses=(*verdict.weaknesses, *facts.lint.weaknesses(tool)))
        if settings.quota is None:
            refusal = told_quota(entry)
        else:
            facts.quotas.put(entry, len(published.model_dump_json()))
            refusal = record.crowded
        if refusal is not None:
            record.credentials = ()
            return self.refused(refusal)
        found = tried(tool, published, facts, lambda ref: self._published_of(ref, facts))
        if (candidate := served(found, facts)) is not None:
            published = published.model_copy(update={"candidate": candidate})
        return replace(verdict, published=_held(entry, record, published), tried=found)

    def _alone(
        self, entry: Entry, tool: Resource | None, facts: Facts
    ) -> tuple[ToolVerdict, tuple[Credential, ...]]:
        """`assess_tool`, with what is known of name, Secret and Service, and the credentials that it needs."""
        settings = facts.settings
        owner, problem, service, server = None, None, NOT_ASKED, None
        credentials: tuple[Credential, ...] = ()
        if isinstance(tool, Tool):
            holders = facts.links.of(name_key(tool))
            if len(holders) > 1:
                found = (facts.objects.get(ref) for ref in holders)
                owner = name_owner(e for e in found if e is not None)
            if (secret := secret_of(tool)) is not None:
                credentials, problem = assess_credential(
                    tool,
                    facts.objects.get(secret),
                    allowed=settings.credential_namespaces,
                    domain=settings.cluster_domain,
                )
            if server_of(tool) is None:
                service = backend_service(tool, facts)
            else:
                way = backend_server(tool, facts)
                server, service = way.server, way.service
                credentials, problem = way.credentials, way.problem
        verdict = assess_tool(
            entry,
            owner=owner,
            credential=problem,
            service=service,
            server=server,
            hidden=settings.hidden_text,
            read=tool,
        )
        return verdict, credentials

    def _published_of(self, ref: Ref, facts: Facts) -> PublishedTool | None:
        """What is published of another Tool, in whatever order the two are assessed."""
        entry, record = facts.objects.get(ref), facts.records.get(ref)
        if entry is None or self.ends(entry, facts) or (record is not None and record.crowded is not None):
            return None
        return self._alone(entry, entry.resource, facts)[0].published

    def refused(self, cause: Cause) -> ToolVerdict:
        """A Tool's verdict."""
        return ToolVerdict(None, cause)

    def forget(self, record: Record, facts: Facts) -> None:
        """It takes no room, and needs no credential."""
        record.credentials = ()
        facts.quotas.drop(record.ref)

    def changed(
        self, ref: Ref, old: Published | None, new: Published | None, facts: Facts, batch: Batch
    ) -> None:
        """Bindings that reach its namespace are counted again. Note a tool that is not what it was, also if it was away."""
        before = old if isinstance(old, PublishedTool) else None
        for item in (old, new):
            if isinstance(item, PublishedTool):
                batch.namespaces.add(item.namespace)
                if item.quarantined and item.backend is not None and item.backend.mcp is not None:
                    batch.drifted.add(Ref(SERVER, item.backend.mcp.server))
        if isinstance(new, PublishedTool):
            before = before or facts.left.pop(ref, None)
            if before is not None and _bare(before) != _bare(new):
                batch.moved.append((_bare(before), _bare(new)))
        elif before is not None:
            facts.left[ref] = _bare(before)
            if len(facts.left) > _REMEMBERED:
                del facts.left[next(iter(facts.left))]

    def status(self, entry: Entry, record: Record, situation: Situation, now: float) -> Desired:
        """See `tool_status`."""
        verdict = record.verdict
        assert isinstance(verdict, ToolVerdict)
        progress = situation.progress(record)
        if verdict.published is not None:
            indexed, problem = situation.indexed(verdict.published)
            progress = replace(progress, indexed=indexed, index_problem=problem)
        seen, tool = None, verdict.published
        fallback = None if tool is None else fallback_cause(tool, situation.snapshot.tools)
        if tool is not None:
            seen = observed(tool, verdict.endpoints, situation.probe(tool), probing=situation.probing)
        if tool is None or seen is None:
            return tool_status(entry, verdict, progress, now, fallback=fallback)
        settle = situation.facts.settings.endpoints_settle if seen is verdict.endpoints else 0.0
        reached, again = told(entry, tool, seen, record, now, settle=settle)
        place = place_key(tool.backend)
        if reached.value is False and place is not None:
            situation.facts.unreachable[tool.tool_id] = place
        else:
            situation.facts.unreachable.pop(tool.tool_id, None)
        return replace(tool_status(entry, verdict, progress, now, reached, fallback), again=again)

    def told(self, entry: Entry, record: Record, situation: Situation, now: float) -> Told:
        """Its status, and its weaknesses."""
        odd = record.verdict.weaknesses if isinstance(record.verdict, ToolVerdict) else ()
        return Told(self.status(entry, record, situation, now).status, odd)


TOOL_KIND = ToolKind()

_REMEMBERED = 4_096


def _held(entry: Entry, record: Record, tool: PublishedTool) -> PublishedTool:
    """The same as it is held: the published one where nothing differs, else one that shares what the World keeps."""
    if isinstance(entry.kept, PackedTool):
        tool = shared(tool, entry.ref.key, entry.kept)
    old = record.published
    return old if isinstance(old, PublishedTool) and old == tool else tool


def _bare(tool: PublishedTool) -> PublishedTool:
    """All of a tool that a deny goes by."""
    return PublishedTool(
        tool_id=tool.tool_id, uid="", namespace=tool.namespace, name=tool.name, server=tool.server,
        scopes=tuple(sorted(tool.scopes)), digest="", route_digest="",
    )  # fmt: skip
