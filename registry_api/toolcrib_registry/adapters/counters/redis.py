"""Counters in Redis or Valkey, shared by all replicas: one script charges a call, on all its accounts or on none.

Questions take turns, so that a burst of one account delays nobody else. From its turn on each ends within the timeout.
After a failure the server is left alone for half a second, so that not every call waits for it. What it says goes to
the log as a kind of error only: no address, no credential.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import secrets
import ssl
import time
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from redis.asyncio import BlockingConnectionPool, Connection, Redis, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import RedisError

from toolcrib.telemetry.logs import Trouble
from toolcrib_registry.adapters.counters import script
from toolcrib_registry.limits.counters import (
    Charge,
    CountersBusy,
    CountersUnavailable,
    Groups,
    Shortage,
)
from toolcrib_registry.limits.fair_queue import Turns

log = logging.getLogger(__name__)
_T = TypeVar("_T")
_PREFIX = "toolcrib:2"
"""With the version of the layout: replicas of another one count for themselves."""
_PAUSE_SECONDS = 0.5
_AT_ONCE = 16
_RETURNS_AT_ONCE = 8
_WAITING_EACH = 512
_WAITING = 4096
_WAITING_SECONDS = 5.0
_CONNECTIONS = 64
"""Enough for all turns, and for questions that nobody waits for any more while a server hangs."""
_LOOKS = 50
_PATIENCE_SECONDS = 2.0
_PORT = 6379
_RETURN_TRIES = 30
_RETURN_SECONDS = 1.0
"""A slot that is in doubt is given back beside the calls, again and again; at last its lease ends by itself."""


@dataclass(frozen=True, slots=True)
class RedisPlace:
    """Where the server is, and how to prove who asks.

    `url` is `redis://host:port/database`, or `rediss://` for TLS; never with a password. The files are read at each
    connection.
    """

    url: str
    username: str | None = None
    password_file: str | None = None
    ca_file: str | None = None
    timeout: float = 0.25


class RedisCounters:
    """Implements `limits.counters.Counters` for many replicas.

    Args:
        place: the server.
        clock: monotonic seconds, for the pause after a failure.
    """

    def __init__(self, place: RedisPlace, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._redis = Redis.from_pool(_pool(place))
        self._script = self._redis.register_script(script.CHARGE)
        self._guard = _Guard(place.timeout, clock)
        self._returning: set[asyncio.Task[None]] = set()
        self._later: set[asyncio.Task[None]] = set()

    async def charge(self, groups: Groups, *, lease: float) -> Charge | Shortage:
        """Count one call on one account of each group, on all or on none.

        Raises:
            CountersUnavailable: whether it was counted is not known; a slot that was taken is given back.
            CountersBusy: it was not; too many calls are waiting to be counted.
        """
        return await self._guard(self._charged(groups, lease), groups[0][0].account, self._too_late)

    async def release(self, charge: Charge) -> None:
        """Free its slot; goes on by itself if the caller is cancelled meanwhile, never raises else."""
        if charge.accounts:
            await asyncio.shield(self._give_back(charge))

    async def healthy(self) -> None:
        """Return if the server answers.

        Raises:
            CountersUnavailable: it does not.
        """
        await self._guard(self._ping())

    async def aclose(self) -> None:
        """Give back what is held, then close the connections."""
        await self._guard.aclose()
        while self._returning:
            await asyncio.wait(self._returning)
        for task in self._later:
            task.cancel()
        await asyncio.gather(*self._later, return_exceptions=True)
        await self._redis.aclose(close_connection_pool=True)

    async def _charged(self, groups: Groups, lease: float) -> Charge | Shortage:
        slot = secrets.token_hex(8)
        accounts, asked = script.question(groups, slot, lease)
        keys = [_key(account, of) for account in accounts for of in ("day", "minute", "slots")]
        try:
            told = await self._script(keys=keys, args=[asked])
        except BaseException:
            # it may have been taken, even after this: a connection that broke can be read to its end later
            if held := script.bounding(groups):
                _kept(self._later, self._try_again(Charge((), held, slot)))
            raise
        return script.answer(groups, slot, told)

    def _too_late(self, answer: Charge | Shortage) -> None:
        if isinstance(answer, Charge) and answer.accounts:
            self._give_back(answer)

    def _give_back(self, charge: Charge) -> asyncio.Task[None]:
        return _kept(self._returning, self._returned(charge))

    async def _returned(self, charge: Charge) -> None:
        try:
            await self._guard(self._forget(charge))
        except CountersUnavailable:
            _kept(self._later, self._try_again(charge))

    async def _try_again(self, charge: Charge) -> None:
        for _ in range(_RETURN_TRIES):
            await asyncio.sleep(_RETURN_SECONDS)
            with contextlib.suppress(CountersUnavailable):
                await self._guard(self._forget(charge))
                return

    async def _forget(self, charge: Charge) -> None:
        for account in charge.accounts:
            await self._redis.zrem(_key(account, "slots"), charge.slot)

    async def _ping(self) -> None:
        await self._redis.ping()


def _kept(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task


class _Guard:
    """Bounds each question in time, and asks none for a while after one failed.

    Its time begins with its turn, and is spent only while this process runs: an event loop that has much to do, or a
    machine that has, must not look like a server that is silent.

    The question is a task of its own, and not cancelled: redis-py may swallow a cancellation while it connects, and
    what the server was told cannot be cancelled before it has answered. The connection's own timeout ends it.
    """

    def __init__(self, timeout: float, clock: Callable[[], float]) -> None:
        self._timeout = timeout
        self._clock = clock
        self._until = 0.0
        self._answered = -math.inf
        self._trouble = Trouble(log)
        self._left: set[asyncio.Task[Any]] = set()
        self._charges = Turns(_AT_ONCE, each=_WAITING_EACH, together=_WAITING, seconds=_WAITING_SECONDS)
        # slots are given back amid charges, too, which have a turn already and would wait for each other
        self._returns = Turns(_RETURNS_AT_ONCE)

    async def __call__(
        self,
        asking: Coroutine[Any, Any, _T],
        account: str | None = None,
        late: Callable[[_T], object] = lambda answer: None,
    ) -> _T:
        """The answer; one that comes when nobody waits any more goes to `late`.

        It waits for a turn of `account`. None: it is short, frees something, and waits for its like only.

        Raises:
            CountersBusy: its turn does not come, or its answer while others do.
            CountersUnavailable: there is no answer.
        """
        turns = self._returns if account is None else self._charges
        try:
            self._left_alone()
            await turns.take(account or "")
            try:
                self._left_alone()
            except CountersUnavailable:
                turns.give()
                raise
        except BaseException:
            asking.close()
            raise
        asked, task = self._clock(), asyncio.create_task(asking)
        try:
            # bit by bit: an answer that is there already is read before a bit is over, however late that is noticed
            for _ in range(_LOOKS):
                if (await asyncio.wait([task], timeout=self._timeout / _LOOKS))[0]:
                    break
        except BaseException:
            task.add_done_callback(lambda _: turns.give())
            self._leave(task, late)
            raise
        turns.give()
        if not task.done():
            self._leave(task, late)
            if self._answered > asked:
                raise CountersBusy("counting this call took too long")
        try:
            # not done: its deadline is over
            answer = task.result()
        except (Exception, asyncio.CancelledError) as error:
            # all of them: of a server that dies amid an answer redis-py raises more than its own errors
            self._until = self._clock() + _PAUSE_SECONDS
            why = "no answer in time" if not task.done() else _kind(error)
            self._trouble.failed("counter store unavailable (%s): limits cannot be charged", why)
            raise CountersUnavailable(why) from None
        self._answered = self._clock()
        self._trouble.over("counter store available again")
        return answer

    def _left_alone(self) -> None:
        if self._clock() < self._until:
            raise CountersUnavailable("the counter store failed a moment ago")

    async def aclose(self) -> None:
        """Wait for the end of what nobody waits for any more; the connection's own timeout bounds it."""
        if self._left:
            await asyncio.wait(self._left)

    def _leave(self, task: asyncio.Task[_T], late: Callable[[_T], object]) -> None:
        def ended(task: asyncio.Task[_T]) -> None:
            self._left.discard(task)
            if not task.cancelled() and task.exception() is None:
                late(task.result())

        self._left.add(task)
        task.add_done_callback(ended)


