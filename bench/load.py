"""A load generator in a process of its own: raw keep-alive connections, requests built once, answers barely read.

Reads one job a line (JSON) on standard input and answers with one line. Every answer's status and length are checked,
nothing else. It is the upstream of calls as well: one more process would compete for two cores.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import re
import sys
import time
from collections.abc import Iterator
from typing import Any

import uvloop

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Connection(asyncio.Protocol):
    """One keep-alive connection: sends the next request when the answer to the last one is complete."""

    def __init__(self, requests: Iterator[bytes], status: bytes, times: list[float]) -> None:
        self.done = asyncio.get_running_loop().create_future()
        self.stopping = False
        self._requests, self._status, self._times = requests, b"HTTP/1.1 " + status, times

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._send()

    def _send(self) -> None:
        self._data, self._expected, self._started = b"", 0, time.perf_counter()
        self._transport.write(next(self._requests))

    def data_received(self, data: bytes) -> None:
        self._data = data if not self._data else self._data + data
        if not self._expected:
            end = self._data.find(b"\r\n\r\n")
            if end < 0:
                return
            found = _LENGTH.search(self._data, 0, end + 2)
            if found is None or not self._data.startswith(self._status):
                self._fail(self._data[:600].decode("latin-1"))
                return
            self._expected = end + 4 + int(found[1])
        if len(self._data) < self._expected:
            return
        if len(self._data) > self._expected:
            self._fail("more came than one answer")
            return
        self._times.append(time.perf_counter() - self._started)
        if self.stopping:
            self._transport.close()
        else:
            self._send()

    def _fail(self, why: str) -> None:
        if not self.done.done():
            self.done.set_exception(RuntimeError(why))
        self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            if self.stopping and error is None:
                self.done.set_result(None)
            else:
                self.done.set_exception(error or RuntimeError("the server closed the connection"))


async def run(job: dict[str, Any]) -> dict[str, Any]:
    """Requests for `seconds`; latencies and this process's own use of its core."""
    loop = asyncio.get_running_loop()
    times: list[float] = []
    # one request again and again, or several in turns
    given = job["request"] if isinstance(job["request"], list) else [job["request"]]
    requests = itertools.cycle([base64.b64decode(r) for r in given])
    used, start = time.process_time(), time.perf_counter()
    connections = [
        (await loop.create_connection(lambda: Connection(requests, b"200", times), job["host"], job["port"]))[
            1
        ]
        for _ in range(job["connections"])
    ]
    await asyncio.sleep(job["seconds"])
    for connection in connections:
        connection.stopping = True
    await asyncio.wait_for(asyncio.gather(*(c.done for c in connections)), 30)
    wall = time.perf_counter() - start
    times.sort()
    return {
        "requests": len(times),
        "seconds": wall,
        "p50": times[len(times) // 2],
        "p99": times[int(len(times) * 0.99)],
        "busy": (time.process_time() - used) / wall,
    }


class Upstream(asyncio.Protocol):
    """Answers every complete `POST /call` with the same small JSON document."""

    _BODY = b'{"expression":"6*7","result":42}'
    _ANSWER = (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(_BODY)
        + _BODY
    )
    _NOTHING = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"

    def connection_made(self, transport: Any) -> None:
        self._transport, self._data = transport, b""

    def data_received(self, data: bytes) -> None:
        self._data += data
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            return
        found = _LENGTH.search(self._data[: end + 2])
        if len(self._data) < end + 4 + (int(found[1]) if found else 0):
            return
        found_route = self._data.startswith(b"POST /call ")
        self._data = b""
        self._transport.write(self._ANSWER if found_route else self._NOTHING)


async def main() -> None:
    """Serve the upstream and do jobs until standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Upstream, "127.0.0.1", 0)
    say({"upstream": server.sockets[0].getsockname()[1]})
    while line := await asyncio.to_thread(sys.stdin.readline):
        try:
            say(await run(json.loads(line)))
        except Exception as error:  # told to whoever asked, who raises it
            say({"error": repr(error)})
    server.close()


def say(message: dict[str, Any]) -> None:
    """One line on standard output."""
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
