"""One call of a tool that is not applied yet: its author's own, through the guard, by the registry's own backend.

Nobody's grant is asked: it is the author's machine. All else is as for a real call: the operator's verdict on the
manifests, the check of the arguments, the outbound guard, the credential's hosts, the assertion, the bounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from toolcrib import entropy
from toolcrib.identity import Identity
from toolcrib.resources.backends import ASSERTION_HEADER
from toolcrib.wire.publish import Credential, Credentials, PublishedTool
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.local.hosts import Hosts, LocalRemedies
from toolcrib_cli.manifests import FileContent, Loaded
from toolcrib_operator.assessment import Assessor
from toolcrib_operator.kinds.secret import SECRET
from toolcrib_operator.kinds.table import WATCHED
from toolcrib_operator.kinds.verdicts import ToolVerdict
from toolcrib_operator.objects import Ref
from toolcrib_operator.settings import LoopSettings
from toolcrib_operator.world import World
from toolcrib_registry.adapters.outbound.http import OutboundHttp
from toolcrib_registry.calls.arguments import Arguments
from toolcrib_registry.calls.assertions.keys import AssertionKeys
from toolcrib_registry.calls.assertions.signing import JWKS_PATH, Assertions
from toolcrib_registry.calls.backends.http.backend import HttpBackend
from toolcrib_registry.calls.backends.kinds import Kinds
from toolcrib_registry.calls.backends.mcp.backend import McpBackend
from toolcrib_registry.calls.credentials import CredentialStore
from toolcrib_registry.calls.errors import CallError
from toolcrib_registry.calls.oauth.tokens import Tokens
from toolcrib_registry.http import serving
from toolcrib_registry.identity.issuer.local import ISSUER
from toolcrib_registry.mcp import results
from toolcrib_registry.outbound.guard import EgressPolicy
from toolcrib_registry.outbound.messages import Outbound, OutboundRequest, OutboundResponse, OutboundStream
from toolcrib_registry.upstream.client import McpClient

HIDDEN = "***"
_OLDER = "2000-01-01T00:00:00+00:00"
_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where the call is made.

    Attributes:
        hosts: where calls may go.
        forbidden: what is never called: the running registry.
        issuer: `iss` of call assertions.
        keys: the folder of their keys; None: a key of this command's own.
        serve_keys: nobody serves these keys at `issuer`, so this command does while it calls.
    """

    hosts: Hosts
    issuer: str
    forbidden: tuple[str, ...] = ()
    keys: Path | None = None
    serve_keys: bool = True


@dataclass(slots=True)
class OneCall:
    """What was sent and what came back. Credentials are hidden."""

    request: dict[str, Any] | None = None
    status: int | None = None
    result: Any = None
    media_type: str = ""
    seconds: float = 0.0
    error: CallError | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Assessed:
    """The operator's verdict on some manifests: tools by id, and the credentials that they use."""

    tools: Mapping[str, PublishedTool]
    credentials: tuple[Credential, ...]
    refusals: Mapping[str, str]
    """Tool id to reason and message."""
    credential_missing: Mapping[str, str]
    """The same for tools that are used, but have no credential."""


def assessed(content: FileContent, others: Iterable[FileContent]) -> Assessed:
    """The verdict on the tools of a file beside those of others, which are older; of one object in both the file's counts."""
    items: dict[tuple[str, str | None, str], tuple[Loaded, str]] = {}
    for other in others:
        items |= {item.key: (item, _OLDER) for item in other.objects}
    now = datetime.now(UTC).isoformat()
    items |= {item.key: (item, now) for item in content.objects}
    world = World(condense=False)
    for kind in (*WATCHED, SECRET):
        world.replace(kind, [_filled(item, at) for item, at in items.values() if item.kind == kind])
    assessor = Assessor(world, LoopSettings(finalizers=False, accounts=False, services=False))
    dirty, _ = world.take()
    assessor.judge(assessor.expand(dirty))
    assessor.settle()
    refusals = {
        ref.key: f"{verdict.refusal.reason}: {verdict.refusal.message}"
        for ref, verdict in assessor.verdicts.items()
        if ref.kind == "Tool" and verdict.refusal is not None
    }
    missing = {
        ref.key: f"{verdict.credential.reason}: {verdict.credential.message}"
        for ref, verdict in assessor.verdicts.items()
        if isinstance(verdict, ToolVerdict) and verdict.credential is not None
    }
    batch = assessor.batch()
    return Assessed({t.tool_id: t for t in batch.tools}, assessor.credentials, refusals, missing)


