"""Child processes of tests, demos and benchmarks: started quietly, waited for, ended for certain.

A child never outlives us: on Linux the kernel kills it when we die, whatever the way. Each child has a
session of its own, so Ctrl-C reaches only us and children end in the order we choose.
Standard library only: the build script runs this before any environment exists.
"""

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

# Runs in the child before the program: asks the kernel for SIGKILL at our death (PR_SET_PDEATHSIG = 1),
# unless we are dead already, and gives signals their defaults back: Python ignores SIGPIPE, and whoever started us
# may ignore others (a shell ignores SIGINT for its background jobs). Not a preexec_fn: from Python 3.12 that warns
# in a process with threads.
_LAUNCH = """
import os, signal, sys
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)
os.execvp(sys.argv[2], sys.argv[2:])
"""

# The kernel ties PDEATHSIG to the *thread* that forked. A worker thread that happens to call us may end long
# before the test does, so all children are forked from this one, which lives as long as the interpreter.
_SPAWNER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawner")

# Below Linux's ephemeral range (from 32768), so no outgoing connection takes a port between choice and use.
_PORTS = range(15000, 32000)
_SHARES = 8
_GIVEN: set[int] = set()
_CHOOSING = threading.Lock()


class NotReadyError(RuntimeError):
    """A child ended, or its deadline passed, before it was ready. The message ends with its log's tail."""


def spawn(argv: Sequence[str], **popen: Any) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own that ends with us; keywords are those of `subprocess.Popen`."""
    command = [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), *argv]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, start_new_session=True, **popen)

    return _SPAWNER.submit(start).result()


class Process(Protocol):
    """What is used here of `subprocess.Popen`."""

    pid: int

    def poll(self) -> int | None:
        """The exit status, if it has ended."""

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, once it has ended. Raises subprocess.TimeoutExpired."""

    def send_signal(self, number: int, /) -> None:
        """Nothing happens if it has ended."""


launcher: Callable[..., Process] = spawn
"""How `Child` starts programs: `spawn`, or what the test suite puts here (`loaded.switch_on`)."""


def end(process: Process, grace: float = 5.0) -> int:
    """SIGTERM, `grace` seconds, then SIGKILL, to the process and what it started; return its exit status."""
    if process.poll() is None and grace > 0:
        _signal(process, signal.SIGTERM)
        # A stopped process does not see its SIGTERM before it runs again.
        _signal(process, signal.SIGCONT)
        try:
            return process.wait(grace)
        except subprocess.TimeoutExpired:
            pass
    _signal(process, signal.SIGKILL)
    return process.wait()


def _signal(process: Process, number: signal.Signals) -> None:
    if process.poll() is not None:
        return
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        # Between fork and setsid there is no group yet.
        process.send_signal(number)


def free_ports(count: int) -> list[int]:
    """`count` different loopback ports on which nothing listens now, for TCP and UDP.

    None is given twice by a process, nor by two of pytest's workers: whoever has one may take his time to listen on it,
    and may stop and start again.
    """
    held: list[socket.socket] = []
    ports: list[int] = []
    share = _share(os.environ.get("PYTEST_XDIST_WORKER", ""))
    with _CHOOSING:
        if len(_GIVEN) + count > len(share) // 2:  # far more than a run of all tests takes
            _GIVEN.clear()
        try:
            while len(ports) < count:
                port = random.choice(share)
                if port in _GIVEN:
                    continue
                try:
                    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                        held.append(socket.socket(socket.AF_INET, kind))
                        held[-1].bind(("127.0.0.1", port))
                except OSError:
                    continue
                ports.append(port)
                _GIVEN.add(port)
        finally:
            for each in held:
                each.close()
    return ports


def _share(worker: str) -> range:
    """The ports of one of pytest's workers, `gw0` and so on; those of all where there are none."""
    number = worker.removeprefix("gw")
    if not number.isdigit():
        return _PORTS
    size = len(_PORTS) // _SHARES
    first = _PORTS.start + int(number) % _SHARES * size
    return range(first, first + size)


def free_port() -> int:
    """A loopback port on which nothing listens now."""
    return free_ports(1)[0]


