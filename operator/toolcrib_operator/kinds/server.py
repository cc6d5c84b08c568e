"""ToolServers: whether the way to a server is known, and what its tools get of it."""

from __future__ import annotations

import shlex
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from toolcrib import publishing
from toolcrib.resources.conditions import ConditionReason
from toolcrib.resources.servers import ToolServer
from toolcrib.resources.tools import Tool
from toolcrib.text import truncate
from toolcrib.wire.imports import ServerWanted
from toolcrib.wire.publish import Credential
from toolcrib_operator.kinds import imported
from toolcrib_operator.kinds.drift import DRIFTED, approved_with, drifted
from toolcrib_operator.kinds.facts import SERVER, SERVERS, Batch, Facts
from toolcrib_operator.kinds.kind import Governed, Situation
from toolcrib_operator.kinds.records import Record
from toolcrib_operator.kinds.secret import SECRET, assess_credential, secret_of, secret_value
from toolcrib_operator.kinds.service import NOT_ASKED, ServiceVerdict, backend_service, services_of
from toolcrib_operator.kinds.statuses import Desired, status
from toolcrib_operator.kinds.verdicts import Cause, Published, ServerVerdict, invalid
from toolcrib_operator.objects import Entry, Ref


@dataclass(frozen=True, slots=True)
class Way:
    """How a registry reaches an MCP server, and with which credentials.

    Attributes:
        server: None where there is none that can be used; then `service` has the refusal.
        service: what is known of its Service.
        credentials: what authenticates to it.
        problem: what is wrong with the credential.
    """

    server: ToolServer | None = None
    service: ServiceVerdict = NOT_ASKED
    credentials: tuple[Credential, ...] = ()
    problem: Cause | None = None


NO_SERVER = Way()
"""Of a Tool whose backend names no ToolServer."""


def way_to(server: ToolServer, facts: Facts) -> Way:
    """The way to a server, by its Service and its Secret."""
    credentials: tuple[Credential, ...] = ()
    problem = None
    if (secret := secret_of(server)) is not None:
        credentials, problem = assess_credential(
            server,
            facts.objects.get(secret),
            allowed=facts.settings.credential_namespaces,
            domain=facts.settings.cluster_domain,
        )
    return Way(server, backend_service(server, facts), credentials, problem)


def server_of(tool: Tool) -> Ref | None:
    """The ToolServer that a tool's backend names."""
    mcp = tool.spec.backend.mcp
    return (
        None if mcp is None else Ref(SERVER, f"{tool.metadata.namespace or 'default'}/{mcp.server_ref.name}")
    )


def backend_server(tool: Tool, facts: Facts) -> Way:
    """The way to the server that a tool's backend names."""
    if (ref := server_of(tool)) is None:
        return NO_SERVER
    entry = facts.objects.get(ref)
    if entry is None or entry.deleting is not None:
        message = f"{ref} does not exist. Create it, or correct spec.backend.mcp.serverRef.name."
        return _refused(ConditionReason.SERVER_MISSING, message)
    server = entry.resource
    if not isinstance(server, ToolServer):
        return _refused(ConditionReason.SERVER_NOT_ACCEPTED, f"{ref} is not accepted; see its conditions.")
    way = way_to(server, facts)
    if way.service.refusal is not None:
        message = f"{ref} is not accepted: {way.service.refusal.message}"
        return _refused(ConditionReason.SERVER_NOT_ACCEPTED, message)
    return way


def _refused(reason: ConditionReason, message: str) -> Way:
    return Way(service=ServiceVerdict(refusal=Cause(reason, message)))


