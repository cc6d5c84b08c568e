"""Follows resources at their servers: one stream a server for all who follow some of its resources."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.calls.backends.authenticating import Caller, owner
from toolcrib_registry.calls.backends.mcp.requests import McpRequests
from toolcrib_registry.calls.errors import CallError, ToolError, UpstreamTimeout
from toolcrib_registry.outbound.errors import OutboundError
from toolcrib_registry.upstream import reopening
from toolcrib_registry.upstream.errors import McpFailure, NoticesTooFast
from toolcrib_registry.upstream.messages import Notification
from toolcrib_registry.upstream.servers import Asking, Server

log = logging.getLogger(__name__)
OPEN_SECONDS = 5.0
"""For which somebody waits until a server has said that it tells of a resource."""
MOST_URIS, MOST_STREAMS = 256, 1_024
"""Resources of one server that are followed, and servers."""
_UPDATED = "notifications/resources/updated"

Told = Callable[[], None]
_Key = tuple[str, str, tuple[Any, ...] | None]
"""Id and route of what stands for a server's resources, and whose own stream it is (None: everybody's)."""


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
            NotTold: the server does not tell of this resource, or too much is followed.
            CallError: it does not answer.
        """
        whose = owner(part.backend, caller)
        key = (part.tool_id, part.route_digest, whose)
        source = self._sources.get(key)
        if source is None:
            if len(self._sources) >= MOST_STREAMS:
                raise NotTold
            source = self._sources[key] = _Source(
                self._requests, part, Caller(caller.identity, "") if whose is None else caller
            )
        try:
            return await source.follow(uri, told, lambda: self._end(key, source))
        finally:
            self._end(key, source)

    async def close(self) -> None:
        """End all streams."""
        sources, self._sources = list(self._sources.values()), {}
        await asyncio.gather(*(source.close() for source in sources))

    def _end(self, key: _Key, source: _Source) -> None:
        """Forget a stream that nobody needs."""
        if source.idle and self._sources.get(key) is source:
            del self._sources[key]
            source.stop()


class _Source:
    """What is followed at one server."""

    def __init__(self, requests: McpRequests, part: PublishedTool, caller: Caller) -> None:
        self._requests, self._part, self._caller = requests, part, caller
        self._followers: dict[str, dict[object, Told]] = {}
        self._stream: asyncio.Task[None] | None = None
        self._ended: set[asyncio.Task[None]] = set()
        self._lock = asyncio.Lock()
        self._waiting = 0

    @property
    def idle(self) -> bool:
        """Whether nobody follows anything, nor is about to."""
        return not self._followers and not self._waiting

    async def follow(self, uri: str, told: Told, left: Callable[[], None]) -> Callable[[], None]:
        self._waiting += 1
        try:
            async with self._lock:
                if uri not in self._followers or self._stream is None or self._stream.done():
                    await self._widened(uri)
                follower = object()
                self._followers.setdefault(uri, {})[follower] = told
        finally:
            self._waiting -= 1

        def leave() -> None:
            followers = self._followers.get(uri, {})
            followers.pop(follower, None)
            if not followers:
                self._followers.pop(uri, None)
                left()

        return leave

    async def _widened(self, uri: str) -> None:
        """Another stream, of all that is followed and this; the former one ends once there is the other."""
        uris = tuple(dict.fromkeys((*self._followers, uri)))
        if len(uris) > MOST_URIS:
            raise NotTold
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
                for told in list(followers.values()):
                    told()

    def _tell_all(self) -> None:
        for followers in list(self._followers.values()):
            for told in list(followers.values()):
                told()
