"""Large answers that one agent does not read, on a running registry: the oldest are cut, what is read comes whole."""

import contextlib
import socket
from pathlib import Path

from registry_harness import backend, binding, mint, tool
from registry_process import RegistryProcess, configuration, process
from stub_server import Answer, answering

ANSWER = b'"' + b"a" * 3_900_000 + b'"'
MOST = (32 << 20) // len(ANSWER)


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
    with (
        answering(lambda _: Answer(ANSWER)) as port,
        process(configuration(tmp_path, egress={"loopback": True})) as registry,
    ):
        accounts = ("greedy", "modest")
        bindings = tuple(binding(name, ("large:use",)) for name in accounts)
        registry.publish(tool("large", backend=backend(port, "/large")), bindings=bindings)
        with contextlib.ExitStack() as stack:
            modest = stack.enter_context(called(registry, "modest"))
            greedy = [stack.enter_context(called(registry, "greedy")) for _ in range(MOST + 2)]
            sizes = [rest(connection) for connection in greedy]
            assert [size < len(ANSWER) for size in sizes] == [True] * 2 + [False] * MOST
            assert rest(modest) > len(ANSWER)
