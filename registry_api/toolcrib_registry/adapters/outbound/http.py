"""The one HTTP client that reaches out: for calls and for issuers' keys.

Every connection passes the guard twice: it judges what a name resolves to, and the address about to be dialled, so
that no later lookup can come between (`dialling`). That holds for addresses that were looked up seconds ago, too
(`dns_cache`). A connection that one rule allowed is never used under another.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial

from toolcrib.telemetry import tracing
from toolcrib.wire.probes import ProbeOutcome
from toolcrib_registry.adapters.outbound.answers import Answer
from toolcrib_registry.adapters.outbound.cares import OWNER, CaresResolver
from toolcrib_registry.adapters.outbound.connection import Connection, request_head
from toolcrib_registry.adapters.outbound.dialling import Gate, Trust, dial
from toolcrib_registry.adapters.outbound.dns_cache import Names, Resolve
from toolcrib_registry.adapters.outbound.forbidden_hosts import ForbiddenNames
from toolcrib_registry.adapters.outbound.pool import Place, Pool
from toolcrib_registry.adapters.outbound.touch import touch
from toolcrib_registry.outbound import hosts
from toolcrib_registry.outbound.errors import TimedOut, Unreachable
from toolcrib_registry.outbound.guard import EgressRule, PolicySource, Target, dns_name
from toolcrib_registry.outbound.messages import NO_END, OutboundRequest, OutboundResponse


class OutboundHttp:
    """HTTP/1.1 with pooled, guarded connections; no proxies, no cookies, no redirects."""

    def __init__(self, policy: PolicySource, *, resolve: Resolve | None = None) -> None:
        self._policy = policy
        self._names = Names(resolve or CaresResolver())
        self._forbidden = ForbiddenNames(policy.current.forbidden_names, self._names)
        self._pool, self._trust = Pool(), Trust()
        self._closed = False

    async def __aenter__(self) -> OutboundHttp:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections and wait until they are; nothing can be sent any more."""
        self._closed = True
        await self._pool.close()
        await self._forbidden.close()
        await self._names.close()

    async def send(self, request: OutboundRequest) -> OutboundResponse:
        """The answer to `request`, read whole and within its bounds.

        Raises:
            OutboundError: see `outbound.errors`.
        """
        async with self.open(request) as answer:
            body = await answer.whole()
        return OutboundResponse(answer.status, answer.headers, body)

    def open(self, request: OutboundRequest) -> AbstractAsyncContextManager[Answer]:
        """The answer to `request`, to be read inside; a connection whose answer is not read whole is closed.

        Raises:
            OutboundError: see `outbound.errors`.
        """
        return _Opened(request, self._connected, self._pool)

    async def touch(self, target: Target, *, seconds: float, owner: str = "") -> ProbeOutcome:
        """Open a connection and close it: see `touch`."""
        if self._closed:
            return ProbeOutcome.UNREACHABLE
        OWNER.set(owner)
        await self._forbidden.refresh()
        return await touch(target, self._gate(target.reach), seconds=seconds)

    async def _connected(self, request: OutboundRequest, until: float | None) -> tuple[Place, Connection]:
        """A connection for a request, and where to put it back; `until`, by the event loop's clock, bounds a new one."""
        if self._closed:
            raise Unreachable("the registry is stopping")
        target = request.target
        context = await self._trust.context(request.ca_file) if target.scheme == "https" else None
        place = (target.pool, context)
        connection = None
        if self._forbidden.known:
            await self._forbidden.refresh()
            connection = self._pool.take(place)
        if connection is None:
            try:
                async with asyncio.timeout_at(until):
                    connection = await self._pool.make(partial(self._dialled, request, context))
            except TimeoutError:
                if until is None:
                    raise
                raise _late(request) from None
        if self._closed:
            connection.give_up(Unreachable("the registry is stopping"))
        return place, connection

    async def _dialled(self, request: OutboundRequest, context: ssl.SSLContext | None) -> Connection:
        target = request.target
        if not self._forbidden.known:  # wait for both lookups at the same time
            self._look_ahead(target)
            await self._forbidden.refresh()
        return await dial(target, self._gate(target.reach), context, request.owner)

    def _look_ahead(self, target: Target) -> None:
        if target.address is None and hosts.address(target.host) is None:
            self._names.begin(dns_name(target.host, target.reach), target.port)

    def _gate(self, reach: EgressRule) -> Gate:
        return Gate(self._policy, reach, self._names, self._forbidden)


class _Opened:
    """What `OutboundHttp.open` gives."""

    __slots__ = ("_answer", "_connected", "_connection", "_late", "_place", "_pool", "_request")

    def __init__(
        self,
        request: OutboundRequest,
        connected: Callable[[OutboundRequest, float | None], Awaitable[tuple[Place, Connection]]],
        pool: Pool,
    ) -> None:
        self._request, self._connected, self._pool = request, connected, pool
        self._late: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Answer:
        request, until = self._request, None
        if request.timeout < NO_END:
            loop = asyncio.get_running_loop()
            until = loop.time() + request.timeout
        self._place, self._connection = await self._connected(request, until)
        if until is not None:
            # cheaper than `asyncio.timeout`, on the way of every call
            self._late = loop.call_at(until, _expire, self._connection, request)
        try:
            if tracing.is_on():
                await _traced(request, self._connection)
            else:
                _ask(request, self._connection, {})
                await self._connection.head()
            self._answer = Answer(self._connection, request.max_bytes)
        except BaseException:
            self._leave(ended=False)
            raise
        return self._answer

    async def __aexit__(self, *_: object) -> None:
        self._leave(ended=self._answer.ended)

    def _leave(self, *, ended: bool) -> None:
        if self._late is not None:
            self._late.cancel()
        if ended:
            self._pool.put(self._place, self._connection)
        else:  # the rest must not be read, nor the connection used again
            self._connection.give_up(Unreachable("given up"))


async def _traced(request: OutboundRequest, connection: Connection) -> None:
    """Return when the head of an answer is there."""
    about: dict[str, tracing.Value | None] = {
        "http.request.method": request.method,
        "server.address": request.target.host,
        "server.port": request.target.port,
    }
    with tracing.span(request.method, about, kind="client") as span:
        _ask(request, connection, tracing.headers())
        await connection.head()
        span.set({"http.response.status_code": connection.status})


def _ask(request: OutboundRequest, connection: Connection, more: Mapping[str, str]) -> None:
    headers = {
        "host": "",  # servers want it first
        "accept-encoding": "identity",
        **request.headers,
        **more,
    }
    headers["host"] = request.target.authority
    connection.ask(request_head(request.method, request.path, headers, request.body), request.body)


def _expire(connection: Connection, request: OutboundRequest) -> None:
    connection.give_up(_late(request))


def _late(request: OutboundRequest) -> TimedOut:
    return TimedOut(f"no complete response within {request.timeout:g} s")
