"""HTTP to the registry's `/mcp`: tokens, retries while it is away, and refusals in words."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from toolcrib import __version__
from toolcrib_cli import client
from toolcrib_cli.bridge.identity import Tokens
from toolcrib_cli.bridge.messages import INVALID_PARAMS, REFUSED
from toolcrib_cli.errors import CliError
from toolcrib_client.exchange import Answer

JSON, EVENTS = "application/json", "text/event-stream"
_ACCEPT = f"{JSON}, {EVENTS}"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
_TOKEN_PATIENCE = 3.0
"""Seconds in which a local mode that is just starting leaves the names of its accounts."""
_AWAY = (502, 503, 504)
_CONNECT_SECONDS = 10.0
ANSWER_SECONDS, CALL_SECONDS = 60.0, 400.0
"""How long an answer may stay away: a call may take as long as the longest deadline of a Tool, and wait in a queue."""
SILENCE = 60.0
"""Seconds without a byte after which an event stream counts as broken: keep-alives come every 15."""
_LARGEST = 64 * 1024 * 1024
_HEADERS = 48 * 1024
"""Bytes of the headers of a message: a registry hangs up at 64 KiB, the token's included, and says nothing."""
_TAKEN = 1024 * 1024
"""Bytes that a registry takes of one message unless it is set otherwise."""


class Refusal(Exception):
    """The registry did not answer a message: it cannot be reached, or says no, or would not read the message."""

    def __init__(
        self, message: str, hint: str = "", *, away: bool = False, rpc: int = REFUSED, **data: Any
    ) -> None:
        self.message = message
        self.hint = hint
        self.away = away
        """Whether it could not be reached at all."""
        self.rpc = rpc
        """The code of the JSON-RPC error."""
        self.data = {name: value for name, value in data.items() if value is not None}
        super().__init__(message)

    @property
    def text(self) -> str:
        """Message and hint in one, for clients that show nothing else."""
        return f"{self.message.rstrip('.')}. Hint: {self.hint}" if self.hint else self.message


class Upstream:
    """One MCP endpoint of one registry, as one identity."""

    def __init__(
        self,
        endpoint: Callable[[], str],
        tokens: Tokens,
        *,
        verify: ssl.SSLContext | bool = True,
        patience: float = 20.0,
        tell: Callable[[str], None] = lambda _: None,
        greet: Callable[[Any], Awaitable[None]] | None = None,
    ) -> None:
        """
        Args:
            endpoint: where it is now; asked before each attempt, since a local mode may come back at another port. It raises
                CliError while there is none.
            patience: how many seconds a message waits for a registry that is away.
            tell: gets a line when the registry is lost or found.
            greet: gets each new connection before anything goes over it; raises ConnectionError if the token must not.
        """
        self._endpoint = endpoint
        self._tokens = tokens
        self._patience = patience
        self._tell = tell
        self._reached: bool | None = None
        self._http = httpx2.AsyncClient(
            headers={"User-Agent": f"toolcrib-mcp/{__version__}"},
            verify=verify,
            # a proxy between the bridge and a registry would see the token
            trust_env=False,
            # shorter than the registry keeps them, so that no message meets a connection that is being closed
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=4.0),
            event_hooks={} if greet is None else {"request": [_greeting(greet)]},
        )

    async def close(self) -> None:
        """Close every connection: what the registry still does for us ends."""
        await self._http.aclose()

    @asynccontextmanager
    async def post(
        self, body: bytes, headers: Mapping[str, str], *, seconds: float = ANSWER_SECONDS, again: bool = True
    ) -> AsyncIterator[httpx2.Response]:
        """Send one message; its answer's status and headers are there, its body is not read yet.

        Args:
            seconds: how long the answer may stay away.
            again: it may be sent a second time where it is not known whether the first one arrived.

        Raises:
            Refusal: the registry stayed away, there is no token, or the headers are larger than it reads.
        """
        sent = {"Content-Type": JSON, "Accept": _ACCEPT, **headers}
        async with self._open("POST", sent, body, seconds, again) as response:
            yield response

    @asynccontextmanager
    async def get(self, headers: Mapping[str, str]) -> AsyncIterator[httpx2.Response]:
        """Open the change stream; errors as `post`."""
        async with self._open("GET", {"Accept": EVENTS, **headers}, None, ANSWER_SECONDS, True) as response:
            yield response

    @asynccontextmanager
    async def _open(
        self, method: str, headers: Mapping[str, str], body: bytes | None, seconds: float, again: bool
    ) -> AsyncIterator[httpx2.Response]:
        if sum(len(name) + len(value) for name, value in headers.items()) > _HEADERS:
            longest = max(headers, key=lambda name: len(headers[name]))
            text = f"Invalid params: the message's HTTP headers have more than {_HEADERS} bytes, most of them {longest}"
            raise Refusal(text, rpc=INVALID_PARAMS)
        loop = asyncio.get_running_loop()
        begun, pause = loop.time(), _FIRST_PAUSE
        deadline = begun + self._patience
        token_refused = False
        while True:
            where = None
            try:
                where = self._endpoint()
                token = self._tokens.current()
                response = await self._send(
                    method, where, {**headers, "Authorization": f"Bearer {token}"}, body, seconds
                )
            except CliError as error:
                away = where is None
                refusal = Refusal(
                    error.message, error.hint, away=away, code="unreachable" if away else "no_token"
                )
                may_repeat = away or loop.time() < begun + _TOKEN_PATIENCE
            except ConnectionError as error:  # by `greet`
                refusal, may_repeat = Refusal(str(error), away=True, code="unreachable"), True
            except httpx2.TransportError as error:
                refusal, may_repeat = _unreachable(where or "", error, again, len(body or b""))
            except (httpx2.InvalidURL, UnicodeError, ValueError) as error:
                raise Refusal(f"the message cannot be sent: {error}") from error
            else:
                if response.status_code == 401 and not token_refused and self._other_token(token):
                    token_refused = True
                    await response.aclose()
                    continue
                if response.status_code not in _AWAY or not again or loop.time() + pause > deadline:
                    self._note(True, "")
                    try:
                        yield response
                    finally:
                        await response.aclose()
                    return
                refusal, may_repeat = await refused(response), True
                await response.aclose()
            self._note(False, refusal.message)
            if not may_repeat or loop.time() + pause > deadline:
                raise refusal
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _send(
        self, method: str, where: str, headers: Mapping[str, str], body: bytes | None, seconds: float
    ) -> httpx2.Response:
        timeout = httpx2.Timeout(_CONNECT_SECONDS, read=seconds, write=30.0, pool=None)
        request = self._http.build_request(method, where, headers=headers, content=body, timeout=timeout)
        return await self._http.send(request, stream=True)

    def _other_token(self, refused: str) -> bool:
        """Whether there is another token than the one that was refused."""
        self._tokens.discard()
        try:
            return self._tokens.current() != refused
        except CliError:
            return False

    def _note(self, reached: bool, why: str) -> None:
        if reached and self._reached is False:
            self._tell("the registry answers again")
        elif not reached and self._reached is not False:
            self._tell(why)
        self._reached = reached


