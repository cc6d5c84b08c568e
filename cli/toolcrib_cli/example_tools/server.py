"""Running the example tools: as a process of their own, or inside another program's event loop."""

import asyncio
import signal
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from toolcrib_cli.example_tools.app import create_app
from toolcrib_cli.example_tools.assertion import CallAssertions
from toolcrib_cli.example_tools.samples import prepare_samples

SHUTDOWN_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Address:
    """Where the tools really listen (the port is known even if 0 was asked for)."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The base URL, without a slash at the end."""
        return f"http://{self}"


def run(
    host: str = "127.0.0.1",
    port: int = 8080,
    data_dir: Path | None = None,
    *,
    assertions: CallAssertions | None,
    announce: Callable[[Address], None] | None = None,
) -> None:
    """Serve the example tools until SIGINT or SIGTERM, then return. For the main thread.

    Loopback unless told otherwise; port 0 takes a free one. The samples are unpacked into `data_dir`, or into
    a folder that goes away at the end. `assertions` None: anybody may call. `announce` is called once, when calls are answered. Raises OSError if
    the address is taken or the folder cannot be written.
    """
    asyncio.run(until_signalled(serving(host, port, data_dir, assertions=assertions), announce))


@asynccontextmanager
async def serving(
    host: str = "127.0.0.1",
    port: int = 0,
    data_dir: Path | None = None,
    *,
    assertions: CallAssertions | None,
) -> AsyncIterator[Address]:
    """Serve the example tools while the block runs; yields where they listen. Raises OSError like `run`."""
    with _data_folder(data_dir) as folder:
        samples = await asyncio.to_thread(prepare_samples, folder)
        async with listening(create_app(samples, assertions), host, port) as address:
            yield address


@asynccontextmanager
async def listening(app: Starlette, host: str, port: int) -> AsyncIterator[Address]:
    """Serve `app` while the block runs; at its end calls in progress get 5 s. Raises OSError: the address is taken."""
    with _listener(host, port) as listener:
        config = uvicorn.Config(
            app,
            access_log=False,
            log_config=None,
            log_level="warning",
            lifespan="off",
            server_header=False,
            limit_concurrency=256,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        server = _EmbeddedServer(config)
        task = asyncio.create_task(server.serve(sockets=[listener]), name="tools")
        try:
            await server.startup_over.wait()
            yield Address(host, listener.getsockname()[1])
        finally:
            server.should_exit = True
            await task


class _EmbeddedServer(uvicorn.Server):
    """A server that leaves the process's signals to the program around it and says when it answers."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.startup_over = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets=sockets)
        finally:
            self.startup_over.set()


async def until_signalled(
    served: AbstractAsyncContextManager[Address], announce: Callable[[Address], None] | None
) -> None:
    """Serve until SIGINT or SIGTERM; `announce` is told where."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    # Set before anything is created: a signal during the start must clean up too.
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with served as address:
        if announce is not None:
            announce(address)
        await stop.wait()


@contextmanager
def _listener(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP outright: asyncio sets TCP_NODELAY on such sockets only, and without it every answer that is
    # written in two parts waits 40 ms for an acknowledgement. (socket.create_server leaves the protocol open.)
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
        yield listener


@contextmanager
def _data_folder(data_dir: Path | None) -> Iterator[Path]:
    if data_dir is not None:
        yield data_dir
        return
    with tempfile.TemporaryDirectory(prefix="toolcrib-example-tools-") as folder:
        yield Path(folder)
