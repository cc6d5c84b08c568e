"""Follows resources at their servers: one stream for each caller, joined by all who follow one of its resources.

Setting one up may take seconds, so callers wait only for themselves. Streams, and the resources of one server, have
compartments as calls have (`limits/shares.py`): half for a namespace, a quarter for a caller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.calls.backends.authenticating import Caller, owner
from toolcrib_registry.calls.backends.mcp.requests import McpRequests
from toolcrib_registry.calls.errors import CallError, ToolError, UpstreamTimeout
from toolcrib_registry.failures import Failure
from toolcrib_registry.limits.shares import Path, Shares
from toolcrib_registry.outbound.errors import OutboundError
from toolcrib_registry.upstream import reopening
from toolcrib_registry.upstream.errors import McpFailure, NoticesTooFast
from toolcrib_registry.upstream.messages import Notification
from toolcrib_registry.upstream.servers import Asking, Server

log = logging.getLogger(__name__)
OPEN_SECONDS = 5.0
"""For which somebody waits until a server has said that it tells of a resource."""
MOST_URIS, MOST_STREAMS = 256, 1_024
"""Resources of one server that are followed, and streams to all."""
_UPDATED = "notifications/resources/updated"

Told = Callable[[], None]
_Key = tuple[str, str, tuple[Any, ...]]
"""Id and route of what stands for a server's resources, and whose stream it is."""


class NotTold(ToolError):
    """Nobody tells of changes of this resource."""

    def __init__(self) -> None:
        super().__init__("the server does not tell of changes of this resource")


