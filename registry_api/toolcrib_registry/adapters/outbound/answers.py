"""An answer as it comes over aiohttp: its body, decoded and bounded; and aiohttp's errors as ours."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator
from typing import Any

import aiohttp

from toolcrib_registry.adapters.outbound.dns_cache import NotFound
from toolcrib_registry.outbound.errors import (
    Disconnected,
    OutboundError,
    ProtocolViolation,
    TimedOut,
    TooLarge,
    Unreachable,
)
from toolcrib_registry.outbound.messages import media_type

CHUNK = 64 * 1024
CONNECT_SECONDS = 5.0


class Answer:
    """An answer whose body is read as it comes, never more than `limit` bytes of it.

    Raises:
        OutboundError: its head says already that it cannot be read.
    """

    def __init__(self, response: aiohttp.ClientResponse, limit: int) -> None:
        self._response, self._room, self._limit = response, limit, limit
        self.status = response.status
        self.headers: dict[str, str] = {}
        for name, value in response.headers.items():
            self.headers.setdefault(name.lower(), value)
        encoding = self.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("identity", "gzip", "deflate", ""):
            raise ProtocolViolation("the response has an encoding that was not requested")
        declared = response.content_length
        if declared is not None and declared > limit:
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
        parts: list[bytes] = []
        while piece := await self.read():
            parts.append(piece)
        return b"".join(parts)

    async def read(self) -> bytes:
        """The next piece of the body; empty at its end.

        Raises:
            OutboundError: it is too large, broken or cut short.
        """
        content = self._response.content
        with translated():
            while not content.at_eof():
                chunk = await content.read(CHUNK)
                piece = chunk if self._unpack is None else _unpacked(self._unpack, chunk, self._room)
                self._room -= len(piece)
                if self._room < 0:
                    raise self._too_large()
                if piece:
                    self._any = True
                    return piece
            if (broken := content.exception()) is not None:
                raise broken
        if self._unpack is not None and self._any and not self._unpack.eof:
            raise ProtocolViolation("the response's compressed body is cut short")
        self.ended = True
        return b""

    def _too_large(self) -> TooLarge:
        return TooLarge(f"the answer is larger than {self._limit} bytes")


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Raise what aiohttp raises inside as an OutboundError.

    Its texts stay behind, since they may quote what the other side sent.
    """
    try:
        yield
    except OutboundError:
        raise
    except aiohttp.ServerTimeoutError as error:
        raise Unreachable(f"no connection within {CONNECT_SECONDS:g} s") from error
    except TimeoutError as error:
        raise TimedOut("the connection timed out") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise _translated(error) from error


def _unpacked(unpack: Any, chunk: bytes, room: int) -> bytes:
    try:
        piece: bytes = unpack.decompress(chunk, room + 1)
    except zlib.error as error:
        raise ProtocolViolation("the response's compressed body is invalid") from error
    return piece


def _translated(error: Exception) -> OutboundError:
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return Unreachable("the server's certificate is not trusted")
        case aiohttp.ClientConnectorDNSError(os_error=NotFound() as why):
            return Unreachable(f"the host's name cannot be resolved: {why}")
        case aiohttp.ClientConnectorDNSError():
            return Unreachable("the host's name cannot be resolved")
        case aiohttp.ClientSSLError():
            return Unreachable("the TLS handshake failed")
        case aiohttp.ClientConnectorError():
            return Unreachable("the connection was refused")
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientOSError():
            return Disconnected("the connection closed before a response")
        case aiohttp.ClientPayloadError():
            return ProtocolViolation("the response ended early or its framing is invalid")
        case aiohttp.ClientResponseError():
            return ProtocolViolation("the response is not valid HTTP")
        case ValueError():
            return ProtocolViolation("the request or the response is not valid HTTP")
    return Unreachable("the connection failed")
