"""The client for asyncio and trio."""

from __future__ import annotations

import inspect
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Self, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread
import httpx2

from toolcrib_client import errors, exchange, functions, results
from toolcrib_client.exchange import Answer, Asked, Trail

T = TypeVar("T")
AsyncTokenSource = Callable[[], str | Awaitable[str]]
"""Asked before every request, so that a token that rotates is picked up; a plain function runs in a thread."""
_LOOP: anyio.lowlevel.RunVar[object] = anyio.lowlevel.RunVar("toolcrib_client")
"""An object for each event loop: connections are those of one."""


class AsyncToolcrib:
    """The tools of one agent at the registry at `url`.

    For one event loop at a time. Cancelling a method closes its connection. `deadline` is in seconds and bounds each
    method as a whole, retries and token source included; `watch` only until its stream opens. A refused token is asked
    for once more.

    Args:
        url: the registry's.
        token_source: gives the bearer token; None sends none.
        ca_file: replaces the certificate authorities of the system.
        traceparent: gives the W3C trace context of the work in progress; without it each request has one of its own.
        observe: told of each request, as `metrics.ClientMetrics` counts them.
    """

    def __init__(
        self,
        url: str,
        token_source: AsyncTokenSource | None,
        *,
        deadline: float = 30.0,
        ca_file: str | None = None,
        traceparent: Callable[[], str] | None = None,
        observe: exchange.Observe | None = None,
    ) -> None:
        self._url = exchange.base_url(url)
        self._token_source = token_source
        self._deadline = deadline
        self._ca_file = ca_file
        self._traceparent = traceparent
        self._observe = observe
        self._pool: tuple[tuple[int, object], httpx2.AsyncClient] | None = None
        self._known: dict[str, results.Tool] = {}
        self._model_names: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Give up all connections. A later request makes new ones."""
        pool, self._pool = self._pool, None
        if pool is not None and pool[0] == _here():
            await pool[1].aclose()

    async def tools(self) -> tuple[results.Tool, ...]:
        """Every tool that is this agent's now, by id.

        Raises:
            ToolcribError: its kinds are in `errors`; so do the methods below.
        """
        trail = self._trail()
        with _within(self._deadline, trail):
            for attempt in range(3):
                try:
                    return await self._pages(trail)
                except errors.InvalidRequest as error:
                    # The view changed between two pages.
                    if error.code != "cursor_stale" or attempt == 2:
                        raise
        raise AssertionError("the last attempt returns or raises")

    async def search(
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
        return await self._one(asked, results.search)

    async def describe(self, tool: str) -> results.Tool:
        """One tool in full, by name or id."""
        return await self._one(exchange.describing(tool), results.tool)

    async def load(self, tools: Sequence[str]) -> results.Loaded:
        """Definitions for a model; what cannot be loaded is in `failures`."""
        trail = self._trail()
        with _within(self._deadline, trail):
            parts = [await self._ask(asked, results.loaded, trail) for asked in exchange.loading(tools)]
        return results.joined(parts)

    async def call(
        self, tool: str, arguments: Mapping[str, Any] | None = None, *, deadline: float | None = None
    ) -> results.CallResult:
        """Call a tool by its name, its id, or the name that `openai_tools` or `anthropic_tools` gave a model.

        A call that may have arrived is never sent again.
        """
        asked = exchange.calling(self._model_names.get(tool, tool), arguments or {})
        return await self._one(asked, results.call, deadline)

    async def rediscover(self) -> results.Rediscovery:
        """List again; what changed since the last time."""
        before, after = self._known, {t.name: t for t in await self.tools()}
        self._known = after
        return results.compare(before, after)

    async def openai_tools(self) -> list[dict[str, Any]]:
        """This agent's tools as `tools` of OpenAI's chat completions."""
        return functions.openai(await self._definitions())

    async def anthropic_tools(self) -> list[dict[str, Any]]:
        """This agent's tools as `tools` of Anthropic's messages."""
        return functions.anthropic(await self._definitions())

    async def openai_answer(self, call: Any) -> dict[str, Any]:
        """Make the call of an entry of `tool_calls`; the message that answers it, which says why where the call failed.

        Raises:
            Unauthorized, TokenUnavailable, RegistryAnswerInvalid: nothing that a model does would help.
            TypeError: `call` is no entry of `tool_calls`.
        """
        use = functions.openai_use(call)
        return functions.openai_message(use, await self._used(use))

    async def anthropic_answer(self, block: Any) -> dict[str, Any]:
        """Make the call of a `tool_use` block; the `tool_result` block. Errors as `openai_answer`."""
        use = functions.anthropic_use(block)
        return functions.anthropic_block(use, await self._used(use))

    async def watch(self) -> AsyncIterator[results.Change]:
        """The view first (`snapshot`), then each change. A stream that ends is opened again, with a new snapshot.

        Raises:
            Unauthorized, NotPermitted, TokenUnavailable: trying again would not help.
        """
        failures = 0
        while True:
            try:
                async with self._stream() as (source, trail):
                    async for event in source:
                        if (change := exchange.changed(event, trail)) is not None:
                            failures = 0
                            yield change
            except (errors.RegistryUnavailable, errors.DeadlineExceeded) as error:
                wait = error.retry_after or 0.0
            else:
                wait = 0.0
            await anyio.sleep(max(wait, exchange.pause(failures)))
            failures += 1

    @asynccontextmanager
    async def _stream(self) -> AsyncIterator[tuple[httpx2.EventSource, Trail]]:
        trail = self._trail()
        timeout = httpx2.Timeout(self._deadline, connect=exchange.CONNECT_WITHIN, read=exchange.SILENCE)
        try:
            for last in (False, True):
                with _within(self._deadline, trail):
                    headers = {"accept": "text/event-stream", **trail.headers()}
                    headers |= await self._authorization(trail, refused=last)
                    request = self._http().build_request(
                        "GET", self._url + exchange.WATCH, headers=headers, timeout=timeout
                    )
                    response = await self._http().send(request, stream=True)
                try:
                    if response.status_code == 401 and not last:
                        continue
                    if response.status_code != 200:
                        with _within(self._deadline, trail):
                            body = await _body(response, trail)
                        answer = Answer(response.status_code, response.headers, body)
                        exchange.read(lambda _: None, answer, trail)
                    yield httpx2.EventSource(response, exchange.MOST_BYTES), trail
                    return
                finally:
                    with anyio.CancelScope(shield=True):
                        await response.aclose()
        except httpx2.SSEError:
            raise exchange.no_stream(trail) from None
        except httpx2.HTTPError as error:
            raise exchange.unreachable(error, trail) from error

    async def _pages(self, trail: Trail) -> tuple[results.Tool, ...]:
        tools, cursor = await self._ask(exchange.listing(None), results.page, trail)
        while cursor is not None:
            more, cursor = await self._ask(exchange.listing(cursor), results.page, trail)
            tools += more
        return tools

    async def _used(self, use: functions.Use) -> functions.Answer:
        try:
            return functions.Answer((await self.call(use.name, functions.arguments(use.arguments))).result)
        except functions.MISTAKES as error:
            return functions.failed(error)

    async def _definitions(self) -> tuple[results.LoadedTool, ...]:
        loaded = await self.load([t.tool_id for t in await self.tools()])
        self._model_names = exchange.by_model_name(loaded.tools)
        return loaded.tools

    async def _one(self, asked: Asked, reader: Callable[[Any], T], deadline: float | None = None) -> T:
        trail = self._trail()
        with _within(self._deadline if deadline is None else deadline, trail):
            return await self._ask(asked, reader, trail)

    async def _ask(self, asked: Asked, reader: Callable[[Any], T], trail: Trail) -> T:
        with exchange.observed(self._observe, asked):
            used = await self._authorization(trail)
            answer = await self._sent(asked, used, trail)
            if answer.status == 401 and (fresh := await self._authorization(trail, refused=True)) != used:
                answer = await self._sent(asked, fresh, trail)
            return exchange.read(reader, answer, trail)

    async def _sent(self, asked: Asked, authorization: Mapping[str, str], trail: Trail) -> Answer:
        headers = {**trail.headers(), **authorization}
        headers |= {"content-type": "application/json"} if asked.body is not None else {}
        # The deadline is the method's, by cancellation; only connecting has one of its own.
        timeout = httpx2.Timeout(None, connect=exchange.CONNECT_WITHIN)
        for wait in (*exchange.PAUSES, None):
            try:
                async with self._http().stream(
                    asked.method, self._url + asked.path, content=asked.body, headers=headers, timeout=timeout
                ) as response:
                    return Answer(response.status_code, response.headers, await _body(response, trail))
            except httpx2.RequestError as error:
                if wait is None or not exchange.harmless(asked, error):
                    raise exchange.unreachable(error, trail) from error
            await anyio.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    async def _authorization(self, trail: Trail, *, refused: bool = False) -> dict[str, str]:
        if self._token_source is None:
            return {}
        left = anyio.current_effective_deadline() - anyio.current_time()
        try:
            with anyio.move_on_after(seconds := exchange.token_within(left)):
                return exchange.bearer(await _asked(self._token_source, refused), trail)
        except errors.ToolcribError:
            raise
        except Exception as error:
            raise exchange.token_failed(error, trail) from None
        raise exchange.token_slow(seconds, trail)

    def _trail(self) -> Trail:
        return Trail() if self._traceparent is None else Trail(traceparent=self._traceparent())

    def _http(self) -> httpx2.AsyncClient:
        """The pool of this process and event loop: a fork or another `asyncio.run` leaves the sockets of before alone."""
        pool, here = self._pool, _here()
        if pool is None or pool[0] != here:
            pool = self._pool = here, httpx2.AsyncClient(**exchange.settings(self._url, self._ca_file))
        return pool[1]


def _here() -> tuple[int, object]:
    try:
        loop = _LOOP.get()
    except LookupError:
        _LOOP.set(loop := object())
    return os.getpid(), loop


async def _asked(source: AsyncTokenSource, refused: bool) -> object:
    if refused:
        told = await anyio.to_thread.run_sync(exchange.renew, source, abandon_on_cancel=True)
        if inspect.isawaitable(told):
            await told
    if inspect.iscoroutinefunction(source):
        return await source()
    given = await anyio.to_thread.run_sync(source, abandon_on_cancel=True)
    return await given if inspect.isawaitable(given) else given


async def _body(response: httpx2.Response, trail: Trail) -> bytes:
    parts, size = [], 0
    async for part in response.aiter_bytes():
        parts.append(part)
        size += len(part)
        if size > exchange.MOST_BYTES:
            raise exchange.too_long(trail)
    return b"".join(parts)


@contextmanager
def _within(seconds: float, trail: Trail) -> Iterator[None]:
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError:
        raise exchange.too_late(seconds, trail) from None
