"""The operator's port for probes and scrapes: who is slow, or holds many connections, loses them."""

import asyncio
import contextlib

import aiohttp
import pytest

from toolcrib_operator.elector import Elector
from toolcrib_operator.health import serving
from toolcrib_operator.metrics import Propagated
from toolcrib_operator.ports import Lease
from toolcrib_operator.settings import ElectionSettings
from toolcrib_operator.state import State

pytestmark = pytest.mark.anyio


class NoLease:
    """A Lease that nobody asks for."""

    async def read(self) -> Lease | None:
        return None

    async def write(self, lease: Lease, *, acquired: bool) -> Lease:
        return lease


def state() -> State:
    return State(Elector(NoLease(), "o-0", settings=ElectionSettings()))


@pytest.mark.parametrize(
    "sent", [b"", b"GET /hea", b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"]
)
async def test_a_connection_lasts_one_request_and_a_moment(sent: bytes) -> None:
    async with asyncio.timeout(60), serving(state(), Propagated(), "127.0.0.1", 0, seconds=0.3) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
        async with aiohttp.ClientSession() as session:
            answer = await session.get(f"http://127.0.0.1:{port}/healthz")
            assert (answer.status, answer.headers["Connection"]) == (200, "close")


async def test_a_probe_takes_the_place_of_the_oldest_connection_where_all_are_held() -> None:
    async with (
        asyncio.timeout(60),
        serving(state(), Propagated(), "127.0.0.1", 0, seconds=600, connections=3) as port,
    ):
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        async with aiohttp.ClientSession() as session:
            assert (await session.get(f"http://127.0.0.1:{port}/healthz")).status == 200
        with contextlib.suppress(ConnectionError):
            assert await held[0][0].read() == b""
        assert not any(reader.at_eof() for reader, _ in held[1:])
        for _, writer in held:
            writer.close()
