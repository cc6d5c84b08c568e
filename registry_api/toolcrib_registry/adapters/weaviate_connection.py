"""The connection to a Weaviate server: made when first needed, made again after a failure, with deadlines of ours."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import httpx
import weaviate
from weaviate.classes.init import AdditionalConfig, Auth, Timeout
from weaviate.config import GrpcConfig
from weaviate.exceptions import (
    UnexpectedStatusCodeError,
    WeaviateBaseError,
    WeaviateBatchError,
    WeaviateDeleteManyError,
    WeaviateInvalidInputError,
    WeaviateQueryError,
)

from toolcrib.logs import Trouble
from toolcrib_registry.search.errors import StoreUnavailable, brief

log = logging.getLogger(__name__)

_ANSWERED = (UnexpectedStatusCodeError, WeaviateBatchError, WeaviateDeleteManyError, WeaviateQueryError)
"""The server answered with an error: the connection is sound."""
_BROKEN = (WeaviateBaseError, httpx.HTTPError, OSError)
_CHANNEL = [
    ("grpc.enable_http_proxy", 0),
    # gRPC waits a second before it connects again, and longer from time to time: searches have three in all
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
]
_Stamp = tuple[tuple[int, int, int] | None, ...]


class ConnectionLost(StoreUnavailable):
    """There was no connection, it broke or stayed silent: a fresh one may lead to another node of the same cluster."""


@dataclass(frozen=True, slots=True)
class WeaviateSettings:
    """Where the server is and how to speak to it."""

    http_host: str
    http_port: int = 8080
    grpc_host: str = ""
    """The HTTP host unless set."""
    grpc_port: int = 50051
    secure: bool = False
    """TLS on both ports, verified against the system's authorities, or those of `ca_file`."""
    ca_file: str | None = None
    api_key: str | None = field(default=None, repr=False)
    api_key_file: str | None = None
    """Holds the key instead; both files are read for each connection, and one that changes makes a new connection."""
    collection_prefix: str = "ToolcribTools"
    """Two installations on one server need two prefixes. Starts with a capital letter."""
    replicas: int = 1
    """Weaviate's replication factor for a collection that is made; above 1, writes and reads want a quorum."""
    search_seconds: float = 3.0
    write_seconds: float = 60.0
    """For one batch of 200, and for reading the inventory."""


class _Link:
    """A connection and how many requests are on it: closing it under them would cancel their tasks."""

    def __init__(self, client: weaviate.WeaviateAsyncClient, stamp: _Stamp) -> None:
        self.client = client
        self.stamp = stamp
        self.users = 0
        self.retired = False

    async def close_if_unused(self) -> None:
        if self.retired and self.users == 0:
            with contextlib.suppress(WeaviateBaseError, httpx.HTTPError, OSError):
                await self.client.close()


class WeaviateConnection:
    """Hands out a connected client, and a new one once it failed: a server that restarts is found again."""

    def __init__(self, settings: WeaviateSettings) -> None:
        self._settings = settings
        self._link: _Link | None = None
        self._connecting = asyncio.Lock()
        self._tried: _Stamp | None = None
        """Newer files than the link's, by which no connection could be made."""
        self._trouble = Trouble(log)
        self._closed = False

    async def _connected(self) -> _Link:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        stamp = _stamp(self._settings)
        async with self._connecting:
            link = self._link
            if link is None or stamp not in (link.stamp, self._tried):
                return await self._renewed(link, stamp)
            if stamp == link.stamp:
                self._trouble.over("weaviate's files are those of its connection again")
            return link

    async def _renewed(self, old: _Link | None, stamp: _Stamp) -> _Link:
        """A link by the files as they are now. Where nothing can be made of them, the old one goes on: they are being
        written, or a mistake that a sound connection need not suffer from. A key that the server refuses ends it."""
        try:
            client = await asyncio.to_thread(_client, self._settings)
        except StoreUnavailable as error:
            if old is None or old.retired:
                raise
            self._trouble.failed("%s; the connection of before is kept", error)
            return old
        # tried once by these files, while there is an old one: connecting may take as long as a search has
        self._tried = stamp
        try:
            await client.connect()
        except BaseException as error:
            await client.close()
            if old is not None and isinstance(error, _ANSWERED):
                self._retire(old)
                await old.close_if_unused()
            elif old is not None and not old.retired and isinstance(error, _BROKEN):
                self._trouble.failed("%s; the connection of before is kept", _unreachable(error))
                return old
            raise
        self._trouble.over("weaviate is connected by the files as they are now")
        self._tried = None
        if old is not None:
            self._retire(old)
            await old.close_if_unused()
        self._link = link = _Link(client, stamp)
        return link

    @contextlib.asynccontextmanager
    async def session(self, seconds: float) -> AsyncIterator[weaviate.WeaviateAsyncClient]:
        """A connected client, a deadline, own errors for foreign ones, and a new connection after a failure."""
        link = None
        try:
            async with asyncio.timeout(seconds):
                link = await self._connected()
                link.users += 1
                yield link.client
        except TimeoutError as error:
            self._retire(link)
            raise ConnectionLost(f"weaviate did not answer within {seconds:g} s") from error
        except WeaviateInvalidInputError:
            raise
        except _ANSWERED as error:
            if _unavailable(error):
                self._retire(link)
                raise ConnectionLost(f"weaviate: {brief(error)}") from error
            raise StoreUnavailable(self._explained(error)) from error
        except _BROKEN as error:
            self._retire(link)
            raise ConnectionLost(_unreachable(error)) from error
        finally:
            if link is not None:
                link.users -= 1
                await link.close_if_unused()

    def _retire(self, link: _Link | None) -> None:
        if link is not None:
            link.retired = True
            if self._link is link:
                self._link = None

    def _explained(self, error: Exception) -> str:
        refused = isinstance(error, UnexpectedStatusCodeError) and error.status_code in (401, 403)
        if not refused and "unauthorized" not in str(error).lower():
            return f"weaviate: {brief(error)}"
        if self._settings.api_key_file or self._settings.api_key:
            return "weaviate refuses the API key: see store.api_key_file"
        return "weaviate wants an API key: name its file in store.api_key_file"

    async def aclose(self) -> None:
        """Close once the last request is done; no session is given from now on."""
        self._closed = True
        link = self._link
        self._retire(link)
        if link is not None:
            await link.close_if_unused()


