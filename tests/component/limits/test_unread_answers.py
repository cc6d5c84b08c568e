"""Large answers that one agent does not read, on a running registry: the oldest are cut, what is read comes whole."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from registry_harness import backend, binding, mint, tool
from registry_process import RegistryProcess, configuration, process

ANSWER = b'"' + b"a" * 3_900_000 + b'"'
MOST = (32 << 20) // len(ANSWER)


class _Backend(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextlib.contextmanager
def large_answers() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Backend) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def called(registry: RegistryProcess, account: str) -> socket.socket:
    """A call of whose answer only the beginning has been read."""
    made = socket.socket()
    made.settimeout(60)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect(("127.0.0.1", registry.agents))
    token = mint(f"system:serviceaccount:team:{account}")
    made.sendall(
        f"POST /tools/large HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n"
        "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}".encode()
    )
    assert made.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200"
    return made


def rest(connection: socket.socket) -> int:
    """Bytes of the answer that come until the connection ends."""
    size = 0
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(1 << 20):
            size += len(piece)
    return size


def test_the_oldest_unread_answers_of_an_agent_are_cut_and_others_come_whole(tmp_path: Path) -> None:
    with large_answers() as port, process(configuration(tmp_path, egress={"loopback": True})) as registry:
        accounts = ("greedy", "modest")
        bindings = tuple(binding(name, ("large:use",)) for name in accounts)
        registry.publish(tool("large", backend=backend(port, "/large")), bindings=bindings)
        with contextlib.ExitStack() as stack:
            modest = stack.enter_context(called(registry, "modest"))
            greedy = [stack.enter_context(called(registry, "greedy")) for _ in range(MOST + 2)]
            sizes = [rest(connection) for connection in greedy]
            assert [size < len(ANSWER) for size in sizes] == [True] * 2 + [False] * MOST
            assert rest(modest) > len(ANSWER)
