"""A real PostgreSQL on loopback, for tests of the sessions' store.

    with Postgres() as postgres:
        postgres.database("sessions")

Found on PATH or where Debian installs it, else taken from Debian's packages without installing them. PostgreSQL does
not run as root: there it runs in a user namespace in which it is somebody else. Standard library only: the build
script imports this.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Self

from realparts import lookup, processes, unpacked

_PACKAGE = "postgresql-15"
_PATH = "usr/lib/postgresql/*/bin/postgres"
_ADVICE = (
    "Put postgres and initdb on PATH (`apt-get install postgresql`), or run `make build-tools` on Debian or Ubuntu, "
    "which unpacks the packages into the cache."
)


class PostgresMissingError(RuntimeError):
    """The program is not here; the message says how to get it."""


def path_of() -> Path:
    """The program, from PATH, Debian's folder or the cache; never fetched here. Raises PostgresMissingError."""
    lookup.refuse_in_quick_suite("postgres")
    on_path = shutil.which("postgres")
    there = [Path(on_path).resolve()] if on_path else sorted(Path("/").glob(_PATH), reverse=True)
    found = next((p for p in there if p.with_name("initdb").exists()), None) or unpacked.find(
        "postgresql", _PATH
    )
    if found is None:
        raise PostgresMissingError(f"postgres is not on this machine. {_ADVICE}")
    return found


def provide() -> Path:
    """The program that is there, else Debian's packages in the cache. Raises PostgresMissingError."""
    with contextlib.suppress(PostgresMissingError):
        return path_of()
    try:
        return unpacked.fetch("postgresql", _PACKAGE, _PATH)
    except unpacked.UnpackingError as error:
        raise PostgresMissingError(f"postgres is not on this machine: {error}. {_ADVICE}") from error


class Postgres(processes.Server):
    """One server with a data folder of its own, without a password, on a port of its own; a context manager."""

    def __init__(self) -> None:
        program = path_of()
        self._folder = tempfile.TemporaryDirectory(prefix="toolcrib-postgres-")
        self._data = Path(self._folder.name) / "data"
        self._programs = program.parent
        self.port = processes.free_port()
        self._environment = processes.clean_environment(unpacked.libraries(program))
        self._as = ["unshare", "--user", "--map-user=1000"] if os.geteuid() == 0 else []
        self.process = processes.Child(
            "postgres",
            [
                *self._as,
                program,
                "-D",
                self._data,
                "-p",
                str(self.port),
                "-c",
                "listen_addresses=127.0.0.1",
                "-c",
                f"unix_socket_directories={self._folder.name}",
                "-c",
                "jit=off",
            ],
            log=Path(self._folder.name) / "postgres.log",
            env=self._environment,
        )

    def __enter__(self) -> Self:
        try:
            subprocess.run(
                [*self._as, self._programs / "initdb", "-D", self._data, "-U", "toolcrib", "--no-sync",
                 "--auth=trust", "--encoding=UTF8", "--locale=C"],
                env=self._environment, check=True, capture_output=True,
            )  # fmt: skip
        except BaseException:
            self.close()
            raise
        return super().__enter__()

    def start(self) -> Self:
        """Start it on the same port, and wait until it answers."""
        self.process.start()
        self.process.wait_ready(self._answers, 60, interval=0.05)
        return self

    def kill(self) -> None:
        """SIGKILL, to the processes of its connections too: each is a session of its own and would end a statement first."""
        pid = self.process.pid
        connections = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        super().kill()
        for each in connections:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(each), signal.SIGKILL)

    def database(self, name: str) -> str:
        """Make an empty database; its URL for SQLAlchemy."""
        self._ask(f"CREATE DATABASE {name}")
        return f"postgresql://toolcrib@127.0.0.1:{self.port}/{name}"

    def close(self) -> None:
        """End it."""
        self.process.stop(grace=5)
        self._folder.cleanup()

    def _answers(self) -> bool:
        try:
            self._ask("SELECT 1")
        except subprocess.CalledProcessError:
            return False
        return True

    def _ask(self, statement: str) -> None:
        subprocess.run(
            [self._programs / "psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", "toolcrib", "-d", "postgres",
             "-c", statement],
            env=self._environment, check=True, capture_output=True,
        )  # fmt: skip
