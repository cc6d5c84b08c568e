"""A real Redis on loopback, for tests of limits that several replicas share. Valkey speaks the same protocol.

    with Redis() as redis:
        redis.url

Found on PATH, else taken from Debian's packages without installing them. Standard library only: the build script
imports this.
"""

import contextlib
import shutil
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from realparts import lookup, processes, unpacked

PROGRAMS = ("redis-server", "valkey-server")
_PATH = f"usr/bin/{PROGRAMS[0]}"
_ADVICE = (
    "Put redis-server or valkey-server on PATH (`apt-get install redis-server`), or run `make build-tools` on Debian "
    "or Ubuntu, which unpacks the packages into the cache."
)


class RedisMissingError(RuntimeError):
    """The program is not here; the message says how to get it."""


def path_of() -> Path:
    """The program, from PATH or the cache; never fetched here. Raises RedisMissingError."""
    lookup.refuse_in_quick_suite(PROGRAMS[0])
    for program in PROGRAMS:
        if on_path := shutil.which(program):
            return Path(on_path)
    if there := unpacked.find("redis", _PATH):
        return there
    raise RedisMissingError(f"redis-server is not on this machine. {_ADVICE}")


def provide() -> Path:
    """The program that is there, else Debian's packages (with the libraries that are missing) in the cache.

    Raises RedisMissingError where there is no apt-get, no package or no network.
    """
    with contextlib.suppress(RedisMissingError):
        return path_of()
    try:
        return unpacked.fetch("redis", PROGRAMS[0], _PATH)
    except unpacked.UnpackingError as error:
        raise RedisMissingError(f"redis-server is not on this machine: {error}. {_ADVICE}") from error


class Redis(processes.Server):
    """One server that keeps nothing on disk, on a port of its own; a context manager.

    `password` is asked of everybody; `tls` is a CA, a certificate and a key (PEM): then only TLS is spoken.
    """

    def __init__(self, *, password: str | None = None, tls: tuple[Path, Path, Path] | None = None) -> None:
        program = path_of()
        self._folder = tempfile.TemporaryDirectory(prefix="toolcrib-redis-")
        self.port = processes.free_port()
        self.tls, self._password = tls, password
        self.url = f"{'rediss' if tls else 'redis'}://127.0.0.1:{self.port}/0"
        listen = ["--port", str(self.port)]
        if tls:
            authority, certificate, key = map(str, tls)
            listen = ["--port", "0", "--tls-port", str(self.port), "--tls-auth-clients", "no"]
            listen += ["--tls-ca-cert-file", authority, "--tls-cert-file", certificate, "--tls-key-file", key]
        secret = ["--requirepass", password] if password else []
        self.process = processes.Child(
            "redis",
            [
                program,
                "--bind",
                "127.0.0.1",
                *listen,
                *secret,
                "--save",
                "",
                "--appendonly",
                "no",
                "--dir",
                self._folder.name,
                "--daemonize",
                "no",
            ],
            log=Path(self._folder.name) / "redis.log",
            env=processes.clean_environment(unpacked.libraries(program)),
        )

    def start(self) -> Self:
        """Start it, empty, on the same port, and wait until it answers."""
        self.process.start()
        self.process.wait_ready(self._listening, 60, interval=0.02)
        return self

    def close(self) -> None:
        """End it."""
        self.process.stop(grace=0)
        self._folder.cleanup()

    def ask(self, *words: str) -> str:
        """The raw answer to one command, over plain text; for looking and for breaking things."""
        told: Sequence[str] = words
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            if self._password:
                connection.sendall(_encoded(("AUTH", self._password)))
                connection.recv(4096)
            connection.sendall(_encoded(told))
            return connection.recv(65536).decode(errors="replace")

    def _listening(self) -> bool:
        return processes.listening(self.port)


def _encoded(words: Sequence[str]) -> bytes:
    parts = [f"*{len(words)}\r\n".encode()]
    parts += [b"$%d\r\n%s\r\n" % (len(w.encode()), w.encode()) for w in words]
    return b"".join(parts)
