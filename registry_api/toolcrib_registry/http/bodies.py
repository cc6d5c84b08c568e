"""Bodies of requests: bounded while they are read, and parsed once.

What the edge has read goes on in the ASGI scope: `scope[BODY]` are the bytes, None where a form was too large;
`scope[PARSED]` is the value of a JSON body, and is absent where there was none.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from starlette.types import Receive

from toolcrib_registry.http import strict_json
from toolcrib_registry.http.problems import ProblemError
from toolcrib_registry.limits.large_requests import LARGE, RETRY_SECONDS, LargeRequests, NoRoom

BODY = "toolcrib.body"
PARSED = "toolcrib.parsed"
_JSON_TYPE = re.compile(r"application/(?:[^/;,\s]+\+)?json", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """In the place of the value of a body that is no acceptable JSON, where its route tells that in a form of its own."""

    detail: str


class Intake:
    """The body of one request. A large one is read when there is room for it, which `done` gives back.

    Args:
        large: the room of all large requests; None: it needs none, and is not parsed here.
        account: who sends it.
    """

    __slots__ = ("_account", "_large", "_room")

    def __init__(self, large: LargeRequests | None, account: str) -> None:
        self._large, self._account, self._room = large, account, 0

    async def read(self, receive: Receive, limit: int, declared: bytes) -> bytes:
        """The whole body. `declared` is the Content-Length, if any.

        Raises:
            ProblemError: 413, it is larger than `limit` bytes; 503, there is no room for it; 400, the client went away.
        """
        size = int(declared) if declared.isdigit() else 0
        if size > limit:
            raise too_large(limit)
        if size >= LARGE:
            await self._enter(size)
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            body: bytes = message.get("body", b"")
            if len(body) > limit:
                raise too_large(limit)
            if len(body) >= LARGE and not self._room:
                await self._enter(limit)
            return body
        return await self._pieces(message, receive, limit)

    async def _pieces(self, message: Any, receive: Receive, limit: int) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while True:
            if message["type"] != "http.request":
                raise ProblemError("invalid_request", "The request is not valid HTTP.")
            piece: bytes = message.get("body", b"")
            size += len(piece)
            if size > limit:
                raise too_large(limit)
            if size >= LARGE and not self._room:  # of a length that nobody said
                await self._enter(limit)
            pieces.append(piece)
            if not message.get("more_body", False):
                return b"".join(pieces)
            message = await receive()

    async def parsed(self, body: bytes, kind: bytes, depth: int) -> Any:
        """The value of a JSON body that is not empty. `kind` is its Content-Type.

        Raises:
            ProblemError: 415, it is not announced as `application/json` or `application/*+json`; 400, it is no
                unambiguous JSON.
        """
        if not _is_json(kind):
            raise ProblemError(
                "unsupported_media_type", "Send the body as JSON, with Content-Type: application/json."
            )
        try:
            if len(body) < LARGE:
                return strict_json.parse(body, max_depth=depth)
            assert self._large is not None
            async with self._large.turn(self._account):
                bare = strict_json.check(body, max_depth=depth)
                await asyncio.sleep(0)  # others have their turn in between
                value = strict_json.read(body)
                await asyncio.sleep(0)
                if not strict_json.is_plain(value, bare):
                    await asyncio.sleep(0)
                    value = strict_json.read_again(body)
                await asyncio.sleep(0)
                return value
        except strict_json.InvalidJson as error:
            raise ProblemError("invalid_json", f"The body is refused: {error}.") from error

    def done(self) -> None:
        """The request has been answered, or given up."""
        size, self._room = self._room, 0
        if size and self._large is not None:
            self._large.leave(self._account, size)

    async def _enter(self, size: int) -> None:
        if self._large is None:
            return
        try:
            await self._large.enter(self._account, size)
        except NoRoom:
            raise ProblemError(
                "large_requests_busy",
                "Too many large requests are in progress.",
                headers={"Retry-After": str(RETRY_SECONDS), "Connection": "close"},
            ) from None
        self._room = size


@lru_cache(maxsize=64)
def _is_json(kind: bytes) -> bool:
    return _JSON_TYPE.fullmatch(kind.decode("latin-1").partition(";")[0].strip()) is not None


def too_large(limit: int) -> ProblemError:
    """413, naming the limit."""
    # the rest of the body is not read: the connection cannot be used again
    return ProblemError(
        "too_large", f"The body may have at most {limit} bytes.", headers={"Connection": "close"}
    )
