"""The client: it finds out once how a server is spoken to, remembers it, and asks.

ask ──► link known? ──no──► server/discover ──┬─ stateless ─────────────────► link
         │ yes                                └─ else initialize ─► session ─► link
         ▼
       POST ──► result
         └─ 404 of a session: one initialize, one retry · another era: one probe, one retry
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from toolcrib_registry.outbound.errors import OutboundError, TimedOut
from toolcrib_registry.outbound.messages import Outbound
from toolcrib_registry.upstream import eras, lists, messages, sessions
from toolcrib_registry.upstream.errors import AnswerBroken, McpFailure, RefusedByRpc, RefusedByStatus
from toolcrib_registry.upstream.exchanges import Answered, Exchanges
from toolcrib_registry.upstream.header_fields import METHOD, NAME, NAMED, VERSION, wrapped
from toolcrib_registry.upstream.lists import BY_NOTICE, Kind, Listed
from toolcrib_registry.upstream.messages import Notification, ServerRequest
from toolcrib_registry.upstream.protocol import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO,
    CLIENT_INFO_META_KEY,
    LOG_LEVEL_META_KEY,
    PROGRESS_TOKEN,
    PROTOCOL_VERSION_META_KEY,
)
from toolcrib_registry.upstream.servers import Asking, Bounds, Facts, Link, Question, Server

log = logging.getLogger(__name__)
_MOST_SERVERS = 4_096
_MOST_REQUESTS = 100
"""That a server may make during one call; each is answered by a POST."""
_ASIDE_SECONDS = 2.0
"""For what is told a server beside calls: that one is cancelled, that a session ends, an answer to a request of its own."""
_MOST_ASIDE = 1_000


@dataclass(slots=True)
class _Known:
    """What is known of one server, at one route."""

    server: Server
    link: Link | None = None
    handshake: bool = False
    """It is of the handshake era: after a session is lost, it is not asked again."""
    sign: Callable[[str, bytes | None], Mapping[str, str]] | None = field(default=None, repr=False)
    """Signs what ends the session."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)
    ends: asyncio.TimerHandle | None = field(default=None, repr=False)


