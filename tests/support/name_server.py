"""A DNS server on loopback that answers, refuses or loses packets as it is told; and namespaces in which the system asks it alone."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from realparts.required import required

ADDRESS = "127.53.53.53"
A, AAAA = 1, 28
_BIND = 'mount --bind "$1" /etc/resolv.conf && shift && exec "$@"'


@dataclass(frozen=True)
class Question:
    """One packet that came: for which name, which type, and when (monotonic seconds)."""

    name: str
    kind: int
    at: float


@dataclass
class NameServer:
    """A running server. `lose` says of a question whether its packet is lost."""

    addresses: dict[str, str] = field(default_factory=dict)
    """Name without final dot → IPv4 address; other names do not exist."""
    lose: Callable[[Question], bool] = lambda question: False
    asked: list[Question] = field(default_factory=list)
    port: int = 0

    def names(self) -> list[str]:
        """The names asked for, in order, once for each A question."""
        return [one.name for one in self.asked if one.kind == A]

    def answer(self, packet: bytes) -> bytes | None:
        """What is sent back for a question; None: nothing."""
        labels, at = [], 12
        while packet[at]:
            labels.append(packet[at + 1 : at + 1 + packet[at]].decode())
            at += 1 + packet[at]
        kind = struct.unpack_from("!H", packet, at + 1)[0]
        question = Question(".".join(labels).lower(), kind, time.monotonic())
        self.asked.append(question)
        if self.lose(question):
            return None
        address = self.addresses.get(question.name)
        found = [address] if address is not None and kind == A else []
        code = 0 if address is not None else 3  # NXDOMAIN
        head = packet[:2] + struct.pack("!HHHHH", 0x8180 | code, 1, len(found), 0, 0)
        records = b"".join(
            b"\xc0\x0c" + struct.pack("!HHIH", A, 1, 5, 4) + socket.inet_aton(each) for each in found
        )
        return head + packet[12 : at + 5] + records


@contextlib.contextmanager
def name_server(host: str = "127.0.0.1", port: int = 0) -> Iterator[NameServer]:
    """A server that runs until the block ends."""
    server = NameServer()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind((host, port))
        server.port = listener.getsockname()[1]
        stop = threading.Event()

        def serve() -> None:
            while True:
                packet, sender = listener.recvfrom(4096)
                if stop.is_set():
                    return
                if (back := server.answer(packet)) is not None:
                    listener.sendto(back, sender)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            stop.set()
            listener.sendto(b"", listener.getsockname())
            thread.join(10)


def within(folder: Path) -> list[str]:
    """What a command is given to, so that its system asks a server at ADDRESS, port 53, for names: a network and a
    mount namespace of its own. The server is the command's to start.

    Skips the test where this machine makes no namespaces; fails it where real parts are required.
    """
    file = folder / "resolv.conf"
    file.write_text(f"nameserver {ADDRESS}\n")
    who = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    unshare = shutil.which("unshare")
    made = [str(unshare), *who, "--mount", "--net", "sh", "-c", _BIND, "sh", str(file)]
    if (
        sys.platform != "linux"
        or unshare is None
        or subprocess.run([*made, "true"], capture_output=True).returncode
    ):
        why = "a name server of its own takes Linux, unshare (util-linux) and root, or user namespaces"
        if required():
            pytest.fail(f"{why}, and TOOLCRIB_REQUIRE_REAL is set")
        pytest.skip(why)
    return made


def loopback_up() -> None:
    """Bring up loopback in a network namespace that was just made."""
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        up_and_running = struct.pack("16sh", b"lo", 0x1 | 0x40)
        fcntl.ioctl(any_socket, 0x8914, up_and_running)