async def call(
    tool: PublishedTool,
    arguments: dict[str, Any],
    credentials: Iterable[Credential],
    place: Place,
    caller: str,
) -> OneCall:
    """Check the arguments, and call the tool's backend once.

    Args:
        caller: the subject that the assertion names.
    """
    made = OneCall()
    policy = EgressPolicy(
        allow=place.hosts.allow, loopback=True, forbidden=place.forbidden, backends=place.hosts.backends
    )
    store = CredentialStore()
    store.replace(Credentials(epoch=1, credentials=tuple(credentials)))
    keys = AssertionKeys(place.keys, time.time, time.monotonic)
    identity = Identity(issuer=ISSUER, subject=caller, expires_at=time.time() + _SECONDS, cluster=True)
    async with contextlib.AsyncExitStack() as stack:
        outbound = await stack.enter_async_context(OutboundHttp(policy))
        sent = _Noted(outbound, made, _secret_headers(tool))
        tokens, servers = Tokens(outbound, policy, store), McpClient(sent)
        stack.push_async_callback(tokens.close)
        stack.push_async_callback(servers.close)
        shared: dict[str, Any] = {
            "assertions": Assertions(place.issuer, keys, time.time),
            "tokens": tokens,
            "remedies": LocalRemedies("toolcrib try"),
        }
        backend = Kinds(
            HttpBackend(sent, store, policy, **shared), McpBackend(servers, store, policy, **shared)
        )
        if place.serve_keys and tool.backend is not None and tool.backend.asserted:
            await stack.enter_async_context(_serving(place.issuer, keys, made))
        try:
            checked = await Arguments().checked(tool, arguments, identity.account)
            answer = await backend.call(tool, checked, f"try-{entropy.piece().hex()}", identity)
        except CallError as error:
            made.error = error
            return made
    made.seconds, made.media_type = answer.elapsed, answer.media_type
    if answer.is_error:
        made.notes.append("the tool says that it failed")
    made.result = answer.structured if answer.is_json else answer.raw.decode("utf-8", "replace")
    if not answer.raw and answer.blocks:
        made.result = [results.block_json(block) for block in answer.blocks]
    return made


class _Noted:
    """Notes what goes out, without what must not be shown, and the status of what comes back."""

    def __init__(self, inner: Outbound, made: OneCall, hidden: frozenset[str]) -> None:
        self._inner, self._made, self._hidden = inner, made, hidden

    async def send(self, request: OutboundRequest) -> OutboundResponse:
        self._note(request)
        response = await self._inner.send(request)
        self._made.status = response.status
        return response

    @contextlib.asynccontextmanager
    async def open(self, request: OutboundRequest) -> AsyncIterator[OutboundStream]:
        """Of what an MCP server is asked, the call itself is noted."""
        is_call = request.body is not None and json.loads(request.body).get("method") == "tools/call"
        if is_call:
            self._note(request)
        async with self._inner.open(request) as stream:
            if is_call:
                self._made.status = stream.status
            yield stream

    def _note(self, request: OutboundRequest) -> None:
        shown = {
            name: HIDDEN if name.lower() in self._hidden else value for name, value in request.headers.items()
        }
        self._made.request = {
            "method": request.method,
            "url": request.target.origin + request.path,
            "headers": shown,
            "body": None if request.body is None else json.loads(request.body),
        }

    async def close(self) -> None:
        await self._inner.close()


def _secret_headers(tool: PublishedTool) -> frozenset[str]:
    auth = None if tool.backend is None else tool.backend.auth
    named = {auth.header.lower()} if auth is not None and auth.header else set()
    return frozenset({"authorization", ASSERTION_HEADER.lower()} | named)


@contextlib.asynccontextmanager
async def _serving(issuer: str, keys: AssertionKeys, made: OneCall) -> AsyncIterator[None]:
    """Serve the assertion's keys where the tool looks for them, while it is called."""
    place = urlsplit(issuer)
    body = json.dumps(keys.jwks()).encode()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        found = scope["type"] == "http" and scope["path"] == JWKS_PATH
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200 if found else 404, "headers": headers})
        await send({"type": "http.response.body", "body": body if found else b"{}"})

    up, stop = asyncio.Event(), asyncio.Event()
    listener = serving.Listener(app, place.hostname or "127.0.0.1", place.port or 80)
    try:
        bound = listener.bind()
    except OSError as error:
        made.notes.append(
            f"the keys of call assertions cannot be served at {issuer} ({error.strerror}): a tool that verifies them"
            " refuses this call"
        )
        yield
        return
    served = replace(listener, bound=bound)
    task = asyncio.create_task(
        serving.serve([served], stopping=_nothing, ready=lambda ports: up.set(), stop=stop, signals=False)
    )
    try:
        await up.wait()
        yield
    finally:
        stop.set()
        await task


def _nothing() -> None:
    """There is nothing else to stop."""


def chosen(content: FileContent, found: Assessed, name: str | None) -> PublishedTool:
    """The tool of the file that is meant.

    Raises:
        CliError: there is none, several are and none is named, or the operator would refuse it.
    """
    ids = {f"{i.namespace}/{i.name}": i for i in content.objects if i.kind == "Tool"}
    meant = [
        tool_id
        for tool_id, item in ids.items()
        if name is None or name in (tool_id, item.name, getattr(item.resource, "name", None))
    ]
    if len(meant) != 1:
        named = f" called {name}" if name else ""
        hint = f"specify one with --tool: {', '.join(ids)}" if ids else ""
        if not ids and any(item.kind == "ToolServer" for item in content.objects):
            hint = "`toolcrib up` imports the tools of a ToolServer; `toolcrib call TOOL --as ACCOUNT` calls one there"
        raise CliError(
            f"{content.file} has {'no Tool' if not meant else f'{len(meant)} Tools'}{named}",
            hint=hint,
            code=Exit.USAGE,
        )
    if (refusal := found.refusals.get(meant[0])) is not None:
        raise CliError(
            f"{Ref('Tool', meant[0])} would not be accepted: {refusal}",
            hint="correct the manifest; `toolcrib validate` checks it alone",
        )
    return found.tools[meant[0]]


def _filled(item: Loaded, created: str) -> dict[str, Any]:
    metadata = {**(item.body.get("metadata") or {}), "creationTimestamp": created}
    if item.namespace is not None:
        metadata["namespace"] = item.namespace
    return {**item.body, "metadata": metadata}