def _unavailable(error: BaseException | None) -> bool:
    """Whether gRPC's UNAVAILABLE is at the bottom of `error`: no server has answered, or it was going away."""
    while error is not None:
        if isinstance(error, grpc.aio.AioRpcError):
            return bool(error.code() == grpc.StatusCode.UNAVAILABLE)
        error = error.__cause__ or error.__context__
    return False


def _unreachable(error: BaseException) -> str:
    """Why there is no connection: the client's own words end before the cause."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"weaviate's certificate is not trusted ({cause.verify_message}): see store.ca_file"
        if isinstance(cause, OSError) and cause.strerror:
            return f"weaviate cannot be reached: {brief(OSError(cause.strerror))}"
        cause = cause.__cause__ or cause.__context__
    return f"weaviate: {brief(error)}"


def _stamp(settings: WeaviateSettings) -> _Stamp:
    """What changes with the files that a connection is made with; None for one that is not there now."""
    found: list[tuple[int, int, int] | None] = []
    for path in (settings.ca_file, settings.api_key_file):
        if path is not None:
            try:
                status = os.stat(path)
                found.append((status.st_mtime_ns, status.st_ino, status.st_size))
            except OSError:
                found.append(None)
    return tuple(found)


def _client(settings: WeaviateSettings) -> weaviate.WeaviateAsyncClient:
    """A client that is not connected yet.

    Raises:
        StoreUnavailable: a configured file cannot be used; the message names it.
    """
    key = settings.api_key
    if settings.api_key_file is not None:
        key = _read(settings.api_key_file, "store.api_key_file").decode("utf-8", "replace").strip()
        if not key:
            raise StoreUnavailable(f"store.api_key_file {settings.api_key_file} is empty")
    authorities = credentials = None
    if settings.secure and settings.ca_file is not None:
        pem = _read(settings.ca_file, "store.ca_file")
        # remarks beside the certificates may be in any language; of an empty text ssl makes the system's authorities
        text = pem.decode("ascii", "ignore").strip() or "nothing"
        try:
            authorities = ssl.create_default_context(cadata=text)
        except ssl.SSLError as error:
            raise StoreUnavailable(f"store.ca_file {settings.ca_file} holds no certificate") from error
        credentials = grpc.ssl_channel_credentials(root_certificates=pem)
    client = weaviate.use_async_with_custom(
        http_host=settings.http_host,
        http_port=settings.http_port,
        http_secure=settings.secure,
        grpc_host=settings.grpc_host or settings.http_host,
        grpc_port=settings.grpc_port,
        grpc_secure=settings.secure,
        auth_credentials=Auth.api_key(key) if key else None,
        additional_config=AdditionalConfig(
            timeout=Timeout(init=2, query=settings.search_seconds, insert=settings.write_seconds),
            trust_env=False,
            grpc_config=GrpcConfig(channel_options=_CHANNEL, credentials=credentials),
        ),
        # the checks ask PyPI for a newer client
        skip_init_checks=True,
    )
    if authorities is not None:
        # the client takes authorities for gRPC alone; for HTTP it knows only those of the environment, which are the
        # whole process's, and with them the environment's proxies
        transport = httpx.AsyncHTTPTransport(verify=authorities, trust_env=False)
        client._connection._make_mounts = lambda colour: {"https://": transport}  # type: ignore[assignment,method-assign]
    return client


def _read(path: str, setting: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise StoreUnavailable(f"{setting} {path} cannot be read: {error.strerror}") from error
