"""Calls a tool of an MCP server, within the guard, the deadline and the bounds."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import orjson

from toolcrib.identity import Identity, Issuer
from toolcrib.schemas import header_marks
from toolcrib.schemas.header_marks import Mirror
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.calls.arguments import CheckedArguments
from toolcrib_registry.calls.backends import nesting
from toolcrib_registry.calls.backends.authenticating import Caller
from toolcrib_registry.calls.backends.mcp.answers import judged
from toolcrib_registry.calls.backends.mcp.requests import McpRequests
from toolcrib_registry.calls.backends.port import NO_EXCHANGE, Exchange, Logged, Logs, Progress, ToolAnswer
from toolcrib_registry.calls.backends.remedies import CLUSTER, Remedies
from toolcrib_registry.calls.backends.routes import (
    Asserts,
    judged_in_turn,
)
from toolcrib_registry.calls.bounds import CallBounds
from toolcrib_registry.calls.credentials import CredentialStore
from toolcrib_registry.calls.echoed_secrets import Secrets
from toolcrib_registry.calls.errors import NoBackend, UpstreamProtocol
from toolcrib_registry.calls.oauth.tokens import Tokens
from toolcrib_registry.limits.large_requests import LargeRequests
from toolcrib_registry.outbound.guard import PolicySource
from toolcrib_registry.upstream import header_fields, messages
from toolcrib_registry.upstream.client import McpClient
from toolcrib_registry.upstream.servers import Question

_MOST_MIRRORS = 4_096
_MOST_MESSAGE = 4_096
_MOST_LOGGED, _MOST_LOG_BYTES, _MOST_LOG_DEPTH, _MOST_LOGGER = 1_000, 16 << 10, 16, 256
"""Of one call: messages, and of each its bytes, its depth and the characters of its logger's name; others are left out."""


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
        self.requests = McpRequests(
            client,
            credentials,
            policy,
            limits or CallBounds(),
            assertions=assertions,
            tokens=tokens,
            issuers=issuers,
            remedies=remedies,
            clock=clock,
        )
        """Also for what its servers have besides tools."""
        self._large = LargeRequests() if large is None else large
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
        hidden: list[str] = []
        question = self._question(tool, mcp.tool, arguments, exchange, hidden)
        started = self._clock()
        answered = await self.requests.made(
            tool,
            request_id,
            Caller(caller, exchange.token),
            hidden,
            lambda server, asking: self.requests.client.ask(server, asking, question),
            again=tool.repeatable,
        )
        judge = partial(
            judged,
            answered.fields,
            answered.text,
            limits=self.requests.limits,
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
            None if exchange.logs is None else _logged(exchange.logs, hidden),
            "" if exchange.logs is None else exchange.logs.level,
        )

    def _mirrors_of(self, tool: PublishedTool) -> tuple[Mirror, ...]:
        """The arguments that header fields repeat. A tool whose marks are wrong has none."""
        found = self._mirrors.get(tool.digest)
        if found is None:
            found = self._mirrors[tool.digest] = header_marks.marks(tool.input_schema) or ()
            if len(self._mirrors) > _MOST_MIRRORS:
                self._mirrors.popitem(last=False)
        return found


def _logged(logs: Logs, hidden: list[str]) -> Callable[[Mapping[str, Any]], Awaitable[None]]:
    """Tells what is logged, within bounds; a message that repeats what was sent to authenticate is left out."""
    left = _MOST_LOGGED

    async def tell(params: Mapping[str, Any]) -> None:
        nonlocal left
        level, logger = params.get("level"), params.get("logger")
        if "data" not in params or not logs.take(level) or left <= 0:
            return
        left -= 1
        try:
            nesting.check(params["data"], _MOST_LOG_DEPTH)
            data = messages.encoded(params["data"])
        except UpstreamProtocol:
            return
        if len(data) > _MOST_LOG_BYTES:
            return
        name = logger[:_MOST_LOGGER] if isinstance(logger, str) else None
        if not Secrets.of(hidden).repeated_in(data + (name or "").encode(errors="replace")):
            await logs.tell(Logged(str(level), data, name))

    return tell


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
