"""Calls a tool of an MCP server, within the guard, the deadline and the bounds."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import orjson

from toolcrib.identity import Identity, Issuer
from toolcrib.resources.backends import ASSERTION_HEADER
from toolcrib.schemas import header_marks
from toolcrib.schemas.header_marks import Mirror
from toolcrib.wire.publish import PublishedBackend, PublishedTool
from toolcrib_registry.calls.arguments import CheckedArguments
from toolcrib_registry.calls.backends.authenticating import REJECTED, Authenticating, Caller
from toolcrib_registry.calls.backends.mcp.answers import judged
from toolcrib_registry.calls.backends.mcp.refusals import translated
from toolcrib_registry.calls.backends.port import NO_EXCHANGE, Exchange, Progress, ToolAnswer
from toolcrib_registry.calls.backends.remedies import CLUSTER, Remedies
from toolcrib_registry.calls.backends.routes import (
    Asserts,
    Authentication,
    judged_in_turn,
    place,
    repeatable,
    tried,
)
from toolcrib_registry.calls.backends.routes import translated as translated_way
from toolcrib_registry.calls.bounds import CallBounds
from toolcrib_registry.calls.credentials import CredentialStore
from toolcrib_registry.calls.echoed_secrets import Secrets
from toolcrib_registry.calls.errors import NoBackend
from toolcrib_registry.calls.oauth.tokens import Tokens
from toolcrib_registry.limits.large_requests import LargeRequests
from toolcrib_registry.outbound.errors import OutboundError
from toolcrib_registry.outbound.guard import PolicySource, Target
from toolcrib_registry.upstream import header_fields
from toolcrib_registry.upstream.client import McpClient
from toolcrib_registry.upstream.errors import LoginRequired, McpFailure
from toolcrib_registry.upstream.exchanges import Answered
from toolcrib_registry.upstream.servers import Asking, Question, Server

_MOST_MIRRORS = 4_096
_MOST_MESSAGE = 4_096


class McpBackend:
    """Calls tools. Whether the caller may is decided before; the caller's own token never comes here.

    Args:
        client: asks the servers.
        credentials: what the operator pushed.
        policy: the same policy that the client's pool enforces.
        limits: bounds of a call.
        assertions: signs requests to servers that take assertions; None: nothing is signed.
        tokens: obtains access tokens; None: servers that take some are not called.
        issuers: by `iss`; those with an `exchange_url` exchange tokens of callers.
        large: turns of large answers.
        remedies: what to do about a host or Service that may not be called.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        client: McpClient,
        credentials: CredentialStore,
        policy: PolicySource,
        limits: CallBounds | None = None,
        *,
        assertions: Asserts | None = None,
        tokens: Tokens | None = None,
        issuers: Mapping[str, Issuer] | None = None,
        large: LargeRequests | None = None,
        remedies: Remedies = CLUSTER,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._auth = Authenticating(credentials, tokens, remedies, issuers or {})
        self._policy = policy
        self._limits = limits or CallBounds()
        self._assertions = assertions
        self._large = LargeRequests() if large is None else large
        self._remedies = remedies
        self._clock = clock
        self._mirrors: OrderedDict[str, tuple[Mirror, ...]] = OrderedDict()

    async def call(
        self,
        tool: PublishedTool,
        arguments: CheckedArguments,
        request_id: str,
        caller: Identity,
        exchange: Exchange = NO_EXCHANGE,
    ) -> ToolAnswer:
        """What the server answers.

        Raises:
            CallError: see `calls.errors`.
        """
        backend = tool.backend
        mcp = None if backend is None else backend.mcp
        if backend is None or mcp is None or not backend.has_place:
            raise NoBackend("the tool has no backend to call")
        to = place(backend, tool.namespace, self._policy.current, self._remedies)
        hidden: list[str] = []
        question = self._question(tool, mcp.tool, arguments, exchange, hidden)
        timeout = min(backend.timeout, self._limits.timeout)
        started = self._clock()

        async def authenticated() -> Authentication:
            left = timeout - (self._clock() - started)
            found = await self._auth.of(
                backend.auth, tool.namespace, to, left, Caller(caller, exchange.token)
            )
            hidden.extend(found.secrets)
            return found

        async def asked(credential: Authentication) -> Answered:
            sign = self._signs(tool, backend, to, credential, caller, hidden)
            server = Server(_key(mcp.server, credential), to, credential.digest, tool.namespace)
            return await tried(
                lambda seconds: self._client.ask(server, Asking(seconds, sign, request_id), question),
                timeout - (self._clock() - started),
                self._clock,
                again=repeatable(tool),
            )

        credential = await authenticated()
        try:
            try:
                answered = await asked(credential)
            except LoginRequired:  # nothing was executed
                if not self._auth.renewed(credential):
                    raise
                credential = await authenticated()
                answered = await asked(credential)
        except OutboundError as error:
            raise translated_way(error) from error
        except McpFailure as failure:
            if isinstance(failure, LoginRequired) and credential.grant is not None:
                raise REJECTED.copy() from failure
            raise translated(failure, self._limits, tuple(hidden)) from failure
        judge = partial(
            judged,
            answered.fields,
            answered.text,
            limits=self._limits,
            elapsed=self._clock() - started,
            secrets=tuple(hidden),
        )
        return await judged_in_turn(judge, len(answered.text), caller, self._large)

    def _question(
        self,
        tool: PublishedTool,
        name: str,
        arguments: CheckedArguments,
        exchange: Exchange,
        hidden: list[str],
    ) -> Question:
        params: dict[str, Any] = {"name": name, "arguments": orjson.Fragment(arguments.body)}
        if exchange.responses is not None:
            params["inputResponses"] = exchange.responses
        if exchange.state is not None:
            params["requestState"] = exchange.state
        mirrors = self._mirrors_of(tool)
        return Question(
            "tools/call",
            params,
            exchange.meta,
            exchange.capabilities,
            header_fields.fields_of(mirrors, arguments.value) if mirrors else {},
            None if exchange.progress is None else _told(exchange.progress, hidden),
        )

    def _mirrors_of(self, tool: PublishedTool) -> tuple[Mirror, ...]:
        """The arguments that header fields repeat. A tool whose marks are wrong has none."""
        found = self._mirrors.get(tool.digest)
        if found is None:
            found = self._mirrors[tool.digest] = header_marks.marks(tool.input_schema) or ()
            if len(self._mirrors) > _MOST_MIRRORS:
                self._mirrors.popitem(last=False)
        return found

    def _signs(
        self,
        tool: PublishedTool,
        backend: PublishedBackend,
        to: Target,
        credential: Authentication,
        caller: Identity,
        hidden: list[str],
    ) -> Callable[[str, bytes | None], Mapping[str, str]]:
        """Authenticates each request of a call by itself: a server takes an assertion once."""
        signer = self._assertions if backend.asserted else None

        def sign(method: str, body: bytes | None) -> Mapping[str, str]:
            if method == "DELETE":  # a session ends for no caller, and after a token that began it
                return self._auth.latest(credential)
            # of this call, never a later token of another: an answer that repeats it is withheld by `hidden`
            if signer is None:
                return credential.headers
            assertion = signer.made(tool.tool_id, caller, method, to.path, body)
            hidden.append(assertion.rpartition(".")[2])
            return {**credential.headers, ASSERTION_HEADER: assertion}

        return sign


def _key(server: str, credential: Authentication) -> str:
    """What era and session are kept by: callers with tokens of their own share none."""
    grant = credential.grant
    return server if grant is None or not grant.subject else f"{server} {grant.subject[:16]}"


def _told(
    progress: Callable[[Progress], Awaitable[None]], hidden: list[str]
) -> Callable[[Mapping[str, Any]], Awaitable[None]]:
    """Tells of progress; a message that repeats what was sent to authenticate is left out."""

    async def tell(params: Mapping[str, Any]) -> None:
        done, total, message = params.get("progress"), params.get("total"), params.get("message")
        if type(done) not in (int, float):
            return
        said = message[:_MOST_MESSAGE] if isinstance(message, str) else None
        if said is not None and Secrets.of(hidden).repeated_in(said.encode(errors="replace")):
            said = None
        await progress(
            Progress(
                done,  # type: ignore[arg-type]
                total if type(total) in (int, float) else None,
                said,
            )
        )

    return tell
