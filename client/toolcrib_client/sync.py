"""The client for code without an event loop; all methods may be called from several threads."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import httpx2

from toolcrib_client import errors, exchange, functions, results
from toolcrib_client.exchange import Asked, Trail

T = TypeVar("T")
TokenSource = Callable[[], str]
"""Asked before every request, so that a token that rotates is picked up."""


@dataclass(frozen=True, slots=True)
class _Work:
    """One method's way: what ties its requests to the logs, and when it must end."""

    trail: Trail
    seconds: float
    ends: float

    def left(self) -> float:
        """Seconds until the deadline.

        Raises:
            DeadlineExceeded: there are none.
        """
        left = self.ends - time.monotonic()
        if left <= 0:
            raise exchange.too_late(self.seconds, self.trail)
        return left


class Toolcrib:
    """The tools of one agent at the registry at `url`; `AsyncToolcrib` without an event loop.

    `deadline` is in seconds and bounds each method as a whole, retries and token source included; an answer that comes
    in drops may take twice that. `watch` is bounded only until its stream opens. A refused token is asked for once more.

    Args:
        url: the registry's.
        token_source: gives the bearer token; None sends none.
        ca_file: replaces the certificate authorities of the system.
        traceparent: gives the W3C trace context of the work in progress; without it each request has one of its own.
    """

    def __init__(
        self,
        url: str,
        token_source: TokenSource | None,
        *,
        deadline: float = 30.0,
        ca_file: str | None = None,
        traceparent: Callable[[], str] | None = None,
    ) -> None:
        self._url = exchange.base_url(url)
        self._token_source = token_source
        self._deadline = deadline
        self._ca_file = ca_file
        self._traceparent = traceparent
        self._pool: tuple[int, httpx2.Client] | None = None
        self._known: dict[str, results.Tool] = {}
        self._model_names: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up all connections. A later request makes new ones."""
        if self._pool is not None and self._pool[0] == os.getpid():
            self._pool[1].close()
        self._pool = None

    def tools(self) -> tuple[results.Tool, ...]:
        """Every tool that is this agent's now, by id.

        Raises:
            ToolcribError: its kinds are in `errors`; so do the methods below.
        """
        work = self._work()
        for attempt in range(3):
            try:
                return self._pages(work)
            except errors.InvalidRequest as error:
                # The view changed between two pages.
                if error.code != "cursor_stale" or attempt == 2:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def search(
        self,
        query: str | None,
        *,
        limit: int = 10,
        tags: Sequence[str] = (),
        servers: Sequence[str] = (),
        namespaces: Sequence[str] = (),
        min_score: float | None = None,
    ) -> results.SearchAnswer:
        """The tools that fit `query` best, among those that all filters let through."""
        asked = exchange.searching(
            query, limit=limit, tags=tags, servers=servers, namespaces=namespaces, min_score=min_score
        )
        return self._ask(asked, results.search, self._work())

    def describe(self, tool: str) -> results.Tool:
        """One tool in full, by name or id."""
        return self._ask(exchange.describing(tool), results.tool, self._work())

    def load(self, tools: Sequence[str]) -> results.Loaded:
        """Definitions for a model; what cannot be loaded is in `failures`."""
        work = self._work()
        return results.joined([self._ask(a, results.loaded, work) for a in exchange.loading(tools)])

    def call(
        self, tool: str, arguments: Mapping[str, Any] | None = None, *, deadline: float | None = None
    ) -> results.CallResult:
        """Call a tool by its name, its id, or the name that `openai_tools` or `anthropic_tools` gave a model.

        A call that may have arrived is never sent again.
        """
        asked = exchange.calling(self._model_names.get(tool, tool), arguments or {})
        return self._ask(asked, results.call, self._work(deadline))

    def rediscover(self) -> results.Rediscovery:
        """List again; what changed since the last time."""
        before, after = self._known, {t.name: t for t in self.tools()}
        self._known = after
        return results.compare(before, after)

    def openai_tools(self) -> list[dict[str, Any]]:
        """This agent's tools as `tools` of OpenAI's chat completions."""
        return functions.openai(self._definitions())

    def anthropic_tools(self) -> list[dict[str, Any]]:
        """This agent's tools as `tools` of Anthropic's messages."""
        return functions.anthropic(self._definitions())

    def watch(self) -> Iterator[results.Change]:
        """The view first (`snapshot`), then each change. A stream that ends is opened again, with a new snapshot.

        Raises:
            Unauthorized, NotPermitted, TokenUnavailable: trying again would not help.
        """
        failures = 0
        while True:
            try:
                with self._stream() as (source, trail):
                    for event in source:
                        if (change := exchange.changed(event, trail)) is not None:
                            failures = 0
                            yield change
            except (errors.RegistryUnavailable, errors.DeadlineExceeded) as error:
                wait = error.retry_after or 0.0
            else:
                wait = 0.0
            time.sleep(max(wait, exchange.pause(failures)))
            failures += 1

    @contextmanager
    def _stream(self) -> Iterator[tuple[httpx2.EventSource, Trail]]:
        work = self._work()
        try:
            for last in (False, True):
                headers = {"accept": "text/event-stream", **work.trail.headers(), **self._authorization(work)}
                with self._http().stream(
                    "GET", self._url + "/v1/watch", headers=headers, timeout=_timeout(work.left())
                ) as response:
                    if response.status_code == 401 and not last:
                        continue
                    if response.status_code != 200:
                        body = _body(response, work)
                        exchange.read(
                            lambda _: None, response.status_code, response.headers, body, work.trail
                        )
                    # What follows the headers may be silent for longer; the transport looks this up anew for the body.
                    response.request.extensions["timeout"]["read"] = exchange.SILENCE
                    yield httpx2.EventSource(response, exchange.MOST_BYTES), work.trail
                    return
        except httpx2.SSEError:
            raise exchange.no_stream(work.trail) from None
        except httpx2.HTTPError as error:
            raise exchange.unreachable(error, work.trail) from error

    def _pages(self, work: _Work) -> tuple[results.Tool, ...]:
        tools, cursor = self._ask(exchange.listing(None), results.page, work)
        while cursor is not None:
            more, cursor = self._ask(exchange.listing(cursor), results.page, work)
            tools += more
        return tools

    def _definitions(self) -> tuple[results.LoadedTool, ...]:
        loaded = self.load([t.tool_id for t in self.tools()])
        self._model_names = exchange.by_model_name(loaded.tools)
        return loaded.tools

    def _ask(self, asked: Asked, reader: Callable[[Any], T], work: _Work) -> T:
        used = self._authorization(work)
        status, headers, body = self._sent(asked, used, work)
        if status == 401 and (fresh := self._authorization(work)) != used:
            status, headers, body = self._sent(asked, fresh, work)
        return exchange.read(reader, status, headers, body, work.trail)

    def _sent(
        self, asked: Asked, authorization: Mapping[str, str], work: _Work
    ) -> tuple[int, Mapping[str, str], bytes]:
        headers = {**work.trail.headers(), **authorization}
        headers |= {"content-type": "application/json"} if asked.body is not None else {}
        for wait in (*exchange.PAUSES, None):
            timeout = _timeout(work.left())
            try:
                with self._http().stream(
                    asked.method, self._url + asked.path, content=asked.body, headers=headers, timeout=timeout
                ) as response:
                    return response.status_code, response.headers, _body(response, work)
            except httpx2.TransportError as error:
                if wait is None or not exchange.harmless(asked, error):
                    raise exchange.unreachable(error, work.trail) from error
            time.sleep(min(wait, work.left()))
        raise AssertionError("the last attempt returns or raises")

    def _authorization(self, work: _Work) -> dict[str, str]:
        if self._token_source is None:
            return {}
        source, given, raised = self._token_source, list[object](), list[Exception]()

        def ask() -> None:
            try:
                given.append(source())
            except Exception as error:
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

    def _work(self, deadline: float | None = None) -> _Work:
        trail = Trail() if self._traceparent is None else Trail(traceparent=self._traceparent())
        seconds = self._deadline if deadline is None else deadline
        return _Work(trail, seconds, time.monotonic() + seconds)

    def _http(self) -> httpx2.Client:
        """The pool of this process: after a fork the child makes its own and leaves the parent's sockets alone."""
        if self._pool is None or self._pool[0] != os.getpid():
            self._pool = os.getpid(), httpx2.Client(**exchange.settings(self._url, self._ca_file))
        return self._pool[1]


def _timeout(seconds: float) -> httpx2.Timeout:
    return httpx2.Timeout(seconds, connect=min(seconds, exchange.CONNECT_WITHIN))


def _body(response: httpx2.Response, work: _Work) -> bytes:
    parts, size = [], 0
    for part in response.iter_bytes():
        parts.append(part)
        size += len(part)
        if size > exchange.MOST_BYTES:
            raise exchange.too_long(work.trail)
        work.left()
    return b"".join(parts)
