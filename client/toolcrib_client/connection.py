"""HTTP to one registry as one identity, for code without an event loop: what `Toolcrib` stands on.

For programs that read the answers themselves, as Toolcrib's agent runner and command line do; agents use `Toolcrib`.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import httpx2

from toolcrib_client import errors, exchange
from toolcrib_client.exchange import Answer, Asked, Trail

TokenSource = Callable[[], str]
"""Asked before every request, so that a token that rotates is picked up. If it has a method `renew`, that is called when
its token was refused."""


@dataclass(frozen=True, slots=True)
class Work:
    """One method's way: what ties its requests to the logs, and when it must end."""

    trail: Trail
    seconds: float
    ends: float

    @classmethod
    def within(cls, seconds: float, trail: Trail) -> Work:
        """Work that ends in so many seconds."""
        return cls(trail, seconds, time.monotonic() + seconds)

    def left(self) -> float:
        """Seconds until the deadline.

        Raises:
            DeadlineExceeded: there are none.
        """
        left = self.ends - time.monotonic()
        if left <= 0:
            raise exchange.too_late(self.seconds, self.trail)
        return left


class Connection:
    """Requests to the registry at `url`, with the token of `token_source`. All methods may be called from several threads.

    If `token_source` has a method `greet`, that gets each new connection (a stream of httpcore) before anything else goes over
    it, and raises ConnectionError if the token must not.

    Raises:
        ValueError: `url` is not http(s), or has a query, a fragment or credentials.
        OSError: `ca_file` holds no certificate that can be used.
    """

    def __init__(
        self,
        url: str,
        token_source: TokenSource | None,
        *,
        ca_file: str | None = None,
        user_agent: str | None = None,
    ) -> None:
        self.url: str = exchange.base_url(url)
        self._token_source = token_source
        named = {} if user_agent is None else {"user_agent": user_agent}
        self._settings = exchange.settings(self.url, ca_file, **named)
        if callable(greet := getattr(token_source, "greet", None)):
            self._settings["event_hooks"] = {"request": [_greeting(greet)]}
        self._pool: tuple[int, httpx2.Client] | None = None
        self._lock = threading.Lock()
        self._streams: set[httpx2.Response] = set()
        self._interrupted = False

    def close(self) -> None:
        """Give up all pooled connections. A later request makes new ones."""
        pool, self._pool = self._pool, None
        if pool is not None and pool[0] == os.getpid():
            pool[1].close()

    def interrupt(self) -> None:
        """End every live stream from another thread, now and in future."""
        with self._lock:
            self._interrupted = True
            for response in self._streams:
                _shut(response)

    def send(self, asked: Asked, work: Work) -> Answer:
        """The answer, whatever its status. A refused token is asked for once more.

        A request that reached nobody is sent again, as is one that only reads and lost its connection.

        Raises:
            TokenUnavailable, RegistryUnavailable, RegistryAnswerInvalid, DeadlineExceeded: there is no answer.
        """
        used = self._authorization(work)
        answer = self._sent(asked, used, work)
        if answer.status == 401 and (fresh := self._authorization(work, refused=True)) != used:
            return self._sent(asked, fresh, work)
        return answer

    @contextmanager
    def events(self, path: str, work: Work) -> Iterator[Answer | httpx2.EventSource]:
        """Open a live stream, or the answer that refused it. `work` bounds it only until it is open.

        Iterating ends when the registry ends the stream; after `exchange.SILENCE` without a byte it counts as lost.

        Raises:
            TokenUnavailable, RegistryUnavailable, RegistryAnswerInvalid, DeadlineExceeded: it broke, or never opened.
        """
        held: httpx2.Response | None = None
        try:
            for last in (False, True):
                headers = {"accept": "text/event-stream", **work.trail.headers()}
                headers |= self._authorization(work, refused=last)
                with self._http().stream(
                    "GET", self.url + path, headers=headers, timeout=_timeout(work.left())
                ) as response:
                    if response.status_code == 401 and not last:
                        continue
                    if response.status_code != 200:
                        yield Answer(response.status_code, response.headers, _body(response, work))
                        return
                    # The body may be silent for longer than the headers; the transport reads the timeout again for it.
                    response.request.extensions["timeout"]["read"] = exchange.SILENCE
                    held = response
                    self._hold(response)
                    yield httpx2.EventSource(response, exchange.MOST_BYTES)
                    return
        except httpx2.SSEError:
            raise exchange.no_stream(work.trail) from None
        except ConnectionError as error:
            raise errors.RegistryUnavailable(str(error), **work.trail.names()) from error
        except httpx2.HTTPError as error:
            raise exchange.unreachable(error, work.trail) from error
        finally:
            if held is not None:
                with self._lock:
                    self._streams.discard(held)

    def _hold(self, response: httpx2.Response) -> None:
        with self._lock:
            self._streams.add(response)
            if self._interrupted:
                _shut(response)

    def _sent(self, asked: Asked, authorization: Mapping[str, str], work: Work) -> Answer:
        headers = {**work.trail.headers(), **authorization, **asked.headers}
        headers |= {"content-type": "application/json"} if asked.body is not None else {}
        url = (asked.base or self.url) + asked.path
        for wait in (*exchange.PAUSES, None):
            timeout = _timeout(work.left())
            try:
                with self._http().stream(
                    asked.method, url, content=asked.body, headers=headers, timeout=timeout
                ) as response:
                    return Answer(response.status_code, response.headers, _body(response, work))
            except ConnectionError as error:  # by `greet`
                raise errors.RegistryUnavailable(str(error), **work.trail.names()) from error
            except httpx2.RequestError as error:
                if wait is None or not exchange.harmless(asked, error):
                    raise exchange.unreachable(error, work.trail) from error
            time.sleep(min(wait, work.left()))
        raise AssertionError("the last attempt returns or raises")

    def _authorization(self, work: Work, *, refused: bool = False) -> dict[str, str]:
        if self._token_source is None:
            return {}
        source, given, raised = self._token_source, list[object](), list[BaseException]()

        def ask() -> None:
            try:
                if refused:
                    exchange.renew(source)
                given.append(source())
            except BaseException as error:  # SystemExit, too: the thread would end without a word
                raised.append(error)

        # In a thread, since a function that hangs cannot be ended: the caller goes on without it.
        asking = threading.Thread(target=ask, name="toolcrib-token", daemon=True)
        asking.start()
        asking.join(seconds := exchange.token_within(work.left()))
        if raised:
            raise exchange.token_failed(raised[0], work.trail)
        if not given:
            raise exchange.token_slow(seconds, work.trail)
        return exchange.bearer(given[0], work.trail)

    def _http(self) -> httpx2.Client:
        """The pool of this process: after a fork the child makes its own and leaves the parent's sockets alone."""
        pool = self._pool  # another thread may close meanwhile
        if pool is None or pool[0] != os.getpid():
            pool = self._pool = os.getpid(), httpx2.Client(**self._settings)
        return pool[1]


def _greeting(greet: Callable[[Any], None]) -> Callable[[httpx2.Request], None]:
    """A hook by which each request shows `greet` the connection that is made for it."""

    def trace(event: str, info: Mapping[str, Any]) -> None:
        if event == "connection.connect_tcp.complete":
            greet(info["return_value"])

    def hook(request: httpx2.Request) -> None:
        request.extensions["trace"] = trace

    return hook


def _timeout(seconds: float) -> httpx2.Timeout:
    return httpx2.Timeout(seconds, connect=min(seconds, exchange.CONNECT_WITHIN))


def _body(response: httpx2.Response, work: Work) -> bytes:
    parts, size = [], 0
    for part in response.iter_bytes():
        parts.append(part)
        size += len(part)
        if size > exchange.MOST_BYTES:
            raise exchange.too_long(work.trail)
        work.left()
    return b"".join(parts)


def _shut(response: httpx2.Response) -> None:
    # Closing a socket does not wake a thread that reads from it; shutting it down does.
    stream = response.extensions.get("network_stream")
    connection = stream.get_extra_info("socket") if stream is not None else None
    if isinstance(connection, socket.socket):
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
