"""The one HTTP client that reaches out: for calls and for issuers' keys.

Every connection passes the guard twice: the resolver judges what a name resolves to, and the socket factory judges
the address about to be dialled, so no later lookup can come between. That holds for addresses that were looked up
seconds ago, too (`names`). There is one pool per reach: a connection that was let through under one rule is never used
under another.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import Connection
from yarl import URL

from toolcrib.telemetry import tracing
from toolcrib.wire.probes import ProbeOutcome
from toolcrib_registry.adapters.outbound.answers import CHUNK, CONNECT_SECONDS, Answer, translated
from toolcrib_registry.adapters.outbound.cares import OWNER, CaresResolver
from toolcrib_registry.adapters.outbound.dns_cache import Names, Resolve
from toolcrib_registry.adapters.outbound.forbidden_hosts import ForbiddenNames
from toolcrib_registry.adapters.outbound.touch import touch
from toolcrib_registry.outbound import hosts
from toolcrib_registry.outbound.errors import (
    ProtocolViolation,
    TimedOut,
    Unreachable,
)
from toolcrib_registry.outbound.guard import EgressRule, PolicySource, Target, check_address, dns_name
from toolcrib_registry.outbound.messages import NO_END, OutboundRequest, OutboundResponse

KEEPALIVE_SECONDS = 1.5
"""Shorter than common servers' (gunicorn closes idle connections after 2 s): a call that may not be retried should
not meet a connection that is just being closed."""
MAX_SPOILT = 256
"""Idle connections to one host that are closed for one call, since something has arrived on them unasked."""
MAX_HEADERS = 100
MAX_LINE = 8_190
_AUTOMATIC = ("accept", "user-agent", "content-type")
"""What aiohttp would add by itself."""


class OutboundHttp:
    """HTTP/1.1 with pooled, guarded connections; no proxies, no cookies, no redirects."""

    def __init__(self, policy: PolicySource, *, resolve: Resolve | None = None) -> None:
        self._policy = policy
        self._names = Names(resolve or CaresResolver())
        self._forbidden = ForbiddenNames(policy.current.forbidden_names, self._names)
        self._sessions: dict[EgressRule, aiohttp.ClientSession] = {}
        self._contexts: dict[tuple[str, int], ssl.SSLContext] = {}
        self._closed = False

    async def __aenter__(self) -> OutboundHttp:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections and wait until they are; nothing can be sent any more."""
        self._closed = True
        sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            await session.close()
        await self._forbidden.close()
        await self._names.close()

    async def send(self, request: OutboundRequest) -> OutboundResponse:
        """The answer to `request`, read whole and within its bounds.

        Raises:
            OutboundError: see `outbound.errors`.
        """
        try:
            async with asyncio.timeout(request.timeout):
                response = await self._answered(request)
                try:
                    answer = Answer(response, request.max_bytes)
                    return OutboundResponse(answer.status, answer.headers, await answer.whole())
                except BaseException:
                    response.close()  # the rest must not be read, nor the connection used again
                    raise
        except TimeoutError:
            raise _late(request) from None

    @asynccontextmanager
    async def open(self, request: OutboundRequest) -> AsyncIterator[Answer]:
        """The answer to `request`, to be read inside; a connection whose answer is not read whole is closed.

        Raises:
            OutboundError: see `outbound.errors`.
        """
        try:
            async with asyncio.timeout(None if request.timeout == NO_END else request.timeout) as scope:
                response = await self._answered(request)
                ended = False
                try:
                    answer = Answer(response, request.max_bytes)
                    yield answer
                    ended = answer.ended
                finally:
                    if not ended:
                        response.close()
        except TimeoutError:
            if scope.expired():
                raise _late(request) from None
            raise

    async def touch(self, target: Target, *, seconds: float, owner: str = "") -> ProbeOutcome:
        """Open a connection and close it: see `touch`."""
        if self._closed:
            return ProbeOutcome.UNREACHABLE
        OWNER.set(owner)
        await self._forbidden.refresh()
        return await touch(target, self._guard(target.reach), seconds=seconds)

    async def _answered(self, request: OutboundRequest) -> aiohttp.ClientResponse:
        """The head of an answer; the caller reads the rest."""
        if self._closed:
            raise Unreachable("the registry is stopping")
        OWNER.set(request.owner)
        if not self._forbidden.known:  # wait for both lookups at the same time
            self._look_ahead(request.target)
        with translated():
            await self._forbidden.refresh()
            url = URL(request.target.origin + request.path, encoded=True)
            if not tracing.is_on():
                return await self._exchange(request, url)
            about: dict[str, tracing.Value | None] = {
                "http.request.method": request.method,
                "server.address": request.target.host,
                "server.port": request.target.port,
            }
            with tracing.span(request.method, about, kind="client") as span:
                response = await self._exchange(request, url)
                span.set({"http.response.status_code": response.status})
            return response

    async def _exchange(self, request: OutboundRequest, url: URL) -> aiohttp.ClientResponse:
        place = request.target
        headers = {
            "accept-encoding": "identity",
            **request.headers,
            **tracing.headers(),
            "host": place.authority,
        }
        context = None if request.ca_file is None else await self._context(request.ca_file)
        return await self._session(place.reach).request(
            request.method,
            url,
            data=request.body,
            headers=headers,
            allow_redirects=False,
            # naming what is there anyway costs aiohttp 3 % of a call
            skip_auto_headers=[name for name in _AUTOMATIC if name not in headers] or None,
            ssl=context if context is not None else True,
            server_hostname=place.host if place.address is not None and place.scheme == "https" else None,
        )

    def _look_ahead(self, target: Target) -> None:
        if target.address is None and hosts.address(target.host) is None:
            self._names.begin(dns_name(target.host, target.reach), target.port)

    def _guard(self, reach: EgressRule) -> _Guard:
        return _Guard(self._policy, reach, self._names, self._forbidden)

    def _session(self, reach: EgressRule) -> aiohttp.ClientSession:
        session = self._sessions.get(reach)
        if session is None:
            guard = self._guard(reach)
            connector = _Connector(
                resolver=guard,
                use_dns_cache=False,  # `Names` does it, for all pools together
                socket_factory=guard.socket,
                limit=0,  # `Bulkheads` lets calls in; of keys there is one fetch for each issuer
                keepalive_timeout=KEEPALIVE_SECONDS,
            )
            session = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                auto_decompress=False,
                max_line_size=MAX_LINE,
                max_field_size=MAX_LINE,
                max_headers=MAX_HEADERS,
                read_bufsize=CHUNK,
            )
            # aiohttp repeats GET, PUT and DELETE by itself where a connection dies, and has no public switch for it
            # (its own test client sets this too); whether a call may be repeated is the tool's to say
            session._retry_connection = False
            self._sessions[reach] = session
        return session

    async def _context(self, ca_file: str) -> ssl.SSLContext:
        try:
            changed = os.stat(ca_file).st_mtime_ns
            if (ca_file, changed) not in self._contexts:
                context = await asyncio.to_thread(ssl.create_default_context, cafile=ca_file)
                self._contexts = {k: v for k, v in self._contexts.items() if k[0] != ca_file}
                self._contexts[ca_file, changed] = context
        except (OSError, ssl.SSLError) as error:
            raise Unreachable("the CA bundle cannot be read") from error
        return self._contexts[ca_file, changed]


