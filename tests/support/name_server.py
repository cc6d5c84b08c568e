"""A DNS server on loopback that answers, fails, holds or loses packets as it is told; and namespaces with no other server."""

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
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from realparts.required import require

ADDRESS = "127.53.53.53"
SEARCH = "example.test"
HOSTS = {"localhost": "127.0.0.1", "in-hosts.corp": "127.0.0.9"}
A, CNAME, AAAA = 1, 5, 28
OK, SERVFAIL, NXDOMAIN = 0, 2, 3
_BIND = 'mount --bind "$1" /etc/resolv.conf && mount --bind "$2" /etc/hosts && shift 2 && exec "$@"'


@dataclass(frozen=True)
class Question:
    """One packet that came: for which name, which type, and when (monotonic seconds)."""

    name: str
    kind: int
    at: float


@dataclass(frozen=True)
class Record:
    """An A, AAAA or CNAME record."""

    value: str
    """An IP address, or the name that the CNAME leads to."""
    ttl: int = 5

    @property
    def kind(self) -> int:
        """The record's type."""
        try:
            return A if ip_address(self.value).version == 4 else AAAA
        except ValueError:
            return CNAME

    @property
    def data(self) -> bytes:
        """The record's data, as sent."""
        return _name(self.value) if self.kind == CNAME else ip_address(self.value).packed


@dataclass
class NameServer:
    """A running server. `lose` says of a question whether its packet is lost."""

    records: dict[str, list[Record]] = field(default_factory=dict)
    """Name without final dot → its records; other names do not exist."""
    lose: Callable[[Question], bool] = lambda question: False
    hold: Callable[[Question], bool] = lambda question: False
    """Whether the answer waits for `release`."""
    spoil: Callable[[bytes], bytes] = lambda packet: packet
    """What is sent in place of an answer."""
    failing: bool = False
    """Every question is answered SERVFAIL."""
    asked: list[Question] = field(default_factory=list)
    port: int = 0
    release: Callable[[], None] = lambda: None
    """Send what was held."""

    def add(self, name: str, *values: str, ttl: int = 5) -> str:
        """Give the name these addresses, or another name to look up in its place; the name."""
        self.records[name] = [Record(value, ttl) for value in values]
        return name

    def names(self) -> list[str]:
        """The names asked for, in order, once for each A question."""
        return [one.name for one in self.asked if one.kind == A]

    def answer(self, question: Question, packet: bytes, end: int) -> bytes | None:
        """What is sent back for a question, which ends there in its packet; None: nothing."""
        code = SERVFAIL if self.failing else OK if question.name in self.records else NXDOMAIN
        found, name = [], question.name
        while code == OK and name:
            here = self.records.get(name, [])
            found += [(name, one) for one in here if one.kind in (question.kind, CNAME)]
            name = next((one.value for one in here if one.kind == CNAME), "")
        head = packet[:2] + struct.pack("!HHHHH", 0x8180 | code, 1, len(found), 0, 0)
        records = b"".join(
            _name(owner) + struct.pack("!HHIH", one.kind, 1, one.ttl, len(one.data)) + one.data
            for owner, one in found
        )
        return self.spoil(head + packet[12:end] + records)


def _name(text: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode() for label in text.split(".")) + b"\0"


def _question(packet: bytes) -> tuple[Question, int]:
    """The packet's question, and where it ends."""
    labels, at = [], 12
    while packet[at]:
        labels.append(packet[at + 1 : at + 1 + packet[at]].decode())
        at += 1 + packet[at]
    kind = struct.unpack_from("!H", packet, at + 1)[0]
    return Question(".".join(labels).lower(), kind, time.monotonic()), at + 5


@contextlib.contextmanager
def name_server(
    host: str = "127.0.0.1", port: int = 0, server: NameServer | None = None
) -> Iterator[NameServer]:
    """A server that runs until the block ends."""
    server = server or NameServer()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind((host, port))
        server.port = listener.getsockname()[1]
        stop = threading.Event()
        held: list[tuple[bytes, Any]] = []

        def release() -> None:
            while held:
                listener.sendto(*held.pop(0))

        def serve() -> None:
            while True:
                packet, sender = listener.recvfrom(4096)
                if stop.is_set():
                    return
                question, end = _question(packet)
                back = server.answer(question, packet, end)
                waits = server.hold(question)
                if waits and back is not None:
                    held.append((back, sender))
                server.asked.append(question)
                if back is not None and not (waits or server.lose(question)):
                    listener.sendto(back, sender)

        server.release = release

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            stop.set()
            listener.sendto(b"", listener.getsockname())
            thread.join(10)


def within(folder: Path) -> list[str]:
    """What a command is given to, so that ADDRESS, port 53, is its only name server, SEARCH its search list and HOSTS its
    `/etc/hosts`: a network and a mount namespace of its own. The server is the command's to start.

    Skips the test where this machine makes no namespaces; fails it where real parts are required.
    """
    resolv_conf, hosts = folder / "resolv.conf", folder / "hosts"
    resolv_conf.write_text(f"nameserver {ADDRESS}\nsearch {SEARCH}\noptions ndots:2\n")
    hosts.write_text("".join(f"{address} {name}\n" for name, address in HOSTS.items()))
    who = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    unshare = shutil.which("unshare")
    made = [str(unshare), *who, "--mount", "--net", "sh", "-c", _BIND, "sh", str(resolv_conf), str(hosts)]
    able = (
        sys.platform == "linux"
        and unshare
        and not subprocess.run([*made, "true"], capture_output=True).returncode
    )
    require(
        bool(able), "a name server of its own takes Linux, unshare (util-linux) and root, or user namespaces"
    )
    return made


def loopback_up() -> None:
    """Bring up loopback in a network namespace that was just made."""
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        up_and_running = struct.pack("16sh", b"lo", 0x1 | 0x40)
        fcntl.ioctl(any_socket, 0x8914, up_and_running)