class McpClient:
    """Asks MCP servers. Used from one event loop only.

    Args:
        outbound: the guarded client.
        bounds: how much is sent and read.
    """

    def __init__(self, outbound: Outbound, bounds: Bounds | None = None) -> None:
        self._bounds = bounds or Bounds()
        self._exchanges = Exchanges(outbound, self._bounds)
        self._known: OrderedDict[tuple[str, str], _Known] = OrderedDict()
        self._ids = itertools.count(1).__next__
        self._aside: set[asyncio.Task[None]] = set()
        self.on_change: Callable[[str, Kind], None] = lambda server, kind: None
        """Told the name of a server that says during a call that one of its lists has changed, and which."""

    async def close(self) -> None:
        """End all sessions; what servers are still to be told is told, or given up after a moment."""
        known, self._known = list(self._known.values()), OrderedDict()
        for each in known:
            self._end(each)
        if self._aside:
            await asyncio.wait(set(self._aside), timeout=_ASIDE_SECONDS)
        for task in list(self._aside):
            task.cancel()
        await asyncio.gather(*self._aside, return_exceptions=True)

    async def ask(self, server: Server, asking: Asking, question: Question) -> Answered:
        """The result of one request.

        If the caller is cancelled, or the deadline passes, the server is told: by `notifications/cancelled`, or by
        the end of the connection.

        Raises:
            McpFailure, OutboundError: there is none.
        """
        async with _Deadline(asking):
            return await self._asked(server, asking, question)

    async def facts(self, server: Server, asking: Asking) -> Facts:
        """What the server says of itself: asked now in the stateless era; of a session, what it began with.

        Raises:
            McpFailure, OutboundError: it says nothing.
        """
        known = self._of(server)
        async with _Deadline(asking):
            link = known.link
            if link is None or not link.stateless:
                return (await self._link(known, asking)).facts
            # calls go on with the link that is known
            found = await eras.discovered(self._exchanges, known.server, asking, self._ids)
            if known.link is link:
                known.link = found
            return (found or await self._link(known, asking)).facts

    async def listed(
        self, server: Server, asking: Asking, kind: Kind = Kind.TOOLS, *, at_most: int | None = None
    ) -> Listed:
        """What the server lists of a kind, page by page, within the bounds of lists.

        `at_most`: bytes, if fewer than those say.

        Raises:
            McpFailure, OutboundError: one of the pages did not come.
        """
        bounds = self._bounds
        most = bounds.list_bytes if at_most is None else min(at_most, bounds.list_bytes)
        async with _Deadline(asking):
            pages = await lists.read(partial(self._asked, server, asking), kind, bounds, most)
            known = self._of(server)
            link = known.link or await self._link(known, asking)
        private = pages.private(stateless=link.stateless)
        return Listed(pages.entries, link.facts, pages.size, pages.ttl_ms, private, pages.cut)

    @asynccontextmanager
    async def listen(
        self, server: Server, asking: Asking, kinds: Sequence[Kind] = (Kind.TOOLS,)
    ) -> AsyncIterator[AsyncIterator[Notification]]:
        """The server's notices that its lists of `kinds` have changed, for as long as it sends any.

        In the handshake era it sends those of all lists.

        `asking.seconds` is for the beginning. The iterator ends with the stream.

        Raises:
            RefusedByStatus: 405: the server offers none.
            McpFailure, OutboundError: there is no stream.
        """
        known = self._of(server)
        async with _Deadline(asking):
            link = await self._link(known, asking)
        async with AsyncExitStack() as stack:
            try:
                values = await stack.enter_async_context(self._notices(server, asking, link, kinds))
            except (RefusedByRpc, RefusedByStatus) as refused:
                # any other refusal may mean that there are no notices, whatever the era
                if not eras.lost_session(refused, link) or not self._refused(known, link, refused):
                    raise
                async with _Deadline(asking):
                    link = await self._link(known, asking)
                values = await stack.enter_async_context(self._notices(server, asking, link, kinds))
            yield _notifications(values)

    @asynccontextmanager
    async def follow(
        self, server: Server, asking: Asking, uris: Sequence[str]
    ) -> AsyncIterator[AsyncIterator[Notification] | None]:
        """The server's notices that these resources have changed, for as long as it sends any; None: it does not tell of all of them.

        In the handshake era by a session of its own: servers take one stream a session. `asking.seconds` is for the beginning.

        Raises:
            McpFailure, OutboundError: there is no stream.
        """
        async with AsyncExitStack() as stack:
            async with _Deadline(asking):
                link = await self._link(self._of(server), asking)
                if link.stateless:
                    asked: Mapping[str, Any] = {"notifications": {"resourceSubscriptions": list(uris)}}
                    body, fields = self._written(link, Question("subscriptions/listen", asked), self._ids())
                    values = await stack.enter_async_context(
                        self._exchanges.notices(server, asking, "POST", body, fields)
                    )
                    told = _notifications(values)
                    first = await anext(told, None)
                    notices: AsyncIterator[Notification] | None = told
                    if first is None or not lists.tells_of(first, uris):
                        notices = None
                elif lists.offers_subscriptions(link.facts):
                    notices = await self._subscribed(server, asking, uris, stack)
                else:
                    notices = None
            yield notices

    async def _subscribed(
        self, server: Server, asking: Asking, uris: Sequence[str], stack: AsyncExitStack
    ) -> AsyncIterator[Notification]:
        link = await sessions.begin(self._exchanges, server, asking, self._ids())
        known = _Known(server, link, handshake=True, sign=asking.sign)
        stack.callback(self._end, known)
        fields = sessions.fields_of(link)
        values = await stack.enter_async_context(self._exchanges.notices(server, asking, "GET", None, fields))
        for uri in uris:
            await self._exchanged(server, asking, Question("resources/subscribe", {"uri": uri}), link)
        return _notifications(values)

    def _notices(
        self, server: Server, asking: Asking, link: Link, kinds: Sequence[Kind]
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        if not link.stateless:
            return self._exchanges.notices(server, asking, "GET", None, sessions.fields_of(link))
        question = Question("subscriptions/listen", {"notifications": {kind.wanted: True for kind in kinds}})
        body, fields = self._written(link, question, self._ids())
        return self._exchanges.notices(server, asking, "POST", body, fields)

    async def _asked(self, server: Server, asking: Asking, question: Question) -> Answered:
        known = self._of(server)
        link = await self._link(known, asking)
        try:
            return await self._exchanged(server, asking, question, link)
        except (RefusedByRpc, RefusedByStatus) as refused:
            if not self._refused(known, link, refused):
                raise
        link = await self._link(known, asking)
        return await self._exchanged(server, asking, question, link)

    async def _exchanged(self, server: Server, asking: Asking, question: Question, link: Link) -> Answered:
        id_, asked = self._ids(), 0

        async def hear(heard: Notification | ServerRequest) -> None:
            nonlocal asked
            if isinstance(heard, ServerRequest):
                asked += 1
                if asked > _MOST_REQUESTS:
                    raise AnswerBroken(f"the server made more than {_MOST_REQUESTS} requests during one call")
                if not link.stateless:
                    await self._aside_now(server, asking, messages.answer_to(heard), sessions.fields_of(link))
            elif (changed := BY_NOTICE.get(heard.method)) is not None:
                self.on_change(server.name, changed)
            elif (
                question.progress is not None
                and heard.method == "notifications/progress"
                and heard.params.get(PROGRESS_TOKEN) == id_
            ):
                await question.progress(heard.params)
            elif question.logged is not None and heard.method == "notifications/message":
                await question.logged(heard.params)

        body, fields = self._written(link, question, id_)
        try:
            return await self._exchanges.ask(server, asking, body, id_, fields, hear, question.at_most)
        except asyncio.CancelledError:
            if not link.stateless:  # there the end of the connection says it
                told = messages.notification("notifications/cancelled", {"requestId": id_})
                self._later(self._aside_now(server, asking, told, sessions.fields_of(link)))
            raise

    def _written(self, link: Link, question: Question, id_: int) -> tuple[bytes, dict[str, str]]:
        """A request, and its header fields."""
        meta = dict(question.meta)
        if question.progress is not None:
            meta[PROGRESS_TOKEN] = id_
        if not link.stateless:
            params = {**question.params, "_meta": meta} if meta else question.params
            return messages.request(id_, question.method, params), sessions.fields_of(link)
        meta |= {
            PROTOCOL_VERSION_META_KEY: link.facts.version,
            CLIENT_INFO_META_KEY: CLIENT_INFO,
            CLIENT_CAPABILITIES_META_KEY: question.capabilities,
        }
        if question.log_level:
            meta[LOG_LEVEL_META_KEY] = question.log_level
        fields = {VERSION: link.facts.version, METHOD: question.method, **question.fields}
        name = question.params.get(NAMED.get(question.method, ""))
        if isinstance(name, str):
            fields[NAME] = wrapped(name)
        return messages.request(id_, question.method, {**question.params, "_meta": meta}), fields

    def _of(self, server: Server) -> _Known:
        """What is known of a server; nothing, where its route is another than before."""
        known = self._known.get(server.key)
        if known is None or known.server.route != server.route:
            if known is not None:
                self._end(known)
            known = self._known[server.key] = _Known(server)
            if server.seconds < math.inf:
                loop = asyncio.get_running_loop()
                known.ends = loop.call_later(max(0.0, server.seconds), self._expire, known)
        self._known.move_to_end(server.key)
        if len(self._known) > _MOST_SERVERS:
            self._end(self._known.popitem(last=False)[1])
        return known

    async def _link(self, known: _Known, asking: Asking) -> Link:
        if known.link is not None:
            return known.link
        async with known.lock:  # one asks, all get its answer
            return await self._linked(known, asking)

    async def _linked(self, known: _Known, asking: Asking) -> Link:
        if known.link is not None:
            return known.link
        link: Link | None = None
        if known.handshake:
            try:
                link = await sessions.begin(self._exchanges, known.server, asking, self._ids())
            except (RefusedByRpc, RefusedByStatus, AnswerBroken):
                known.handshake = False
        if link is None:
            link = await eras.link(self._exchanges, known.server, asking, self._ids)
            log.info("MCP server %s speaks %s", known.server.name, link.facts.version)
        known.link, known.handshake, known.sign = link, not link.stateless, asking.sign
        return link

    def _refused(self, known: _Known, link: Link, refused: RefusedByRpc | RefusedByStatus) -> bool:
        """Whether a request that was refused should be sent again, over another link; the one that was used is forgotten."""
        lost = eras.lost_session(refused, link)
        if not lost and not eras.is_of_another(refused, link):
            return False
        if known.link is link:
            known.link = None
            known.handshake = lost
        return True

    def _expire(self, known: _Known) -> None:
        """The caller's token has ended, and what was begun with it."""
        if self._known.get(known.server.key) is known:
            self._end(self._known.pop(known.server.key))

    def _end(self, known: _Known) -> None:
        if known.ends is not None:
            known.ends.cancel()
        link, sign = known.link, known.sign
        if link is None or link.session is None or sign is None:
            return

        async def end() -> None:
            with contextlib.suppress(OutboundError):
                asking = Asking(_ASIDE_SECONDS, sign)
                await self._exchanges.end(known.server, asking, sessions.fields_of(link))

        self._later(end())

    async def _aside_now(
        self, server: Server, asking: Asking, body: bytes, fields: Mapping[str, str]
    ) -> None:
        """Tell a server something; whether it listens does not matter."""
        with contextlib.suppress(OutboundError, McpFailure):
            await self._exchanges.tell(server, replace(asking, seconds=_ASIDE_SECONDS), body, fields)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        if len(self._aside) >= _MOST_ASIDE:
            work.close()
            return
        task = asyncio.create_task(work)
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)


class _Deadline:
    """Of all requests that one question takes. A generator's context costs a call more."""

    __slots__ = ("_scope", "_seconds")

    def __init__(self, asking: Asking) -> None:
        self._seconds, self._scope = asking.seconds, asyncio.timeout(asking.seconds)

    async def __aenter__(self) -> None:
        await self._scope.__aenter__()

    async def __aexit__(self, *raised: Any) -> None:
        try:
            await self._scope.__aexit__(*raised)
        except TimeoutError:
            raise TimedOut(f"no complete response within {self._seconds:g} s") from None


async def _notifications(values: AsyncIterator[Any]) -> AsyncIterator[Notification]:
    async for value in values:
        for each in value if type(value) is list else (value,):
            if type(each) is dict and type(each.get("method")) is str and "id" not in each:
                params = each.get("params")
                yield Notification(each["method"], params if type(params) is dict else {})