def _kind(error: BaseException) -> str:
    """What kind of error, and of one that nobody foresaw, where it comes from; never its message."""
    kind = type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, (RedisError, OSError)) or not frames:
        return kind
    return f"{kind} at {Path(frames[-1].filename).name}:{frames[-1].lineno}"


class _Password(CredentialProvider):
    """Reads the file at each connection: a Secret that changes needs no restart."""

    def __init__(self, username: str | None, file: str) -> None:
        self._username = username
        self._file = Path(file)

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        """User and password."""
        try:
            password = self._file.read_text().strip("\r\n")
        except (OSError, UnicodeDecodeError):
            raise Disconnected("the password file cannot be read") from None
        return (password,) if self._username is None else (self._username, password)

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        """The same; a file of a Secret's volume is in memory."""
        return self.get_credentials()


class _Authority:
    """What `SSLConnection` takes its context from: only the authorities of the file, as it is now."""

    def __init__(self, ca_file: str | None) -> None:
        self._ca_file = ca_file

    def get(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self._ca_file)
        except OSError:
            raise Disconnected("the CA file cannot be used") from None


class _Verified(SSLConnection):
    def __init__(self, *, ca_file: str | None, **options: Any) -> None:
        super().__init__(**options)
        self.ssl_context = _Authority(ca_file)  # type: ignore[assignment]


def _pool(place: RedisPlace) -> BlockingConnectionPool:
    parts = urlsplit(place.url)
    patience = max(_PATIENCE_SECONDS, 2 * place.timeout)
    options: dict[str, Any] = {
        "host": parts.hostname,
        "port": parts.port or _PORT,
        "db": int(parts.path.strip("/") or 0),
        # only ends what nobody waits for any more: redis-py counts the time that this process does not run, too
        "socket_timeout": patience,
        "socket_connect_timeout": patience,
        "client_name": "toolcrib-registry",
        # of a connection that a restarted server has dropped, the first use fails; a script that ran counts twice then
        "retry": Retry(NoBackoff(), 1, supported_errors=(Disconnected,)),
    }
    if place.password_file is not None:
        options["credential_provider"] = _Password(place.username, place.password_file)
    if parts.scheme == "rediss":
        options |= {"connection_class": _Verified, "ca_file": place.ca_file}
    else:
        options["connection_class"] = Connection
    return BlockingConnectionPool(max_connections=_CONNECTIONS, timeout=patience, **options)


def _key(account: str, of: str) -> str:
    return f"{_PREFIX}:{account}/{of}"
