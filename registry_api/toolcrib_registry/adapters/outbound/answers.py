"""An answer's body, decoded and bounded, as it comes."""

from __future__ import annotations

import zlib
from typing import Any

from toolcrib_registry.adapters.outbound.connection import Connection
from toolcrib_registry.outbound.errors import ProtocolViolation, TooLarge
from toolcrib_registry.outbound.messages import media_type


class Answer:
    """An answer whose body is read as it comes, never more than `limit` bytes of it.

    Raises:
        OutboundError: its head says already that it cannot be read.
    """

    def __init__(self, connection: Connection, limit: int) -> None:
        self._connection, self._room, self._limit = connection, limit, limit
        self.status, self.headers = connection.status, connection.headers
        encoding = self.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("identity", "gzip", "deflate", ""):
            raise ProtocolViolation("the response has an encoding that was not requested")
        if int(self.headers.get("content-length") or 0) > limit:
            raise self._too_large()
        packed = encoding in ("gzip", "deflate")
        self._unpack = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32) if packed else None
        self._any = False
        self.ended = False

    @property
    def content_type(self) -> str:
        """The media type alone, lower case; empty where none was sent."""
        return media_type(self.headers)

    async def whole(self) -> bytes:
        """What is left of the body."""
        body = await self.read()
        if self.ended or not (piece := await self.read()):
            return body
        parts = [body, piece]
        while piece := await self.read():
            parts.append(piece)
        return b"".join(parts)

    async def read(self) -> bytes:
        """The next piece of the body; empty at its end.

        Raises:
            OutboundError: it is too large, broken or cut short.
        """
        while chunk := await self._connection.read():
            piece = chunk if self._unpack is None else _unpacked(self._unpack, chunk, self._room)
            self._room -= len(piece)
            if self._room < 0:
                raise self._too_large()
            if piece:
                self._any = True
                return piece
        if self._unpack is not None and self._any and not self._unpack.eof:
            raise ProtocolViolation("the response's compressed body is cut short")
        self.ended = True
        return b""

    def _too_large(self) -> TooLarge:
        return TooLarge(f"the answer is larger than {self._limit} bytes")


def _unpacked(unpack: Any, chunk: bytes, room: int) -> bytes:
    try:
        piece: bytes = unpack.decompress(chunk, room + 1)
    except zlib.error as error:
        raise ProtocolViolation("the response's compressed body is invalid") from error
    return piece