class _Connector(aiohttp.TCPConnector):
    """Never hands out an idle connection on which something has arrived unasked.

    aiohttp (3.14) checks that when a connection goes back into the pool, not when it leaves it: a second answer sent
    a moment later would be taken for the answer to the next call.
    """

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Any],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109
    ) -> Connection:
        for _ in range(MAX_SPOILT):
            connection = await super().connect(req, traces, timeout)
            protocol = connection.protocol
            if protocol is not None and not protocol.should_close:
                return connection
            connection.close()
        raise ProtocolViolation("the server sent data before any request")


class _Guard(AbstractResolver):
    """Resolver and socket factory of one pool, both under the rule of its reach."""

    def __init__(
        self, policy: PolicySource, reach: EgressRule, names: Names, forbidden: ForbiddenNames
    ) -> None:
        self._policy = policy
        self._reach = reach
        self._names = names
        self._forbidden = forbidden

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._names(dns_name(host, self._reach), port)
        for ip in found:
            # one forbidden address among good ones is no accident: the whole name is refused
            self._check(ip, port)
        return [
            ResolveResult(
                hostname=host,
                host=ip,
                port=port,
                family=socket.AF_INET6 if ":" in ip else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for ip in found
        ]

    def socket(self, info: Any) -> socket.socket:
        """A socket for exactly this address, if it may be dialled; the last gate before the connection."""
        family, kind, proto, _, place = info
        self._check(str(place[0]), int(place[1]))
        return socket.socket(family=family, type=kind, proto=proto)

    def _check(self, ip: str, port: int) -> None:
        policy = self._policy.current
        check_address(ip, policy, reach=self._reach, port=port, closed=self._forbidden.addresses)

    async def close(self) -> None:
        """Nothing is held here."""


def _late(request: OutboundRequest) -> TimedOut:
    return TimedOut(f"no complete response within {request.timeout:g} s")
