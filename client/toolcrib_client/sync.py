"""The client for code without an event loop; all methods may be called from several threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar

from toolcrib_client import errors, exchange, functions, results
from toolcrib_client.connection import Connection, TokenSource, Work
from toolcrib_client.exchange import Answer, Asked, Trail

T = TypeVar("T")


class Toolcrib:
    """The tools of one agent at the registry at `url`; `AsyncToolcrib` without an event loop.

    `deadline` is in seconds and bounds each method as a whole, retries and token source included; an answer that comes
    in drops may take twice that. `watch` is bounded only until its stream opens. A refused token is asked for once more.

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
        token_source: TokenSource | None,
        *,
        deadline: float = 30.0,
        ca_file: str | None = None,
        traceparent: Callable[[], str] | None = None,
        observe: exchange.Observe | None = None,
    ) -> None:
        self._connection = Connection(url, token_source, ca_file=ca_file)
        self._deadline = deadline
        self._traceparent = traceparent
        self._observe = observe
        self._known: dict[str, results.Tool] = {}
        self._model_names: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up all connections. A later request makes new ones."""
        self._connection.close()

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

    def openai_answer(self, call: Any) -> dict[str, Any]:
        """Make the call of an entry of `tool_calls`; the message that answers it, which says why where the call failed.

        Raises:
            Unauthorized, TokenUnavailable, RegistryAnswerInvalid: nothing that a model does would help.
            TypeError: `call` is no entry of `tool_calls`.
        """
        use = functions.openai_use(call)
        return functions.openai_message(use, self._used(use))

    def anthropic_answer(self, block: Any) -> dict[str, Any]:
        """Make the call of a `tool_use` block; the `tool_result` block. Errors as `openai_answer`."""
        use = functions.anthropic_use(block)
        return functions.anthropic_block(use, self._used(use))

    def watch(self) -> Iterator[results.Change]:
        """The view first (`snapshot`), then each change. A stream that ends is opened again, with a new snapshot.

        Raises:
            Unauthorized, NotPermitted, TokenUnavailable: trying again would not help.
        """
        failures = 0
        while True:
            try:
                work = self._work()
                with self._connection.events(exchange.WATCH, work) as source:
                    if isinstance(source, Answer):
                        exchange.read(lambda _: None, source, work.trail)
                        raise exchange.no_stream(work.trail)
                    for event in source:
                        if (change := exchange.changed(event, work.trail)) is not None:
                            failures = 0
                            yield change
            except (errors.RegistryUnavailable, errors.DeadlineExceeded) as error:
                wait = error.retry_after or 0.0
            else:
                wait = 0.0
            time.sleep(max(wait, exchange.pause(failures)))
            failures += 1

    def _pages(self, work: Work) -> tuple[results.Tool, ...]:
        tools, cursor = self._ask(exchange.listing(None), results.page, work)
        while cursor is not None:
            more, cursor = self._ask(exchange.listing(cursor), results.page, work)
            tools += more
        return tools

    def _used(self, use: functions.Use) -> functions.Answer:
        try:
            return functions.Answer((self.call(use.name, functions.arguments(use.arguments))).result)
        except functions.MISTAKES as error:
            return functions.failed(error)

    def _definitions(self) -> tuple[results.LoadedTool, ...]:
        loaded = self.load([t.tool_id for t in self.tools()])
        self._model_names = exchange.by_model_name(loaded.tools)
        return loaded.tools

    def _ask(self, asked: Asked, reader: Callable[[Any], T], work: Work) -> T:
        with exchange.observed(self._observe, asked):
            return exchange.read(reader, self._connection.send(asked, work), work.trail)

    def _work(self, deadline: float | None = None) -> Work:
        trail = Trail() if self._traceparent is None else Trail(traceparent=self._traceparent())
        return Work.within(self._deadline if deadline is None else deadline, trail)