def listening(port: int) -> bool:
    """Whether something accepts connections on this loopback port."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def wait_until(holds: Callable[[], bool], timeout: float = 30, interval: float = 0.05) -> None:
    """Poll until `holds` returns true. Raises TimeoutError, which names it, after `timeout` seconds.

    It is asked once more after that: what came true while this process got no time is not late by it.
    """
    deadline = time.monotonic() + timeout
    over = False
    while not holds():
        if over:
            raise TimeoutError(f"{getattr(holds, '__name__', holds)} not true after {timeout:g} s")
        time.sleep(interval)
        over = time.monotonic() > deadline


def child_of(pid: int) -> int | None:
    """The first child of a process; None if it has none, or is gone. Linux only."""
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    return int(found[0]) if found else None


GO_SERVERS: Mapping[str, str] = {"GOGC": "400"}
"""Go collects garbage whenever a heap has doubled, a tenth of what an API server costs; here memory is no worry."""
GO_COMMANDS: Mapping[str, str] = {"GOGC": "off", "GOMEMLIMIT": "1GiB"}
"""For programs in Go that end at once, as kubectl and helm: they need not collect what they leave."""


def clean_environment(extra: Mapping[str, str] | None = None, keep: Iterable[str] = ()) -> dict[str, str]:
    """An environment without proxies, kubeconfigs and the like: PATH, the named variables, `GO_SERVERS`, and `extra`."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR", *keep) if name in os.environ}
    return {**kept, **GO_SERVERS, **(extra or {})}


class Server:
    """A real part of one `process`, as a context manager: closed also where its start fails."""

    process: "Child"

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *error: object) -> None:
        self.close()

    def start(self) -> Self:
        """Start it on its data and its port, and wait until it answers."""
        raise NotImplementedError

    def close(self) -> None:
        """End it at once and remove its folder."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop it and keep its data; `start` brings it back on the same port."""
        self.process.stop()

    def kill(self) -> None:
        """SIGKILL, as a crash would; what is on its disk is kept."""
        self.process.kill()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing is answered."""
        self.process.pause()

    def resume(self) -> None:
        """Let it go on, after `pause`."""
        self.process.resume()


class Child:
    """A server process with a log file: start, wait, pause, stop, start again.

    `argv[0]` is a path or a name on PATH; `env` replaces the environment (default: ours). The log, which
    takes both output streams, is appended to by every start.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.name = name
        self.argv = [str(word) for word in argv]
        self.log = log
        self.env = None if env is None else dict(env)
        self.cwd = cwd
        self._process: Process | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process id. Raises RuntimeError if it never started."""
        if self._process is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process exists; a paused one does."""
        return self._process is not None and self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for a signal; None while it runs or before its first start."""
        return None if self._process is None else self._process.poll()

    def start(self) -> Self:
        """Start the process. Raises RuntimeError if it is running."""
        if self.running:
            raise RuntimeError(f"{self.name} is running already")
        with self.log.open("ab") as log:
            self._process = launcher(
                self.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env, cwd=self.cwd
            )
        return self

    def stop(self, grace: float = 5.0) -> int | None:
        """SIGTERM, `grace` seconds, then SIGKILL; return the exit status. Safe to repeat."""
        return None if self._process is None else end(self._process, grace)

    def kill(self) -> int | None:
        """SIGKILL, as a crash would; return the exit status. Safe to repeat."""
        return self.stop(grace=0)

    def pause(self) -> None:
        """SIGSTOP: the process holds its ports and connections and answers nothing, once this has returned."""
        os.kill(self.pid, signal.SIGSTOP)
        # a thread of it has to take the signal: until then the others go on
        try:
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        except ChildProcessError:  # a fork is its server's child
            wait_until(
                lambda: all(
                    " T " in task.read_text() for task in Path(f"/proc/{self.pid}/task").glob("*/stat")
                )
            )

    def resume(self) -> None:
        """SIGCONT, after `pause`."""
        os.kill(self.pid, signal.SIGCONT)

    def wait(self, timeout: float) -> int:
        """Wait for the process to end by itself. Raises subprocess.TimeoutExpired."""
        if self._process is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._process.wait(timeout)

    def wait_ready(self, ready: Callable[[], bool], timeout: float, interval: float = 0.05) -> None:
        """Poll `ready` until it is true. Raises NotReadyError at `timeout` (s) or if the process ended."""
        deadline = time.monotonic() + timeout
        over = False
        while not ready():
            if not self.running:
                raise NotReadyError(f"{self.name} ended with {self.returncode}:\n{self.tail()}")
            if over:
                raise NotReadyError(f"{self.name} is not ready after {timeout:g} s:\n{self.tail()}")
            time.sleep(interval)
            over = time.monotonic() > deadline

    def tail(self, lines: int = 30) -> str:
        """The last lines of the log."""
        try:
            text = self.log.read_text(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])
