"""Requests to an MCP server on behalf of a caller: where it is, what authenticates each request, within one deadline."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from toolcrib.identity import Identity, Issuer
from toolcrib.resources.backends import ASSERTION_HEADER
from toolcrib.wire.backends import PublishedBackend
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.calls.backends.authenticating import REJECTED, Authenticating, Caller
from toolcrib_registry.calls.backends.mcp.refusals import translated
from toolcrib_registry.calls.backends.remedies import CLUSTER, Remedies
from toolcrib_registry.calls.backends.routes import Asserts, Authentication, place, tried
from toolcrib_registry.calls.backends.routes import translated as translated_way
from toolcrib_registry.calls.bounds import CallBounds
from toolcrib_registry.calls.credentials import CredentialStore
from toolcrib_registry.calls.errors import NoBackend
from toolcrib_registry.calls.oauth.tokens import Tokens
from toolcrib_registry.outbound.errors import OutboundError
from toolcrib_registry.outbound.guard import PolicySource, Target
from toolcrib_registry.upstream.client import McpClient
from toolcrib_registry.upstream.errors import LoginRequired, McpFailure
from toolcrib_registry.upstream.servers import Asking, Server

_T = TypeVar("_T")


class McpRequests:
    """Makes requests. Whether the caller may is decided before; the caller's own token never goes to a server.

    Args:
        client: asks the servers.
        credentials: what the operator pushed.
        policy: the same policy that the client's pool enforces.
        limits: bounds of a call.
        assertions: signs requests to servers that take assertions; None: nothing is signed.
        tokens: obtains access tokens; None: servers that take some are not asked.
        issuers: by `iss`; those with an `exchange_url` exchange tokens of callers.
        remedies: what to do about a host or Service that may not be called.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        client: McpClient,
        credentials: CredentialStore,
        policy: PolicySource,
        limits: CallBounds,
        *,
        assertions: Asserts | None = None,
        tokens: Tokens | None = None,
        issuers: Mapping[str, Issuer] | None = None,
        remedies: Remedies = CLUSTER,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client, self.limits = client, limits
        self._auth = Authenticating(credentials, tokens, remedies, issuers or {})
        self._policy, self._assertions, self._remedies, self._clock = policy, assertions, remedies, clock

    async def made(
        self,
        tool: PublishedTool,
        request_id: str | None,
        caller: Caller,
        hidden: list[str],
        work: Callable[[Server, Asking], Awaitable[_T]],
        *,
        again: bool,
        seconds: float | None = None,
    ) -> _T:
        """What `work` gets of the server of `tool`, a tool or what stands for its resources or prompts.

        Args:
            tool: whose backend is asked, in whose name.
            request_id: for the server's log.
            caller: who asks.
            hidden: gets what was sent to authenticate: no answer may repeat it.
            work: asks; once more after a refused access token, and with `again` where the connection died.
            again: whether asking twice does no harm.
            seconds: for all of it, if fewer than the server's own.

        Raises:
            CallError: see `calls.errors`.
        """
        backend = tool.backend
        mcp = None if backend is None else backend.mcp
        if backend is None or mcp is None or not backend.has_place:
            raise NoBackend("the tool has no backend to call")
        to = place(backend, tool.namespace, self._policy.current, self._remedies)
        timeout = min(
            backend.timeout, self.limits.timeout, self.limits.timeout if seconds is None else seconds
        )
        started = self._clock()

        async def authenticated() -> Authentication:
            left = timeout - (self._clock() - started)
            found = await self._auth.of(backend.auth, tool.namespace, to, left, caller)
            hidden.extend(found.secrets)
            return found

        async def asked(credential: Authentication) -> _T:
            sign = self._signs(tool, backend, to, credential, caller.identity, hidden)
            server = Server(
                mcp.server, to, credential.digest, tool.namespace, _subject(credential), _seconds(credential)
            )
            return await tried(
                lambda left: work(server, Asking(left, sign, request_id)),
                timeout - (self._clock() - started),
                self._clock,
                again=again,
            )

        credential = await authenticated()
        try:
            try:
                return await asked(credential)
            except LoginRequired:  # nothing was executed
                if not self._auth.renewed(credential):
                    raise
                credential = await authenticated()
                return await asked(credential)
        except OutboundError as error:
            raise translated_way(error) from error
        except McpFailure as failure:
            if isinstance(failure, LoginRequired) and credential.grant is not None:
                raise REJECTED.copy() from failure
            raise translated(failure, self.limits, tuple(hidden)) from failure

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


def _subject(credential: Authentication) -> str:
    """The one caller whose token it is: callers with tokens of their own share no session."""
    return "" if credential.grant is None else credential.grant.subject


def _seconds(credential: Authentication) -> float:
    """For how long a caller's own token is good; that of all callers is replaced."""
    grant = credential.grant
    return math.inf if grant is None or not grant.subject else grant.expires_at - time.time()
