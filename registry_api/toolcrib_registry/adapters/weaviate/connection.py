"""The connection to a Weaviate server: made when first needed, made again after a failure, with deadlines of ours.

weaviate-client retries UNAVAILABLE on the same channel after 1, 2, 4, 8 and 16 s, and no setting changes that (4.23). So
its calls report a lost connection as an error of ours, which it does not retry: the channel is closed, and the next
attempt opens a new one, which a Kubernetes Service may route to another node.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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

from toolcrib.telemetry.logs import Trouble
from toolcrib_registry.search.errors import StoreUnavailable, brief
from toolcrib_registry.search.view_search import STORE_SECONDS

log = logging.getLogger(__name__)

_ANSWERED = (UnexpectedStatusCodeError, WeaviateBatchError, WeaviateDeleteManyError, WeaviateQueryError)
"""The server answered with an error: the connection is sound."""
_BROKEN = (WeaviateBaseError, httpx.HTTPError, OSError)
_CHANNEL = [
    ("grpc.enable_http_proxy", 0),
    # by default all channels to one address share a TCP connection: a new one would be as dead as the old one
    ("grpc.use_local_subchannel_pool", 1),
    # gRPC waits a second before it connects again, and longer from time to time: searches have two in all
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
]
_LOST = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
"""The connection broke, could not be made, or stayed silent for the client's own deadline."""
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
    search_seconds: float = STORE_SECONDS
    write_seconds: float = 60.0
    """For one batch of 200, and for reading the inventory."""


class _Calls:
    """The calls of the client's gRPC stub, which raise `ConnectionLost` where the client would wait and retry."""

    def __init__(self, stub: Any) -> None:
        self._stub = stub

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        call = getattr(self._stub, name)

        async def once(*args: Any, **options: Any) -> Any:
            try:
                return await call(*args, **options)
            except grpc.aio.AioRpcError as error:
                if error.code() in _LOST:
                    raise ConnectionLost(f"weaviate: {brief(ValueError(error.details()))}") from error
                raise

        return once


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
        self._failed: tuple[float, str] = 0.0, ""
        """When no connection could be made, and why."""

    async def _connected(self) -> _Link:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        stamp = _stamp(self._settings)
        asked = time.monotonic()
        async with self._connecting:
            link = self._link
            failed_at, why = self._failed
            if link is None and asked < failed_at:
                # it failed while this one waited for the lock: many that try in turn would outlast their deadlines
                raise ConnectionLost(why)
            if link is None or stamp not in (link.stamp, self._tried):
                return await self._renewed(link, stamp)
            if stamp == link.stamp:
                self._trouble.over("weaviate: the files match the open connection again")
            return link

    async def _renewed(self, old: _Link | None, stamp: _Stamp) -> _Link:
        """A link by the files as they are now. Where nothing can be made of them, the old one goes on: they are being
        written, or a mistake that a sound connection need not suffer from. A key that the server refuses ends it."""
        try:
            client = await asyncio.to_thread(_client, self._settings)
        except StoreUnavailable as error:
            if old is None or old.retired:
                raise
            self._trouble.failed("%s; keeping the previous connection", error)
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
                self._trouble.failed("%s; keeping the previous connection", _unreachable(error))
                return old
            elif isinstance(error, _BROKEN) and not isinstance(error, _ANSWERED):
                self._failed = time.monotonic(), _unreachable(error)
            raise
        connection = client._connection
        assert connection._grpc_stub is not None
        connection._grpc_stub = _Calls(connection._grpc_stub)  # type: ignore[assignment]
        self._trouble.over("weaviate: reconnected with the changed files")
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
            raise ConnectionLost(f"weaviate did not respond within {seconds:g} s") from error
        except (ConnectionLost, asyncio.CancelledError):
            # cancelled by the deadline of the whole search: the connection may be dead, and the next request must not use it
            self._retire(link)
            raise
        except WeaviateInvalidInputError:
            raise
        except _ANSWERED as error:
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
        return "weaviate requires an API key: set store.api_key_file"

    async def aclose(self) -> None:
        """Close once the last request is done; no session is given from now on."""
        self._closed = True
        link = self._link
        self._retire(link)
        if link is not None:
            await link.close_if_unused()


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
    # the client takes authorities for gRPC alone; for HTTP it would load the environment's each time, which takes 15 ms of
    # the event loop even where there is no TLS, and many try to connect while a server is away
    verify = authorities if authorities is not None else settings.secure
    connection = client._connection
    connection._make_client = lambda colour: httpx.AsyncClient(  # type: ignore[assignment,method-assign]
        headers=connection._headers,
        transport=httpx.AsyncHTTPTransport(verify=verify, trust_env=False),
        trust_env=False,
    )
    return client


def _read(path: str, setting: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise StoreUnavailable(f"{setting} {path} cannot be read: {error.strerror}") from error