class Updates:
    """Used from one event loop only.

    Args:
        requests: asks the servers.
    """

    def __init__(self, requests: McpRequests) -> None:
        self._requests = requests
        self._sources: dict[_Key, _Source] = {}
        self._streams = Shares(MOST_STREAMS, MOST_STREAMS // 2, MOST_STREAMS // 4)
        self._uris = Shares(MOST_STREAMS * MOST_URIS, MOST_URIS, MOST_URIS // 2, MOST_URIS // 4)

    def __len__(self) -> int:
        return len(self._sources)

    async def follow(self, part: PublishedTool, uri: str, caller: Caller, told: Told) -> Callable[[], None]:
        """Have `told` called after each change of a resource; what is returned ends that.

        Args:
            part: stands for the resources of its server.
            uri: as the server has it.
            caller: on whose behalf.
            told: also called where changes may have been missed.

        Raises:
            NotTold: the server does not tell of this resource.
            Failure: the caller, its namespace, or all together follow as much as they may.
            CallError: it does not answer.
        """
        identity, own = caller.identity, owner(part.backend, caller) is not None
        server = (part.tool_id, part.route_digest)
        key = (*server, identity.cache_key)
        followers = (identity.tenant, identity.account)
        # a server that knows its callers tells each of its own resources
        path = (" ".join((*server, identity.account) if own else server), *followers)
        source = self._sources.get(key)
        if not own and (source is None or not source.tells(uri)):
            others = (other for (*at, _), other in self._sources.items() if tuple(at) == server)
            source = next((other for other in others if other.tells(uri)), source)
        if source is None or not source.follows(uri):
            _check(self._uris, path, _URIS)
        if source is None:
            _check(self._streams, followers, _STREAMS)
            self._streams.take(followers)
            asks = caller if own else Caller(identity, "")
            left = partial(self._end, key, followers)
            source = self._sources[key] = _Source(self._requests, part, asks, self._uris, left)
        return await source.follow(uri, told, path)

    async def close(self) -> None:
        """End all streams."""
        sources, self._sources = list(self._sources.values()), {}
        await asyncio.gather(*(source.close() for source in sources))

    def _end(self, key: _Key, path: Path) -> None:
        """Forget a stream that nobody needs."""
        if (source := self._sources.pop(key, None)) is not None:
            self._streams.leave(path)
            source.stop()


_STREAMS = (
    "All streams to servers that tell of resources are in use. Retry later.",
    "Callers of your namespace, or of your issuer, follow resources of as many servers as they may. Retry later.",
    "You follow resources of as many servers as you may. Unsubscribe from all resources of a server first.",
)
_URIS = (
    _STREAMS[0],
    "As many resources of this server are followed as may be. Retry later.",
    "Callers of your namespace, or of your issuer, follow as many resources of this server as they may. Retry later.",
    "You follow as many resources of this server as you may. Unsubscribe from another one first.",
)


def _check(shares: Shares, path: Path, refusals: tuple[str, ...]) -> None:
    """Raise Failure where no place is left, with the sentence of the compartment that is full."""
    if (level := shares.full(path)) is not None:
        raise Failure("too_many_subscriptions", refusals[level])


class _Source:
    """One caller's stream of a server, and all who follow what it tells of.

    A resource takes a place of who opened it; if that one leaves, of one who stays.

    Args:
        places: of followed resources.
        left: called when nobody follows anything any more.
    """

    def __init__(
        self,
        requests: McpRequests,
        part: PublishedTool,
        caller: Caller,
        places: Shares,
        left: Callable[[], None],
    ) -> None:
        self._requests, self._part, self._caller = requests, part, caller
        self._places, self._left = places, left
        self._followers: dict[str, dict[object, tuple[Told, Path]]] = {}
        self._payers: dict[str, Path] = {}
        """Whose place each resource takes."""
        self._uris: set[str] = set()
        """The resources that the stream tells of, and somebody follows."""
        self._stream: asyncio.Task[None] | None = None
        self._ended: set[asyncio.Task[None]] = set()
        self._lock = asyncio.Lock()

    def follows(self, uri: str) -> bool:
        """Return True if somebody follows a resource here, or waits for the server to tell of it."""
        return uri in self._followers

    def tells(self, uri: str) -> bool:
        """Return True if the stream tells of a resource."""
        return self._stream is not None and not self._stream.done() and uri in self._uris

    async def follow(self, uri: str, told: Told, path: Path) -> Callable[[], None]:
        """Have `told` called. Whoever opens a resource takes a place of `path`."""
        leave = self._join(uri, told, path)
        try:
            if not self.tells(uri):
                async with self._lock:
                    if not self.tells(uri):
                        await self._widen(uri)
        except BaseException:
            leave()
            raise
        return leave

    def _join(self, uri: str, told: Told, path: Path) -> Callable[[], None]:
        if uri not in self._followers:
            self._places.take(path)
            self._payers[uri], self._followers[uri] = path, {}
        followers, follower = self._followers[uri], object()
        followers[follower] = told, path

        def leave() -> None:
            if followers.pop(follower, None) is None:
                return
            paths = [path for _, path in followers.values()]
            if self._payers[uri] not in paths:
                self._places.leave(self._payers.pop(uri))
                if paths:
                    self._payers[uri] = paths[0]
                    self._places.take(paths[0])
            if not followers:
                del self._followers[uri]
                self._uris.discard(uri)
            if not self._followers:
                self._left()

        return leave

    async def _widen(self, uri: str) -> None:
        """Open another stream, of all that this one tells of and of `uri`; end the former one once there is the other."""
        uris = (*sorted(self._uris), uri)
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        stream = asyncio.create_task(self._run(uris, opened))
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                await opened
        except TimeoutError:
            self._stop(stream)
            raise UpstreamTimeout(f"the server did not answer within {OPEN_SECONDS:g} s") from None
        except BaseException:
            self._stop(stream)
            raise
        former, self._stream = self._stream, stream
        self._uris = {each for each in uris if each in self._followers}
        if former is not None:
            self._stop(former)

    def stop(self) -> None:
        """End the stream."""
        stream, self._stream = self._stream, None
        if stream is not None:
            self._stop(stream)

    def _stop(self, stream: asyncio.Task[None]) -> None:
        stream.cancel()
        self._ended.add(stream)
        stream.add_done_callback(self._ended.discard)

    async def close(self) -> None:
        """End the stream, and return once it has ended."""
        self.stop()
        await asyncio.gather(*self._ended, return_exceptions=True)

    async def _run(self, uris: tuple[str, ...], opened: asyncio.Future[None]) -> None:
        """Follow these, again and again; gives up where the first time fails."""
        failures, loop = 0, asyncio.get_running_loop()
        while True:
            began, too_fast = loop.time(), False
            try:
                async with AsyncExitStack() as stack:
                    notices = await self._opened(uris, stack)
                    if opened.done():
                        self._tell_all()  # who knows what has changed meanwhile
                    else:
                        opened.set_result(None)
                    async for notice in notices:
                        if notice.method == _UPDATED:
                            self._tell(notice.params.get("uri"))
            except NoticesTooFast:
                too_fast = True
                log.warning("%s tells of too many changes of its resources", self._part.tool_id)
            except (CallError, McpFailure, OutboundError) as problem:
                if not opened.done():
                    opened.set_exception(problem)
                    return
            except Exception as problem:
                if not opened.done():
                    opened.set_exception(problem)
                    return
                log.exception("the resources of %s cannot be followed", self._part.tool_id)
            failures = 0 if loop.time() - began > reopening.LASTING and not too_fast else failures + 1
            await asyncio.sleep(reopening.until_heard(failures - 1, refused=False, too_fast=too_fast))

    async def _opened(self, uris: tuple[str, ...], stack: AsyncExitStack) -> AsyncIterator[Notification]:
        async def work(server: Server, asking: Asking) -> AsyncIterator[Notification] | None:
            return await stack.enter_async_context(self._requests.client.follow(server, asking, uris))

        found = await self._requests.made(
            self._part, None, self._caller, [], work, again=True, seconds=OPEN_SECONDS
        )
        if found is None:
            raise NotTold
        return found

    def _tell(self, changed: Any) -> None:
        """Tell those who follow it, or what it is a part of."""
        if type(changed) is not str:
            return
        for uri, followers in list(self._followers.items()):
            if changed == uri or changed.startswith(f"{uri.rstrip('/')}/"):
                for told, _ in list(followers.values()):
                    told()

    def _tell_all(self) -> None:
        for followers in list(self._followers.values()):
            for told, _ in list(followers.values()):
                told()
