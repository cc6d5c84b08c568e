"""What one client says to one registry, and what comes back: each line is a task of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from toolcrib_cli.bridge import headers, messages
from toolcrib_cli.bridge.changes import ChangeStream, Subscription
from toolcrib_cli.bridge.messages import Key, Kind, Message
from toolcrib_cli.bridge.pipes import TooLong
from toolcrib_cli.bridge.schemas import MarkedTools
from toolcrib_cli.bridge.upstream import (
    ANSWER_SECONDS,
    CALL_SECONDS,
    EVENTS,
    JSON,
    Refusal,
    Upstream,
    body_of,
    events_of,
    refused,
)

_MOST = 512
"""Requests at once: more than a client that waits for answers ever has."""


class Session:
    """Carries messages between a client and a registry until `close`."""

    def __init__(
        self, upstream: Upstream, write: Callable[[bytes], Awaitable[None]], tell: Callable[[str], None]
    ) -> None:
        self._upstream = upstream
        self._write = write
        self._tell = tell
        self._requests: dict[Key, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._changes = ChangeStream(upstream, write)
        self._marked = MarkedTools(upstream)
        self._version: str | None = None
        self._session_id: str | None = None
        self._handshake: asyncio.Task[None] | None = None
        """The latest `initialize`; done when it has its answer."""

    async def take(self, line: bytes | TooLong) -> None:
        """Begin with a line; only a line that is no message is answered before this returns."""
        if isinstance(line, TooLong):
            text = f"Parse error: the message has more than {messages.MAX_LINE} bytes"
            await self._write(messages.error_line(None, messages.PARSE_ERROR, text))
            return
        try:
            message = messages.read(line)
        except messages.NotJsonRpc as error:
            await self._write(messages.error_line(error.answer_to, error.code, str(error)))
            return
        if message.method == "notifications/cancelled":
            self._cancel(message)
            return
        if len(self._tasks) >= _MOST:
            for one in message.asked:
                text = f"more than {_MOST} messages at once"
                await self._write(messages.error_line(one, messages.REFUSED, text))
            return
        task = self._begin(self._carry(message), message.key if message.kind is Kind.REQUEST else None)
        if message.method == "initialize":
            self._handshake = task

    async def drain(self, seconds: float) -> None:
        """Give what is under way some time, subscriptions excepted."""
        waited_for = {t for t in self._tasks if t.get_name() != "subscription"}
        if waited_for:
            await asyncio.wait(waited_for, timeout=seconds)

    async def close(self) -> None:
        """End everything that is under way; nothing is answered any more."""
        self._changes.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, work: Coroutine[Any, Any, None], key: Key | None) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if key is None:
            return task
        if (earlier := self._requests.get(key)) is not None:
            earlier.cancel()  # the client waits for the answer to the new request of this id
        self._requests[key] = task

        def ended(_: asyncio.Task[None]) -> None:
            if self._requests.get(key) is task:
                del self._requests[key]

        task.add_done_callback(ended)
        return task

    def _cancel(self, message: Message) -> None:
        """Closing the request's connection tells the registry in either era: no replica knows of another's requests."""
        key = messages.key_of(message.params.get("requestId"))
        if key is not None and (task := self._requests.get(key)) is not None:
            task.cancel()

    async def _carry(self, message: Message) -> None:
        try:
            await self._after_handshake(message)
            await self._exchange(message)
            if message.method == "notifications/initialized":
                self._changes.open(self._common(message))
        except Refusal as refusal:
            await self._refuse(message, refusal)
        except Exception as error:  # whatever it is, the client gets an answer and the bridge goes on
            self._tell(
                f"an unexpected {type(error).__name__} while carrying {message.method or message.kind}"
            )
            for one in message.asked:
                text = "Internal error of the bridge; standard error has more"
                await self._write(messages.error_line(one, messages.INTERNAL_ERROR, text))

    async def _after_handshake(self, message: Message) -> None:
        """A client that does not wait for the answer to `initialize` has its other messages wait here."""
        if message.method == "initialize" or message.version is not None:
            return
        # another one may begin meanwhile, perhaps in the place of the first
        while self._handshake is not None and not self._handshake.done():
            await asyncio.wait([self._handshake])

    def _common(self, message: Message) -> dict[str, str]:
        found = headers.of_message(message, self._version, self._marked.of(message))
        if self._session_id is not None and message.version is None and message.method != "initialize":
            found["Mcp-Session-Id"] = self._session_id
        return found

    async def _exchange(self, message: Message) -> None:
        if message.method == "subscriptions/listen" and message.kind is Kind.REQUEST:
            if (task := asyncio.current_task()) is not None:
                task.set_name("subscription")
            await Subscription(self._upstream, self._write, message).follow(self._common(message))
            return
        calls = message.method == "tools/call" or message.kind is Kind.BATCH
        seconds = CALL_SECONDS if calls else ANSWER_SECONDS
        sent = self._common(message)
        for attempt in range(2):
            async with self._upstream.post(message.raw, sent, seconds=seconds, again=not calls) as response:
                body = await self._answer(message, response)
            if body is None:
                return
            if attempt == 0 and await self._more_headers(message, body):
                sent = self._common(message)
                continue
            await self._write(self._with_id(message, body))
            return

    async def _more_headers(self, message: Message, body: dict[str, Any]) -> bool:
        """Whether the call lacked headers that are known now: the client has not listed the tool whose schema wants them."""
        before = self._marked.of(message)
        mismatch = messages.error_code(body) == messages.HEADER_MISMATCH
        return mismatch and await self._marked.learn(message) and self._marked.of(message) != before

    async def _answer(self, message: Message, response: Any) -> Any:
        """Write what came, or return the answer where it is one message that may still be looked at."""
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.is_success and kind == EVENTS:
            await self._events(message, response)
            return None
        if response.status_code == 202 or (response.is_success and not message.asked):
            if message.asked:
                raise Refusal("the registry accepted the request but sent no answer", status=202)
            return None
        body = await body_of(response)
        parsed = messages.decoded(body) if kind in (JSON, "application/problem+json") else None
        if message.kind is Kind.BATCH and (
            isinstance(parsed, list) or messages.error_code(parsed) is not None
        ):
            await self._write(messages.one_line(body))
            return None
        if len(message.asked) != 1 or not messages.answers(parsed, message.asked[0]):
            if response.is_success:
                raise Refusal(
                    "the URL does not look like an MCP server", "check --url", status=response.status_code
                )
            raise await refused(response, body)
        assert isinstance(parsed, dict)
        self._learn(message, parsed, response)
        if messages.error_code(parsed) == messages.HEADER_MISMATCH or parsed.get("id") is None:
            return parsed
        await self._write(messages.one_line(body))
        return None

    async def _events(self, message: Message, response: Any) -> None:
        missing = set(message.asked)
        async for text in events_of(response, CALL_SECONDS):
            parsed = messages.decoded(text.encode())
            if parsed is None:
                continue
            if message.asked == (message.id,) and messages.answers(parsed, message.id):
                self._learn(message, parsed, response)
            await self._write(messages.one_line(text.encode()))
            missing -= {one for one in missing if messages.answers(parsed, one)}
            if not missing:
                return
        if missing:
            text = "the stream of the answer broke off before its end"
            raise Refusal(text, away=True, code="connection_lost")

    def _learn(self, message: Message, answer: Any, response: Any) -> None:
        """Keep what later messages need: the version that was agreed on, and arguments that headers repeat."""
        if message.method == "initialize":
            self._negotiated(answer, response.headers.get("mcp-session-id"))
        elif message.method == "tools/list":
            self._marked.note(answer)

    def _with_id(self, message: Message, body: dict[str, Any]) -> bytes:
        """An answer that has no id, since it was refused before it was read, gets that of its request."""
        return json.dumps({**body, "id": message.asked[0]}, separators=(",", ":")).encode()

    def _negotiated(self, answer: dict[str, Any], session_id: str | None) -> None:
        result = answer.get("result")
        version = result.get("protocolVersion") if isinstance(result, dict) else None
        if isinstance(version, str):
            self._version, self._session_id = version, session_id

    async def _refuse(self, message: Message, refusal: Refusal) -> None:
        if not message.asked:
            self._tell(f"{message.method or message.kind} was not delivered: {refusal.message}")
        data = {**refusal.data, "hint": refusal.hint} if refusal.hint else refusal.data
        for one in message.asked:
            await self._write(messages.error_line(one, refusal.rpc, refusal.text, data))
