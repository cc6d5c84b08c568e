"""The connection to a Weaviate server: made when first needed, made again after a failure, with deadlines of ours."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

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

from toolcrib_registry.search.errors import StoreUnavailable, brief

_ANSWERED = (UnexpectedStatusCodeError, WeaviateBatchError, WeaviateDeleteManyError, WeaviateQueryError)
"""The server answered with an error: the connection is sound."""


@dataclass(frozen=True, slots=True)
class WeaviateSettings:
    """Where the server is and how to speak to it."""

    http_host: str
    http_port: int = 8080
    grpc_host: str = ""
    """The HTTP host unless set."""
    grpc_port: int = 50051
    secure: bool = False
    """TLS on both ports, verified against the system's authorities."""
    api_key: str | None = field(default=None, repr=False)
    collection_prefix: str = "ToolcribTools"
    """Two installations on one server need two prefixes. Starts with a capital letter."""
    replicas: int = 1
    """Weaviate's replication factor for a collection that is made; above 1, writes and reads want a quorum."""
    search_seconds: float = 3.0
    write_seconds: float = 60.0
    """For one batch of 200, and for reading the inventory."""


class _Link:
    """A connection and how many requests are on it: closing it under them would cancel their tasks."""

    def __init__(self, client: weaviate.WeaviateAsyncClient) -> None:
        self.client = client
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
        self._closed = False

    async def _connected(self) -> _Link:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        async with self._connecting:
            if self._link is None:
                client = _client(self._settings)
                try:
                    await client.connect()
                except BaseException:
                    await client.close()
                    raise
                self._link = _Link(client)
            return self._link

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
            raise StoreUnavailable(f"weaviate did not answer within {seconds:g} s") from error
        except WeaviateInvalidInputError:
            raise
        except _ANSWERED as error:
            raise StoreUnavailable(f"weaviate: {brief(error)}") from error
        except (WeaviateBaseError, httpx.HTTPError, OSError) as error:
            self._retire(link)
            raise StoreUnavailable(f"weaviate: {brief(error)}") from error
        finally:
            if link is not None:
                link.users -= 1
                await link.close_if_unused()

    def _retire(self, link: _Link | None) -> None:
        if link is not None:
            link.retired = True
            if self._link is link:
                self._link = None

    async def aclose(self) -> None:
        """Close once the last request is done; no session is given from now on."""
        self._closed = True
        link = self._link
        self._retire(link)
        if link is not None:
            await link.close_if_unused()


def _client(settings: WeaviateSettings) -> weaviate.WeaviateAsyncClient:
    return weaviate.use_async_with_custom(
        http_host=settings.http_host,
        http_port=settings.http_port,
        http_secure=settings.secure,
        grpc_host=settings.grpc_host or settings.http_host,
        grpc_port=settings.grpc_port,
        grpc_secure=settings.secure,
        auth_credentials=Auth.api_key(settings.api_key) if settings.api_key else None,
        additional_config=AdditionalConfig(
            timeout=Timeout(init=2, query=settings.search_seconds, insert=settings.write_seconds),
            trust_env=False,
            grpc_config=GrpcConfig(channel_options=[("grpc.enable_http_proxy", 0)]),
        ),
        # the checks ask PyPI for a newer client
        skip_init_checks=True,
    )
