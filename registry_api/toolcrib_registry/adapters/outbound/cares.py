"""Asks name servers by c-ares, on the event loop and without threads: `/etc/hosts`, `/etc/resolv.conf`, TTLs.

A channel is c-ares' word for a configuration with its sockets and its cache. Each lookup has one of its own. So it
asks the servers that `/etc/resolv.conf` names now, it can be given up alone, and c-ares' cache, which pycares cannot
switch off and which keeps answers for up to an hour, never answers.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter, OrderedDict
from collections.abc import Sequence
from contextvars import ContextVar

import pycares
from pycares import errno

from toolcrib_registry.adapters.outbound.dns_cache import Absent, Answer, NotFound

LATE_SECONDS = 5.0
"""When a lookup ends; its callers decide when that is too late."""
LOOKUPS = 256
UNPROVEN = 128
"""Lookups under way of names that have not answered yet: those that never do leave room for the others. Where it is full,
the owner with the most of them gives way to one with fewer."""
OWNER: ContextVar[str] = ContextVar("owner", default="")
"""On whose behalf a name is looked up: the namespace of a tool; empty: the registry's own."""
MOST_ADDRESSES = 256
"""A name with more is refused, since each address is judged."""
_PROVEN_NAMES = 4_096
_TOO_MANY = "too many lookups are waiting for the name server"
_ABSENT = frozenset({errno.ARES_ENOTFOUND, errno.ARES_ENODATA, errno.ARES_EBADNAME})
_NO_SOCKET = pycares.ARES_SOCKET_BAD


class CaresResolver:
    """Looks names up. Used from one event loop only.

    Args:
        servers: name servers (`address:port`) in place of those in `/etc/resolv.conf`.
    """

    def __init__(self, servers: Sequence[str] = ()) -> None:
        self._servers = tuple(servers)
        self._proven: OrderedDict[str, None] = OrderedDict()
        self._under_way: Counter[str] = Counter()
        self._unproven: dict[str, OrderedDict[asyncio.Timeout, None]] = {}

    async def __call__(self, host: str, port: int = 0) -> Answer:
        """The addresses of `host` in the order to try them in, and the smallest TTL of the records that led there.

        Raises:
            NotFound: it has none (Absent), no server said so in time, or too many lookups wait.
        """
        owner, proven = OWNER.get(), host in self._proven
        if self._under_way.total() >= LOOKUPS or not (proven or self._has_room(owner)):
            raise NotFound(_TOO_MANY)
        before = self._under_way[host]
        self._under_way[host] += 1
        late = asyncio.get_running_loop().time() + LATE_SECONDS
        try:
            async with asyncio.timeout_at(late) as end:
                if not proven:
                    self._unproven.setdefault(owner, OrderedDict())[end] = None
                answer = await self._ask(host, before)
        except TimeoutError:
            raise NotFound(_TOO_MANY if end.when() != late else "the name server did not respond") from None
        finally:
            self._leave(owner, end)
            self._under_way[host] -= 1
            if not self._under_way[host]:
                del self._under_way[host]
        self._prove(host)
        return answer

    def _has_room(self, owner: str) -> bool:
        """Whether one more name of `owner` may be asked for; makes the room, if another owner has more than its share."""
        if sum(map(len, self._unproven.values())) < UNPROVEN:
            return True
        most = max(self._unproven, key=lambda other: len(self._unproven[other]))
        if len(self._unproven[most]) <= len(self._unproven.get(owner, ())) + 1:
            return False
        end = next(iter(self._unproven[most]))
        self._leave(most, end)
        end.reschedule(asyncio.get_running_loop().time())
        return True

    def _leave(self, owner: str, end: asyncio.Timeout) -> None:
        mine = self._unproven.get(owner, OrderedDict())
        mine.pop(end, None)
        if not mine:
            self._unproven.pop(owner, None)

    async def _ask(self, host: str, skip: int) -> Answer:
        try:
            lookup = _Lookup(host, self._servers, skip)
        except pycares.AresError:
            raise NotFound("no name server can be queried") from None
        try:
            return await lookup.ask()
        finally:
            lookup.end()

    def _prove(self, host: str) -> None:
        self._proven[host] = None
        self._proven.move_to_end(host)
        if len(self._proven) > _PROVEN_NAMES:
            self._proven.popitem(last=False)


class _Lookup:
    """One lookup and its channel, whose sockets the running loop watches.

    Args:
        host: the name.
        servers: as of the resolver.
        skip: how many servers are asked last: while one lookup of a name waits, the next begins at another server.
    """

    def __init__(self, host: str, servers: Sequence[str], skip: int) -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[Answer] = self._loop.create_future()
        self._reading: set[int] = set()
        self._writing: set[int] = set()
        self._ended = False
        self._channel = pycares.Channel(
            timeout=LATE_SECONDS,  # the lookup ends then: c-ares has nothing to do at a given time, and needs no timer
            tries=1,
            sock_state_cb=self._watch,
        )
        known = servers or (self._channel.servers if skip else ())
        if known:
            skip %= len(known)
            self._channel.servers = [*known[skip:], *known[:skip]]

    async def ask(self) -> Answer:
        """Ask, once."""
        try:
            self._channel.getaddrinfo(self._host, None, type=socket.SOCK_STREAM, callback=self._told)
        except ValueError:
            raise Absent("it is not a host name") from None
        return await self._answer

    def end(self) -> None:
        """Close the sockets. pycares frees the rest in a thread of its own, which finds nothing left to watch."""
        self._channel.cancel()
        self._ended = True
        for fd in self._reading:
            self._loop.remove_reader(fd)
        for fd in self._writing:
            self._loop.remove_writer(fd)
        self._channel.close()
        del self._channel, self._answer  # they refer to this object, which goes at once without them

    def _told(self, result: pycares.AddrInfoResult | None, error: int | None) -> None:
        if self._answer.done():
            return
        if result is not None and len(result.nodes) <= MOST_ADDRESSES:
            self._answer.set_result(_answer(result))
        elif result is not None:
            self._answer.set_exception(Absent(f"the name has more than {MOST_ADDRESSES} addresses"))
        elif error in _ABSENT:
            self._answer.set_exception(Absent("the name does not exist or has no address"))
        else:
            self._answer.set_exception(NotFound("the name server failed or did not respond"))

    def _watch(self, fd: int, readable: bool, writable: bool) -> None:
        """What c-ares wants to know of a socket; neither: it is about to be closed."""
        if self._ended:
            return
        if readable:
            self._reading.add(fd)
            self._loop.add_reader(fd, self._channel.process_fd, fd, _NO_SOCKET)
        elif fd in self._reading:
            self._reading.discard(fd)
            self._loop.remove_reader(fd)
        if writable:
            self._writing.add(fd)
            self._loop.add_writer(fd, self._channel.process_fd, _NO_SOCKET, fd)
        elif fd in self._writing:
            self._writing.discard(fd)
            self._loop.remove_writer(fd)


def _answer(result: pycares.AddrInfoResult) -> Answer:
    found = dict.fromkeys(node.addr[0].decode("ascii") for node in result.nodes)
    ttls = [node.ttl for node in result.nodes] + [cname.ttl for cname in result.cnames]
    return Answer(tuple(found), min(ttls, default=0))
