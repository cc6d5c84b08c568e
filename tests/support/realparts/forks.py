"""Python programs loaded once and forked for each start: `python forks.py SOCKET MODULE…` serves.

A program of ours takes 0.7 to 2.5 s of processor time to load its modules and mostly less to do what a test asks of it;
a fork of the loaded program takes 0.02 s. What runs is the program itself, in a process of its own, with the arguments,
folder, environment, input and output of the process that asks; only the loading of the named modules is not repeated.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
import traceback
from typing import Any, NoReturn

ASK = """import json, os, signal, socket, sys
asked = json.dumps({{"argv": sys.argv[1:], "program": {program!r}, "name": {name!r}, "cwd": os.getcwd(), "env": dict(os.environ)}}).encode()
with socket.socket(socket.AF_UNIX) as line:
    line.connect({socket!r})
    socket.send_fds(line, [b"-"], [0, 1, 2])
    line.sendall(asked)
    line.shutdown(socket.SHUT_WR)
    said = line.makefile("r")
    pid = int(said.readline())
    def forward(number, frame):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, forward)
    ended = int(said.readline() or -9)
sys.exit(ended if ended >= 0 else 128 - ended)
"""
"""A command that asks the server; it hands on the signals that end a program."""


def serve(socket_path: str) -> dict[str, Any]:
    """Answer until killed. Returns in each fork, with what it was asked.

    A line that is closed before its fork has ended ends the fork. The server says a fork's pid and later its exit status,
    as `subprocess` does, each in a line of digits.
    """
    if sys.platform == "linux" and len(os.listdir("/proc/self/task")) > 1:
        raise RuntimeError("a module started a thread: what it holds would be missing in forks")
    lines: dict[int, socket.socket] = {}
    woken, wake = socket.socketpair()
    for each in (woken, wake):
        each.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{socket_path}-")
    listener.listen(64)
    os.rename(f"{socket_path}-", socket_path)  # it is there once it can be asked
    asked = select.poll()
    for each in (listener, woken):
        asked.register(each, select.POLLIN)
    while True:
        ready = {number for number, _ in asked.poll()}
        for pid, line in list(lines.items()):
            if (
                line.fileno() in ready
            ):  # nothing is said on it after the question: the process that asked is gone
                asked.unregister(line)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if woken.fileno() in ready:
            woken.recv(4096)
            _reap(lines, asked)
        if listener.fileno() in ready:
            line, _ = listener.accept()
            if (pid := os.fork()) == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for each in (listener, woken, wake, *lines.values()):
                    each.close()
                return _become(line)
            line.sendall(f"{pid}\n".encode())
            lines[pid] = line
            asked.register(line, select.POLLHUP)


def _reap(lines: dict[int, socket.socket], asked: Any) -> None:
    while lines:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with lines.pop(pid) as line:
            with contextlib.suppress(KeyError):
                asked.unregister(line)
            with contextlib.suppress(OSError):
                line.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _become(line: socket.socket) -> dict[str, Any]:
    """In a fork: what it was asked, once this process is as the one asked for. The server's death ends it, as ours would."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))
    os.setsid()
    with line:
        _, descriptors, _, _ = socket.recv_fds(line, 1, 3)
        question: dict[str, Any] = json.loads(line.makefile("rb").read())
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(question["cwd"])
    os.environ.clear()
    os.environ.update(question["env"])
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "rb", closefd=False)), "utf-8", "strict")
    sys.stdout = _output(1, "strict")
    sys.stderr = _output(2, "backslashreplace")
    return question


def _output(number: int, errors: str) -> io.TextIOWrapper:
    """A stream as Python opens it at its start."""
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    raw = io.FileIO(number, "wb", closefd=False)
    # typeshed: a raw file is what Python itself hands over here
    buffer: Any = raw if unbuffered else io.BufferedWriter(raw)
    return io.TextIOWrapper(
        buffer, "utf-8", errors, line_buffering=raw.isatty() or number == 2, write_through=unbuffered
    )


def _main(socket_path: str, modules: list[str]) -> None:
    for name in modules:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a fork would copy every page of what is loaded
    asked = serve(socket_path)
    sys.argv = [asked["name"], *asked["argv"]]
    _end(_run(asked["program"]))


def _run(program: str) -> int:
    """The exit status of what `-m` was given, or of an installed command, `module:function`."""
    module, _, function = program.partition(":")
    try:
        if function:
            sys.exit(getattr(importlib.import_module(module), function)())
        sys.modules.pop(module, None)  # its code runs as the main module
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if isinstance(ended.code, str):
            sys.stderr.write(f"{ended.code}\n")
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException as error:
        traceback.print_exc()
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _end(status: int) -> NoReturn:
    """As Python ends, but for taking 1,400 modules apart, which takes 0.4 s of processor time."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as the interpreter does
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        # a closed one, or one that nobody reads
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if status == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status & 0xFF)


if __name__ == "__main__":
    sys.path.pop(0)  # this file's folder
    _main(sys.argv[1], sys.argv[2:])