class ServerKind(Governed):
    """ToolServers."""

    name = SERVER
    plural = "toolservers"
    slot = SERVERS

    def keys(self, entry: Entry) -> Sequence[Hashable]:
        """The Secrets and the Services that a ToolServer names."""
        server = entry.resource
        if not isinstance(server, ToolServer):
            return ()
        secret = secret_of(server)
        return (
            *dict.fromkeys(ref for ref, _ in _secrets(server)),
            *(() if secret is None else (secret,)),
            *services_of(server),
        )

    def assess(self, entry: Entry, record: Record, facts: Facts) -> ServerVerdict:
        """Whether its Service may be used, and what is missing."""
        server = entry.resource
        record.credentials = ()
        if not isinstance(server, ToolServer):
            return ServerVerdict(refusal=invalid(entry.findings))
        way = way_to(server, facts)
        if way.service.refusal is not None:
            return ServerVerdict(refusal=way.service.refusal)
        record.credentials = way.credentials
        lacking = way.service.missing or way.problem
        if server.spec.mcp.command is not None:
            lacking = _not_started(server, facts)
        stopped = server.disabled or (server.spec.mcp.command is not None and lacking is not None)
        return ServerVerdict(
            None if stopped else publishing.server(server, way.service.cluster_ip, way.service.token_ip),
            lacking=lacking,
            wanted=None if stopped else _wanted(server, way),
        )

    def refused(self, cause: Cause) -> ServerVerdict:
        """A ToolServer's verdict."""
        return ServerVerdict(refusal=cause)

    def forget(self, record: Record, facts: Facts) -> None:
        """It needs no credential."""
        record.credentials = ()

    def changed(
        self, ref: Ref, old: Published | None, new: Published | None, facts: Facts, batch: Batch
    ) -> None:
        """Bindings that reach its namespace are looked at again: they may name its resources and prompts."""
        batch.namespaces.add(ref.key.partition("/")[0])

    def status(self, entry: Entry, record: Record, situation: Situation, now: float) -> Desired:
        """Ready, Accepted, Verified, Imported, Drifted.

        While no replica says anything new, Verified and Imported stay as they are.
        """
        verdict, server = record.verdict, entry.resource
        assert isinstance(verdict, ServerVerdict)
        if verdict.refusal is not None:
            none = Cause(ConditionReason.NOT_ACCEPTED)
            ready = Cause(ConditionReason.NOT_ACCEPTED, verdict.refusal.message)
            rows = [("Ready", False, ready), ("Accepted", False, verdict.refusal),
                    ("Verified", None, none), ("Imported", False, none), (DRIFTED, False, none)]  # fmt: skip
            return Desired(status(entry, rows, now))
        state = situation.imported(entry.ref)
        (known, seen), waits = imported.verified(entry, state)
        (whole, carried), pending = imported.imported(entry, state)
        accepted = Cause(ConditionReason.ACCEPTED)
        if isinstance(server, ToolServer) and server.disabled:
            ready, known, seen, waits, pending = (
                _DISABLED,
                None,
                Cause(ConditionReason.DISABLED),
                False,
                False,
            )
        elif verdict.lacking is not None:
            ready, waits, pending = verdict.lacking, False, False
        elif known is not True:
            ready = seen
        elif not whole:
            ready = carried
        else:
            ready = Cause(ConditionReason.READY)
        rows = [("Ready", ready.reason is ConditionReason.READY, ready), ("Accepted", True, accepted),
                ("Verified", known, seen), ("Imported", whole, carried),
                (DRIFTED, *drifted(entry.ref, situation.facts))]  # fmt: skip
        known_fields = imported.fields(
            entry, state, lambda said: approved_with(entry.ref, situation.facts, said)
        )
        return Desired(status(entry, rows, now, **known_fields), provisional=waits or pending)


def _not_started(server: ToolServer, facts: Facts) -> Cause | None:
    """Why the command of a server is not started; None: it is."""
    mcp, settings = server.spec.mcp, facts.settings
    assert mcp.command is not None
    if not {server.server_id, "*"} & set(settings.programs):
        shown = truncate(shlex.join(mcp.command), _MOST_COMMAND)
        message = (
            f"It would run: {shown}. Only `toolcrib up --allow-stdio={server.server_id}` starts it; a cluster needs"
            " spec.mcp.service or spec.mcp.url."
        )
        return Cause(ConditionReason.STDIO_NOT_ALLOWED, message)
    for ref, key in _secrets(server):
        problem = secret_value(facts.objects.get(ref), ref, key)[1]
        if problem is not None:
            return problem
    return None


def _secrets(server: ToolServer) -> list[tuple[Ref, str]]:
    namespace = server.metadata.namespace or "default"
    return [
        (Ref(SECRET, f"{namespace}/{e.secret_key_ref.name}"), e.secret_key_ref.key)
        for e in server.spec.mcp.env
        if e.secret_key_ref is not None
    ]


def _wanted(server: ToolServer, way: Way) -> ServerWanted:
    backend = publishing.server_backend(server, way.service.cluster_ip, way.service.token_ip)
    return ServerWanted(server=server.server_id, backend=backend, every=server.spec.refresh)


_MOST_COMMAND = 512
_DISABLED = Cause(
    ConditionReason.DISABLED, "spec.state is Disabled: the server's tools are absent everywhere."
)
TOOL_SERVER = ServerKind()