def _unreachable(where: str, error: httpx2.TransportError, again: bool, size: int) -> tuple[Refusal, bool]:
    if (why := client.distrust(error)) is not None:
        hint = "specify its CA with --ca-file or TOOLCRIB_CA_FILE"
        return Refusal(f"the certificate of {where} is not trusted: {why}", hint, code="untrusted"), False
    if isinstance(error, httpx2.UnsupportedProtocol | httpx2.LocalProtocolError):
        return Refusal(f"the message cannot be sent: {error}"), False
    # a connection that was never made has carried nothing
    unsent = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
    if not unsent and again and size > _TAKEN:
        # who refuses a body unread hangs up, which is often all that arrives: it would be so each time
        text = f"the connection to {where} broke while a message of {size} bytes was sent ({client.cause(error)})"
        hint = f"shorten the message: a registry takes {_TAKEN} bytes unless limits.body_bytes is set"
        return Refusal(text, hint, away=True, code="connection_lost"), False
    if unsent or again:
        text = f"cannot reach a registry at {where} ({client.cause(error)})"
        hint = "start the local mode with `toolcrib up`, or check --url"
        return Refusal(text, hint, away=True, code="unreachable"), True
    text = f"the connection to {where} broke during the call; the call may have been executed ({client.cause(error)})"
    return Refusal(text, away=True, code="connection_lost"), False


def _greeting(greet: Callable[[Any], Awaitable[None]]) -> Callable[[httpx2.Request], Awaitable[None]]:
    """A hook by which each request shows `greet` the connection that is made for it."""

    async def trace(event: str, info: Mapping[str, Any]) -> None:
        if event == "connection.connect_tcp.complete":
            await greet(info["return_value"])

    async def hook(request: httpx2.Request) -> None:
        request.extensions["trace"] = trace

    return hook


async def body_of(response: httpx2.Response) -> bytes:
    """The whole body of an answer.

    Raises:
        Refusal: it is too large, or the connection broke.
    """
    held = bytearray()
    try:
        async for chunk in response.aiter_bytes():
            held += chunk
            if len(held) > _LARGEST:
                raise Refusal("the registry's answer is larger than 64 MiB", code="answer_too_large")
    except httpx2.HTTPError as error:
        text = f"the answer broke off ({client.cause(error)})"
        raise Refusal(text, away=True, code="connection_lost") from error
    return bytes(held)


async def events_of(response: httpx2.Response, silence: float | None = None) -> AsyncIterator[str]:
    """The messages of an event stream until it ends, breaks, or is silent for too long: `SILENCE`, unless said otherwise.

    Raises:
        Refusal: one of them is too large.
    """
    response.request.extensions["timeout"]["read"] = SILENCE if silence is None else silence
    try:
        async for event in httpx2.EventSource(response, _LARGEST):
            if event.event == "message" and event.data:
                yield event.data
    except httpx2.SSEError as error:
        if response.headers.get("content-type", "").startswith(EVENTS):
            raise Refusal(
                "an event of the registry is larger than 64 MiB", code="answer_too_large"
            ) from error
    except httpx2.HTTPError:
        return


async def refused(response: httpx2.Response, body: bytes | None = None) -> Refusal:
    """What an answer that is no JSON-RPC says; `body`, where it was read already."""
    if body is None:
        try:
            body = await body_of(response)
        except Refusal:
            body = b""
    error = client.refusal(Answer(response.status_code, response.headers, body), response.request.url.path)
    code, _, _ = error.message.partition(":")
    hint = error.hint
    if response.status_code in (404, 405) and code.startswith("http_"):
        hint = "check --url: it must be the address of a registry that serves MCP"
    return Refusal(error.message, hint, status=response.status_code, code=code)
